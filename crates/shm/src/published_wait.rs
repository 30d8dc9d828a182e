//! Waits of a process's threads, published in its job's segment for an observer.
//!
//! A thread that is about to sleep writes what it waits for into a free line of its process, and
//! frees the line when it is awake. A thread that only polls writes nothing, so the short waits of
//! a running program cost nothing. No process reads the lines but an observer, which has only a
//! [descriptor for reading](crate::segment::SegmentReader).
//!
//! Each line is a sequence lock, with the start time of the wait as its sequence: the time of a
//! monotonic clock does not recur, so a reader that finds the same time before and after it has
//! read the other words has the words of one wait.

use crate::clock::monotonic_nanoseconds;
use crate::mapped::MappedSlice;
use crate::segment::{Offset, SegmentReader};
use crate::sync::{AtomicU64, Ordering, fence};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

/// Number of lines of a process. A thread that finds none free does not publish its wait.
pub const WAIT_LINES: usize = 4;

/// Bytes of the lines of a process.
pub const WAIT_BYTES: u64 = (WAIT_LINES * size_of::<WaitLine>()) as u64;

/// State of a line while its words are written: no time of the clock.
const WRITING: u64 = 1;

crate::shared_lines! {
    /// One published wait. Zeroed memory is a free line.
    pub struct WaitLine {
        /// 0: free; [`WRITING`]; otherwise the start of the wait in nanoseconds.
        since: AtomicU64,
        words: [AtomicU64; 3],
    }
}

/// Subject of a wait. Ranks are those of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The other ranks of a collective on the node.
    Collective {
        /// Location of the communicator's shared state.
        state: Offset,
        /// Number of ranks of the communicator.
        ranks: u32,
        /// Number of the collective on the communicator.
        sequence: u64,
    },
    /// A collective of which other nodes are part.
    BetweenNodes,
    /// A message.
    Receive {
        /// The sender; `None` for any.
        source: Option<u32>,
        /// The tag; `None` for any.
        tag: Option<u32>,
    },
    /// The receive that matches a message.
    Send {
        /// The receiver.
        to: Option<u32>,
    },
    /// A message in a queue, or the value of a channel.
    QueueMessage {
        /// Location of the queue.
        queue: Offset,
    },
    /// Free space in a queue.
    QueueSpace {
        /// Location of the queue.
        queue: Offset,
    },
    /// Anything else that another process does.
    Peer,
}

/// Encodes an optional rank or tag: 0 is none.
fn plus_one(number: Option<u32>) -> u64 {
    number.map_or(0, |number| u64::from(number) + 1)
}

fn minus_one(word: u64) -> Option<u32> {
    word.checked_sub(1).and_then(|number| u32::try_from(number).ok())
}

impl Wait {
    fn encode(self) -> [u64; 3] {
        match self {
            Wait::Collective { state, ranks, sequence } => {
                [1 | u64::from(ranks) << 8, state.0, sequence]
            }
            Wait::BetweenNodes => [2, 0, 0],
            Wait::Receive { source, tag } => [3, plus_one(source), plus_one(tag)],
            Wait::Send { to } => [4, plus_one(to), 0],
            Wait::QueueMessage { queue } => [5, queue.0, 0],
            Wait::QueueSpace { queue } => [6, queue.0, 0],
            Wait::Peer => [7, 0, 0],
        }
    }

    /// Decodes words that any process may have written.
    fn decode(words: [u64; 3]) -> Option<Wait> {
        let [kind, first, second] = words;
        Some(match kind & 0xff {
            1 => Wait::Collective {
                state: Offset(first),
                ranks: u32::try_from(kind >> 8).ok()?,
                sequence: second,
            },
            2 => Wait::BetweenNodes,
            3 => Wait::Receive { source: minus_one(first), tag: minus_one(second) },
            4 => Wait::Send { to: minus_one(first) },
            5 => Wait::QueueMessage { queue: Offset(first) },
            6 => Wait::QueueSpace { queue: Offset(first) },
            7 => Wait::Peer,
            _ => return None,
        })
    }
}

/// Lines of this process.
#[derive(Debug)]
pub struct WaitTable {
    lines: MappedSlice<WaitLine>,
}

/// The table of this process. A process that is no rank of a job has none, and neither has one with
/// threads as ranks.
static TABLE: RwLock<Weak<WaitTable>> = RwLock::new(Weak::new());

impl WaitTable {
    /// Publishes the waits of all threads of this process in these lines until the returned value
    /// is dropped. The last call counts.
    pub fn publish(lines: MappedSlice<WaitLine>) -> Arc<WaitTable> {
        let table = Arc::new(WaitTable { lines });
        *TABLE.write().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&table);
        table
    }
}

/// A published wait, which ends when this value is dropped.
#[derive(Debug)]
pub struct PublishedWait {
    table: Arc<WaitTable>,
    line: usize,
}

/// Publishes a wait of the calling thread, if this process publishes waits and a line is free. Call
/// it before the first sleep only: it reads the clock and writes a line.
#[cold]
pub fn publish(wait: Wait) -> Option<PublishedWait> {
    let table = TABLE.read().unwrap_or_else(PoisonError::into_inner).upgrade()?;
    // `begin` takes the line by an exchange, so two threads that find it free do not share it.
    let line = table.lines.iter().position(|line| line.begin(wait, monotonic_nanoseconds()))?;
    Some(PublishedWait { table, line })
}

impl Drop for PublishedWait {
    fn drop(&mut self) {
        self.table.lines[self.line].end();
    }
}

impl WaitLine {
    /// Publishes a wait. Returns false if another thread has the line.
    fn begin(&self, wait: Wait, since: u64) -> bool {
        // Relaxed: the threads of the process exchange nothing by it; the fence below orders it for
        // readers.
        let free =
            self.since.compare_exchange(0, WRITING, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if free {
            // Release: a reader that sees one of the words below also sees that the former time is
            // gone. Pairs with the system call between a reader's two reads.
            fence(Ordering::Release);
            for (word, value) in self.words.iter().zip(wait.encode()) {
                word.store(value, Ordering::Relaxed);
            }
            // Release: a reader that sees the time sees the words.
            self.since.store(since.max(WRITING + 1), Ordering::Release);
        }
        free
    }

    fn end(&self) {
        // Relaxed: publishes nothing. The next `begin` orders its words after its own exchange.
        self.since.store(0, Ordering::Relaxed);
    }
}

/// A wait as an observer sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedWait {
    /// Subject of the wait.
    pub wait: Wait,
    /// Time since the thread went to sleep first.
    pub duration: Duration,
}

/// Returns the waits in the lines of a process that lie at `at`. Lines that change during the call,
/// or hold no wait of this version, are left out.
pub fn observe(segment: &SegmentReader, at: Offset) -> Vec<ObservedWait> {
    let read = || segment.words::<{ WAIT_BYTES as usize / 8 }>(at);
    // Two system calls: the second one's copy begins after the first one's.
    let (Some(before), Some(after)) = (read(), read()) else { return Vec::new() };
    let now = monotonic_nanoseconds();
    let lines = before.chunks_exact(8).zip(after.chunks_exact(8));
    lines.filter_map(|(before, after)| decode_line(before, after, now)).collect()
}

fn decode_line(before: &[u64], after: &[u64], now: u64) -> Option<ObservedWait> {
    let [since, words @ ..] = before.first_chunk::<4>()?;
    // The first read may be torn: then a word of it belongs to another wait than the time, and
    // `begin` has changed the time before the second read.
    if before[..4] != after[..4] || *since <= WRITING {
        return None;
    }
    let wait = Wait::decode(*words)?;
    Some(ObservedWait { wait, duration: Duration::from_nanos(now.saturating_sub(*since)) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::{Backing, Segment};

    const ALL: [Wait; 9] = [
        Wait::Collective { state: Offset(1 << 40), ranks: 4096, sequence: u64::MAX },
        Wait::BetweenNodes,
        Wait::Receive { source: None, tag: None },
        Wait::Receive { source: Some(0), tag: Some(u32::MAX) },
        Wait::Send { to: Some(7) },
        Wait::Send { to: None },
        Wait::QueueMessage { queue: Offset(64) },
        Wait::QueueSpace { queue: Offset(0) },
        Wait::Peer,
    ];

    fn segment() -> (Arc<Segment>, SegmentReader) {
        let segment = Arc::new(Segment::create(8192, Backing::Memory).expect("memory"));
        let file = segment.for_reading().expect("/proc is mounted");
        (segment, SegmentReader::from_fd(file).expect("it has a size"))
    }

    #[test]
    fn every_wait_is_observed_as_it_was_published() {
        let (segment, reader) = segment();
        let lines: MappedSlice<WaitLine> =
            MappedSlice::new(&segment, Offset(4096), WAIT_LINES).expect("it fits");
        for (number, wait) in ALL.into_iter().enumerate() {
            let line = &lines[number % WAIT_LINES];
            let now = monotonic_nanoseconds();
            assert!(line.begin(wait, now) && !line.begin(wait, now), "{wait:?}");
            let seen = observe(&reader, Offset(4096));
            assert_eq!(seen.iter().map(|seen| seen.wait).collect::<Vec<_>>(), [wait]);
            line.end();
        }
        assert_eq!(observe(&reader, Offset(4096)), []);
    }

    #[test]
    fn a_line_that_changes_is_left_out() {
        let words = Wait::Peer.encode();
        let line = |since| [since, words[0], words[1], words[2]];
        assert!(decode_line(&line(5), &line(5), 9).is_some());
        assert_eq!(decode_line(&line(5), &line(6), 9), None);
        assert_eq!(decode_line(&line(WRITING), &line(WRITING), 9), None);
        assert_eq!(decode_line(&[5, 99, 0, 0], &[5, 99, 0, 0], 9), None, "no kind of wait");
        let later = decode_line(&line(50), &line(50), 9).expect("a wait");
        assert_eq!(later.duration, Duration::ZERO, "a time after now");
    }

    #[test]
    fn lines_outside_the_segment_are_none() {
        let (_segment, reader) = segment();
        for at in [8192, 8000, u64::MAX, u64::MAX - 7] {
            assert_eq!(observe(&reader, Offset(at)), []);
        }
    }

    #[test]
    fn threads_publish_while_the_table_lives() {
        let (segment, reader) = segment();
        let lines = || MappedSlice::new(&segment, Offset(4096), WAIT_LINES).expect("it fits");
        let count = || observe(&reader, Offset(4096)).len();
        let table = WaitTable::publish(lines());
        let first = publish(Wait::Peer);
        let others: Vec<_> = (0..WAIT_LINES).map(|_| publish(Wait::BetweenNodes)).collect();
        assert_eq!(count(), WAIT_LINES, "one thread found no line");
        assert!(others[WAIT_LINES - 1].is_none());
        drop((first, others));
        assert_eq!(count(), 0);
        drop(table);
        assert!(publish(Wait::Peer).is_none());
    }
}
