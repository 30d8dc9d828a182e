//! Bulk transfers between private buffers, of which the receiver reads every byte.

use super::message_path::MessagePath;
use crate::harness::Error;
use queues::bulk::{DEFAULT_STAGING_BYTES, Policy};
use std::hint::black_box;
use tradewind::messages::{BulkReceiver, BulkSender};

/// Every message has a line of its own before its bytes.
const HEADER: u64 = 64;
/// The library may take a direct path above; up to here, messages are staged.
const MAY_BE_DIRECT: u64 = 2 * DEFAULT_STAGING_BYTES;

/// A link in each direction.
#[derive(Debug)]
pub(super) struct Bulk {
    pub(super) sender: BulkSender,
    pub(super) receiver: BulkReceiver,
    pub(super) policy: Policy,
    pub(super) is_between_nodes: bool,
}

impl MessagePath for Bulk {
    fn capacity(&self, length: usize) -> usize {
        let bytes = length as u64;
        match self.policy {
            // Its rings hold few messages, and as much may be on the way between them.
            _ if self.is_between_nodes => 0,
            Policy::Direct => 0,
            Policy::Automatic if bytes > MAY_BE_DIRECT => 0,
            _ => (DEFAULT_STAGING_BYTES / (HEADER + bytes.next_multiple_of(HEADER))) as usize,
        }
    }

    #[inline]
    fn send(&mut self, _to: usize, message: &[u8]) -> Result<(), Error> {
        self.sender.send(message)?;
        Ok(())
    }

    #[inline]
    fn receive(&mut self, received: &mut Vec<u8>) -> Result<usize, Error> {
        self.receiver.recv(received)?;
        let (words, rest) = received.as_chunks::<8>();
        let sum =
            words.iter().fold(0, |sum: u64, word| sum.wrapping_add(u64::from_ne_bytes(*word)));
        black_box(rest.iter().fold(sum, |sum, byte| sum.wrapping_add(u64::from(*byte))));
        Ok(0)
    }
}
