//! A rank that ends while others wait for it: the launcher ends the job, as without the library.

use crate::harness::Host;
use testing::mpi::Family;

testing::tests![needs(Mpich):
    a_killed_rank_ends_the_job,
    the_rank_that_has_started_the_service_ends_the_job,
    an_abort_ends_the_job,
    a_killed_rank_ends_a_job_whose_starts_wait_for_memory,
];

fn first_host() -> Host {
    Host::all(Family::Mpich)[0]
}

fn a_killed_rank_ends_the_job() {
    let plain = first_host().job("death", 3).plain();
    let preloaded = first_host().job("death", 3).preloaded();
    assert!(plain.in_time && preloaded.in_time, "{preloaded:?}");
    assert_eq!(preloaded.status, plain.status, "{preloaded:?}");
}

fn the_rank_that_has_started_the_service_ends_the_job() {
    let job = || first_host().job("death", 2).argument("first");
    let (plain, preloaded) = (job().plain(), job().preloaded());
    assert!(plain.in_time && preloaded.in_time, "{preloaded:?}");
    assert_eq!(preloaded.status, plain.status, "{preloaded:?}");
}

fn an_abort_ends_the_job() {
    let finished = first_host().job("death", 3).argument("abort").preloaded();
    assert!(finished.in_time, "{finished:?}");
    assert_eq!(finished.status, Some(3), "{finished:?}");
}

fn a_killed_rank_ends_a_job_whose_starts_wait_for_memory() {
    let job = || first_host().job("memory", 3).argument("die").variable("TRADEWIND_ARENA_MIB", "3");
    let (plain, preloaded) = (job().plain(), job().preloaded());
    assert!(plain.in_time && preloaded.in_time, "{preloaded:?}");
    assert_eq!(preloaded.status, plain.status, "{preloaded:?}");
}
