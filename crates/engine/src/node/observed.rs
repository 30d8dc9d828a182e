//! A job on its node as an observer sees it: ranks, what they wait for, collectives under way.
//!
//! An observer is no process of the job. It has a descriptor for reading, and what it reads are
//! words that the ranks keep for each other anyway, and the waits of threads that sleep. Any
//! process of the job may have written any bits, so every number is checked before it serves as an
//! offset or a length.

use super::{EngineKind, decode_exit, line_at, queues_at, waits_at, world_state};
use super::{JobHeader, LISTED_QUEUES, MAGIC, RANK_LIMIT, RankLine, VERSION, state};
use crate::error::{Error, Exit};
use crate::signature::Signature;
use crate::state::observed::{ObservedProgress, call_of, observe};
use shm::published_wait::{self, ObservedWait, Wait};
use shm::segment::{Offset, SegmentReader};
use std::collections::{BTreeMap, BTreeSet};
use std::mem::offset_of;

/// Number of collectives of a communicator that are reported at a time, the oldest ones.
const MOST_COLLECTIVES: u64 = 8;

/// Number of communicators of which collectives are reported at a time. It bounds the work that
/// waits with random contents cause.
const MOST_COMMUNICATORS: usize = 64;

/// Number of journals of ranks that are searched for a call.
const JOURNALS: usize = 4;

/// Access of an observer to a job on this node.
#[derive(Debug)]
pub struct JobObserver {
    segment: SegmentReader,
    ranks: u32,
    engine: EngineKind,
    cores: u32,
}

/// A job at one moment.
#[derive(Clone, Debug, Default)]
pub struct ObservedJob {
    /// The ranks of the node.
    pub ranks: Vec<ObservedRank>,
    /// Collectives that some of their ranks have started and others have not, or for which a thread
    /// sleeps.
    pub collectives: Vec<ObservedCollective>,
}

/// A rank at one moment.
#[derive(Clone, Debug)]
pub struct ObservedRank {
    /// The process; 0 before it joins.
    pub process: u32,
    /// The rank in the job; `None` before it joins.
    pub job_rank: Option<u32>,
    /// True once it has joined.
    pub has_joined: bool,
    /// The way in which it left.
    pub exit: Option<Exit>,
    /// Waits of its threads, which sleep.
    pub waits: Vec<ObservedWait>,
}

/// A collective at one moment. Ranks are those of the node.
#[derive(Clone, Debug)]
pub struct ObservedCollective {
    /// Location of the communicator's state, which identifies the communicator.
    pub communicator: Offset,
    /// True for the communicator of all ranks of the node.
    pub is_world: bool,
    /// Number of the collective on the communicator.
    pub sequence: u64,
    /// The call, if the journal of a rank has it.
    pub call: Option<Signature>,
    /// Ranks that have started it.
    pub started: Vec<u32>,
    /// Ranks that have not.
    pub missing: Vec<u32>,
}

impl JobObserver {
    /// Opens a job for observation.
    ///
    /// # Errors
    /// [`Error::NotAJob`] if the segment belongs to no job of this version.
    pub fn open(segment: SegmentReader) -> Result<Self, Error> {
        let word = |field: usize| segment.words::<1>(Offset(field as u64)).ok_or(Error::NotAJob);
        let half = |field: usize| -> Result<u32, Error> {
            // Fields of four bytes lie in pairs in the words of the segment.
            Ok(halves(word(field / 8 * 8)?[0])[field % 8 / 4])
        };
        let [magic] = word(offset_of!(JobHeader, magic))?;
        let ranks = half(offset_of!(JobHeader, ranks))?;
        if magic != MAGIC
            || half(offset_of!(JobHeader, version))? != VERSION
            || ranks == 0
            || ranks > RANK_LIMIT
        {
            return Err(Error::NotAJob);
        }
        let engine = match half(offset_of!(JobHeader, engine))? {
            0 => EngineKind::Peers,
            _ => EngineKind::Caller,
        };
        Ok(JobObserver { ranks, engine, cores: half(offset_of!(JobHeader, cores))?, segment })
    }

    /// Returns the segment.
    pub fn segment(&self) -> &SegmentReader {
        &self.segment
    }

    /// Returns the assignment of operations to processes.
    pub fn engine(&self) -> EngineKind {
        self.engine
    }

    /// Returns the number of cores that the ranks share.
    pub fn cores(&self) -> u32 {
        self.cores
    }

    /// Returns the job at this moment. Its parts are of slightly different moments.
    pub fn observe(&self) -> ObservedJob {
        let ranks: Vec<_> = (0..self.ranks).filter_map(|rank| self.rank(rank)).collect();
        let mut awaited: BTreeMap<(u64, u32), BTreeSet<u64>> = BTreeMap::new();
        awaited.insert((world_state(self.ranks).0, self.ranks), BTreeSet::new());
        for wait in ranks.iter().flat_map(|rank| &rank.waits) {
            if let Wait::Collective { state, ranks, sequence } = wait.wait {
                awaited.entry((state.0, ranks)).or_default().insert(sequence);
            }
        }
        let collectives =
            awaited.into_iter().take(MOST_COMMUNICATORS).flat_map(|((at, ranks), awaited)| {
                self.collectives(Offset(at), ranks, awaited).unwrap_or_default()
            });
        ObservedJob { collectives: collectives.collect(), ranks }
    }

    /// Returns true if all ranks of the node have left the job or have ended.
    pub fn has_ended(&self) -> bool {
        let has_ended = |rank| self.line(rank).is_some_and(|line| exit_of(line).is_some());
        (0..self.ranks).all(has_ended)
    }

    /// Returns the locations of a rank's queues.
    pub fn queues(&self, rank: u32) -> Vec<Offset> {
        if rank >= self.ranks {
            return Vec::new();
        }
        let list = self.segment.word_list(queues_at(self.ranks, rank), LISTED_QUEUES as usize);
        list.into_iter().flatten().filter(|offset| *offset != 0).map(Offset).collect()
    }

    fn line(&self, rank: u32) -> Option<LineWords> {
        self.segment.words(line_at(rank))
    }

    fn rank(&self, rank: u32) -> Option<ObservedRank> {
        let line = self.line(rank)?;
        Some(ObservedRank {
            process: field(line, offset_of!(RankLine, process)),
            job_rank: field(line, offset_of!(RankLine, job_rank)).checked_sub(1),
            has_joined: field(line, offset_of!(RankLine, state)) != state::ABSENT,
            exit: exit_of(line),
            waits: published_wait::observe(&self.segment, waits_at(self.ranks, rank)),
        })
    }

    /// Returns the collectives under way on a communicator; `None` if there cannot be one.
    fn collectives(
        &self,
        at: Offset,
        ranks: u32,
        awaited: BTreeSet<u64>,
    ) -> Option<Vec<ObservedCollective>> {
        if ranks > self.ranks {
            return None;
        }
        let progress = observe(&self.segment, at, ranks)?;
        let started = || progress.iter().map(|rank| rank.started);
        let first = started().min()?;
        let end = started().max()?;
        let incomplete = first..end.min(first.saturating_add(MOST_COLLECTIVES));
        // A number that no rank has reached is no collective.
        let awaited = awaited.into_iter().filter(|sequence| *sequence < end);
        let numbers: BTreeSet<u64> = incomplete.chain(awaited).collect();
        let describe = |sequence| self.collective((at, ranks), &progress, sequence);
        Some(numbers.into_iter().map(describe).collect())
    }

    fn collective(
        &self,
        communicator: (Offset, u32),
        progress: &[ObservedProgress],
        sequence: u64,
    ) -> ObservedCollective {
        let calls = (0..).zip(progress).filter(|(_, rank)| rank.started > sequence);
        let call = calls
            .take(JOURNALS)
            .find_map(|(rank, _)| call_of(&self.segment, communicator, rank, sequence));
        let members = |has_started: bool| {
            let ranks = (0..).zip(progress);
            let ranks = ranks.filter(move |(_, rank)| (rank.started > sequence) == has_started);
            // A rank that has not opened the communicator has its number there only.
            ranks.map(|(number, rank)| rank.member.unwrap_or(number)).collect()
        };
        ObservedCollective {
            communicator: communicator.0,
            is_world: communicator.0 == world_state(self.ranks),
            sequence,
            call,
            started: members(true),
            missing: members(false),
        }
    }
}

/// The words of a [`RankLine`].
type LineWords = [u64; size_of::<RankLine>() / 8];

/// Returns the field at this offset.
fn field(line: LineWords, at: usize) -> u32 {
    halves(line[at / 8])[at % 8 / 4]
}

fn exit_of(line: LineWords) -> Option<Exit> {
    let state = field(line, offset_of!(RankLine, state));
    decode_exit(state, field(line, offset_of!(RankLine, detail)))
}

/// Returns the two numbers of four bytes in a word, in the order of their addresses.
fn halves(word: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
    [u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h])]
}
