//! A connection of the server.

use super::messages::{HELLO_BYTES, LENGTH_BYTES, LONGEST_FRAME, PROOF_BYTES};
use super::shared_secret::Handshake;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// A connection.
pub(super) struct Peer {
    pub(super) socket: TcpStream,
    pub(super) address: SocketAddr,
    pub(super) stage: Stage,
    received: Vec<u8>,
    pub(super) unsent: Vec<u8>,
    pub(super) is_closed: bool,
}

#[derive(Clone, Copy)]
pub(super) enum Stage {
    /// Nothing has arrived.
    Connected,
    /// The answer has been sent.
    Answered(Handshake),
    /// The other end has proven that it is this rank.
    Rank(u32),
    /// The connection ends when everything has been sent.
    Ending,
}

impl Peer {
    /// A connection from which nothing has arrived.
    pub(super) fn new(socket: TcpStream, address: SocketAddr) -> Self {
        let stage = Stage::Connected;
        let received = Vec::new();
        let unsent = Vec::new();
        Peer { socket, address, stage, received, unsent, is_closed: false }
    }

    /// Reads what has arrived, as far as the next message may extend: a stranger cannot make the
    /// server keep more than a hello or a proof.
    pub(super) fn receive(&mut self) {
        let mut buffer = [0; 16 << 10];
        while !self.is_closed {
            let longest = match self.stage {
                Stage::Connected => HELLO_BYTES,
                Stage::Answered(_) => PROOF_BYTES,
                Stage::Rank(_) => LENGTH_BYTES + LONGEST_FRAME,
                // Read and discarded: a socket that is closed with unread bytes is reset, and the
                // reason in `unsent` could be lost with it.
                Stage::Ending => {
                    self.received.clear();
                    buffer.len()
                }
            };
            let wanted = longest.saturating_sub(self.received.len()).min(buffer.len());
            if wanted == 0 {
                return;
            }
            match self.socket.read(&mut buffer[..wanted]) {
                Ok(0) => self.is_closed = true,
                Ok(count) => self.received.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.is_closed = true,
            }
        }
    }

    pub(super) fn take(&mut self, bytes: usize) -> Option<Vec<u8>> {
        (self.received.len() >= bytes).then(|| self.received.drain(..bytes).collect())
    }

    /// Takes the contents of the next frame. One that is too long closes the connection.
    pub(super) fn take_frame(&mut self) -> Option<Vec<u8>> {
        let length = u32::from_le_bytes(*self.received.first_chunk::<LENGTH_BYTES>()?) as usize;
        // `receive` admits the longest frame, so an accepted one always becomes complete here.
        if length > LONGEST_FRAME {
            self.is_closed = true;
            return None;
        }
        let whole = self.take(LENGTH_BYTES + length)?;
        Some(whole[LENGTH_BYTES..].to_vec())
    }

    pub(super) fn send_unsent(&mut self) {
        while !self.unsent.is_empty() && !self.is_closed {
            match self.socket.write(&self.unsent) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.is_closed = true,
            }
        }
    }
}
