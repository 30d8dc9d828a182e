//! Ways of Tag-On: a header in a line, the data in a buffer of the segment; to one receiver. The data
//! are copied there for each message, or lie there already.

use super::message_path::{LOOKS, MessagePath, pattern};
use super::parts::CAPACITY;
use crate::harness::Error;
use queues::cache_line::{CacheLineHeader, CacheLineReceiver, CacheLineSender, SendError};
use queues::id::SourceName;
use queues::tag_on::{SharedBuffer, TagOnError, TagOnPool, TagOnPools};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Longer than any receiver is away.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Number of buffers of this many bytes of a sender: some MiB, and enough that it does not wait for
/// each.
pub(super) fn buffers(bytes: u64) -> u64 {
    ((8 << 20) / bytes.max(1)).clamp(4, 64)
}

/// Headers through a queue, data through the pool of the sending thread.
#[derive(Debug)]
pub(super) struct Tagged {
    pub(super) source: SourceName,
    /// By thread of the other rank.
    pub(super) senders: Vec<CacheLineSender>,
    pub(super) receiver: CacheLineReceiver,
    pub(super) pool: TagOnPool,
    pub(super) buffers: u64,
    /// The data of all messages are the same buffer.
    pub(super) is_resident: bool,
    pub(super) resident: Option<SharedBuffer>,
    /// Pools of the other rank's threads.
    pub(super) pools: TagOnPools,
    pub(super) payload: Vec<u8>,
    pub(super) received: Vec<u8>,
}

impl Tagged {
    /// Copies the data of a message to the segment.
    #[inline]
    fn fill(&self) -> Result<SharedBuffer, Error> {
        let mut draft = loop {
            match self.pool.take() {
                Err(TagOnError::Exhausted { .. }) => std::thread::yield_now(),
                other => break other?,
            }
        };
        draft[..self.payload.len()].copy_from_slice(&self.payload);
        Ok(draft.finish(self.payload.len() as u64))
    }

    /// Sends a header that refers to data.
    #[inline]
    fn refer(&self, to: usize, data: &SharedBuffer) -> Result<(), Error> {
        let (sender, header) =
            (&self.senders[to], CacheLineHeader { source: self.source, handler: 0, tag: 0 });
        match data.send(sender, header, &[]) {
            Err(TagOnError::Send(SendError::Full)) => {
                Ok(data.send_deadline(sender, header, &[], Instant::now() + PATIENCE)?)
            }
            other => Ok(other?),
        }
    }
}

impl MessagePath for Tagged {
    fn resize(&mut self, bytes: u64) {
        self.payload = pattern(bytes);
        self.received = vec![0; bytes as usize];
        self.resident = None;
    }

    fn room(&self) -> usize {
        if self.is_resident { CAPACITY } else { self.buffers as usize }
    }

    #[inline]
    fn send(&mut self, to: usize) -> Result<(), Error> {
        if let Some(data) = &self.resident {
            return self.refer(to, data);
        }
        let data = self.fill()?;
        self.refer(to, &data)?;
        if self.is_resident {
            self.resident = Some(data);
        }
        Ok(())
    }

    #[inline]
    fn receive(&mut self) -> Result<usize, Error> {
        let mut found = None;
        for _ in 0..LOOKS {
            found = self.receiver.try_recv()?;
            if found.is_some() {
                break;
            }
        }
        let header = match found {
            Some(header) => header,
            None => self.receiver.recv()?,
        };
        let data = self.pools.open(&header)?;
        self.received.copy_from_slice(&data);
        black_box(&self.received);
        Ok(header.header().source.number().into())
    }

    fn is_right(&self) -> bool {
        self.received == self.payload
    }
}
