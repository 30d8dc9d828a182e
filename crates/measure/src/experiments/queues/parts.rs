//! Ways through queues: a message is as many words or lines as it needs, and put together by its
//! sender's name.

use super::message_path::{LOOKS, MessagePath, look_then_wait};
use crate::harness::Error;
use queues::cache_line::{
    CacheLineHeader, CacheLineMessage, CacheLineReceiver, CacheLineSender, LINE_DATA,
};
use queues::express::ExpressMessage;
use queues::express::{ExpressReceiver, ExpressSender};
use queues::id::SourceName;
use queues::one_poll::OnePoll;
use std::hint::black_box;
use std::time::Instant;

/// Messages that a queue holds.
pub(super) const CAPACITY: usize = 1024;

/// Moves a part of a message.
pub(super) trait PacketPath: Send {
    /// Bytes of a part.
    const DATA: usize;

    /// Sends a part to a thread of the other rank; waits while the queue is full.
    fn send(&mut self, to: usize, bytes: &[u8]) -> Result<(), Error>;

    /// Takes the next part, and waits for it: first it looks for a moment, then it sleeps.
    fn receive<R>(&mut self, take: impl FnOnce(SourceName, &[u8]) -> R) -> Result<R, Error>;
}

/// A way of parts.
#[derive(Debug)]
pub(super) struct Parts<C> {
    pub(super) path: C,
    /// By sender: how much has come of its message, and the message.
    received: Vec<(usize, Vec<u8>)>,
    last: usize,
}

impl<C: PacketPath> Parts<C> {
    /// From so many senders.
    pub(super) fn new(path: C, senders: usize) -> Self {
        Parts { path, received: vec![(0, Vec::new()); senders], last: 0 }
    }
}

impl<C: PacketPath> MessagePath for Parts<C> {
    fn resize(&mut self, bytes: u64) {
        self.received.iter_mut().for_each(|(at, message)| {
            *at = 0;
            *message = vec![0; bytes as usize];
        });
    }

    fn capacity(&self, length: usize) -> usize {
        CAPACITY / length.div_ceil(C::DATA).max(1)
    }

    #[inline]
    fn send(&mut self, to: usize, message: &[u8]) -> Result<(), Error> {
        if message.is_empty() {
            return self.path.send(to, &[]);
        }
        message.chunks(C::DATA).try_for_each(|part| self.path.send(to, part))
    }

    /// Puts it together in the memory of its sender.
    #[inline]
    fn receive(&mut self, _received: &mut Vec<u8>) -> Result<usize, Error> {
        loop {
            let received = &mut self.received;
            let complete = self.path.receive(|source, part| {
                let from = usize::from(source.number());
                let (at, message) = received.get_mut(from)?;
                let end = (*at + part.len()).min(message.len());
                message[*at..end].copy_from_slice(&part[..end - *at]);
                *at = if end == message.len() { 0 } else { end };
                black_box(&message);
                (*at == 0).then_some(from)
            })?;
            if let Some(from) = complete {
                self.last = from;
                return Ok(from);
            }
        }
    }

    fn is_right(&self, _received: &[u8], message: &[u8]) -> bool {
        self.received[self.last].1 == message
    }
}

/// Words of five bytes.
#[derive(Debug)]
pub(super) struct Words {
    pub(super) source: SourceName,
    /// By thread of the other rank.
    pub(super) senders: Vec<ExpressSender>,
    pub(super) receiver: ExpressReceiver,
}

#[inline]
fn send_word(
    senders: &[ExpressSender],
    source: SourceName,
    to: usize,
    bytes: &[u8],
) -> Result<(), Error> {
    let mut data = [0; 5];
    data[..bytes.len()].copy_from_slice(bytes);
    Ok(senders[to].send(&ExpressMessage::new(source, 0, data))?)
}

impl PacketPath for Words {
    const DATA: usize = 5;

    #[inline]
    fn send(&mut self, to: usize, bytes: &[u8]) -> Result<(), Error> {
        send_word(&self.senders, self.source, to, bytes)
    }

    #[inline]
    fn receive<R>(&mut self, take: impl FnOnce(SourceName, &[u8]) -> R) -> Result<R, Error> {
        let word =
            look_then_wait(&mut self.receiver, |words| words.try_recv(), |words| words.recv())?;
        Ok(take(word.source(), &word.data()))
    }
}

/// Words, received from the first of many queues that holds one.
#[derive(Debug)]
pub(super) struct Polled {
    pub(super) source: SourceName,
    /// By thread of the other rank.
    pub(super) senders: Vec<ExpressSender>,
    pub(super) poll: OnePoll,
    pub(super) receivers: Vec<Option<ExpressReceiver>>,
}

impl Polled {
    /// Sleeps until a word comes, which it takes, or the deadline.
    pub(super) fn sleep_until(&mut self, deadline: Instant) -> bool {
        matches!(self.poll.poll_deadline(&mut self.receivers[..], deadline), Ok(Some(_)))
    }
}

impl PacketPath for Polled {
    const DATA: usize = 5;

    #[inline]
    fn send(&mut self, to: usize, bytes: &[u8]) -> Result<(), Error> {
        send_word(&self.senders, self.source, to, bytes)
    }

    #[inline]
    fn receive<R>(&mut self, take: impl FnOnce(SourceName, &[u8]) -> R) -> Result<R, Error> {
        for _ in 0..LOOKS {
            if let Some((_, word)) = self.poll.poll(&mut self.receivers[..]) {
                return Ok(take(word.source(), &word.data()));
            }
        }
        let (_, word) = self.poll.poll_blocking(&mut self.receivers[..])?;
        Ok(take(word.source(), &word.data()))
    }
}

/// Lines of 48 bytes.
#[derive(Debug)]
pub(super) struct Lines {
    pub(super) source: SourceName,
    /// By thread of the other rank.
    pub(super) senders: Vec<CacheLineSender>,
    pub(super) receiver: CacheLineReceiver,
}

impl PacketPath for Lines {
    const DATA: usize = LINE_DATA;

    #[inline]
    fn send(&mut self, to: usize, bytes: &[u8]) -> Result<(), Error> {
        let header = CacheLineHeader { source: self.source, handler: 0, tag: 0 };
        // A part always fits.
        let message = CacheLineMessage::new(header, bytes).unwrap_or_default();
        Ok(self.senders[to].send(&message)?)
    }

    #[inline]
    fn receive<R>(&mut self, take: impl FnOnce(SourceName, &[u8]) -> R) -> Result<R, Error> {
        let line =
            look_then_wait(&mut self.receiver, |lines| lines.try_recv(), |lines| lines.recv())?;
        Ok(take(line.header().source, line.data()))
    }
}
