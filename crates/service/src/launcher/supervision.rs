//! The supervision of the launcher's children: ranks, or launchers of nodes.

use super::children::{Children, Stage};
use super::host::Host;
use super::orders::{Action, Orders};
use super::output::Copier;
use super::signals::{self, Signals};
use crate::error::ServiceError;
use crate::events::NodeEvent;
use engine::Exit;
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// End of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The first rank that failed, with its exit: [`Exit::Exited`] or [`Exit::Killed`].
    pub failed: Option<(u32, Exit)>,
    /// Ranks that were ended after the grace, or after the time limit of the job.
    pub ended: Vec<u32>,
    /// True if the job has exceeded its time limit.
    pub out_of_time: bool,
    /// True if a signal that ends programs has arrived.
    pub interrupted: bool,
}

impl Outcome {
    /// Returns the exit status: 0, that of the first rank that failed (128 and the number of the
    /// signal, if a signal ended it), or 124 if the job has exceeded its time limit.
    pub fn exit_status(&self) -> u8 {
        match self.failed {
            _ if self.out_of_time => 124,
            None => 0,
            Some((_, Exit::Exited(status))) => status as u8,
            Some((_, Exit::Killed(signal))) => 128 + signal as u8,
            Some(_) => 1,
        }
    }
}

/// A running job, or the part of it on this node.
pub(super) struct Launch {
    host: Host,
    children: Children,
    pub(super) signals: Option<Signals>,
    pub(super) orders: Option<Orders>,
    /// Number of the first child.
    first: u32,
    grace: Duration,
    /// Time limit of the job.
    limit: Option<Instant>,
    /// True after the end of the orders: the exits that follow are no failures.
    is_ordered_to_end: bool,
    outcome: Outcome,
}

impl Launch {
    pub(super) fn new(
        host: Host,
        children: Children,
        first: u32,
        grace: Duration,
        limit: Option<Duration>,
    ) -> Self {
        let outcome = Outcome::default();
        let limit = limit.and_then(|limit| Instant::now().checked_add(limit));
        let signals = None;
        let orders = None;
        let is_ordered_to_end = false;
        Launch { host, children, signals, orders, first, grace, limit, is_ordered_to_end, outcome }
    }

    /// Runs until all children have ended.
    pub(super) fn finish(mut self, copier: Copier) -> Result<Outcome, ServiceError> {
        self.run()?;
        let Launch { children, outcome, .. } = self;
        // First the drop, which kills what is left of a failed job: then no process writes any
        // more.
        drop(children);
        copier.finish();
        Ok(outcome)
    }

    fn run(&mut self) -> Result<(), ServiceError> {
        while self.children.any_lives() || self.host.has_living() {
            let stage_ends = self.children.stage_ends();
            let deadline = [self.limit, stage_ends].into_iter().flatten().min();
            for event in self.host.events().wait(deadline)? {
                self.handle(event)?;
            }
            if self.limit.is_some_and(|limit| Instant::now() >= limit) {
                // Once: the stages of the end have time limits of their own.
                self.limit = None;
                self.outcome.out_of_time = true;
                self.children.fail_within(Duration::ZERO);
            }
            if self.children.stage_ends().is_some_and(|end| Instant::now() >= end) {
                self.end_next();
            }
        }
        Ok(())
    }

    fn handle(&mut self, event: NodeEvent) -> Result<(), ServiceError> {
        match event {
            NodeEvent::Child(rank) => self.on_child_exit(rank),
            NodeEvent::Signal => {
                let pending: Vec<_> = self.signals.iter_mut().flat_map(Signals::pending).collect();
                pending.into_iter().for_each(|signal| {
                    self.on_signal(signal);
                    signals::follow(signal);
                });
                Ok(())
            }
            NodeEvent::Order => {
                let pending = self.orders.as_mut().map(Orders::pending).unwrap_or_default();
                for action in pending {
                    match action {
                        Action::Pass(signal) => self.on_signal(signal),
                        Action::End => self.on_end_of_orders(),
                    }
                }
                Ok(())
            }
            event => self.host.handle(event, |pid| self.children.exit_of(pid)),
        }
    }

    /// Passes a signal to the ranks.
    pub(super) fn on_signal(&mut self, signal: Signal) {
        self.children.pass_on(signal);
        // A second signal ends the job without grace.
        if signals::ends(signal) && std::mem::replace(&mut self.outcome.interrupted, true) {
            self.children.fail_within(Duration::ZERO);
        }
    }

    /// Ends the ranks: the launcher of the job has ended, or ends it.
    fn on_end_of_orders(&mut self) {
        if let Some(orders) = self.orders.take() {
            self.host.events().remove(orders.stream());
        }
        self.is_ordered_to_end = true;
        self.children.fail_within(Duration::ZERO);
    }

    /// Records the end of a child.
    fn on_child_exit(&mut self, rank: u32) -> Result<(), ServiceError> {
        let Some((pid, how)) = self.children.on_exit(rank, self.host.events())? else {
            return Ok(());
        };
        self.host.on_child_exit(rank, pid, how)?;
        if how != Exit::Exited(0) && !self.is_ordered_to_end {
            self.outcome.failed.get_or_insert((self.first + rank, how));
            self.children.fail_within(self.grace);
        }
        Ok(())
    }

    /// Starts the next stage of the end, because the time of the current one is over.
    fn end_next(&mut self) {
        if self.children.stage() == Stage::Failing {
            let living = self.children.living().into_iter();
            self.outcome.ended = living.map(|rank| self.first + rank).collect();
        } else {
            self.host.kill_all();
        }
        self.children.end_next();
    }
}
