//! Progress of the commands of a rank on a window of another node.

use super::error::WindowError;
use super::wire::{Answer, Outcome};
use std::collections::HashMap;

/// Commands with answers that are under way.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Number of the next command. 64 bits do not wrap.
    next: u64,
    /// Lines of their answers, as far as these have not arrived.
    pub(super) lines: u64,
    /// Conditions that are waited for.
    pub(super) awaited: usize,
    /// Commands by their numbers, until their answers are taken. An answer to any other is an error.
    commands: HashMap<u64, Progress>,
    pub(super) ended: Option<WindowError>,
}

/// Progress of a command.
#[derive(Debug)]
enum Progress {
    /// So many lines are on their way. Only a wait that was given up may end without its condition.
    Sent {
        lines: u64,
        is_given_up: bool,
    },
    Answered(Outcome, Vec<u8>),
}

impl State {
    /// Notes a command that is about to be sent, and so many lines of its answer. Returns its number.
    pub(super) fn begin(&mut self, lines: u64) -> u64 {
        let number = self.next;
        self.next += 1;
        self.lines += lines;
        self.commands.insert(number, Progress::Sent { lines, is_given_up: false });
        number
    }

    /// Notes that a condition is waited for no longer.
    pub(super) fn give_up(&mut self, number: u64) {
        self.commands.insert(number, Progress::Sent { lines: 0, is_given_up: true });
    }

    /// Notes an answer. Returns false if no command expects it.
    pub(super) fn answer(&mut self, Answer { number, outcome }: Answer, bytes: Vec<u8>) -> bool {
        match self.commands.get(&number) {
            Some(Progress::Sent { lines, is_given_up })
                if *is_given_up || outcome != Outcome::NotTrue =>
            {
                self.lines -= lines;
                self.commands.insert(number, Progress::Answered(outcome, bytes));
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
