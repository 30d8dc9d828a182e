//! Start of an example on its ranks, and one report of an error that all of them have.

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use tradewind::{Communicator, Job, Result};

/// Runs `program` on this number of threads of this process, or on the ranks of the job that this
/// process belongs to, with the result of `prepare` for that number of ranks. The program returns
/// true if its result is right. `prepare` and `program` must return the same on every rank: then
/// all ranks have the same error, and only rank 0 prints it.
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
        // The error may differ from rank to rank, so each prints its own.
        Ok(Err(error)) => fail(name, error),
        Err(why) => fail_alike(name, job, why),
    }
}

/// Prints a text on rank 0 of the job. The other ranks wait for that, because the first rank that
/// leaves may end the job.
fn fail_alike(name: &str, job: Option<&Communicator>, why: impl Display) -> ExitCode {
    if job.is_none_or(|world| world.rank() == 0) {
        fail(name, why);
    }
    // The barrier fails only if a rank has left.
    _ = job.map(Communicator::barrier);
    ExitCode::FAILURE
}

/// Writes the whole line at once, so that those of several ranks do not run into each other.
fn fail(name: &str, why: impl Display) -> ExitCode {
    // If nothing can be written, the exit code still shows the failure.
    _ = std::io::stderr().write_all(format!("{name}: {why}\n").as_bytes());
    ExitCode::FAILURE
}
