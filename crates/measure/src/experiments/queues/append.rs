//! Ways through append buffers: a message is a record behind the name of the thread that has sent it.

use super::message_path::{LOOKS, MessagePath, pattern};
use crate::harness::Error;
use queues::id::SourceName;
use std::hint::black_box;
use std::sync::Arc;
use tradewind::messages::{AppendReceiver, AppendSender};

/// Bytes of the name at the begin of each record.
pub(super) const NAME_BYTES: usize = 2;

/// Number of records of this many bytes that a buffer holds: some MiB.
pub(super) fn records(bytes: u64) -> u64 {
    ((4 << 20) / bytes).clamp(4, 1024)
}

/// Ends of a thread.
#[derive(Debug)]
pub(super) struct Appended {
    pub(super) source: SourceName,
    /// By thread of the other rank; the threads of this rank share them.
    pub(super) senders: Vec<Arc<AppendSender>>,
    pub(super) receiver: AppendReceiver,
    pub(super) records: u64,
}

impl MessagePath for Appended {
    fn message(&self, bytes: u64) -> Vec<u8> {
        [&self.source.number().to_le_bytes()[..], &pattern(bytes)].concat()
    }

    fn capacity(&self, _length: usize) -> usize {
        self.records as usize
    }

    #[inline]
    fn send(&mut self, to: usize, message: &[u8]) -> Result<(), Error> {
        Ok(self.senders[to].send(message)?)
    }

    #[inline]
    fn receive(&mut self, received: &mut Vec<u8>) -> Result<usize, Error> {
        let mut is_here = false;
        for _ in 0..LOOKS {
            is_here = self.receiver.try_recv(received)?;
            if is_here {
                break;
            }
        }
        if !is_here {
            self.receiver.recv(received)?;
        }
        black_box(&*received);
        let name = received.first_chunk().map_or(0, |name| u16::from_le_bytes(*name));
        Ok(name.into())
    }

    fn is_right(&self, received: &[u8], message: &[u8]) -> bool {
        received.get(NAME_BYTES..) == message.get(NAME_BYTES..)
    }
}
