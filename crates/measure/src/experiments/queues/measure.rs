//! One case on one job: the ends of its mechanism are opened, and it is timed.

use super::plan::Case;
use super::tagged::Form;
use super::words::Command;
use super::{idle, open, trial};
use crate::harness::timer::Batches;
use crate::harness::{Error, StepContext};
use crate::rows::{Mechanism, StepRows};
use queues::bulk::Policy;

/// Measures a case between two ranks, with a note instead of rows where there is no such mechanism.
/// Fails if a rank has failed, or the mechanism delivers wrong data.
pub(super) fn measure(
    here: &StepContext<'_>,
    case: Case,
    extent: Batches,
) -> Result<StepRows, Error> {
    let Case { mechanism, threads, bytes, .. } = case;
    let world = here.world;
    let threads = threads as usize;
    let tagged =
        |form| trial::measure(here, case, extent, open::tagged(world, threads, bytes, form)?);
    let remote = |command| trial::measure(here, case, extent, open::remote(world, command)?);
    let bulk = |policy| match open::bulk(world, policy)? {
        (ways, None) => Ok(trial::measure(here, case, extent, ways)?.into()),
        (_, Some(why)) => {
            let notes = vec![format!("{mechanism} was not measured: {why}.")];
            Ok(StepRows { notes, ..Vec::new().into() })
        }
    };
    let rows = match mechanism {
        Mechanism::Express => trial::measure(here, case, extent, open::words(world, threads)?),
        Mechanism::OnePoll => trial::measure(here, case, extent, open::polled(world, threads)?),
        Mechanism::Wide => trial::measure(here, case, extent, open::lines(world, threads)?),
        Mechanism::TagOn => tagged(Form::Copied),
        Mechanism::TagOnResident => tagged(Form::Resident),
        Mechanism::TagOnMulticast => tagged(Form::Multicast),
        Mechanism::Basic => trial::measure(here, case, extent, open::ring(world)?),
        Mechanism::BasicLocked => {
            trial::measure(here, case, extent, open::locked_ring(world, threads)?)
        }
        Mechanism::Append => {
            trial::measure(here, case, extent, open::appended(world, threads, bytes)?)
        }
        Mechanism::Channel => trial::measure(here, case, extent, open::doubles(world)?),
        Mechanism::Write => remote(Command::Write),
        Mechanism::Iput => remote(Command::Iput),
        Mechanism::Read => remote(Command::Read),
        Mechanism::Accumulate => remote(Command::Accumulate),
        Mechanism::Fetch => remote(Command::Fetch),
        Mechanism::Bulk => return bulk(Policy::Automatic),
        Mechanism::BulkStaged => return bulk(Policy::Staged),
        Mechanism::BulkDirect => return bulk(Policy::Direct),
        Mechanism::Idle => idle::measure(here).map(|row| vec![row]),
    };
    Ok(rows?.into())
}

/// Half round trips of a mechanism with one thread.
pub(in crate::experiments) fn latency(
    here: &StepContext<'_>,
    mechanism: Mechanism,
    bytes: u64,
    extent: Batches,
) -> Result<StepRows, Error> {
    measure(here, Case { mechanism, threads: 1, bytes, is_of_trips: true }, extent)
}
