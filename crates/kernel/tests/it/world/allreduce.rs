//! Allreduces of which every value is compared.

use collectives::{Reduction, allreduce};
use goal::arithmetic::{Arithmetic, DataType};
use goal::compile::compile;
use kernel::Rank;
use network::backend::{Backend, CommunicatorContext, RunId, ScheduleId};
use network::error::Error;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long a collective may take before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(30);

/// One rank's part of allreduces of a communicator.
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
        let graph = allreduce::Algorithm::RecursiveDoubling.graph(
            context.rank,
            ranks,
            8 * elements as u64,
            sum,
        );
        let schedule = compile(&graph.expect("it is drawn")).expect("it compiles");
        let prepared = rank.register(context, &schedule, 0)?;
        Ok(Allreduce { rank, context: context.clone(), elements, prepared })
    }

    /// What a rank gives, different every time.
    fn value(time: u64, rank: u32, element: usize) -> u64 {
        time * 1000 + u64::from(rank) * 7 + element as u64
    }

    pub(crate) fn start(&self, time: u64) -> Result<RunId, Error> {
        let input: Vec<u64> = (0..self.elements)
            .map(|element| Self::value(time, self.context.rank, element))
            .collect();
        self.rank.start(self.prepared, time, &[bytemuck::cast_slice(&input), &[]])
    }

    pub(crate) fn wait(&self, ticket: RunId) -> Result<(), Error> {
        let is_complete = self.rank.wait(ticket, Some(Instant::now() + PATIENCE))?;
        assert!(
            is_complete,
            "rank {} waits for {:?}",
            self.rank.rank(),
            self.rank.waiting_for(ticket)
        );
        Ok(())
    }

    /// Only looks, as programs do that compute meanwhile.
    pub(crate) fn poll(&self, ticket: RunId) {
        let end = Instant::now() + PATIENCE;
        while !self.rank.is_complete(ticket) {
            assert!(
                Instant::now() < end,
                "rank {} looks for {:?}",
                self.rank.rank(),
                self.rank.waiting_for(ticket)
            );
            std::thread::yield_now();
        }
    }

    /// Compares the result of a run that has ended.
    pub(crate) fn check(&self, ticket: RunId, time: u64) -> Result<(), Error> {
        let mut output = vec![0u64; self.elements];
        self.rank.fetch(ticket, &mut [&mut [], bytemuck::cast_slice_mut(&mut output)])?;
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

    /// Runs them one after the other, or with so many under way at once.
    pub(crate) fn repeat(&self, times: u64, under_way: usize) -> Result<(), Error> {
        let mut started = VecDeque::new();
        let finish = |(ticket, time)| {
            self.wait(ticket)?;
            self.check(ticket, time)
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
