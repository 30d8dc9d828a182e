//! Notification of the program about submitted runs: a datagram for the loopback interface.
//!
//! The program runs for every packet that is about to leave by the loopback interface (tcx egress)
//! and takes those for the job's port. Sending one costs less than `BPF_PROG_TEST_RUN`, which
//! allocates a socket and a packet for each call.

use crate::memory::layout::{DOORBELL_SEEN, PORT};
use crate::memory::mapping::Mapping;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::Ordering;

/// Doorbell of a rank.
#[derive(Debug)]
pub(crate) struct Doorbell {
    /// None where the program does not receive it.
    socket: Option<UdpSocket>,
    slot: u32,
}

impl Doorbell {
    /// Opens the doorbell of the rank with this memory and slot, in the caller's network namespace,
    /// and rings once as a test. The program does not receive it if the namespace differs from the
    /// program's, if the loopback interface is down, or if packets there are filtered.
    pub(crate) fn new(memory: &Mapping, slot: u32) -> Self {
        let port = memory.word(PORT).load(Ordering::Relaxed) as u16;
        let doorbell = Doorbell { socket: open(port).ok(), slot };
        memory.word(DOORBELL_SEEN).store(0, Ordering::Relaxed);
        doorbell.ring();
        // The program runs inside the system call that sends, on this thread, so its store is
        // visible here without an ordering.
        if memory.word(DOORBELL_SEEN).load(Ordering::Relaxed) == 0 {
            Doorbell { socket: None, slot }
        } else {
            doorbell
        }
    }

    /// Rings. Returns true if the program can have received it.
    pub(crate) fn ring(&self) -> bool {
        self.socket.as_ref().is_some_and(|socket| socket.send(&self.slot.to_ne_bytes()).is_ok())
    }
}

fn open(port: u16) -> std::io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.connect((Ipv4Addr::LOCALHOST, port))?;
    // With a full buffer, the send fails instead of waiting, and the rank runs the program itself.
    socket.set_nonblocking(true)?;
    Ok(socket)
}
