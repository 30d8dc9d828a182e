//! Asynchronous progress, claimed without a clock: all ranks start, no rank calls, and the
//! collectives are complete.
//!
//! A barrier of the standard library, not of ours, shows that every rank has started; from there to
//! the look at [`Request::is_complete`], which does nothing for the collective, no rank makes a
//! call. So whatever is complete then was completed by the starts alone. Four and more ranks and
//! algorithms of several rounds, because with two ranks, or in one round, sends that are buffered
//! look like progress.

use std::sync::{Barrier, Mutex, PoisonError};
use tradewind::{
    Algorithm, Algorithms, Communicator, EngineKind, Neighbors, Op, Request, Result, local_with,
};

testing::tests![
    peers_finish_everything_on_four_ranks,
    peers_finish_everything_on_eight_ranks,
    peers_finish_everything_where_ranks_are_no_power_of_two,
    peers_finish_long_messages_too,
    the_caller_leaves_algorithms_of_several_rounds_unfinished,
];

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Collective {
    Barrier(Algorithm),
    Allreduce(Algorithm),
    Alltoall(Algorithm),
    Bcast(Algorithm),
    Torus,
}

/// All collectives with all their algorithms.
fn all() -> Vec<Collective> {
    let barriers =
        tradewind::Collective::Barrier.algorithms().iter().copied().map(Collective::Barrier);
    let allreduces =
        tradewind::Collective::Allreduce.algorithms().iter().copied().map(Collective::Allreduce);
    let alltoalls =
        tradewind::Collective::Alltoall.algorithms().iter().copied().map(Collective::Alltoall);
    let bcasts = tradewind::Collective::Bcast.algorithms().iter().copied().map(Collective::Bcast);
    barriers.chain(allreduces).chain(alltoalls).chain(bcasts).chain([Collective::Torus]).collect()
}

/// In which order the ranks start.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    /// All at once, as the scheduler has it.
    Together,
    /// One after the other, beginning with a rank that moves on every round.
    OneByOne,
}

/// One way of doing it.
#[derive(Clone, Copy, Debug)]
struct Plan {
    engine: EngineKind,
    collective: Collective,
    ranks: u32,
    order: Order,
    /// Words a block.
    words: usize,
    /// Collectives that a rank starts one after the other before anybody looks.
    outstanding: usize,
    /// Rounds of start, look and wait.
    rounds: u32,
}

/// Of short messages, more rounds than there are slots for runs, so that slots are used again.
const SHORT: Plan = Plan {
    engine: EngineKind::Peers,
    collective: Collective::Torus,
    ranks: 4,
    order: Order::Together,
    words: 1,
    outstanding: 3,
    rounds: 50,
};
/// Of messages this long there may be only two runs at a time, and a run's slot is known to be free
/// only when all ranks have started the next: what finds no slot waits for its owner, by design.
const LONG: Plan = Plan { words: 1 << 14, outstanding: 1, rounds: 6, ..SHORT };

/// One rank's side of a collective: the communicator it is called on, and what goes in.
struct Side {
    collective: Collective,
    world: Communicator,
    torus: Neighbors,
    input: Vec<u64>,
}

/// A started collective, whatever its buffers.
enum Started<'a> {
    NoBuffer(Request<'static>),
    OneBuffer(Request<'a>),
    TwoBuffers(Request<'a, ((), ())>),
}

impl Started<'_> {
    fn is_complete(&self) -> bool {
        match self {
            Started::NoBuffer(request) => request.is_complete(),
            Started::OneBuffer(request) => request.is_complete(),
            Started::TwoBuffers(request) => request.is_complete(),
        }
    }

    fn wait(self) -> Result<()> {
        match self {
            Started::NoBuffer(request) => request.wait(),
            Started::OneBuffer(request) => request.wait(),
            Started::TwoBuffers(request) => request.wait().map(|((), ())| ()),
        }
    }
}

impl Side {
    fn new(plan: Plan, world: &Communicator) -> Result<Self> {
        let mut algorithms = Algorithms::default();
        match plan.collective {
            Collective::Barrier(algorithm) => algorithms.barrier = Some(algorithm),
            Collective::Allreduce(algorithm) => algorithms.allreduce = Some(algorithm),
            Collective::Alltoall(algorithm) => algorithms.alltoall = Some(algorithm),
            Collective::Bcast(algorithm) => algorithms.bcast = Some(algorithm),
            Collective::Torus => {}
        }
        let extents = tradewind::balanced_dimensions(world.size(), 2)?;
        let torus = world.cartesian(&extents, &[true, true])?;
        let blocks = match plan.collective {
            Collective::Alltoall(_) => world.size() as usize,
            Collective::Torus => torus.destinations().len(),
            _ => 1,
        };
        let input =
            (0..(blocks * plan.words) as u64).map(|word| word_of(world.rank(), word)).collect();
        Ok(Side {
            collective: plan.collective,
            world: world.with_algorithms(algorithms),
            torus,
            input,
        })
    }

    fn start<'a>(&'a self, output: &'a mut Vec<u64>, root: u32) -> Result<Started<'a>> {
        output.fill(u64::MAX);
        if self.world.rank() == root && matches!(self.collective, Collective::Bcast(_)) {
            output.copy_from_slice(&self.input);
        }
        Ok(match self.collective {
            Collective::Barrier(_) => Started::NoBuffer(self.world.ibarrier()?),
            Collective::Bcast(_) => Started::OneBuffer(self.world.ibcast(output, root)?),
            Collective::Allreduce(_) => {
                Started::TwoBuffers(self.world.iallreduce(&self.input, output, Op::Sum)?)
            }
            Collective::Alltoall(_) => {
                Started::TwoBuffers(self.world.ialltoall(&self.input, output)?)
            }
            Collective::Torus => {
                Started::TwoBuffers(self.torus.ineighbor_alltoall(&self.input, output)?)
            }
        })
    }

    /// What the output must be.
    fn expected(&self, root: u32) -> Vec<u64> {
        let (rank, ranks) = (self.world.rank(), self.world.size());
        let word = |index: usize| {
            let (blocks, index) = (self.input.len() as u64, index as u64);
            match self.collective {
                Collective::Barrier(_) => u64::MAX,
                Collective::Bcast(_) => word_of(root, index),
                Collective::Allreduce(_) => (0..ranks).map(|rank| word_of(rank, index)).sum(),
                Collective::Alltoall(_) => {
                    let block = blocks / u64::from(ranks);
                    word_of((index / block) as u32, u64::from(rank) * block + index % block)
                }
                Collective::Torus => {
                    let sources = self.torus.sources();
                    let block = blocks / sources.len() as u64;
                    let source = sources[(index / block) as usize].unwrap_or(u32::MAX);
                    // What comes from the negative side was sent in the positive direction.
                    word_of(source, ((index / block) ^ 1) * block + index % block)
                }
            }
        };
        (0..self.input.len()).map(word).collect()
    }
}

/// Word `index` of rank `rank`'s input.
fn word_of(rank: u32, index: u64) -> u64 {
    u64::from(rank) << 32 | index
}

/// For every round and every collective of it: how many ranks found it complete.
fn complete_without_a_call(plan: Plan) -> Vec<u32> {
    let rendezvous = Barrier::new(plan.ranks as usize);
    let complete = Mutex::new(vec![0; plan.rounds as usize * plan.outstanding]);
    let body = |world: Communicator| {
        let side = Side::new(plan, &world)?;
        let mut outputs = vec![vec![0; side.input.len()]; plan.outstanding];
        for round in 0..plan.rounds {
            let root = round % plan.ranks;
            let mut started = Vec::new();
            let mut waiting = Some(&mut outputs);
            for turn in 0..plan.ranks {
                if plan.order == Order::Together || (turn + round) % plan.ranks == world.rank() {
                    for output in waiting.take().into_iter().flatten() {
                        started.push(side.start(output, root)?);
                    }
                }
                rendezvous.wait();
            }
            let seen: Vec<bool> = started.iter().map(Started::is_complete).collect();
            let base = round as usize * plan.outstanding;
            for (index, _) in seen.iter().enumerate().filter(|(_, seen)| **seen) {
                complete.lock().unwrap_or_else(PoisonError::into_inner)[base + index] += 1;
            }
            // No rank waits, which would be a call, before all have checked.
            rendezvous.wait();
            started.into_iter().try_for_each(Started::wait)?;
            assert!(
                outputs.iter().all(|output| *output == side.expected(root)),
                "{plan:?}, round {round}: wrong data"
            );
        }
        Ok(())
    };
    if let Err(error) = local_with(plan.ranks, plan.engine, body) {
        panic!("{plan:?}: {error}");
    }
    complete.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn assert_all_complete(plan: Plan) {
    for collective in all() {
        for order in [Order::Together, Order::OneByOne] {
            let plan = Plan { collective, order, ..plan };
            let complete = complete_without_a_call(plan);
            assert!(
                complete.iter().all(|ranks| *ranks == plan.ranks),
                "{plan:?}: complete on {complete:?} ranks"
            );
        }
    }
}

fn peers_finish_everything_on_four_ranks() {
    assert_all_complete(Plan { ranks: 4, ..SHORT });
}

fn peers_finish_everything_on_eight_ranks() {
    assert_all_complete(Plan { ranks: 8, ..SHORT });
}

fn peers_finish_everything_where_ranks_are_no_power_of_two() {
    assert_all_complete(Plan { ranks: 7, ..SHORT });
}

fn peers_finish_long_messages_too() {
    assert_all_complete(Plan { ranks: 4, ..LONG });
}

fn the_caller_leaves_algorithms_of_several_rounds_unfinished() {
    let several_rounds = [
        Collective::Barrier(Algorithm::Dissemination),
        Collective::Allreduce(Algorithm::RecursiveDoubling),
        Collective::Alltoall(Algorithm::Bruck),
    ];
    for collective in several_rounds {
        for ranks in [4, 8] {
            // The rank that starts first finds nothing to receive, and makes no call afterwards.
            let plan = Plan {
                engine: EngineKind::Caller,
                collective,
                ranks,
                order: Order::OneByOne,
                ..SHORT
            };
            let complete = complete_without_a_call(plan);
            assert!(
                complete.iter().all(|seen| *seen < ranks),
                "{plan:?}: complete on {complete:?} ranks"
            );
        }
    }
}
