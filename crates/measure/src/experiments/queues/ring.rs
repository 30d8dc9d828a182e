//! Ways through Basic rings: composed and published where it is read, then copied to the receiver's
//! own buffer. Threads that share an end of a ring lock it.

use super::message_path::{LOOKS, MessagePath, pattern};
use crate::harness::Error;
use queues::basic::{BasicHeader, Receiver, Sender};
use queues::id::SourceName;
use queues::internode::MAX_BASIC_LINES;
use std::hint::black_box;
use std::sync::{Arc, Mutex, PoisonError};

/// Lines of a ring, the most between nodes; a quarter of it is the longest message.
pub(super) const LINES: u64 = MAX_BASIC_LINES;

/// A ring in each direction.
#[derive(Debug)]
pub(super) struct Ring {
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    pub(super) payload: Vec<u8>,
    pub(super) received: Vec<u8>,
}

/// Messages of this length that a ring holds: half of it is always free, whatever the receiver has yet
/// to release.
fn capacity(bytes: usize) -> usize {
    LINES as usize / 2 / (bytes + 8).div_ceil(64)
}

impl MessagePath for Ring {
    fn resize(&mut self, bytes: u64) {
        self.payload = pattern(bytes);
        self.received = vec![0; bytes as usize];
    }

    fn capacity(&self) -> usize {
        capacity(self.payload.len())
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

/// Rings with ends that are locked for each message.
#[derive(Debug)]
pub(super) struct LockedRing {
    pub(super) source: SourceName,
    /// By thread of the other rank; the threads of this rank share them.
    pub(super) senders: Vec<Arc<Mutex<Sender>>>,
    pub(super) receiver: Mutex<Receiver>,
    pub(super) payload: Vec<u8>,
    pub(super) received: Vec<u8>,
}

impl MessagePath for LockedRing {
    fn resize(&mut self, bytes: u64) {
        self.payload = pattern(bytes);
        self.received = vec![0; bytes as usize];
    }

    fn capacity(&self) -> usize {
        capacity(self.payload.len())
    }

    #[inline]
    fn send(&mut self, to: usize) -> Result<(), Error> {
        let mut sender = self.senders[to].lock().unwrap_or_else(PoisonError::into_inner);
        Ok(sender.send(BasicHeader { source: self.source, handler: 0 }, &self.payload)?)
    }

    #[inline]
    fn receive(&mut self) -> Result<usize, Error> {
        let mut receiver = self.receiver.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = (0..LOOKS).any(|_| receiver.is_ready());
        let message = receiver.recv()?;
        self.received.copy_from_slice(message.as_slice());
        black_box(&self.received);
        Ok(message.header().source.number().into())
    }

    fn is_right(&self) -> bool {
        self.received == self.payload
    }
}
