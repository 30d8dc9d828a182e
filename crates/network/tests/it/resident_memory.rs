//! The memory of the process after many small collectives, in a process of its own.

use crate::alone::is_alone;
use crate::jobs::{Wires, nodes, register, run, run_job, world};
use collectives::{Algorithm, Reduction, allreduce};
use goal::arithmetic::{Arithmetic, DataType};
use network::backend::Backend;

testing::tests![a_hundred_thousand_collectives_leak_nothing,];

/// Bytes of memory that this process has.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("/proc is mounted");
    let pages: u64 = pages.split(' ').nth(1).expect("a number").parse().expect("a number");
    pages * 4096
}

fn a_hundred_thousand_collectives_leak_nothing() {
    if !is_alone("resident_memory::a_hundred_thousand_collectives_leak_nothing") {
        return;
    }
    const RUNS: u64 = 100_000;
    let words = |values: [u64; 2]| values.map(u64::to_le_bytes).concat();
    run_job(&nodes(2, 1), Wires::Tcp, |rank, client| {
        let reduction = Reduction::new(Arithmetic::Add, DataType::U64);
        let graph = allreduce::graph(Algorithm::RecursiveDoubling, rank, 2, 16, reduction)
            .expect("in range");
        let prepared = register(&client, &world(0, rank, 2), &graph);
        let mut after_a_while = 0;
        let mut output = vec![0; 16];
        for sequence in 0..RUNS {
            if sequence == RUNS / 4 {
                after_a_while = resident();
            }
            let input = words([sequence, sequence * u64::from(rank)]);
            if sequence % 7 == 3 {
                // Some are let go of at once.
                client.discard(client.start(prepared, sequence, &[&input, &[]]).expect("memory"));
                continue;
            }
            run(&client, prepared, sequence, &[&input, &[]], &mut [&mut [], &mut output])
                .expect("no rank fails");
            assert_eq!(output, words([2 * sequence, sequence]), "run {sequence}");
        }
        let grown = resident().saturating_sub(after_a_while);
        assert!(grown < 1 << 20, "{grown} bytes more after {RUNS} runs");
    });
}
