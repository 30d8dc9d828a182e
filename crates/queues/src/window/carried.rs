//! A window of a rank on another node.
//!
//! ```text
//!  RemoteWindow ── commands ──► node service ── frames ──► node service: ServedWindow, the window
//!               ◄── answers ───              ◄─────────
//! ```
//!
//! Two channels of lines connect the rank with the node service of the other node, which executes
//! the commands in their order. They are opened with the first command. Any number of threads have
//! commands under way. Whichever of them waits first receives the answers, also those of the
//! others, until it has its own; the others sleep meanwhile, and one of them continues.
//!
//! The lines of commands without answers, and those of the answers, are at most [`CAPACITY`]. The
//! slots of a ring and the credit of its flow return in quarters, so as many are always free. So a
//! send never waits for space, and the node service always has credit for an answer.

mod answers;

use super::condition::Condition;
use super::error::WindowError;
use super::progress::{Progress, State};
use super::wire::{self, Command, Kind, Line, MAX_BYTES, MOST_AWAITED, Outcome, lines_of};
use crate::channel::{Channel, Receiver, Sender, slots_for};
use crate::error::{RecvError, SendError};
use answers::Answers;
use goal::arithmetic::{Arithmetic, ArithmeticError, DataType};
use shm::segment::Offset;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

/// Number of lines that each of the two channels holds at least.
pub const CAPACITY: u64 = MOST_LINES + 2 * MOST_AWAITED as u64;
/// Number of slots of their rings, and so the credit of either end.
pub const SLOTS: u64 = slots_for(CAPACITY);
/// Most lines of commands without answers and of their answers.
const MOST_LINES: u64 = 512;
/// Pieces of one long command that are under way together.
const PIECES: usize = 3;

// A command always finds space when nothing else is under way.
const _: () = assert!(MOST_LINES > wire::MAX_LINES);

/// Ends of the two channels of a rank with the window of a rank on another node.
#[derive(Debug)]
pub struct WindowEnds {
    /// Takes commands.
    pub commands: Sender<Line>,
    /// Receiver of the answers.
    pub answers: Receiver<Line>,
    /// Memory of the answers, which is freed behind their end.
    pub memory: Channel<Line>,
}

/// Way to the window of a rank on another node.
pub trait WindowRoute: Send + Sync + Debug {
    /// Opens the channels, each for at least [`CAPACITY`] lines. Called once, with the first command.
    ///
    /// # Errors
    /// [`WindowError::NotOpened`], [`WindowError::RankExited`], [`WindowError::NodeServiceEnded`].
    fn open(&self) -> Result<WindowEnds, WindowError>;
}

/// A window of a rank on another node.
#[derive(Debug)]
pub(super) struct CarriedWindow {
    pub(super) offset: Offset,
    pub(super) owner: u32,
    route: Box<dyn WindowRoute>,
    link: OnceLock<Result<Link, WindowError>>,
}

#[derive(Debug)]
struct Link {
    commands: Mutex<Sender<Line>>,
    answers: Mutex<Answers>,
    state: Mutex<State>,
    changed: Condvar,
}

/// A piece of a command: what it does, its position, its length, and its bytes.
type Piece<'a> = (Kind, u64, u64, Cow<'a, [u8]>);

/// A command without an answer.
struct UnderWay {
    number: u64,
    lines: u64,
}

/// Returns the length of the first piece of so many bytes from `at` on. The others begin with a word of
/// the window, so no aligned element lies in two of them.
fn first_piece(at: u64, bytes: usize) -> usize {
    bytes.min(MAX_BYTES - (at % 8) as usize)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked has left a state that the next one may use: every change is one step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CarriedWindow {
    pub(super) fn new(offset: Offset, owner: u32, route: Box<dyn WindowRoute>) -> Self {
        CarriedWindow { offset, owner, route, link: OnceLock::new() }
    }

    fn link(&self) -> Result<&Link, WindowError> {
        let open = || {
            let WindowEnds { commands, answers, memory } = self.route.open()?;
            let answers = Answers { receiver: answers, lines: Vec::new(), _memory: memory };
            Ok(Link {
                commands: Mutex::new(commands),
                answers: Mutex::new(answers),
                state: Mutex::default(),
                changed: Condvar::new(),
            })
        };
        self.link.get_or_init(open).as_ref().map_err(|error| *error)
    }

    fn withdrawn(&self) -> WindowError {
        WindowError::Withdrawn { window: self.offset, owner: self.owner }
    }

    fn error_of(&self, outcome: Outcome) -> Result<(), WindowError> {
        match outcome {
            Outcome::Done | Outcome::NotTrue => Ok(()),
            Outcome::Withdrawn => Err(self.withdrawn()),
            Outcome::DividedByZero(element) => {
                let error = ArithmeticError::DivisionByZero { element: element as usize };
                Err(WindowError::Arithmetic { window: self.offset, error })
            }
            // Whatever a window refuses, this end refuses before.
            Outcome::Refused => Err(WindowError::Corrupt { window: self.offset }),
        }
    }

    /// Executes pieces of a command, several of them under way together. `answered` gets the outcome
    /// and the bytes of each, in their order. All have been answered when this returns, unless the
    /// link has ended.
    fn execute<'a>(
        &self,
        pieces: impl Iterator<Item = Piece<'a>>,
        mut answered: impl FnMut(Outcome, &[u8]) -> Result<(), WindowError>,
    ) -> Result<(), WindowError> {
        let link = self.link()?;
        let mut under_way: VecDeque<UnderWay> = VecDeque::new();
        let mut failure = Ok(());
        let mut finish = |one: UnderWay, failure: &mut Result<(), WindowError>| {
            let (outcome, bytes) = self.await_answer(link, &one)?;
            *failure = failure.and(answered(outcome, &bytes));
            Ok::<(), WindowError>(())
        };
        for piece in pieces {
            if failure.is_err() {
                break;
            }
            if under_way.len() == PIECES
                && let Some(first) = under_way.pop_front()
            {
                finish(first, &mut failure)?;
            }
            // A thread waits for space only when all of its commands are answered: others may wait
            // for the same.
            let mut sent = self.send(link, &piece, false)?;
            if sent.is_none() {
                while let Some(first) = under_way.pop_front() {
                    finish(first, &mut failure)?;
                }
                sent = self.send(link, &piece, true)?;
            }
            under_way.extend(sent);
        }
        while let Some(first) = under_way.pop_front() {
            finish(first, &mut failure)?;
        }
        failure
    }

    /// Executes one command that returns no bytes.
    fn execute_one(&self, kind: Kind, at: u64, bytes: &[u8]) -> Result<(), WindowError> {
        let piece = (kind, at, 0, Cow::Borrowed(bytes));
        self.execute(std::iter::once(piece), |outcome, _| self.error_of(outcome))
    }

    /// Executes pieces that load bytes into `into`, one piece into each chunk.
    fn load<'a, 'b>(
        &self,
        pieces: impl Iterator<Item = Piece<'a>>,
        mut into: impl Iterator<Item = &'b mut [u8]>,
    ) -> Result<(), WindowError> {
        self.execute(pieces, |outcome, found| {
            self.error_of(outcome)?;
            let into = into.next().filter(|into| into.len() == found.len());
            let into = into.ok_or(WindowError::Corrupt { window: self.offset })?;
            into.copy_from_slice(found);
            Ok(())
        })
    }

    /// Sends a command. Returns `None` if too much is under way and the thread shall not wait.
    fn send(
        &self,
        link: &Link,
        (kind, at, length, bytes): &Piece<'_>,
        waits: bool,
    ) -> Result<Option<UnderWay>, WindowError> {
        let mut command = Command { number: 0, kind: *kind, at: *at, length: *length };
        let lines = lines_of(bytes.len()) + lines_of(command.answer_bytes().unwrap_or(0));
        let mut state = lock(&link.state);
        while state.lines + lines > MOST_LINES {
            if let Some(error) = state.ended {
                return Err(error);
            }
            if !waits {
                return Ok(None);
            }
            state = self.receive(link, state, None);
        }
        command.number = state.next;
        state.next += 1;
        // Counted before they are sent, so that no other thread takes the space meanwhile; recorded
        // before, because the answer may arrive before `put` returns.
        state.lines += lines;
        state.commands.insert(command.number, Progress::Sent { is_test: *kind == Kind::Test });
        drop(state);
        self.put(link, command, bytes)?;
        Ok(Some(UnderWay { number: command.number, lines }))
    }

    fn put(&self, link: &Link, command: Command, bytes: &[u8]) -> Result<(), WindowError> {
        // Held for all lines of the command: those of another one must not come between them.
        let mut commands = lock(&link.commands);
        command.encode(bytes, |line| commands.send(line)).map_err(|error| match error {
            SendError::RankExited { rank } => WindowError::RankExited { rank },
            SendError::NodeServiceEnded | SendError::ProcessExited { .. } => {
                WindowError::NodeServiceEnded
            }
            SendError::Corrupt => WindowError::Corrupt { window: self.offset },
            _ => self.withdrawn(),
        })
    }

    fn await_answer(&self, link: &Link, one: &UnderWay) -> Result<(Outcome, Vec<u8>), WindowError> {
        let mut state = lock(&link.state);
        loop {
            if let Some(found) = state.take(one.number) {
                state.lines -= one.lines;
                link.changed.notify_all();
                return Ok(found);
            }
            if let Some(error) = state.ended {
                return Err(error);
            }
            state = self.receive(link, state, None);
        }
    }

    /// Receives one answer for whichever thread, or waits for the thread that does. Other threads
    /// send commands meanwhile.
    fn receive<'a>(
        &self,
        link: &'a Link,
        mut state: MutexGuard<'a, State>,
        deadline: Option<Instant>,
    ) -> MutexGuard<'a, State> {
        if state.is_receiving {
            return match deadline {
                None => link.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    let waited = link.changed.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        state.is_receiving = true;
        drop(state);
        let received = lock(&link.answers).receive(deadline);
        let mut state = lock(&link.state);
        state.is_receiving = false;
        match received {
            Ok(Some((answer, bytes))) => {
                if !state.answer(answer, bytes) {
                    state.ended = Some(WindowError::Corrupt { window: self.offset });
                }
            }
            Ok(None) => {}
            Err(error) => {
                state.ended = Some(match error {
                    RecvError::RankExited { rank } => WindowError::RankExited { rank },
                    RecvError::NodeServiceEnded | RecvError::ProcessExited { .. } => {
                        WindowError::NodeServiceEnded
                    }
                    RecvError::Corrupt => WindowError::Corrupt { window: self.offset },
                    _ => self.withdrawn(),
                });
            }
        }
        // All of them: the answer is for any of the waiting threads, and one receives the next.
        link.changed.notify_all();
        state
    }

    /// Stores bytes.
    pub(super) fn put_bytes(&self, at: u64, bytes: &[u8]) -> Result<(), WindowError> {
        let (first, rest) = bytes.split_at(first_piece(at, bytes.len()));
        let starts = (at + first.len() as u64..).step_by(MAX_BYTES).zip(rest.chunks(MAX_BYTES));
        let first = Some((at, first)).filter(|(_, first)| !first.is_empty());
        let pieces = first.into_iter().chain(starts);
        let pieces = pieces.map(|(at, piece)| (Kind::Put, at, 0, piece.into()));
        self.execute(pieces, |outcome, _| self.error_of(outcome))
    }

    /// Loads bytes.
    pub(super) fn get_bytes(&self, at: u64, bytes: &mut [u8]) -> Result<(), WindowError> {
        let end = at + bytes.len() as u64;
        let (first, rest) = bytes.split_at_mut(first_piece(at, bytes.len()));
        let starts = (at + first.len() as u64..end).step_by(MAX_BYTES);
        let piece = |at: u64| {
            let length = first_piece(at, (end - at) as usize) as u64;
            (Kind::Get, at, length, Cow::Borrowed(&[][..]))
        };
        let pieces = Some(at).filter(|at| *at < end).into_iter().chain(starts).map(piece);
        self.load(pieces, std::iter::once(first).chain(rest.chunks_mut(MAX_BYTES)))
    }

    /// Combines whole elements with operands.
    pub(super) fn accumulate(
        &self,
        (operation, data_type): (Arithmetic, DataType),
        at: u64,
        operands: &[u8],
    ) -> Result<(), WindowError> {
        let kind = Kind::Accumulate(operation, data_type);
        // Every piece has whole elements.
        let pieces = (at..).step_by(MAX_BYTES).zip(operands.chunks(MAX_BYTES));
        let pieces = pieces.map(|(at, piece)| (kind, at, 0, piece.into()));
        // All elements are changed, and the first division by zero is reported.
        let mut first = None;
        let mut before = 0;
        self.execute(pieces, |outcome, _| {
            match outcome {
                Outcome::DividedByZero(element) => {
                    first = first.or(Some(Outcome::DividedByZero(before + element)));
                }
                outcome => self.error_of(outcome)?,
            }
            before += (MAX_BYTES / data_type.bytes()) as u64;
            Ok(())
        })?;
        first.map_or(Ok(()), |outcome| self.error_of(outcome))
    }

    /// Combines an element with an operand. Returns what it was in `previous`.
    pub(super) fn fetch_accumulate(
        &self,
        (operation, data_type): (Arithmetic, DataType),
        at: u64,
        operand: &[u8],
        previous: &mut [u8],
    ) -> Result<(), WindowError> {
        let piece = (Kind::FetchAccumulate(operation, data_type), at, 0, operand.into());
        let size = previous.len();
        self.load(std::iter::once(piece), previous.chunks_mut(size))
    }

    /// Replaces an element that is equal to the first half of `elements` by the second. Returns what
    /// it was in `previous`.
    pub(super) fn compare_exchange(
        &self,
        data_type: DataType,
        at: u64,
        elements: &[u8],
        previous: &mut [u8],
    ) -> Result<(), WindowError> {
        let piece = (Kind::CompareExchange(data_type), at, 0, elements.into());
        let size = previous.len();
        self.load(std::iter::once(piece), previous.chunks_mut(size))
    }

    /// Stores elements at indices, which were checked.
    pub(super) fn scatter(
        &self,
        data_type: DataType,
        at: u64,
        indices: &[u64],
        elements: &[u8],
    ) -> Result<(), WindowError> {
        let size = data_type.bytes();
        let most = MAX_BYTES / (8 + size);
        let pieces = indices.chunks(most).zip(elements.chunks(most * size));
        let piece = |(indices, elements): (&[u64], &[u8])| {
            let words = indices.iter().flat_map(|index| index.to_le_bytes());
            let bytes: Vec<u8> = words.chain(elements.iter().copied()).collect();
            (Kind::Scatter(data_type), at, indices.len() as u64, bytes.into())
        };
        self.execute(pieces.map(piece), |outcome, _| self.error_of(outcome))
    }

    /// Loads the elements of indices, which were checked.
    pub(super) fn gather(
        &self,
        data_type: DataType,
        at: u64,
        indices: &[u64],
        elements: &mut [u8],
    ) -> Result<(), WindowError> {
        let most = MAX_BYTES / 8;
        let piece = |indices: &[u64]| {
            let bytes: Vec<u8> = indices.iter().flat_map(|index| index.to_le_bytes()).collect();
            (Kind::Gather(data_type), at, indices.len() as u64, bytes.into())
        };
        let into = elements.chunks_mut(most * data_type.bytes());
        self.load(indices.chunks(most).map(piece), into)
    }

    /// Counts a notification of the owner.
    pub(super) fn notify(&self) -> Result<(), WindowError> {
        self.execute_one(Kind::Notify, 0, &[])
    }

    /// Returns true if a condition is true.
    pub(super) fn test(&self, condition: Condition) -> Result<bool, WindowError> {
        let Condition { at, at_least } = condition;
        let mut is_true = false;
        let command = std::iter::once((Kind::Test, at, at_least, Cow::Borrowed(&[][..])));
        self.execute(command, |outcome, _| {
            is_true = outcome == Outcome::Done;
            self.error_of(outcome)
        })?;
        Ok(is_true)
    }

    /// Waits until a condition is true, or until the deadline. A wait that finds the deadline passed
    /// tests the condition once, so it takes a round trip at least.
    pub(super) fn wait(
        &self,
        condition: Condition,
        deadline: Option<Instant>,
    ) -> Result<bool, WindowError> {
        let link = self.link()?;
        let has_passed = || deadline.is_some_and(|deadline| deadline <= Instant::now());
        let Condition { at, at_least } = condition;
        let mut state = lock(&link.state);
        loop {
            if has_passed() {
                drop(state);
                return self.test(condition);
            }
            if state.awaited < MOST_AWAITED {
                break;
            }
            if let Some(error) = state.ended {
                return Err(error);
            }
            state = self.receive(link, state, deadline);
        }
        let number = state.next;
        state.next += 1;
        state.awaited += 1;
        state.commands.insert(number, Progress::Sent { is_test: false });
        drop(state);
        self.put(link, Command { number, kind: Kind::Await, at, length: at_least }, &[])?;
        let mut state = lock(&link.state);
        loop {
            if let Some((outcome, _)) = state.take(number) {
                state.awaited -= 1;
                link.changed.notify_all();
                return self.error_of(outcome).map(|()| true);
            }
            if let Some(error) = state.ended {
                return Err(error);
            }
            if has_passed() {
                // One answer follows: that of the condition, or of the cancellation.
                state.commands.insert(number, Progress::GivenUp);
                drop(state);
                self.put(link, Command { number, kind: Kind::Cancel, at, length: 0 }, &[])?;
                // Its answer comes behind that one, and an end of the link is found.
                return self.test(condition);
            }
            state = self.receive(link, state, deadline);
        }
    }
}
