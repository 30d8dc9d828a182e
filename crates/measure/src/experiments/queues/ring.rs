//! A way through Basic rings: composed and published where it is read, then copied to the
//! receiver's own buffer.

use super::message_path::{LOOKS, MessagePath, pattern};
use crate::harness::Error;
use queues::basic::{BasicHeader, Receiver, Sender};
use std::hint::black_box;

/// Lines of a ring; a quarter of it is the longest message.
pub(super) const LINES: u64 = 4096;

/// A ring in each direction.
#[derive(Debug)]
pub(super) struct Ring {
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    pub(super) payload: Vec<u8>,
    pub(super) received: Vec<u8>,
}

impl MessagePath for Ring {
    fn resize(&mut self, bytes: u64) {
        self.payload = pattern(bytes);
        self.received = vec![0; bytes as usize];
    }

    fn room(&self) -> usize {
        // Half of the ring is always free, whatever the receiver has yet to release.
        LINES as usize / 2 / (self.payload.len() + 8).div_ceil(64)
    }

    #[inline]
    fn send(&mut self, _to: usize) -> Result<(), Error> {
        Ok(self.sender.send(BasicHeader::default(), &self.payload)?)
    }

    #[inline]
    fn receive(&mut self) -> Result<usize, Error> {
        let _ = (0..LOOKS).any(|_| self.receiver.is_ready());
        let message = self.receiver.recv()?;
        self.received.copy_from_slice(message.as_slice());
        black_box(&self.received);
        Ok(0)
    }

    fn is_right(&self) -> bool {
        self.received == self.payload
    }
}
