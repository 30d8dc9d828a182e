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
    source: SourceName,
    /// By thread of the other rank; the threads of this rank share them.
    senders: Vec<Arc<AppendSender>>,
    receiver: AppendReceiver,
    records: u64,
    /// The record that is sent.
    record: Vec<u8>,
    /// The last record that has arrived.
    received: Vec<u8>,
}

impl Appended {
    pub(super) fn new(
        source: SourceName,
        senders: Vec<Arc<AppendSender>>,
        receiver: AppendReceiver,
        records: u64,
    ) -> Self {
        Appended { source, senders, receiver, records, record: Vec::new(), received: Vec::new() }
    }
}

impl MessagePath for Appended {
    fn resize(&mut self, bytes: u64) {
        self.record = self.source.number().to_le_bytes().to_vec();
        self.record.extend(pattern(bytes));
    }

    fn capacity(&self) -> usize {
        self.records as usize
    }

    #[inline]
    fn send(&mut self, to: usize) -> Result<(), Error> {
        Ok(self.senders[to].send(&self.record)?)
    }

    #[inline]
    fn receive(&mut self) -> Result<usize, Error> {
        let mut is_here = false;
        for _ in 0..LOOKS {
            is_here = self.receiver.try_recv(&mut self.received)?;
            if is_here {
                break;
            }
        }
        if !is_here {
            self.receiver.recv(&mut self.received)?;
        }
        black_box(&self.received);
        let name = self.received.first_chunk().map_or(0, |name| u16::from_le_bytes(*name));
        Ok(name.into())
    }

    fn is_right(&self) -> bool {
        self.received.get(NAME_BYTES..) == self.record.get(NAME_BYTES..)
    }
}
