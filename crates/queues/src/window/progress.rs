//! Progress of the commands of a rank on a window of another node.

use super::error::WindowError;
use super::wire::{Answer, Outcome};
use std::collections::HashMap;

/// Commands that are under way.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Number of the next command. 64 bits do not wrap.
    pub(super) next: u64,
    /// Lines of commands without answers, and of these answers.
    pub(super) lines: u64,
    /// Conditions that are waited for, or were cancelled without an answer yet.
    pub(super) awaited: usize,
    /// Commands by their numbers, until their answers are taken. An answer to any other is an error.
    pub(super) commands: HashMap<u64, Progress>,
    /// A thread receives answers.
    pub(super) is_receiving: bool,
    pub(super) ended: Option<WindowError>,
}

/// Progress of a command.
#[derive(Debug)]
pub(super) enum Progress {
    /// The answer is on its way. That of a test may be that its condition is not true.
    Sent {
        is_test: bool,
    },
    /// A wait was given up, and its answer is on its way.
    GivenUp,
    Answered(Outcome, Vec<u8>),
}

impl State {
    /// Notes an answer. Returns false if no command expects it.
    pub(super) fn answer(&mut self, Answer { number, outcome }: Answer, bytes: Vec<u8>) -> bool {
        match self.commands.get(&number) {
            Some(Progress::Sent { is_test }) if *is_test || outcome != Outcome::NotTrue => {
                self.commands.insert(number, Progress::Answered(outcome, bytes));
                true
            }
            Some(Progress::GivenUp) => {
                self.commands.remove(&number);
                self.awaited -= 1;
                true
            }
            _ => false,
        }
    }

    /// Takes the answer of a command, if there is one.
    pub(super) fn take(&mut self, number: u64) -> Option<(Outcome, Vec<u8>)> {
        match self.commands.remove(&number)? {
            Progress::Answered(outcome, bytes) => Some((outcome, bytes)),
            other => {
                self.commands.insert(number, other);
                None
            }
        }
    }
}
