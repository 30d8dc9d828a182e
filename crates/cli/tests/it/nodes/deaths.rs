//! Ranks that are killed as soon as they have started an exchange with a rank on another node.

use super::harness::{Hydra, Said};
use super::nodes;
use super::rank::say;
use rustix::process::{Signal, getpid, kill_process};
use std::time::Duration;
use testing::relay::{Faults, relayed_nodes};
use tradewind::{Communicator, Job, Result};
use virtual_nodes::VirtualNodes;

testing::tests![
    needs(Nodes, Mpiexec):
    exchanges_outlive_the_ranks_that_have_started_them,
];
testing::tests![
    needs(Nodes, Tap, Mpiexec):
    exchanges_outlive_their_ranks_where_most_has_not_left_the_system,
];

/// Number of ranks that are killed in a job.
const VICTIMS: u32 = 12;
/// Words of a block: 64 KiB, 256 KiB, and the longest that ranks exchange themselves.
const LENGTHS: [usize; 3] = [8 << 10, 32 << 10, 128 << 10];

/// Runs the program on two nodes; rank 0 is alone on the first.
fn run(testbed: &VirtualNodes, round: u32) {
    let said = Hydra::new(testbed, &[1, VICTIMS])
        .option("-disable-auto-cleanup")
        .variable("TRADEWIND_INTERNODE", "direct")
        .program("exchanges-of-killed-ranks")
        .run();
    assert_eq!(said, [Said::new(0, "has all")], "round {round}");
}

fn exchanges_outlive_the_ranks_that_have_started_them() {
    let testbed = nodes(2);
    (0..5).for_each(|round| run(&testbed, round));
}

/// With a long round trip a connection begins slowly, so the ranks are dead before most of their
/// messages leave.
fn exchanges_outlive_their_ranks_where_most_has_not_left_the_system() {
    let (testbed, relay) =
        relayed_nodes(2, 1500, 11).expect("the runner has made sure of TAP interfaces");
    relay.set_faults(Faults { delay: Duration::from_millis(2), ..Faults::default() });
    (0..2).for_each(|round| run(&testbed, round));
}

/// Block that a rank sends another one.
fn block(from: u32, to: u32, words: usize) -> impl Iterator<Item = u64> {
    (0..words as u64).map(move |word| u64::from(from) << 48 | u64::from(to) << 40 | word)
}

/// Numbers that a rank sends in the exchange between rank 0 and `other`, and those that it gets.
fn blocks(rank: u32, other: u32) -> [Vec<u64>; 2] {
    let words = LENGTHS[other as usize % LENGTHS.len()];
    let both = || [0, other].into_iter();
    [
        both().flat_map(|to| block(rank, to, words)).collect(),
        both().flat_map(|from| block(from, rank, words)).collect(),
    ]
}

/// Rank 0 exchanges with every other rank, which is killed right behind its start, and has messages
/// of rank 0 then that it has not read.
pub(super) fn exchange() -> Result<()> {
    let job = Job::init()?;
    let world = job.world();
    let (rank, size) = (world.rank(), world.size());
    let here = world.split_by_node()?;
    let mut pairs: Vec<(u32, Communicator)> = Vec::new();
    for other in 1..size {
        let color = [0, other].contains(&rank).then_some(0);
        pairs.extend(world.split(color, rank.into())?.map(|pair| (other, pair)));
    }
    if rank != 0 {
        let (_, pair) = &pairs[0];
        let [given, _] = blocks(rank, rank);
        let mut got = vec![0; given.len()];
        // Rank 0 has started before.
        world.recv(&mut [0u8], 0, 0)?;
        let _request = pair.ialltoall(&given, &mut got)?;
        // Hydra kills the ranks of a node when the first of them has ended.
        here.barrier()?;
        kill_process(getpid(), Signal::KILL).expect("a process may signal itself");
    }
    let given: Vec<Vec<u64>> = (1..size).map(|other| blocks(0, other)[0].clone()).collect();
    let mut got: Vec<Vec<u64>> = given.iter().map(|given| vec![0; given.len()]).collect();
    let mut started = Vec::new();
    for (((other, pair), given), got) in pairs.iter().zip(&given).zip(&mut got) {
        let request = pair.ialltoall(given, got)?;
        // The system may grant less than longer ones need, which the agent executes then.
        if (*other as usize).is_multiple_of(LENGTHS.len()) {
            assert_eq!(request.explain().map(|explanation| explanation.engine), Some("direct"));
        }
        started.push(request);
    }
    (1..size).try_for_each(|other| world.send(&[0u8], other, 0))?;
    for (request, other) in started.into_iter().zip(1u32..) {
        request.wait().inspect_err(|error| say(0, &format!("misses rank {other}: {error}")))?;
    }
    let are_right = got.iter().zip(1..).all(|(got, other)| *got == blocks(0, other)[1]);
    say(0, if are_right { "has all" } else { "has wrong bytes" });
    Ok(())
}
