//! Jobs in which some ranks run without the library: all go on without tradewind, and one line says
//! so.

use crate::harness::{Finished, Host, families};
use testing::mpi::Family;

testing::tests![needs(Mpich): names_that_one_rank_cannot_publish];
testing::tests![needs(Mpich, IntelMpi): ranks_that_lack_the_library_without_names];
families! {
    goes_on:
        mpich_goes_on_if_ranks_lack_the_library, open_mpi_goes_on_if_ranks_lack_the_library,
        intel_mpi_goes_on_if_ranks_lack_the_library;
}

fn expect_left(finished: &Finished, description: &str) {
    assert_eq!((finished.status, finished.in_time), (Some(0), true), "{finished:?}");
    let mut done: Vec<&str> = finished.output.lines().collect();
    done.sort_unstable();
    let expected = (0..4).map(|rank| format!("rank {rank} is done"));
    assert_eq!(done, expected.collect::<Vec<_>>(), "{finished:?}");
    let lines = finished.errors.lines().filter(|line| line.starts_with("tradewind: "));
    let expected = format!(
        "tradewind: {description}; nothing runs on tradewind: put `tradewind mpi --` before each \
         program of the job"
    );
    let report = "tradewind: all collectives are left to the MPI library: some ranks were started \
                  without `tradewind mpi`";
    assert_eq!(lines.collect::<Vec<_>>(), [&expected, report], "{finished:?}");
}

fn goes_on(family: Family) {
    let one = |rank| format!("1 of 4 ranks was started without `tradewind mpi`: rank {rank}");
    let several = |ranks: &str| {
        let which = format!(": ranks {ranks}");
        format!(
            "{} of 4 ranks were started without `tradewind mpi`{which}",
            ranks.split(',').count()
        )
    };
    let host = Host::all(family)[0];
    let job = |ranks| host.job("some_ranks", ranks);
    // Each job takes as long as the ranks wait for the others.
    expect_left(&job(2).beside_another([true, false]), &several("0, 1"));
    expect_left(&job(4).preloaded_except("1"), &one(1));
    expect_left(&job(4).preloaded_except("0"), &one(0));
    if family == Family::Mpich {
        expect_left(&job(2).beside_another([false, true]), &several("2, 3"));
        expect_left(&job(4).preloaded_except("0,1,3"), &several("0, 1, 3"));
    }
    // All ranks have it: nothing is to be said.
    let finished = job(2).beside_another([false, false]).expect_success();
    assert_eq!(finished.calls("MPI_Iallreduce"), (40, 0), "{finished:?}");
}

/// One rank has no part in the check, or the first one cannot tell its decision to the others: no rank
/// waits for another one.
fn names_that_one_rank_cannot_publish() {
    let host = Host::all(Family::Mpich)[0];
    let tool = host.tool("unpublished");
    // A job of named nodes, whose ranks do not look for each other by a local socket first.
    let job = |end: &str| {
        let job = host.job("some_ranks", 4).variable("TRADEWIND_NODE", "here");
        job.variable("WITHHELD", end).preloaded_before(&tool)
    };
    let text = "1 of 4 ranks was started without `tradewind mpi`: rank";
    for rank in [0, 2] {
        expect_left(&job(&format!("-{rank}")), &format!("{text} {rank}"));
    }
    let finished = job("-decision").expect_success();
    assert_eq!(finished.output.lines().count(), 4, "{finished:?}");
    assert_eq!(finished.calls("MPI_Iallreduce"), (0, 0), "{finished:?}");
}

/// There names cannot be looked up, and the ranks of a node look for each other alone.
fn ranks_that_lack_the_library_without_names() {
    for host in Host::all(Family::Intel).into_iter().filter(|host| host.has_standard_abi()) {
        let finished = host.job("some_ranks", 4).preloaded_except("1");
        expect_left(&finished, "1 of 4 ranks was started without `tradewind mpi`: rank 1");
        // They do not look where they do not know whether they are on one node.
        let job = host.job("some_ranks", 4).variable("TRADEWIND_RANK", "0");
        let finished = job.preloaded().expect_success();
        let lines =
            finished.errors.lines().filter(|line| line.contains("nothing runs on tradewind"));
        let lines: Vec<&str> = lines.collect();
        assert!(lines.len() == 1 && lines[0].contains("TRADEWIND_SIZE"), "{finished:?}");
        assert_eq!(finished.calls("MPI_Iallreduce"), (0, 0), "{finished:?}");
    }
}
