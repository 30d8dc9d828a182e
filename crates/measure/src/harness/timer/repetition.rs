//! One repetition of a subject.

use crate::harness::agreement;
use crate::harness::clock::{microseconds, now_ns};
use crate::harness::computation::compute;
use crate::harness::context::StepContext;
use crate::harness::error::Error;
use crate::harness::processor_time::{RankKind, used_by_rank_us};
use tradewind::Communicator;

/// Function that a subject calls between start and wait, with a test that is true once the subject
/// is complete.
pub type Meanwhile<'a> = dyn FnMut(&dyn Fn() -> bool) + 'a;

/// An operation that a timer runs again and again.
pub trait Subject {
    /// Runs once on this rank: starts, calls `meanwhile` with a test that does nothing for the
    /// subject, and waits for the result. A subject without a start calls it first, with a test that
    /// fails. All ranks run with the same `number`, which may select a root.
    ///
    /// # Errors
    /// The error of the subject.
    fn run(&mut self, number: u32, meanwhile: &mut Meanwhile<'_>) -> Result<(), Error>;

    /// Runs so many times back to back, from this number on. One indirect call for all of them: a
    /// run may take a nanosecond.
    ///
    /// # Errors
    /// The error of the subject.
    fn repeat(&mut self, first: u32, times: u32) -> Result<(), Error> {
        (0..times).try_for_each(|run| self.run(first.wrapping_add(run), &mut |_| {}))
    }
}

/// A subject that is one call.
pub fn calls(call: impl FnMut() -> Result<(), Error>) -> impl Subject {
    Calls(call)
}

struct Calls<F>(F);

impl<F: FnMut() -> Result<(), Error>> Subject for Calls<F> {
    #[inline]
    fn run(&mut self, _: u32, meanwhile: &mut Meanwhile<'_>) -> Result<(), Error> {
        meanwhile(&|| false);
        (self.0)()
    }

    fn repeat(&mut self, _: u32, times: u32) -> Result<(), Error> {
        (0..times).try_for_each(|_| (self.0)())
    }
}

/// Place of the ranks of a timer.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Number of cores that the ranks share. A rank that is bound to one does not see the others.
    pub cores: u32,
    /// Kind of the ranks.
    pub rank_kind: RankKind,
    /// Process of the node service, if this rank adds its processor time to the job's: one rank of
    /// each node does.
    pub service: Option<u32>,
    /// True if this rank adds the interrupts of its machine: one rank of each machine.
    pub adds_interrupts: bool,
    /// True if readings of the clock can be compared between ranks.
    pub has_common_clock: bool,
}

impl Place {
    /// Ranks of a step.
    pub fn of(here: &StepContext<'_>) -> Self {
        let rank = here.world.rank();
        let nodes = here.shape.nodes.as_ref();
        let leads_node = nodes.map_or(rank == 0, |nodes| nodes.is_first_of_node(rank));
        let is_process = here.service.is_some();
        Place {
            cores: here.shape.shared_cores,
            rank_kind: if is_process { RankKind::Process } else { RankKind::Thread },
            service: here.service.filter(|_| leads_node),
            adds_interrupts: nodes.map_or(rank == 0, |nodes| nodes.is_first_of_machine(rank)),
            has_common_clock: nodes.is_none_or(|nodes| nodes.cores.len() == 1),
        }
    }
}

/// A timer for the ranks of a communicator.
#[derive(Debug)]
pub struct Timer<'w> {
    pub(super) world: &'w Communicator,
    pub(super) place: Place,
}

/// Begin of a repetition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// When this rank has left a barrier.
    Barrier,
    /// At a moment that rank 0 names.
    Common,
}

/// Form of a repetition.
#[derive(Clone, Copy)]
pub(super) struct Form<'a> {
    pub(super) start: Start,
    /// Runs back to back.
    pub(super) calls: u32,
    /// Steps of the computation, and by how many steps each repetition's start is held up.
    pub(super) computation: Option<(u64, &'a [u64])>,
}

/// One repetition on one rank: moments in nanoseconds on the node's clock, and its processor time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Repetition {
    /// The rank has left the barrier, or the common moment.
    pub(super) left: i64,
    /// The skew is over.
    pub(super) begin: i64,
    /// The subject is started.
    pub(super) started: i64,
    /// The computation is over.
    pub(super) computed: i64,
    /// The result is there.
    pub(super) end: i64,
    /// True if the subject was complete when the computation was over.
    pub(super) unattended: bool,
    /// Processor time from `begin` to `end`, in microseconds; 0 without a computation.
    pub(super) used_us: f64,
}

/// Time between the announcement of a common start and the start: the announcement must be
/// visible to every rank by then.
const LEAD_NS: i64 = 3000;

impl<'w> Timer<'w> {
    /// A timer. All ranks of the communicator make one.
    pub fn new(world: &'w Communicator, place: Place) -> Self {
        Timer { world, place }
    }

    /// One repetition. Its first run has this number.
    pub(super) fn once(
        &self,
        subject: &mut dyn Subject,
        number: u32,
        form: Form<'_>,
    ) -> Result<Repetition, Error> {
        self.world.barrier()?;
        let left = match form.start {
            Start::Barrier => now_ns(),
            Start::Common => self.wait_for_start()?,
        };
        let Some((steps, skews)) = form.computation else {
            let begin = now_ns();
            subject.repeat(number, form.calls)?;
            let end = now_ns();
            return Ok(Repetition {
                left,
                begin,
                started: begin,
                computed: end,
                end,
                unattended: false,
                used_us: 0.0,
            });
        };
        compute(skews.get(number as usize).copied().unwrap_or(0));
        let used = used_by_rank_us(self.place.rank_kind);
        let begin = now_ns();
        let mut started = begin;
        let mut computed = begin;
        let mut unattended = false;
        subject.run(number, &mut |is_complete| {
            started = now_ns();
            compute(steps);
            computed = now_ns();
            unattended = is_complete();
        })?;
        let end = now_ns();
        let used_us = used_by_rank_us(self.place.rank_kind) - used;
        Ok(Repetition { left, begin, started, computed, end, unattended, used_us })
    }

    /// Waits for a moment that rank 0 names.
    fn wait_for_start(&self) -> Result<i64, Error> {
        let mut start = [now_ns() + LEAD_NS];
        self.world.bcast(&mut start, 0)?;
        while now_ns() < start[0] {
            std::hint::spin_loop();
        }
        Ok(start[0])
    }

    /// Returns true if ranks have to share cores.
    pub(super) fn shares_cores(&self) -> bool {
        self.world.size() > self.place.cores
    }

    /// Of each repetition the time of the rank that takes longest.
    pub(super) fn of_slowest_rank(&self, repetitions: &[Repetition]) -> Result<Vec<f64>, Error> {
        agreement::largest(self.world, &own_times(repetitions))
    }

    /// Of each repetition the time from the first rank's start to the last rank's end.
    pub(super) fn of_all_ranks(&self, repetitions: &[Repetition]) -> Result<Vec<f64>, Error> {
        let moments = |of: fn(&Repetition) -> i64| repetitions.iter().map(of).collect::<Vec<_>>();
        let begin = agreement::earliest(self.world, &moments(|one| one.left))?;
        let end = agreement::latest(self.world, &moments(|one| one.end))?;
        Ok(begin.iter().zip(&end).map(|(begin, end)| microseconds(*begin, *end)).collect())
    }
}

/// This rank's time of each repetition.
pub(super) fn own_times(repetitions: &[Repetition]) -> Vec<f64> {
    repetitions.iter().map(|one| microseconds(one.begin, one.end)).collect()
}

/// Order of the turns in a round: each begins with another subject.
pub(super) fn turns(round: u32, subjects: usize) -> impl Iterator<Item = usize> {
    (0..subjects).map(move |turn| (turn + round as usize) % subjects)
}
