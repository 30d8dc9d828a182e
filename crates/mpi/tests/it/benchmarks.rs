//! The Intel MPI Benchmarks of nonblocking collectives, a program that others have built.

use crate::harness::{Finished, Job};
use testing::mpi::{Family, benchmarks, installations};

testing::tests![needs(IntelBenchmarks): nonblocking_benchmarks_run_on_tradewind];

const BENCHMARKS: [&str; 5] = ["Ibcast", "Iallreduce", "Ialltoall", "Iallgather", "Ibarrier"];

fn job() -> Job {
    let all = installations(Family::Intel).into_iter();
    let (installation, program) = all
        .filter_map(|installation| Some((installation, benchmarks(installation)?)))
        .next()
        .expect("the need is fulfilled");
    let job = Job::of(installation, program, 2);
    // Few repetitions, of messages of 256 bytes to 1 KiB.
    let settings = ["-iter", "3", "-iter_policy", "off", "-msglog", "8:10"];
    settings.into_iter().chain(BENCHMARKS).fold(job, Job::argument)
}

/// The benchmarks in the order of their tables.
fn tables(finished: &Finished) -> Vec<&str> {
    let lines = finished.output.lines();
    lines.filter_map(|line| line.strip_prefix("# Benchmarking ")).map(str::trim).collect()
}

fn nonblocking_benchmarks_run_on_tradewind() {
    let plain = job().plain().expect_success();
    assert_eq!(tables(&plain), BENCHMARKS, "{plain:?}");
    let preloaded = job().preloaded().expect_success();
    assert_eq!(tables(&preloaded), BENCHMARKS, "{preloaded:?}");
    for name in BENCHMARKS {
        let (taken, left) = preloaded.calls(&format!("MPI_{name}"));
        assert!(taken > 0 && left == 0, "{name}: {preloaded:?}");
    }
}
