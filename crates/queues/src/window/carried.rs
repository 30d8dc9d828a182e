//! A window of a rank on another node.
//!
//! ```text
//!  RemoteWindow ── commands ──► node service ── frames ──► node service: ServedWindow, the window
//!               ◄── answers ───              ◄─────────
//! ```
//!
//! Two channels of lines connect the rank with the node service of the other node, which executes
//! the commands in their order. They are opened with the first command. Any number of threads have
//! commands under way.
//!
//! A command that loads nothing has no answer of its own. The answer to any command behind it says
//! that it was executed, or has failed: a flush is a load of no bytes, and of a blocking command the
//! last piece is answered. Such commands wait for nothing but space in the ring.
//!
//! The thread that waits first receives the answers, also those of the others, until it has its own;
//! the others sleep meanwhile, and one of them continues. The lines of answers under way are bounded,
//! and as many always have credit. So the node service executes all that arrives, and a thread that
//! waits for space in the ring finds some, whether or not another one receives answers.

mod answers;

use super::condition::Condition;
use super::error::WindowError;
use super::progress::State;
use super::wire::{
    self, Command, Kind, Line, MAX_BYTES, MOST_AWAITED, Outcome, UNANSWERED, lines_of,
};
use crate::channel::{Channel, Receiver, Sender, slots_for};
use crate::error::{RecvError, SendError};
use answers::Answers;
use goal::arithmetic::{Arithmetic, DataType, apply_in_place_left};
use shm::segment::Offset;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Number of lines that each of the two channels holds at least: as many answers as can be under way.
pub const CAPACITY: u64 = MOST_LINES + MOST_AWAITED as u64;
/// Number of slots of their rings, and so the credit of either end.
pub const SLOTS: u64 = slots_for(CAPACITY);
/// Most lines of answers under way, beside those of conditions.
const MOST_LINES: u64 = 512;
/// Pieces of one long command that are loaded together.
const PIECES: usize = 3;

// An answer always finds space when nothing else is under way.
const _: () = assert!(MOST_LINES > wire::MAX_LINES);
// Credit returns in quarters, and answers are sent as long as there is some for the longest one.
const _: () = assert!(CAPACITY + SLOTS / 4 - 1 + wire::MAX_LINES <= SLOTS);

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

/// Form of a command that loads nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// It returns when it has been executed.
    Blocking,
    /// It returns when its bytes have been copied.
    Nonblocking,
}

/// Splits bytes from `at` on into pieces. Each but the first begins with a word of the window,
/// so no aligned element lies in two of them.
fn pieces(at: u64, bytes: usize) -> impl Iterator<Item = Range<usize>> {
    let mut end = 0;
    std::iter::from_fn(move || {
        let start = end;
        end = bytes.min(start + MAX_BYTES - (at + start as u64) as usize % 8);
        (start < bytes).then_some(start..end)
    })
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
            // Whatever a window refuses, this end refuses before.
            Outcome::Refused => Err(WindowError::Corrupt { window: self.offset }),
        }
    }

    /// Starts the pieces of a command that loads nothing, and completes them if it is blocking.
    fn start<'a>(
        &self,
        pieces: impl Iterator<Item = Piece<'a>>,
        form: Form,
    ) -> Result<(), WindowError> {
        let link = self.link()?;
        let mut pieces = pieces.peekable();
        while let Some(piece) = pieces.next() {
            if form == Form::Blocking && pieces.peek().is_none() {
                return self.answer(link, self.send(link, &piece)?).map(drop);
            }
            let (kind, at, length, bytes) = piece;
            self.put(link, Command { number: UNANSWERED, kind, at, length }, &bytes)?;
        }
        Ok(())
    }

    /// Executes pieces that load bytes into `into`, one behind the other, several of them under way
    /// together. All have been answered when this returns, unless the link has ended.
    fn load<'a>(
        &self,
        pieces: impl Iterator<Item = Piece<'a>>,
        mut into: &mut [u8],
    ) -> Result<(), WindowError> {
        let link = self.link()?;
        let mut under_way = VecDeque::new();
        let mut finish = |number| {
            let (_, found) = self.answer(link, number)?;
            let place = into.split_off_mut(..found.len());
            place.ok_or(WindowError::Corrupt { window: self.offset })?.copy_from_slice(&found);
            Ok(())
        };
        let mut outcome = Ok(());
        for piece in pieces {
            if under_way.len() == PIECES {
                outcome = under_way.pop_front().map_or(Ok(()), &mut finish);
            }
            if outcome.is_err() {
                break;
            }
            under_way.push_back(self.send(link, &piece)?);
        }
        under_way.into_iter().fold(outcome, |outcome, number| outcome.and(finish(number)))?;
        if into.is_empty() { Ok(()) } else { Err(WindowError::Corrupt { window: self.offset }) }
    }

    /// Sends a command as soon as its answer has space. Returns its number.
    fn send(&self, link: &Link, (kind, at, length, bytes): &Piece<'_>) -> Result<u64, WindowError> {
        let mut command = Command { number: 0, kind: *kind, at: *at, length: *length };
        let lines = lines_of(command.answer_bytes().unwrap_or(0));
        // Noted before it is sent: no other thread takes the space, and the answer may come first.
        command.number = self.until(link, None, |state| {
            let has_space = state.lines + lines <= MOST_LINES;
            has_space.then(|| state.begin(lines))
        })?;
        self.put(link, command, bytes)?;
        Ok(command.number)
    }

    /// Puts the lines of a command into the ring.
    fn put(&self, link: &Link, command: Command, bytes: &[u8]) -> Result<(), WindowError> {
        if let Some(error) = lock(&link.state).ended {
            return Err(error);
        }
        // Held for all lines of the command: those of another one must not come between them.
        let mut commands = lock(&link.commands);
        let sent = command.encode(bytes, |line| commands.send(line));
        drop(commands);
        sent.map_err(|error| {
            let error = match error {
                SendError::RankExited { rank } => WindowError::RankExited { rank },
                SendError::NodeServiceEnded | SendError::ProcessExited { .. } => {
                    WindowError::NodeServiceEnded
                }
                SendError::Corrupt => WindowError::Corrupt { window: self.offset },
                _ => self.withdrawn(),
            };
            // The first error is that of all later calls.
            let first = *lock(&link.state).ended.get_or_insert(error);
            link.changed.notify_all();
            first
        })
    }

    /// Waits for the answer to a command.
    fn answer(&self, link: &Link, number: u64) -> Result<(Outcome, Vec<u8>), WindowError> {
        let (outcome, bytes) = self.until(link, None, |state| state.take(number))?;
        self.error_of(outcome).map(|()| (outcome, bytes))
    }

    /// Receives answers until `found` returns something, which it also may at the deadline.
    fn until<R>(
        &self,
        link: &Link,
        deadline: Option<Instant>,
        mut found: impl FnMut(&mut State) -> Option<R>,
    ) -> Result<R, WindowError> {
        let mut state = lock(&link.state);
        loop {
            if let Some(found) = found(&mut state) {
                return Ok(found);
            }
            if let Some(error) = state.ended {
                return Err(error);
            }
            state = self.receive(link, state, deadline);
        }
    }

    /// Receives one answer for whichever thread, or waits for the thread that does. Other threads
    /// send commands meanwhile.
    fn receive<'a>(
        &self,
        link: &'a Link,
        state: MutexGuard<'a, State>,
        deadline: Option<Instant>,
    ) -> MutexGuard<'a, State> {
        // The thread that has them takes the state behind this one, and then wakes it.
        let mut answers = match link.answers.try_lock() {
            Ok(answers) => answers,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
                // Without a deadline it may wake without need.
                let waited = link.changed.wait_timeout(state, left.unwrap_or(Duration::MAX));
                return waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        };
        drop(state);
        let received = answers.receive(deadline);
        // With the answers: a thread that has not found its own cannot wait for the next one.
        let mut state = lock(&link.state);
        match received {
            Ok(Some((answer, bytes))) => {
                if !state.answer(answer, bytes) {
                    state.ended.get_or_insert(WindowError::Corrupt { window: self.offset });
                }
            }
            Ok(None) => {}
            Err(error) => {
                state.ended.get_or_insert(match error {
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

    /// Loads bytes.
    pub(super) fn get_bytes(&self, at: u64, bytes: &mut [u8]) -> Result<(), WindowError> {
        let piece = |piece: Range<usize>| {
            (Kind::Get, at + piece.start as u64, piece.len() as u64, Cow::Borrowed(&[][..]))
        };
        self.load(pieces(at, bytes.len()).map(piece), bytes)
    }

    /// Stores bytes, or combines whole elements with them.
    pub(super) fn change(
        &self,
        kind: Kind,
        at: u64,
        bytes: &[u8],
        form: Form,
    ) -> Result<(), WindowError> {
        let piece = |piece: Range<usize>| (kind, at + piece.start as u64, 0, bytes[piece].into());
        self.start(pieces(at, bytes.len()).map(piece), form)?;
        self.check_divisors(kind, bytes)
    }

    /// Changes an element, and returns its previous value in `previous`.
    pub(super) fn exchange(
        &self,
        kind: Kind,
        at: u64,
        operands: &[u8],
        previous: &mut [u8],
    ) -> Result<(), WindowError> {
        self.load(std::iter::once((kind, at, 0, operands.into())), previous)?;
        self.check_divisors(kind, operands)
    }

    /// Finds a division by zero, which depends on no element.
    fn check_divisors(&self, kind: Kind, operands: &[u8]) -> Result<(), WindowError> {
        use Arithmetic::Divide;
        use Kind::{Accumulate, FetchAccumulate};
        let (Accumulate(Divide, of) | FetchAccumulate(Divide, of)) = kind else { return Ok(()) };
        let divided = apply_in_place_left(Divide, of, &mut operands.to_vec(), operands);
        divided.map_err(|error| WindowError::Arithmetic { window: self.offset, error })
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
        self.start(pieces.map(piece), Form::Blocking)
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
        self.load(indices.chunks(most).map(piece), elements)
    }

    /// Counts a notification of the owner.
    pub(super) fn notify(&self) -> Result<(), WindowError> {
        self.start(std::iter::once((Kind::Notify, 0, 0, Cow::Borrowed(&[][..]))), Form::Blocking)
    }

    /// Waits until all commands before have been executed: those without answers, and so all.
    pub(super) fn flush(&self) -> Result<(), WindowError> {
        // Without a link there was none.
        let Some(link) = self.link.get() else { return Ok(()) };
        let link = link.as_ref().map_err(|error| *error)?;
        self.answer(link, self.send(link, &(Kind::Get, 0, 0, Cow::Borrowed(&[])))?).map(drop)
    }

    /// Returns true if a condition is true.
    pub(super) fn test(&self, condition: Condition) -> Result<bool, WindowError> {
        let mut word = [0; 8];
        self.get_bytes(condition.at, &mut word)?;
        Ok(u64::from_le_bytes(word) >= condition.at_least)
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
        let begun = self.until(link, deadline, |state| match state.awaited {
            _ if has_passed() => Some(None),
            MOST_AWAITED.. => None,
            _ => Some(Some(state.begin_wait())),
        })?;
        let Some(number) = begun else { return self.test(condition) };
        self.put(link, Command { number, kind: Kind::Await, at, length: at_least }, &[])?;
        let in_time = self.until(link, deadline, |state| match state.take(number) {
            None if has_passed() => {
                state.give_up(number);
                Some(None)
            }
            answer => answer.map(Some),
        })?;
        let (outcome, _) = match in_time {
            Some(answer) => answer,
            None => {
                // One answer follows: that of the condition, or of the cancellation, which tests it.
                self.put(link, Command { number, kind: Kind::Cancel, at, length: 0 }, &[])?;
                self.until(link, None, |state| state.take(number))?
            }
        };
        self.error_of(outcome).map(|()| outcome == Outcome::Done)
    }
}
