//! A long time of small collectives leaves nothing behind. Alone in its process, whose memory it
//! measures.

mod threads;

use collectives::{Reduction, allreduce};
use goal::arithmetic::{Arithmetic, DataType};
use network::carrier::Carrier;
use threads::{Wires, nodes, prepare, run, run_job, world};

/// Bytes of memory that this process has.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("/proc is mounted");
    let pages: u64 = pages.split(' ').nth(1).expect("a number").parse().expect("a number");
    pages * 4096
}

#[test]
fn a_hundred_thousand_collectives_leave_nothing_behind() {
    const RUNS: u64 = 100_000;
    let words = |values: [u64; 2]| values.map(u64::to_le_bytes).concat();
    run_job(&nodes(2, 1), Wires::Tcp, |rank, client| {
        let reduction = Reduction::new(Arithmetic::Add, DataType::U64);
        let graph = allreduce::Algorithm::RecursiveDoubling
            .graph(rank, 2, 16, reduction)
            .expect("in range");
        let prepared = prepare(&client, &world(0, rank, 2), &graph);
        let mut after_a_while = 0;
        let mut output = vec![0; 16];
        for sequence in 0..RUNS {
            if sequence == RUNS / 4 {
                after_a_while = resident();
            }
            let input = words([sequence, sequence * u64::from(rank)]);
            if sequence % 7 == 3 {
                // Some are let go of at once.
                client.forget(client.start(prepared, sequence, &[&input, &[]]).expect("memory"));
                continue;
            }
            run(&client, prepared, sequence, &[&input, &[]], &mut [&mut [], &mut output])
                .expect("nobody fails");
            assert_eq!(output, words([2 * sequence, sequence]), "run {sequence}");
        }
        let grown = resident().saturating_sub(after_a_while);
        assert!(grown < 1 << 20, "{grown} bytes more after {RUNS} runs");
    });
}
