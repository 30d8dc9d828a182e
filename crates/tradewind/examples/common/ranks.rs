//! Starting an example on its ranks, and telling once what goes wrong on all of them.

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use tradewind::{Communicator, Job, Result};

/// Runs `program` on so many threads of this process, or on the ranks of the job that this process
/// belongs to, with what `prepare` makes for so many ranks. The program says whether its result is
/// right. Either has to come to the same on every rank: what is wrong then is known to all alike,
/// and rank 0 alone tells it.
pub(crate) fn run<I: Sync>(
    name: &str,
    threads: Option<u32>,
    prepare: impl FnOnce(u32) -> std::result::Result<I, String>,
    program: impl Fn(&Communicator, &I) -> Result<bool> + Sync,
) -> ExitCode {
    match threads {
        Some(ranks) => conclude(name, None, prepare(ranks), |input| {
            let is_right = AtomicBool::new(true);
            // Relaxed: the threads are joined before it is read.
            tradewind::local(ranks, |world| {
                program(&world, input).map(|right| _ = is_right.fetch_and(right, Ordering::Relaxed))
            })?;
            Ok(is_right.into_inner())
        }),
        None => match Job::init() {
            Ok(job) => {
                let world = job.world();
                conclude(name, Some(world), prepare(world.size()), |input| program(world, input))
            }
            Err(error) => fail(name, error),
        },
    }
}

fn conclude<I>(
    name: &str,
    job: Option<&Communicator>,
    prepared: std::result::Result<I, String>,
    run: impl FnOnce(&I) -> Result<bool>,
) -> ExitCode {
    match prepared.map(|input| run(&input)) {
        Ok(Ok(true)) => ExitCode::SUCCESS,
        Ok(Ok(false)) => fail_alike(name, job, "the result is not that of a single process"),
        // Every rank has its own view of what stopped it.
        Ok(Err(error)) => fail(name, error),
        Err(why) => fail_alike(name, job, why),
    }
}

/// Has rank 0 of the job tell what every rank knows. The others wait for that: the first that
/// leaves may end the job.
fn fail_alike(name: &str, job: Option<&Communicator>, why: impl Display) -> ExitCode {
    if job.is_none_or(|world| world.rank() == 0) {
        fail(name, why);
    }
    // If they cannot meet, it is because one has left.
    _ = job.map(Communicator::barrier);
    ExitCode::FAILURE
}

/// Writes the whole line at once, so that those of several ranks do not run into each other.
fn fail(name: &str, why: impl Display) -> ExitCode {
    // Where nothing can be written, the exit code still tells.
    _ = std::io::stderr().write_all(format!("{name}: {why}\n").as_bytes());
    ExitCode::FAILURE
}
