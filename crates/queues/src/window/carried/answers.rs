//! The answers of the other node, put together from lines.

use crate::channel::{Channel, Receiver};
use crate::error::RecvError;
use crate::window::wire::{self, Answer, Line};
use std::time::Instant;

/// The receiving end of a window's answers.
#[derive(Debug)]
pub(super) struct Answers {
    // Declared first: closed before its memory is freed.
    pub(super) receiver: Receiver<Line>,
    pub(super) lines: Vec<u8>,
    pub(super) _memory: Channel<Line>,
}

impl Answers {
    /// Receives an answer; `None` at the deadline.
    pub(super) fn receive(
        &mut self,
        deadline: Option<Instant>,
    ) -> Result<Option<(Answer, Vec<u8>)>, RecvError> {
        loop {
            if let Some(read) = wire::answer(&self.lines).map_err(|_| RecvError::Corrupt)? {
                let found = (read.head, read.bytes.to_vec());
                self.lines.drain(..read.length);
                return Ok(Some(found));
            }
            let line = match deadline {
                None => self.receiver.recv(),
                Some(deadline) => self.receiver.recv_deadline(deadline),
            };
            match line {
                Ok(line) => self.lines.extend(line.iter().flat_map(|word| word.to_le_bytes())),
                Err(RecvError::Timeout) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }
}
