//! Ranks of a job as threads of the test, with little memory.

use engine::Error;
use engine::communicator::Communicator;
use engine::node::membership::Member;
use engine::node::{EngineKind, JobOptions, Node};
use goal::compile::compile;
use goal::graph::{Access, Graph};
use goal::schedule::Schedule;
use shm::owned::OwnedBytes;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

pub(crate) const ARENA_BYTES: u64 = 1 << 20;

pub(crate) fn members(ranks: u32, engine: EngineKind) -> Result<Vec<Member>, Error> {
    let options = JobOptions { arena_bytes: ARENA_BYTES, ..JobOptions::new(ranks, engine) };
    let node = Node::create(&options)?;
    (0..ranks).map(|rank| node.join(rank)).collect()
}

/// Runs a thread for each rank. Returns the first error.
pub(crate) fn on_each(
    members: Vec<Member>,
    body: impl Fn(Arc<Communicator>, &ThreadBarrier) -> Result<(), Error> + Sync,
) -> Result<(), Error> {
    let barrier = &ThreadBarrier::new(members.len());
    let body = &body;
    let run = |member| {
        let _end = BreakAtEnd(barrier);
        body(Communicator::world(Arc::new(member))?, barrier)
    };
    std::thread::scope(|scope| {
        let ranks: Vec<_> =
            members.into_iter().map(|member| scope.spawn(move || run(member))).collect();
        let mut ended: Vec<_> = ranks.into_iter().map(|rank| rank.join()).collect();
        // Errors before panics: a panic may be that of a rank whose barrier an error has broken.
        ended.sort_by_key(Result::is_err);
        ended.into_iter().try_for_each(|rank| rank.expect("no rank panics"))
    })
}

/// All memory that a rank has left, in pieces.
pub(crate) fn hoard(communicator: &Communicator) -> Vec<OwnedBytes> {
    let mut hoard = Vec::new();
    for piece in [256 << 10, 64 << 10, 4096, 64] {
        while let Ok(taken) = communicator.allocate(piece, 64) {
            hoard.push(taken);
        }
    }
    hoard
}

/// Each of two ranks sends its `bytes` bytes to the other.
pub(crate) fn swap(bytes: u64) -> Vec<Schedule> {
    let graph = |rank: u32| {
        let mut graph = Graph::new(rank, 2);
        let mine = graph.buffer(Access::Input, bytes);
        let theirs = graph.buffer(Access::Output, bytes);
        graph.send(mine, 1 - rank, 0);
        graph.receive(theirs, 1 - rank, 0);
        graph
    };
    (0..2).map(|rank| compile(&graph(rank)).expect("the graph is sound")).collect()
}

/// A barrier of the threads, outside all communicators. Unlike that of the standard library it
/// fails if a thread has ended, so that a failed rank ends the test.
pub(crate) struct ThreadBarrier {
    threads: usize,
    state: Mutex<BarrierState>,
    changed: Condvar,
}

#[derive(Default)]
struct BarrierState {
    arrived: usize,
    /// Number of barriers that are complete.
    complete: u64,
    is_broken: bool,
}

impl ThreadBarrier {
    fn new(threads: usize) -> Self {
        ThreadBarrier { threads, state: Mutex::default(), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, BarrierState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for all threads. Panics if one of them has ended.
    pub(crate) fn wait(&self) {
        let mut state = self.state();
        let own = state.complete;
        state.arrived += 1;
        if state.arrived == self.threads {
            state.arrived = 0;
            state.complete += 1;
            self.changed.notify_all();
        }
        let waits = |state: &mut BarrierState| state.complete == own && !state.is_broken;
        let waited = self.changed.wait_while(state, waits);
        let is_complete = waited.unwrap_or_else(PoisonError::into_inner).complete != own;
        assert!(is_complete, "another rank has ended before the barrier");
    }
}

/// Breaks the barrier when a thread ends: the others wait for it in vain.
struct BreakAtEnd<'a>(&'a ThreadBarrier);

impl Drop for BreakAtEnd<'_> {
    fn drop(&mut self) {
        self.0.state().is_broken = true;
        self.0.changed.notify_all();
    }
}
