//! Execution, by the node service, of the commands of ranks of other nodes on a window.

use super::condition::Condition;
use super::error::WindowError;
use super::memory::WAKEUPS;
use super::remote::RemoteWindow;
use super::wire::{
    self, Answer, Command, Kind, LINE_BYTES, Line, MOST_AWAITED, Outcome, UNANSWERED, lines_of,
};
use crate::request::{self, Requested};
use goal::arithmetic::{ArithmeticError, DataType};
use shm::object::CreateError;
use shm::segment::{Offset, Segment};
use shm::wakeup::Armed;
use std::convert::Infallible;
use std::sync::Arc;

/// A window of a rank of this node. The node service holds it like a process that is connected.
#[derive(Debug)]
pub struct ServedWindow {
    window: RemoteWindow,
    /// Requests of a notification, by wake-up word.
    requests: [Option<Armed>; WAKEUPS],
}

/// Commands of one rank on one window.
#[derive(Debug, Default)]
pub(super) struct WindowCommands {
    /// Lines that were not executed, from `start` on.
    kept: Vec<u8>,
    start: usize,
    /// Bytes of those that were.
    pub(super) executed: u64,
    awaited: Vec<Awaited>,
    /// Outcome of a command without an answer that has failed. Nothing behind it is executed, and all
    /// answers report it.
    failure: Option<Outcome>,
}

/// A condition that a rank waits for.
#[derive(Clone, Copy, Debug)]
struct Awaited {
    number: u64,
    condition: Condition,
}

/// The lines are no commands on a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoCommand;

impl WindowCommands {
    /// Adds lines that have arrived.
    pub(super) fn add(&mut self, lines: &[u8]) {
        self.kept.drain(..std::mem::take(&mut self.start));
        self.kept.extend_from_slice(lines);
    }

    /// Number of lines that were not executed.
    pub(super) fn waiting(&self) -> u64 {
        ((self.kept.len() - self.start) / LINE_BYTES) as u64
    }

    /// Forgets the conditions that the rank waits for.
    pub(super) fn forget_awaited(&mut self) {
        self.awaited.clear();
    }

    /// Returns true if the rank waits for a condition.
    pub(super) fn is_awaiting(&self) -> bool {
        !self.awaited.is_empty()
    }
}

impl ServedWindow {
    /// Connects to the window at an offset.
    ///
    /// # Errors
    /// Those of [`RemoteWindow::connect`].
    pub fn connect(segment: &Arc<Segment>, at: Offset) -> Result<Self, CreateError> {
        let window = RemoteWindow::connect(segment, at)?;
        Ok(ServedWindow { window, requests: [None; WAKEUPS] })
    }

    /// Executes the commands of a rank in their order, and then answers the conditions that have
    /// become true. Appends the lines of the answers, at most so many bytes.
    ///
    /// # Errors
    /// [`NoCommand`].
    pub(super) fn execute(
        &self,
        commands: &mut WindowCommands,
        limit: usize,
        into: &mut Vec<u8>,
    ) -> Result<(), NoCommand> {
        let end = into.len().saturating_add(limit);
        let WindowCommands { kept, start, executed, awaited, failure } = commands;
        while let Some(read) = wire::command(&kept[*start..]).map_err(|_| NoCommand)? {
            // Answers that are not sent count as well: the bound is one of the space.
            let lines = lines_of(read.head.answer_bytes().ok_or(NoCommand)?) as usize;
            if read.head.number != UNANSWERED && into.len() + lines * LINE_BYTES > end {
                // It stays the first one, so commands are executed in their order later, too.
                break;
            }
            self.execute_one(read.head, read.bytes, (awaited, failure), into)?;
            *start += read.length;
            *executed += read.length as u64;
        }
        if *start == kept.len() {
            // An idle rank takes no memory.
            *kept = Vec::new();
            *start = 0;
        }
        awaited.retain(|Awaited { number, condition }| {
            let outcome = self.test(*condition);
            let is_answered = outcome != Outcome::NotTrue && into.len() + LINE_BYTES <= end;
            if is_answered {
                append(Answer { number: *number, outcome }, &[], into);
            }
            !is_answered
        });
        Ok(())
    }

    /// Executes a command, and appends its answer.
    fn execute_one(
        &self,
        command: Command,
        bytes: &[u8],
        (awaited, failure): (&mut Vec<Awaited>, &mut Option<Outcome>),
        into: &mut Vec<u8>,
    ) -> Result<(), NoCommand> {
        let Command { number, kind, at, length } = command;
        use Kind::{Accumulate, Notify, Put, Scatter};
        if number == UNANSWERED && !matches!(kind, Put | Accumulate(..) | Scatter(_) | Notify) {
            // The space of its answer bounds the bytes that a command loads.
            return Err(NoCommand);
        }
        if kind == Kind::Cancel {
            // One that was answered before has its answer.
            let Some(index) = awaited.iter().position(|one| one.number == number) else {
                return Ok(());
            };
            let Awaited { condition, .. } = awaited.swap_remove(index);
            append(Answer { number, outcome: self.test(condition) }, &[], into);
            return Ok(());
        }
        // Lengths come from another node; `answer_bytes` returns none above `MAX_BYTES`.
        let mut loaded = vec![0; command.answer_bytes().ok_or(NoCommand)?];
        let outcome = match *failure {
            Some(failure) => failure,
            None => self.outcome(command, bytes, &mut loaded)?,
        };
        if number == UNANSWERED {
            *failure = Some(outcome).filter(|outcome| *outcome != Outcome::Done);
            return Ok(());
        }
        if kind == Kind::Await && outcome == Outcome::NotTrue {
            if awaited.len() == MOST_AWAITED {
                return Err(NoCommand);
            }
            awaited.push(Awaited { number, condition: Condition { at, at_least: length } });
            return Ok(());
        }
        // An answer of another outcome has no bytes, so it may be shorter than it was counted.
        let loaded = if outcome == Outcome::Done { &loaded[..] } else { &[] };
        append(Answer { number, outcome }, loaded, into);
        Ok(())
    }

    fn outcome(
        &self,
        command: Command,
        bytes: &[u8],
        loaded: &mut [u8],
    ) -> Result<Outcome, NoCommand> {
        let Command { kind, at, length, .. } = command;
        let window = &self.window;
        let done = match kind {
            Kind::Put => window.put(at, bytes),
            Kind::Get => window.get(at, loaded),
            Kind::Accumulate(operation, data_type) => {
                window.accumulate(operation, data_type, at, bytes)
            }
            Kind::FetchAccumulate(operation, data_type) => {
                are_elements(data_type, 1, bytes)?;
                window.fetch_accumulate((operation, data_type), at, bytes, loaded)
            }
            Kind::CompareExchange(data_type) => {
                are_elements(data_type, 2, bytes)?;
                window.compare_exchange(data_type, at, bytes, loaded)
            }
            Kind::Scatter(data_type) => {
                let (indices, elements) = indices(bytes, length)?;
                window.scatter(data_type, at, &indices, elements)
            }
            Kind::Gather(data_type) => {
                let (indices, _) = indices(bytes, length)?;
                window.gather(data_type, at, &indices, loaded)
            }
            Kind::Notify => window.notify(),
            Kind::Await | Kind::Cancel => {
                return Ok(self.test(Condition { at, at_least: length }));
            }
        };
        Ok(done.map_or_else(outcome_of, |()| Outcome::Done))
    }

    fn test(&self, condition: Condition) -> Outcome {
        let is_true = self.window.reaches(condition);
        let outcome = |is_true| if is_true { Outcome::Done } else { Outcome::NotTrue };
        is_true.map_or_else(outcome_of, outcome)
    }

    /// Returns true if something that a rank waits for has become true.
    pub(super) fn is_ready(&self, commands: &WindowCommands) -> bool {
        commands.awaited.iter().any(|one| self.test(one.condition) != Outcome::NotTrue)
    }

    /// Requests notifications of the node service's event with the next changes of what a rank
    /// waits for. The caller then checks whether something [is ready](Self::is_ready).
    pub(super) fn request(&mut self, commands: &WindowCommands) -> Requested {
        let mut requested = Requested::Before;
        for Awaited { condition, .. } in &commands.awaited {
            let word = condition.at / 8;
            // Conditions are on windows of this node only.
            let Some(wakeup) = self.window.wakeup_of(word) else { continue };
            let armed = &mut self.requests[word as usize % WAKEUPS];
            request::is_pending(wakeup, armed);
            // A request that was refused makes the others useless: the caller polls.
            requested = match (requested, request::begin(wakeup, armed)) {
                (Requested::Refused, _) | (_, Requested::Before) => requested,
                (_, other) => other,
            };
        }
        requested
    }
}

impl Drop for ServedWindow {
    fn drop(&mut self) {
        for (word, armed) in (0..).zip(&mut self.requests) {
            if let Some(wakeup) = self.window.wakeup_of(word) {
                request::withdraw(wakeup, armed);
            }
        }
    }
}

fn are_elements(data_type: DataType, count: usize, bytes: &[u8]) -> Result<(), NoCommand> {
    if bytes.len() == count * data_type.bytes() { Ok(()) } else { Err(NoCommand) }
}

/// Splits the bytes of a scatter or gather into the indices and the rest.
fn indices(bytes: &[u8], count: u64) -> Result<(Vec<u64>, &[u8]), NoCommand> {
    let length = usize::try_from(count).ok().and_then(|count| count.checked_mul(8));
    let (indices, rest) = bytes.split_at_checked(length.ok_or(NoCommand)?).ok_or(NoCommand)?;
    let (words, _) = indices.as_chunks::<8>();
    Ok((words.iter().map(|word| u64::from_le_bytes(*word)).collect(), rest))
}

fn outcome_of(error: WindowError) -> Outcome {
    match error {
        WindowError::Withdrawn { .. } => Outcome::Withdrawn,
        // The origin finds it in its operands.
        WindowError::Arithmetic { error: ArithmeticError::DivisionByZero { .. }, .. } => {
            Outcome::Done
        }
        _ => Outcome::Refused,
    }
}

fn append(answer: Answer, bytes: &[u8], into: &mut Vec<u8>) {
    let put = |line: Line| {
        line.iter().for_each(|word| into.extend_from_slice(&word.to_le_bytes()));
        Ok::<(), Infallible>(())
    };
    let Ok(()) = answer.encode(bytes, put);
}
