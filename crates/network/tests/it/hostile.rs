//! Ranks that write garbage into their own shared memory, and nodes that send forged frames: ranks
//! that keep the rules exchange messages meanwhile, and agents with nothing left to do sleep.
//!
//! `TRADEWIND_GARBAGE_SECONDS` sets the time for which ranks write garbage, and
//! `TRADEWIND_FORGED_FRAMES` the number of frames.

mod forged;
mod objects;
mod proper;
mod route;
mod watched;

use crate::failures::barrier_of;
use crate::jobs::register;
use crate::own_regions::rank_at;
use network::agent::shared_region::SharedRegion;
use network::agent::{Agent, AgentClient, Limits};
use network::backend::{Backend, CommunicatorContext};
use network::error::RankExit;
use network::node_map::NodeMap;
use network::transport::memory;
use objects::Garbage;
use proper::Proper;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use shm::mapped::Mapped;
use shm::segment::{Backing, Offset, Segment};
use shm::sync::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};
use watched::Watched;

testing::tests![garbage_of_a_rank_harms_no_other_rank];

/// Jobs of a fast run.
const JOBS: u64 = 40;
/// Rounds of a job.
const ROUNDS: u64 = 20;

/// Returns a number from the environment, or `usual`.
fn setting(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Ends a test that makes no progress.
#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::yield_now();
    }
}

/// A node of this process: its agent, and the segment of its ranks.
struct Node {
    agent: Agent,
    sleep: Arc<watched::Sleep>,
    segment: Arc<Segment>,
}

impl Node {
    fn start(nodes: &NodeMap, transport: memory::Memory) -> Node {
        const BYTES: u64 = 16 << 20;
        let segment = Segment::create(BYTES, Backing::Memory).expect("memory");
        segment.commit(Offset(0), BYTES).expect("memory");
        let (transport, sleep) = Watched::new(transport);
        let limits = Limits::new(16 << 10).with_in_place(16 << 10);
        let agent = Agent::start(nodes.clone(), Box::new(transport), limits, || {});
        Node { agent: agent.expect("a thread"), sleep, segment: Arc::new(segment) }
    }

    /// Opens a rank. Returns the memory that it shares with its agent, too.
    fn join(&self, node: u32, rank: u32) -> (AgentClient, Arc<Segment>) {
        let region = SharedRegion::create().expect("memory");
        let segment = Arc::clone(region.segment());
        let (client, notifier) = rank_at(node, &segment);
        let word = Mapped::new(&self.segment, Offset(64 * u64::from(rank))).expect("inside");
        self.agent.wake_by(rank, word);
        self.agent.open(rank, region, notifier);
        (client, segment)
    }
}

fn garbage_of_a_rank_harms_no_other_rank() {
    let end = Instant::now() + Duration::from_secs(setting("TRADEWIND_GARBAGE_SECONDS", 0));
    let mut job = 0;
    while job < JOBS || Instant::now() < end {
        beside_garbage(job);
        job += 1;
    }
}

/// Rank 0, on the node of rank 1, writes garbage. Rank 2 is on the other node.
fn beside_garbage(seed: u64) {
    let nodes = NodeMap::new(["a", "a", "b"]);
    let transports: [memory::Memory; 2] =
        memory::connect(2).expect("descriptors").try_into().expect("two nodes");
    let [first, second] = transports.map(|transport| Node::start(&nodes, transport));
    let (hostile, region) = first.join(0, 0);
    let clients = [first.join(0, 1).0, second.join(1, 2).0];
    let mut proper = Proper::pair(clients, [1, 2], [&first.segment, &second.segment]);
    // A run that waits for the others.
    let all = CommunicatorContext { number: 0, members: [0, 1, 2].into(), rank: 0 };
    let schedule = register(&hostile, &all, &barrier_of(0, 3));
    hostile.discard(hostile.start(schedule, 0, &[]).expect("memory"));
    let random = SmallRng::seed_from_u64(seed);
    let mut hostile = Garbage::new(hostile, &region, &first.segment, random);
    // Few kinds: the first damage that the agent finds may end its trust.
    let acts = [hostile.choose(), hostile.choose()];
    let rounds = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                acts.into_iter().for_each(|act| hostile.act(act));
                until("a round does not end", || rounds.load(Ordering::Relaxed) >= round);
            }
        });
        for round in 0..ROUNDS {
            exchange(&mut proper);
            rounds.store(round + 1, Ordering::Relaxed);
        }
    });
    for node in [&first, &second] {
        until(&format!("job {seed}: an agent does not sleep beside {acts:?}"), || {
            node.sleep.is_long()
        });
    }
    first.agent.exit(0, RankExit::Failed("it is killed".into()));
    exchange(&mut proper);
    for node in [&first, &second] {
        until("an agent does not sleep after the exit", || node.sleep.is_long());
        assert!(!node.agent.has_ended(), "its ranks have not exited");
    }
    drop(proper);
    for node in [&first, &second] {
        until("an agent does not end", || node.agent.has_ended());
    }
    // The rank drops what it has. Its counts are in order then.
    region.slice_at::<AtomicU64>(Offset(0), 16).expect("inside").iter().for_each(|word| {
        word.store(0, Ordering::Relaxed);
    });
    drop(hostile);
}

/// A round of the ranks that keep the rules.
fn exchange(proper: &mut [Proper; 2]) {
    proper.iter_mut().for_each(Proper::begin);
    proper.iter_mut().for_each(Proper::end);
}
