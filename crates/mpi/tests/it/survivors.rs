//! Programs that go on after the failure of a process, or after a communicator was revoked.

use crate::harness::{Finished, Host};

testing::tests![needs(FaultTolerance):
    revoked_communicators_end_what_is_pending,
    survivors_of_a_killed_rank_go_on,
    survivors_of_a_killed_rank_end_blocking_collectives,
    an_error_handler_aborts_the_job,
];

fn job(form: &str) -> crate::harness::Job {
    let host = Host::with_fault_tolerance().expect("it is there");
    host.job("survivors", 4).with_fault_tolerance().argument(form)
}

fn expect_survivors(finished: &Finished, ranks: usize) {
    assert_eq!((finished.status, finished.in_time), (Some(0), true), "{finished:?}");
    let survivors = finished.output.lines().filter(|line| line.ends_with("went on")).count();
    assert_eq!(survivors, ranks, "{finished:?}");
    // A failure is no news for a program that goes on after it.
    assert!(!finished.errors.contains("tradewind: MPI_Wait"), "{finished:?}");
}

fn revoked_communicators_end_what_is_pending() {
    let finished = job("revoke").preloaded();
    expect_survivors(&finished, 4);
    // Those on the communicator without the failed rank are left.
    assert_eq!(finished.calls("MPI_Iallreduce"), (3 * 7, 4 * 20), "{finished:?}");
    assert_eq!(finished.calls("MPI_Allreduce_init"), (4, 0), "{finished:?}");
}

fn survivors_of_a_killed_rank_go_on() {
    let finished = job("kill").preloaded();
    expect_survivors(&finished, 3);
    assert_eq!(finished.calls("MPI_Iallreduce"), (3 * 7, 3 * 20), "{finished:?}");
    assert_eq!(finished.calls("MPI_Allreduce_init"), (3, 0), "{finished:?}");
}

fn survivors_of_a_killed_rank_end_blocking_collectives() {
    // A call that has started here and failed is neither taken nor left.
    let finished = job("blocking").variable("TRADEWIND_MPI_ONLY", "all").preloaded();
    expect_survivors(&finished, 3);
    assert_eq!(finished.calls("MPI_Allreduce"), (0, 3 * 20), "{finished:?}");
    let finished = job("revoke blocking").variable("TRADEWIND_MPI_ONLY", "all").preloaded();
    expect_survivors(&finished, 4);
    assert_eq!(finished.calls("MPI_Allreduce"), (0, 4 * 20), "{finished:?}");
}

fn an_error_handler_aborts_the_job() {
    let finished = job("abort").preloaded();
    assert!(finished.in_time, "{finished:?}");
    assert_eq!(finished.status, Some(3), "{finished:?}");
}
