//! Ways through Basic rings: composed and published where it is read, then copied to the receiver's
//! own buffer. Threads that share an end of a ring lock it.

use super::message_path::{LOOKS, MessagePath};
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
}

/// Messages of this length that a ring holds: half of it is always free, whatever the receiver has yet
/// to release.
fn capacity(bytes: usize) -> usize {
    LINES as usize / 2 / (bytes + 8).div_ceil(64)
}

/// Takes a message, for which it looks before it sleeps. Returns its sender.
#[inline]
fn receive(receiver: &mut Receiver, received: &mut [u8]) -> Result<SourceName, Error> {
    let _ = (0..LOOKS).any(|_| receiver.is_ready());
    let message = receiver.recv()?;
    received.copy_from_slice(message.as_slice());
    black_box(received);
    Ok(message.header().source)
}

impl MessagePath for Ring {
    fn capacity(&self, length: usize) -> usize {
        capacity(length)
    }

    #[inline]
    fn send(&mut self, _to: usize, message: &[u8]) -> Result<(), Error> {
        Ok(self.sender.send(BasicHeader::default(), message)?)
    }

    #[inline]
    fn receive(&mut self, received: &mut Vec<u8>) -> Result<usize, Error> {
        receive(&mut self.receiver, received)?;
        Ok(0)
    }
}

/// Rings with ends that are locked for each message.
#[derive(Debug)]
pub(super) struct LockedRing {
    pub(super) source: SourceName,
    /// By thread of the other rank; the threads of this rank share them.
    pub(super) senders: Vec<Arc<Mutex<Sender>>>,
    pub(super) receiver: Mutex<Receiver>,
}

impl MessagePath for LockedRing {
    fn capacity(&self, length: usize) -> usize {
        capacity(length)
    }

    #[inline]
    fn send(&mut self, to: usize, message: &[u8]) -> Result<(), Error> {
        let mut sender = self.senders[to].lock().unwrap_or_else(PoisonError::into_inner);
        Ok(sender.send(BasicHeader { source: self.source, handler: 0 }, message)?)
    }

    #[inline]
    fn receive(&mut self, received: &mut Vec<u8>) -> Result<usize, Error> {
        let mut receiver = self.receiver.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(receive(&mut receiver, received)?.number().into())
    }
}
