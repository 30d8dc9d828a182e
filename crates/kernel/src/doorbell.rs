//! How a rank tells the program that it has submitted runs: by a datagram that the loopback
//! interface would carry.
//!
//! The program is entered for every packet that is about to leave by the loopback interface (tcx
//! egress) and takes those for the job's port. Sending one costs less than having the program run
//! (`BPF_PROG_TEST_RUN`), which makes a socket and a packet each time.

use crate::layout::{HEARD, PORT};
use crate::system::Mapping;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::Ordering;

/// A rank's doorbell.
#[derive(Debug)]
pub(crate) struct Doorbell {
    /// None where the program does not hear it.
    socket: Option<UdpSocket>,
    slot: u32,
}

impl Doorbell {
    /// Of the rank with this memory and slot, in the caller's network namespace. Rings once, to see
    /// whether it is heard: it is not where the namespace is another one than the program's, the
    /// loopback interface is down, or packets there are filtered.
    pub(crate) fn new(memory: &Mapping, slot: u32) -> Self {
        let port = memory.word(PORT).load(Ordering::Relaxed) as u16;
        let bell = Doorbell { socket: open(port).ok(), slot };
        memory.word(HEARD).store(0, Ordering::Relaxed);
        bell.ring();
        // The program has come and gone within the call.
        if memory.word(HEARD).load(Ordering::Relaxed) == 0 {
            Doorbell { socket: None, slot }
        } else {
            bell
        }
    }

    /// Rings. Gives whether the program can have heard it.
    pub(crate) fn ring(&self) -> bool {
        self.socket.as_ref().is_some_and(|socket| socket.send(&self.slot.to_ne_bytes()).is_ok())
    }
}

fn open(port: u16) -> std::io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.connect((Ipv4Addr::LOCALHOST, port))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}
