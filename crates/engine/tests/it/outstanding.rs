//! Many collectives under way in little memory: they queue, and none waits for ever.

use engine::argument::Argument;
use engine::communicator::Communicator;
use engine::flat::{FlatCollective, Pattern};
use engine::node::membership::Member;
use engine::node::{EngineKind, JobOptions, Node};
use engine::signature::{CallKind, Signature};
use engine::{Error, LinkedSchedule, Request};
use goal::arithmetic::{Arithmetic, DataType};
use goal::compile::compile;
use goal::graph::{Access, Graph};
use goal::schedule::Schedule;
use proptest::prelude::*;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const ARENA_BYTES: u64 = 2 << 20;

/// No collective of these tests takes a hundredth of it: what takes longer hangs.
const LIMIT: Option<Duration> = Some(Duration::from_secs(50));

/// A kind of collective; a root is taken modulo the number of ranks.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Barrier,
    Broadcast(u32),
    Gather,
    GatherTo(u32),
    Exchange,
    Sum,
    SumTo(u32),
    Scan,
    /// From each rank to the next one, by a linked schedule.
    Ring,
}

/// A collective on one of the communicators, with blocks of this many words.
#[derive(Clone, Copy, Debug)]
struct Collective {
    communicator: usize,
    kind: Kind,
    words: usize,
}

/// Element `index` of the contribution of a rank to a collective.
fn element(number: usize, rank: usize, index: usize) -> u64 {
    (number * 1_000_000 + rank * 100_000_000_000 + index) as u64
}

fn bytes(words: impl Iterator<Item = u64>) -> Vec<u8> {
    words.flat_map(u64::to_le_bytes).collect()
}

impl Collective {
    /// The contribution of a rank to collective number `number`.
    fn input(self, number: usize, rank: usize, ranks: usize) -> Vec<u8> {
        let words = match self.kind {
            Kind::Barrier => 0,
            Kind::Exchange => self.words * ranks,
            _ => self.words,
        };
        bytes((0..words).map(|index| element(number, rank, index)))
    }

    /// The result on a rank; `None` if it has none.
    fn expected(self, number: usize, rank: usize, ranks: usize) -> Option<Vec<u8>> {
        let words = self.words;
        let of = |rank: usize| (0..words).map(move |index| element(number, rank, index));
        let sum = |ranks: usize| {
            bytes((0..words).map(|index| (0..ranks).map(|rank| element(number, rank, index)).sum()))
        };
        let is_root = |root: u32| root as usize % ranks == rank;
        match self.kind {
            Kind::Barrier => None,
            Kind::Broadcast(root) => (!is_root(root)).then(|| bytes(of(root as usize % ranks))),
            Kind::Gather => Some(bytes((0..ranks).flat_map(of))),
            Kind::GatherTo(root) => is_root(root).then(|| bytes((0..ranks).flat_map(of))),
            Kind::Exchange => Some(bytes((0..ranks).flat_map(|from| {
                (0..words).map(move |index| element(number, from, rank * words + index))
            }))),
            Kind::Sum => Some(sum(ranks)),
            Kind::SumTo(root) => is_root(root).then(|| sum(ranks)),
            Kind::Scan => Some(sum(rank + 1)),
            Kind::Ring => Some(bytes(of((rank + ranks - 1) % ranks))),
        }
    }

    fn flat(self, ranks: u32) -> FlatCollective {
        let (pattern, kind) = match self.kind {
            Kind::Barrier => (Pattern::Barrier, CallKind::Barrier),
            Kind::Broadcast(root) => (Pattern::Broadcast { root: root % ranks }, CallKind::Bcast),
            Kind::Gather => (Pattern::Gather, CallKind::Allgather),
            Kind::GatherTo(root) => (Pattern::GatherTo { root: root % ranks }, CallKind::Gather),
            Kind::Exchange => (Pattern::Exchange, CallKind::Alltoall),
            Kind::SumTo(root) => (Pattern::ReduceTo { root: root % ranks }, CallKind::Reduce),
            Kind::Scan => (Pattern::Scan, CallKind::Scan),
            Kind::Sum | Kind::Ring => (Pattern::Reduce, CallKind::Allreduce),
        };
        let blocks = match self.kind {
            Kind::Barrier => 0,
            Kind::Exchange => u64::from(ranks),
            _ => 1,
        };
        let bytes = blocks * 8 * self.words as u64;
        let arithmetic = Some((Arithmetic::Add, DataType::U64));
        let call = Signature::new(kind, bytes, 0);
        FlatCollective { arithmetic, ..FlatCollective::new(pattern, bytes, call) }
    }
}

/// The schedules of all ranks for a ring of messages of `bytes` bytes.
fn ring(ranks: u32, bytes: u64) -> Vec<Schedule> {
    let graph = |rank: u32| {
        let mut graph = Graph::new(rank, ranks);
        let mine = graph.buffer(Access::Input, bytes);
        let theirs = graph.buffer(Access::Output, bytes);
        graph.send(mine, (rank + 1) % ranks, 0);
        graph.receive(theirs, (rank + ranks - 1) % ranks, 0);
        graph
    };
    (0..ranks).map(|rank| compile(&graph(rank)).expect("the graph is sound")).collect()
}

/// One rank: its communicators, the schedules linked on each, and the started collectives.
struct Rank {
    communicators: Vec<Arc<Communicator>>,
    rings: Vec<((usize, usize), Arc<LinkedSchedule>)>,
    started: Vec<(usize, Request)>,
}

impl Rank {
    fn new(member: Member, communicators: usize) -> Result<Self, Error> {
        let world = Communicator::world(Arc::new(member))?;
        let mut all = vec![Arc::clone(&world)];
        for _ in 1..communicators {
            all.extend(world.split(Some(0), 0)?);
        }
        Ok(Rank { communicators: all, rings: Vec::new(), started: Vec::new() })
    }

    fn start(&mut self, number: usize, collective: Collective) -> Result<(), Error> {
        let communicator = &self.communicators[collective.communicator];
        let ranks = communicator.size();
        let input = collective.input(number, communicator.rank() as usize, ranks as usize);
        let own = communicator.rank() as usize;
        let expected = collective.expected(number, own, ranks as usize);
        let arguments = [
            Argument::input(&input),
            Argument::output(expected.map_or(0, |expected| expected.len() as u64)),
        ];
        let request = match collective.kind {
            Kind::Barrier => communicator.start_flat(&collective.flat(ranks), &[])?,
            Kind::Ring => {
                let key = (collective.communicator, collective.words);
                let known = self.rings.iter().find(|(other, _)| *other == key);
                let schedule = match known {
                    Some((_, schedule)) => Arc::clone(schedule),
                    None => {
                        let bytes = 8 * collective.words as u64;
                        let call = Signature::new(CallKind::Schedule, bytes, 0);
                        let schedule = communicator.link_all(ring(ranks, bytes), call)?;
                        self.rings.push((key, Arc::clone(&schedule)));
                        schedule
                    }
                };
                schedule.start(&arguments)?
            }
            _ => communicator.start_flat(&collective.flat(ranks), &arguments)?,
        };
        self.started.push((number, request));
        Ok(())
    }

    /// Waits for one of the started collectives and checks its result.
    fn finish(&mut self, which: usize, collectives: &[Collective]) -> Result<(), Error> {
        let (number, mut request) = self.started.swap_remove(which);
        let communicator = Arc::clone(request.communicator());
        request.wait(LIMIT)?;
        let ranks = communicator.size() as usize;
        let rank = communicator.rank() as usize;
        let expected = collectives[number].expected(number, rank, ranks).unwrap_or_default();
        let mut result = vec![0; expected.len()];
        request.collect(&mut [&mut [], &mut result])?;
        assert!(result == expected, "{:?}, number {number} on rank {rank}", collectives[number]);
        Ok(())
    }
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::Barrier),
        (0u32..4).prop_map(Kind::Broadcast),
        Just(Kind::Gather),
        (0u32..4).prop_map(Kind::GatherTo),
        Just(Kind::Exchange),
        Just(Kind::Sum),
        (0u32..4).prop_map(Kind::SumTo),
        Just(Kind::Scan),
        Just(Kind::Ring),
    ]
}

/// Blocks of a few words, of some kilobytes, and now and then of a quarter of the arena and more.
fn words() -> impl Strategy<Value = usize> {
    prop_oneof![10 => 1usize..64, 3 => 600usize..2000, 1 => 8_000usize..16_000]
}

fn collectives() -> impl Strategy<Value = Vec<Collective>> {
    (1usize..=3).prop_flat_map(|communicators| {
        let one = (0..communicators, kind(), words()).prop_map(|(communicator, kind, words)| {
            // Linked schedules stay linked, so few lengths of them.
            let words = match (kind, words) {
                (Kind::Ring, 0..1000) => 8,
                (Kind::Ring, _) => 9000,
                _ => words,
            };
            Collective { communicator, kind, words }
        });
        prop::collection::vec(one, 800..1600)
    })
}

/// A small generator of numbers, so that each rank has an order of its own.
fn next(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, max_shrink_iters: 0, ..Default::default() })]

    /// All ranks start the same collectives in one order, and wait for them in orders of their own,
    /// a few of them before the last start. In the end each rank drops some of its requests, and
    /// all communicators but the first, while other ranks wait for theirs.
    #[test]
    fn any_number_of_collectives_completes_in_little_memory(
        collectives in collectives(),
        ranks in 2u32..=4,
        seed in any::<u64>(),
    ) {
        let options = JobOptions {
            arena_bytes: ARENA_BYTES,
            ..JobOptions::new(ranks, EngineKind::Peers)
        };
        let node = Node::create(&options).expect("the job has memory");
        let members: Vec<Member> =
            (0..ranks).map(|rank| node.join(rank).expect("the rank is free")).collect();
        let communicators = 1 + collectives.iter().map(|one| one.communicator).max().unwrap_or(0);
        let run = |member: Member| -> Result<(), Error> {
            let mut order = seed ^ u64::from(member.rank());
            let mut rank = Rank::new(member, communicators)?;
            for (number, collective) in collectives.iter().enumerate() {
                rank.start(number, *collective)?;
                if next(&mut order).is_multiple_of(8) {
                    let which = next(&mut order) % rank.started.len();
                    rank.finish(which, &collectives)?;
                }
            }
            while !rank.started.is_empty() {
                let which = next(&mut order) % rank.started.len();
                match next(&mut order) % 16 {
                    0 => drop(rank.started.swap_remove(which)),
                    _ => rank.finish(which, &collectives)?,
                }
            }
            rank.rings.clear();
            rank.communicators.truncate(1);
            let end = Collective { communicator: 0, kind: Kind::Barrier, words: 0 };
            rank.start(0, end)?;
            rank.finish(0, &[end])
        };
        let failures = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for member in members {
                scope.spawn(|| {
                    let rank = member.rank();
                    if let Err(error) = run(member) {
                        failures.lock().expect("no rank panics").push((rank, error.to_string()));
                    }
                });
            }
        });
        let failures = failures.into_inner().expect("no rank panics");
        prop_assert!(failures.is_empty(), "{:?}", failures);
    }
}
