//! Whole schedules while the network loses, repeats, reorders and damages packets, is down, or
//! carries packets from outside the job.

use crate::world::allreduce::Allreduce;
use crate::world::{JobKind, World, without_computations};
use goal::compile::compile;
use kernel::wire::Counters;
use network::backend::{Backend, CommunicatorContext};
use network::error::Error;
use proptest::prop_assume;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use testing::conformance::random::{lay_out, plans, verify};
use testing::conformance::{Engine, vectors};
use testing::relay::{Faults, Relay, relayed_nodes};

testing::tests![needs(Tap, Bpf):
    two_nodes,
    two_nodes_with_two_ranks_each,
    four_nodes,
    four_nodes_with_two_ranks_each,
    eight_nodes_with_two_ranks_each,
    while_packets_are_damaged_and_replayed,
    losses_are_found_although_no_rank_waits,
    a_link_that_is_down_for_a_second_costs_time_only,
    a_node_that_vanishes_is_an_error_in_bounded_time,
    two_jobs_and_a_stranger_on_the_same_nodes,
];

/// Time after which a collective counts as stuck.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// Creates nodes joined by a relay, and a job with this number of ranks on each.
fn relayed(nodes: usize, ranks_per_node: usize, mtu: u32, kind: JobKind) -> (World, Relay) {
    let (nodes, relay) = relayed_nodes(nodes, mtu, 21).expect("relayed nodes");
    (World::on(Arc::new(nodes), ranks_per_node, mtu, kind), relay)
}

/// Sums a vector over all ranks repeatedly and compares every value.
fn all_allreduce(world: &World, elements: usize, times: u64) {
    all_try_to_allreduce(world, elements, times)
        .into_iter()
        .for_each(|result| result.unwrap_or_else(|error| panic!("{error}")));
}

fn all_try_to_allreduce(world: &World, elements: usize, times: u64) -> Vec<Result<(), Error>> {
    let number = world.communicator();
    let ranks = world.ranks.len();
    let contexts: Vec<CommunicatorContext> =
        (0..ranks).map(|rank| world.context(number, ranks, rank)).collect();
    world.run(ranks, move |rank, here| {
        Allreduce::prepare(here, &contexts[rank], elements)?.repeat(times, 1)
    })
}

fn counts(world: &World) -> Vec<Counters> {
    world.loaders.iter().map(|loader| loader.counts().expect("it counts")).collect()
}

/// Small vectors of the suite, random programs, and allreduces of one and of many pieces.
fn survives(world: &World, relay: &Relay, nodes: usize, faults: Faults) {
    relay.set_faults(faults);
    // Every rank has a thread, and most test machines have few cores.
    let share = (world.ranks.len() / 2).max(1) as u64;
    all_allreduce(world, 1, 300 / share);
    all_allreduce(world, 5000, 5 / share + 1);
    let is_small = |graph: &goal::graph::Graph| {
        compile(graph).is_ok_and(|schedule| {
            world.ranks[0].supports(&schedule) && schedule.as_bytes().len() < 20_000
        })
    };
    // These programs have few ranks: further nodes would be idle.
    let vectors = vectors::all()
        .into_iter()
        .filter(|vector| nodes == 2 && vector.is_within(&world.capabilities()));
    for vector in vectors.filter(|vector| {
        vector.program.iter().map(without_computations).all(|graph| is_small(&graph))
    }) {
        vector.run(world).unwrap_or_else(|text| panic!("{} at {faults:?}: {text}", vector.name));
    }
    // A stuck world stays stuck: a smaller program would fail in it as well and prove nothing.
    let config = Config {
        cases: 20 / share as u32 + 1,
        failure_persistence: None,
        max_shrink_iters: 0,
        ..Config::default()
    };
    let outcome = TestRunner::new(config).run(&plans(&world.capabilities()), |plan| {
        let program = lay_out(&plan);
        prop_assume!(program.graphs.iter().map(without_computations).all(|graph| is_small(&graph)));
        verify(world, &program).map_err(TestCaseError::fail)
    });
    outcome.unwrap_or_else(|difference| panic!("{faults:?}: {:?}: {difference}", counts(world)));
}

/// Faults of every rate, one rate after the other on one job: loading the program for each node
/// takes longer than the traffic of a rate.
fn survives_all_rates(nodes: usize, ranks_per_node: usize, mtu: u32, kind: JobKind) {
    let (world, relay) = relayed(nodes, ranks_per_node, mtu, kind);
    survives(&world, &relay, nodes, Faults::default());
    let before = counts(&world);
    assert!(before.iter().all(|counts| counts.rejected() == 0), "{before:?}");
    survives(&world, &relay, nodes, Faults::of_networks(0.01));
    survives(&world, &relay, nodes, Faults::of_networks(0.05));
    let before = counts(&world);
    survives(&world, &relay, nodes, Faults::of_networks(0.2));
    let after = counts(&world);
    assert!(
        after.iter().zip(&before).all(|(after, before)| after.resent > before.resent + 20
            && after.duplicate > before.duplicate + 20),
        "{before:?} {after:?}"
    );
}

fn two_nodes() {
    survives_all_rates(2, 1, 1500, JobKind::default());
}

fn two_nodes_with_two_ranks_each() {
    survives_all_rates(2, 2, 9000, JobKind::default());
}

fn four_nodes() {
    let kind = JobKind { number: 3, is_version_6: true, ..JobKind::default() };
    survives_all_rates(4, 1, 9000, kind);
}

fn four_nodes_with_two_ranks_each() {
    survives_all_rates(4, 2, 1500, JobKind::default());
}

fn eight_nodes_with_two_ranks_each() {
    survives_all_rates(8, 2, 1500, JobKind::default());
}

fn while_packets_are_damaged_and_replayed() {
    let faults = Faults { mutate: 0.05, truncate: 0.05, replay: 0.2, ..Faults::of_networks(0.02) };
    let (world, relay) = relayed(2, 2, 1500, JobKind::default());
    survives(&world, &relay, 2, faults);
    let counts = counts(&world);
    assert!(counts.iter().all(|counts| counts.forged > 5 && counts.truncated > 5), "{counts:?}");
}

/// No rank waits: the ranks only test, like programs that compute at the same time.
fn losses_are_found_although_no_rank_waits() {
    let (world, relay) = relayed(2, 1, 1500, JobKind::default());
    relay.set_faults(Faults::of_networks(0.1));
    let number = world.communicator();
    let contexts: Vec<CommunicatorContext> =
        (0..2).map(|rank| world.context(number, 2, rank)).collect();
    let results = world.run(2, move |rank, here| {
        let allreduce = Allreduce::prepare(here, &contexts[rank], 1)?;
        (0..100).try_for_each(|time| {
            let run_id = allreduce.start(time)?;
            allreduce.poll(run_id);
            allreduce.check(run_id, time)
        })
    });
    assert!(results.into_iter().all(|result| result.is_ok()));
}

fn a_link_that_is_down_for_a_second_costs_time_only() {
    let (world, _relay) = relayed(3, 1, 1500, JobKind::default());
    let testbed = Arc::clone(&world.testbed);
    let ended = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&ended);
    let puller = std::thread::spawn(move || {
        let mut pulled = 0;
        while !ends.load(Ordering::Relaxed) && pulled < 2 {
            std::thread::sleep(Duration::from_millis(20));
            testbed.unplug(1).expect("there is such a node");
            std::thread::sleep(Duration::from_secs(1));
            testbed.plug(1).expect("there is such a node");
            pulled += 1;
        }
        pulled
    });
    while !puller.is_finished() {
        all_allreduce(&world, 100, 50);
    }
    ended.store(true, Ordering::Relaxed);
    assert_eq!(puller.join().expect("it pulls"), 2);
    all_allreduce(&world, 100, 50);
}

fn a_node_that_vanishes_is_an_error_in_bounded_time() {
    let (world, _relay) = relayed(2, 1, 1500, JobKind::default());
    all_allreduce(&world, 1, 10);
    world.testbed.unplug(1).expect("there is such a node");
    let start = Instant::now();
    for (rank, result) in all_try_to_allreduce(&world, 1, 1).into_iter().enumerate() {
        let other = 1 - rank;
        let Err(Error::NodeUnreachable { node, address, .. }) = &result else {
            panic!("{result:?}")
        };
        assert_eq!(
            (*node as usize, address),
            (other, &world.testbed.nodes()[other].address().to_string())
        );
    }
    assert!(start.elapsed() < TIME_LIMIT, "it is an error and not a time-out");
}

fn two_jobs_and_a_stranger_on_the_same_nodes() {
    let first = World::new(3, 1, 1500);
    let second =
        World::on(Arc::clone(&first.testbed), 1, 1500, JobKind { number: 1, ..JobKind::default() });
    let ended = AtomicBool::new(false);
    let node = &first.testbed.nodes()[2];
    let socket = node.run(|| UdpSocket::bind((node.address(), 0))).expect("the port is free");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = SmallRng::seed_from_u64(1);
            let mut bytes = [0; 200];
            while !ended.load(Ordering::Relaxed) {
                random.fill_bytes(&mut bytes);
                for port in [7199, 7200] {
                    let length = random.next_u32() as usize % 200;
                    socket
                        .send_to(&bytes[..length], (first.testbed.nodes()[0].address(), port))
                        .expect("it goes out");
                }
            }
        });
        let other = scope.spawn(|| all_allreduce(&second, 300, 300));
        all_allreduce(&first, 1, 1000);
        other.join().expect("the second job is done");
        ended.store(true, Ordering::Relaxed);
    });
    for world in [&first, &second] {
        let counts = counts(world);
        assert!(counts[0].rejected() > 0 && counts[1].rejected() == 0, "{counts:?}");
    }
}
