//! Allreduces with a comparison of every value.

use collectives::{Algorithm, Reduction, allreduce};
use goal::arithmetic::{Arithmetic, DataType};
use goal::compile::compile;
use kernel::Rank;
use network::backend::{Backend, CommunicatorContext, RunId, ScheduleId};
use network::error::Error;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Time after which a collective counts as stuck.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// Part of one rank in the allreduces of a communicator.
pub(crate) struct Allreduce<'a> {
    rank: &'a Rank,
    context: CommunicatorContext,
    elements: usize,
    prepared: ScheduleId,
}

impl<'a> Allreduce<'a> {
    pub(crate) fn prepare(
        rank: &'a Rank,
        context: &CommunicatorContext,
        elements: usize,
    ) -> Result<Self, Error> {
        let sum = Reduction::new(Arithmetic::Add, DataType::U64);
        let ranks = context.members.len() as u32;
        let graph = allreduce::graph(
            Algorithm::RecursiveDoubling,
            context.rank,
            ranks,
            8 * elements as u64,
            sum,
        );
        let schedule = compile(&graph.expect("it is drawn")).expect("it compiles");
        let prepared = rank.register(context, &schedule, 0)?;
        Ok(Allreduce { rank, context: context.clone(), elements, prepared })
    }

    /// Returns the contribution of a rank, different every time.
    fn value(time: u64, rank: u32, element: usize) -> u64 {
        time * 1000 + u64::from(rank) * 7 + element as u64
    }

    pub(crate) fn start(&self, time: u64) -> Result<RunId, Error> {
        let input: Vec<u64> = (0..self.elements)
            .map(|element| Self::value(time, self.context.rank, element))
            .collect();
        self.rank.start(self.prepared, time, &[bytemuck::cast_slice(&input), &[]])
    }

    pub(crate) fn wait(&self, run_id: RunId) -> Result<(), Error> {
        let is_complete = self.rank.wait(run_id, Some(Instant::now() + TIME_LIMIT))?;
        assert!(
            is_complete,
            "rank {} waits for {:?}",
            self.rank.rank(),
            self.rank.waiting_for(run_id)
        );
        Ok(())
    }

    /// Tests without waiting, like programs that compute at the same time.
    pub(crate) fn poll(&self, run_id: RunId) {
        let end = Instant::now() + TIME_LIMIT;
        while !self.rank.is_complete(run_id) {
            assert!(
                Instant::now() < end,
                "rank {} looks for {:?}",
                self.rank.rank(),
                self.rank.waiting_for(run_id)
            );
            std::thread::yield_now();
        }
    }

    /// Compares the result of a complete run.
    pub(crate) fn check(&self, run_id: RunId, time: u64) -> Result<(), Error> {
        let mut output = vec![0u64; self.elements];
        self.rank.fetch(run_id, &mut [&mut [], bytemuck::cast_slice_mut(&mut output)])?;
        for (element, found) in output.into_iter().enumerate() {
            let sum = |rank| Self::value(time, rank, element);
            let expected: u64 = (0..self.context.members.len() as u32).map(sum).sum();
            assert_eq!(
                found, expected,
                "rank {}, time {time}, element {element}",
                self.context.rank
            );
        }
        Ok(())
    }

    /// Runs them one after the other, or with this number under way at once.
    pub(crate) fn repeat(&self, times: u64, under_way: usize) -> Result<(), Error> {
        let mut started = VecDeque::new();
        let finish = |(run_id, time)| {
            self.wait(run_id)?;
            self.check(run_id, time)
        };
        for time in 0..times {
            started.push_back((self.start(time)?, time));
            if started.len() == under_way {
                started.pop_front().map_or(Ok(()), finish)?;
            }
        }
        started.into_iter().try_for_each(finish)
    }
}

impl Drop for Allreduce<'_> {
    fn drop(&mut self) {
        self.rank.release(self.prepared);
    }
}
