//! Ways of eight bytes: a channel, and the commands on a window.

use super::message_path::MessagePath;
use crate::harness::Error;
use queues::channel;
use std::hint::black_box;
use tradewind::Op;
use tradewind::messages::{ChannelReceiver, Condition, Windows};

/// Values that a channel holds, and words of a window.
pub(super) const WORDS: u64 = 512;

/// A channel in each direction.
#[derive(Debug)]
pub(super) struct Doubles {
    pub(super) sender: channel::Sender<f64>,
    pub(super) receiver: ChannelReceiver<f64>,
    pub(super) sent: f64,
    pub(super) seen: f64,
    pub(super) is_right: bool,
}

impl MessagePath for Doubles {
    fn capacity(&self, _length: usize) -> usize {
        WORDS as usize
    }

    #[inline]
    fn send(&mut self, _to: usize, _message: &[u8]) -> Result<(), Error> {
        self.sent += 1.0;
        Ok(self.sender.send(self.sent)?)
    }

    #[inline]
    fn receive(&mut self, _received: &mut Vec<u8>) -> Result<usize, Error> {
        let value = self.receiver.recv()?;
        self.seen += 1.0;
        self.is_right &= value == self.seen;
        Ok(0)
    }

    fn is_right(&self, _received: &[u8], _message: &[u8]) -> bool {
        self.is_right
    }
}

/// A command that moves a word.
#[derive(Clone, Copy, Debug)]
pub(super) enum Command {
    /// The sender writes into the receiver's window.
    Write,
    /// The sender starts to write, without a wait for each message.
    Iput,
    /// The receiver reads from the sender's window, where the sender has written.
    Read,
    /// The sender adds one to a word of the receiver's window.
    Accumulate,
    /// The receiver's fetch from the sender's window waits until the sender has written.
    Fetch,
}

/// Words of windows, in turn. The receiver polls, but a conditional fetch waits. Between nodes a
/// receiver of its own window waits: the node services need the core.
#[derive(Debug)]
pub(super) struct Remote {
    pub(super) command: Command,
    pub(super) windows: Windows,
    /// The other rank.
    pub(super) other: usize,
    pub(super) is_between_nodes: bool,
    pub(super) sent: u64,
    pub(super) seen: u64,
}

impl MessagePath for Remote {
    fn capacity(&self, _length: usize) -> usize {
        WORDS as usize
    }

    #[inline]
    fn send(&mut self, _to: usize, _message: &[u8]) -> Result<(), Error> {
        let at = self.sent % WORDS * 8;
        self.sent += 1;
        let there = &self.windows.all[self.other];
        match self.command {
            Command::Write => there.put_value(at, self.sent)?,
            Command::Iput => there.iput_value(at, self.sent)?,
            Command::Read | Command::Fetch => self.windows.own.local().put_value(at, self.sent)?,
            Command::Accumulate => there.accumulate_value(Op::Sum.into(), at, 1_u64)?,
        }
        Ok(())
    }

    #[inline]
    fn receive(&mut self, _received: &mut Vec<u8>) -> Result<usize, Error> {
        let at = self.seen % WORDS * 8;
        let lap = self.seen / WORDS + 1;
        self.seen += 1;
        let (window, awaited) = match self.command {
            Command::Write | Command::Iput => (self.windows.own.local(), self.seen),
            Command::Read | Command::Fetch => (&self.windows.all[self.other], self.seen),
            Command::Accumulate => (self.windows.own.local(), lap),
        };
        let condition = Condition { at, at_least: awaited };
        match self.command {
            Command::Fetch => {
                let word = window.fetch_when(condition, at, [0; 8])?.wait()?;
                black_box(word);
                return Ok(0);
            }
            Command::Write | Command::Iput | Command::Accumulate if self.is_between_nodes => {
                window.fetch_when(condition, 0, [])?.wait()?;
                return Ok(0);
            }
            _ => {}
        }
        // A stream may be laps ahead: senders do not wait.
        while window.get_value::<u64>(at)? < awaited {}
        Ok(0)
    }

    fn is_flushed(&self) -> bool {
        matches!(self.command, Command::Iput)
    }

    fn flush(&mut self) -> Result<(), Error> {
        Ok(self.windows.all[self.other].flush()?)
    }

    fn skip(&mut self, count: u64) {
        self.seen += count;
    }

    fn is_right(&self, _received: &[u8], _message: &[u8]) -> bool {
        true
    }
}
