//! Ranks that end the job.

use crate::launched;
use tradewind::{Error, Exit, Job};

testing::tests![an_abort_ends_the_job_with_its_status, an_abort_is_never_a_success];
testing::parts![rank_that_aborts_with_7, rank_that_aborts_with_0];

fn an_abort_ends_the_job_with_its_status() {
    let part = concat!(module_path!(), "::rank_that_aborts_with_7");
    let (outcome, finished) = launched::ranks_of(3, part);
    assert_eq!((outcome.exit_status(), finished), (7, vec![0, 2]));
}

fn an_abort_is_never_a_success() {
    let part = concat!(module_path!(), "::rank_that_aborts_with_0");
    let (outcome, finished) = launched::ranks_of(3, part);
    assert_eq!((outcome.exit_status(), finished), (1, vec![0, 2]));
}

fn rank_that_aborts_with_7() {
    abort_or_wait(7);
}

fn rank_that_aborts_with_0() {
    abort_or_wait(0);
}

/// Rank 1 aborts, the others wait for it.
fn abort_or_wait(status: u8) {
    let job = Job::init().expect("started by a launcher");
    let world = job.world();
    world.barrier().expect("all take part");
    if world.rank() == 1 {
        world.abort(status);
    }
    let error = world.barrier().expect_err("rank 1 is gone");
    let how = Exit::Exited(status.max(1).into());
    assert!(
        matches!(&error, Error::RankFailed { rank: 1, how: found } if *found == how),
        "{error}"
    );
    println!("finished");
}
