//! Long series of allreduces with a check of each result.
//!
//! `TRADEWIND_ALLREDUCES` sets their number.

use crate::world::World;
use crate::world::allreduce::Allreduce;
use network::backend::CommunicatorContext;
use std::time::Instant;

testing::tests![needs(Nodes, Bpf):
    one_after_the_other,
    several_under_way,
    on_several_communicators,
];

/// Number of allreduces of each test.
fn times() -> u64 {
    std::env::var("TRADEWIND_ALLREDUCES").ok().and_then(|text| text.parse().ok()).unwrap_or(10_000)
}

/// Runs [`times`] allreduces in total on `communicators` concurrent communicators with several
/// runs under way on each.
fn endures(nodes: usize, ranks_per_node: usize, communicators: u32, under_way: usize) {
    let world = World::new(nodes, ranks_per_node, 1500);
    let ranks = world.ranks.len();
    let each = times() / u64::from(communicators);
    let before = Instant::now();
    world.run(ranks, move |rank, here| {
        std::thread::scope(|scope| {
            for number in 0..communicators {
                let context = CommunicatorContext {
                    number,
                    members: (0..ranks as u32).collect(),
                    rank: rank as u32,
                };
                scope.spawn(move || {
                    let allreduce = Allreduce::prepare(here, &context, 1).expect("it is small");
                    allreduce
                        .repeat(each, under_way)
                        .unwrap_or_else(|error| panic!("rank {rank}: {error}"));
                });
            }
        });
    });
    let elapsed = before.elapsed();
    let all = each * u64::from(communicators);
    println!(
        "{nodes} nodes, {ranks_per_node} ranks each, {communicators} communicators, {under_way} under way each:"
    );
    println!(
        "  {all} allreduces in {elapsed:.1?}, {:.1} µs each",
        1e6 * elapsed.as_secs_f64() / all as f64
    );
    for loader in &world.loaders {
        let counts = loader.counts().expect("it counts");
        assert_eq!(counts.rejected(), 0, "{counts:?}");
        println!("  {counts:?}");
    }
}

fn one_after_the_other() {
    endures(2, 1, 1, 1);
}

fn several_under_way() {
    endures(2, 1, 1, 16);
}

fn on_several_communicators() {
    endures(2, 2, 4, 4);
}
