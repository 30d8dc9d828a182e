//! A rank that ends while others wait for it: the launcher ends the job, as without the library.

use crate::harness::{Finished, Host, families};
use testing::mpi::Family;

testing::tests![needs(Mpich):
    the_rank_that_has_started_the_service_ends_the_job,
    a_rank_killed_where_others_create_a_communicator_ends_the_job,
    an_abort_ends_the_job,
    a_killed_rank_ends_a_job_whose_starts_wait_for_memory,
];
families! {
    killed_rank:
        a_killed_rank_ends_the_job_of_mpich,
        a_killed_rank_ends_the_job_of_open_mpi,
        a_killed_rank_ends_the_job_of_intel_mpi;
}

/// Runs a form of the program with every library of a family, without tradewind and with it. The
/// job ends, and fails. The status with which it fails is the launcher's: that of hydra depends on
/// which of the killed ranks it reaps last.
fn ends(family: Family, ranks: u32, form: Option<&str>) {
    for host in Host::all(family) {
        let job = || form.into_iter().fold(host.job("death", ranks), crate::harness::Job::argument);
        expect_failure(&job().plain());
        expect_failure(&job().preloaded());
    }
}

fn expect_failure(finished: &Finished) {
    assert!(finished.in_time, "the job ends by itself: {finished:?}");
    assert_ne!(finished.status, Some(0), "{finished:?}");
}

fn killed_rank(family: Family) {
    ends(family, 3, None);
}

fn the_rank_that_has_started_the_service_ends_the_job() {
    ends(Family::Mpich, 2, Some("first"));
}

fn a_rank_killed_where_others_create_a_communicator_ends_the_job() {
    ends(Family::Mpich, 3, Some("creating"));
}

fn an_abort_ends_the_job() {
    let finished = Host::all(Family::Mpich)[0].job("death", 3).argument("abort").preloaded();
    assert!(finished.in_time, "{finished:?}");
    assert_eq!(finished.status, Some(3), "{finished:?}");
}

fn a_killed_rank_ends_a_job_whose_starts_wait_for_memory() {
    let host = Host::all(Family::Mpich)[0];
    let job = || host.job("memory", 3).argument("die").variable("TRADEWIND_ARENA_MIB", "3");
    expect_failure(&job().plain());
    expect_failure(&job().preloaded());
}
