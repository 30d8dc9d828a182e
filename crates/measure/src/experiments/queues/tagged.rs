//! Ways of Tag-On: a header in a line, the data in a buffer. They are copied to a buffer for each
//! message, or lie in one already, and go to the other rank or to both.

use super::message_path::{MessagePath, look_then_wait};
use crate::harness::Error;
use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Arc;
use tradewind::messages::{
    CacheLineHeader, SendError, SharedBuffer, SourceName, TagOnError, TagOnMessage, TagOnPool,
    TagOnReceiver, TagOnSender,
};

/// Number of buffers of this many bytes of a sender: some MiB, and enough that it does not wait for
/// each.
pub(super) fn buffers(bytes: u64) -> u64 {
    ((8 << 20) / bytes.max(1)).clamp(4, 64)
}

/// Origin of the data of messages, and their receivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The data of each message are copied to a buffer.
    Copied,
    /// The data of all messages are the same buffer.
    Resident,
    /// The data of each message are copied to a buffer, and both ranks receive them.
    Multicast,
}

/// Ends of a thread.
#[derive(Debug)]
pub(super) struct Tagged {
    pub(super) source: SourceName,
    /// This rank, the tag of its messages.
    pub(super) rank: u16,
    /// By thread of the other rank.
    pub(super) senders: Vec<Arc<TagOnSender>>,
    /// The ranks that receive each message.
    pub(super) receivers: Vec<u32>,
    pub(super) receiver: TagOnReceiver,
    pub(super) pool: TagOnPool,
    pub(super) buffers: u64,
    pub(super) form: Form,
    pub(super) resident: Option<SharedBuffer>,
    /// Messages of the other rank that a send has found.
    pub(super) early: VecDeque<TagOnMessage>,
}

impl Tagged {
    /// Copies the data of a message to a buffer.
    #[inline]
    fn fill(&self, message: &[u8]) -> Result<SharedBuffer, Error> {
        let mut draft = loop {
            match self.pool.take() {
                Err(TagOnError::Exhausted { .. }) => std::thread::yield_now(),
                other => break other?,
            }
        };
        draft[..message.len()].copy_from_slice(message);
        Ok(draft.finish(message.len() as u64))
    }

    /// Sends a header that refers to data.
    #[inline]
    fn refer(&self, to: usize, data: &SharedBuffer) -> Result<(), Error> {
        let sender = &self.senders[to];
        let header = CacheLineHeader { source: self.source, handler: 0, tag: self.rank };
        if let [receiver] = self.receivers[..] {
            match sender.try_send(data, receiver, header, &[]) {
                Err(TagOnError::Send(SendError::Full) | TagOnError::Exhausted { .. }) => {}
                other => return Ok(other?),
            }
        }
        Ok(sender.send(data, &self.receivers, header, &[])?)
    }

    /// Receives what has come of this rank's own multicasts, so that its queue does not fill up.
    fn drop_own(&mut self) -> Result<(), Error> {
        while let Some(message) = self.receiver.try_recv()? {
            if message.header().tag != self.rank {
                self.early.push_back(message);
            }
        }
        Ok(())
    }

    /// Takes the next message of the other rank.
    #[inline]
    fn next(&mut self) -> Result<TagOnMessage, Error> {
        if let Some(message) = self.early.pop_front() {
            return Ok(message);
        }
        loop {
            let message =
                look_then_wait(&mut self.receiver, |from| from.try_recv(), |from| from.recv())?;
            if message.header().tag != self.rank {
                return Ok(message);
            }
        }
    }
}

impl MessagePath for Tagged {
    fn capacity(&self, _length: usize) -> usize {
        // Between nodes the data of a resident message take a buffer there, too.
        self.buffers as usize
    }

    #[inline]
    fn send(&mut self, to: usize, message: &[u8]) -> Result<(), Error> {
        if self.form == Form::Multicast {
            self.drop_own()?;
        }
        if let Some(data) = &self.resident {
            return self.refer(to, data);
        }
        let data = self.fill(message)?;
        self.refer(to, &data)?;
        if self.form == Form::Resident {
            self.resident = Some(data);
        }
        Ok(())
    }

    #[inline]
    fn receive(&mut self, received: &mut Vec<u8>) -> Result<usize, Error> {
        let message = self.next()?;
        received.copy_from_slice(&message.data);
        black_box(received);
        Ok(message.header().source.number().into())
    }
}
