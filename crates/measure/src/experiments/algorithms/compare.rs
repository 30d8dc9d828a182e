//! Plans of a call side by side.

use super::graphs::CollectiveCall;
use super::subject::{CollectiveSubject, Memory};
use crate::harness::timer::{Budget, Place, Subject, Timer};
use crate::harness::{Error, StepContext};
use crate::rows::{Quantity, Row, What};
use collectives::Choice;
use std::num::NonZeroU32;
use tradewind::Communicator;

/// Every plan, ready to be timed: each has run once, and was right.
fn subjects(
    plans: &[Choice],
    subject: impl Fn(&Choice) -> Result<CollectiveSubject, Error>,
) -> Result<Vec<CollectiveSubject>, Error> {
    let mut subjects = plans.iter().map(subject).collect::<Result<Vec<_>, _>>()?;
    for (subject, plan) in subjects.iter_mut().zip(plans) {
        subject.verify(plan)?;
    }
    Ok(subjects)
}

/// A row for each plan of a call, with the engine that ran it.
fn rows(
    here: &StepContext<'_>,
    call: &CollectiveCall,
    subjects: &[CollectiveSubject],
    plans: &[Choice],
    times: impl IntoIterator<Item = (u32, Vec<f64>)>,
) -> Result<Vec<Row>, Error> {
    let row = |((subject, plan), (calls, times)): ((&CollectiveSubject, &Choice), _)| {
        let row = here.row(What::Collective(call.operation), Quantity::Alone, times);
        let row = row.sized(call.bytes).by(subject.engine()?, call.form, Some(*plan));
        Ok(Row { calls, ..row })
    };
    subjects.iter().zip(plans).zip(times).map(row).collect()
}

/// Times these plans side by side: a row for each, the same on all ranks. All ranks of a step call
/// this with the same arguments.
///
/// # Errors
/// A plan that cannot be run for this call, wrong results, a rank that is gone.
pub fn compare(
    here: &StepContext<'_>,
    call: &CollectiveCall,
    plans: &[Choice],
    budget: Budget,
) -> Result<Vec<Row>, Error> {
    time_linked(here, call, plans, |timer, subjects| timer.compare(subjects, budget))
}

/// Compares as [`compare`]; then times those close to the fastest, and the `favourites`, once more,
/// longer and without the others.
///
/// # Errors
/// As [`compare`].
pub fn settle(
    here: &StepContext<'_>,
    call: &CollectiveCall,
    plans: &[Choice],
    favourites: &[Choice],
    budget: Budget,
) -> Result<Vec<Row>, Error> {
    let is_favourite = |place: usize| favourites.contains(&plans[place]);
    time_linked(here, call, plans, |timer, subjects| timer.settle(subjects, is_favourite, budget))
}

fn time_linked(
    here: &StepContext<'_>,
    call: &CollectiveCall,
    plans: &[Choice],
    time: impl FnOnce(&Timer<'_>, &mut [&mut dyn Subject]) -> Result<Vec<Vec<f64>>, Error>,
) -> Result<Vec<Row>, Error> {
    let world = here.world;
    let memory = Memory::new(call, &[call.root], world.rank())?;
    let linked = |plan: &Choice| CollectiveSubject::linked(world, call, plan, &memory);
    let mut subjects = subjects(plans, linked)?;
    let times = time(&Timer::new(world, Place::of(here)), &mut all(&mut subjects))?;
    rows(here, call, &subjects, plans, times.into_iter().map(|times| (1, times)))
}

/// Times these plans side by side as calls of a communicator, in batches of calls back to back,
/// because the clocks of nodes differ; plans in two levels take so many consecutive ranks for a
/// node. The first and the last rank are roots in turn, so that buffers cannot hide the latency. All
/// ranks call this with the same arguments and get the same rows.
///
/// # Errors
/// As [`compare`].
pub fn compare_in_batches(
    here: &StepContext<'_>,
    call: &CollectiveCall,
    plans: &[Choice],
    ranks_per_node: Option<NonZeroU32>,
    milliseconds: f64,
) -> Result<Vec<Row>, Error> {
    let world: &Communicator = here.world;
    let roots = [0, world.size().saturating_sub(1)];
    let memory = Memory::new(call, &roots, world.rank())?;
    let called = |plan: &Choice| {
        CollectiveSubject::called(world, call, plan, ranks_per_node, &roots, &memory)
    };
    let mut subjects = subjects(plans, called)?;
    let timer = Timer::new(world, Place::of(here));
    let times = timer.compare_in_batches(&mut all(&mut subjects), milliseconds)?;
    rows(here, call, &subjects, plans, times)
}

fn all(subjects: &mut [CollectiveSubject]) -> Vec<&mut dyn Subject> {
    subjects.iter_mut().map(|subject| subject as &mut dyn Subject).collect()
}
