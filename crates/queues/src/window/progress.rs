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
    /// Lines of answers are on their way. Only a wait that was given up may end without its condition.
    Sent {
        lines: u64,
        is_condition: bool,
        is_given_up: bool,
    },
    Answered(Outcome, Vec<u8>),
}

impl State {
    /// Notes a command that is about to be sent, and the lines of its answer. Returns its number.
    pub(super) fn begin(&mut self, lines: u64) -> u64 {
        self.lines += lines;
        self.insert(Progress::Sent { lines, is_condition: false, is_given_up: false })
    }

    /// Notes a wait for a condition that is about to be sent. Returns its number.
    pub(super) fn begin_wait(&mut self) -> u64 {
        self.awaited += 1;
        self.insert(Progress::Sent { lines: 0, is_condition: true, is_given_up: false })
    }

    fn insert(&mut self, progress: Progress) -> u64 {
        let number = self.next;
        self.next += 1;
        self.commands.insert(number, progress);
        number
    }

    /// Notes that a condition is waited for no longer.
    pub(super) fn give_up(&mut self, number: u64) {
        let sent = Progress::Sent { lines: 0, is_condition: true, is_given_up: true };
        self.commands.insert(number, sent);
    }

    /// Notes an answer. Returns false if no command expects it.
    pub(super) fn answer(&mut self, Answer { number, outcome }: Answer, bytes: Vec<u8>) -> bool {
        match self.commands.get(&number) {
            Some(Progress::Sent { lines, is_condition, is_given_up })
                if *is_given_up || outcome != Outcome::NotTrue =>
            {
                self.lines -= lines;
                // Here, and not by the thread that takes the answer: it may have to wait for its turn,
                // and a thread that waits for the place of a condition looks when an answer arrives.
                self.awaited -= usize::from(*is_condition);
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
