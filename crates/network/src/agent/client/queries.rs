//! Queries of a rank, and the agent's answers.

use super::{AgentClient, LIVENESS_INTERVAL};
use crate::agent::client_table::ClientTable;
use crate::agent::queues::Refusal;
use crate::agent::shared_region::MAX_NAMED;
use crate::agent::submission::Submission;
use crate::backend::{ExitedRank, RankExits};
use crate::error::Error;
use crate::run_counts::StartedRuns;
use std::fmt::Display;
use std::time::Duration;

impl AgentClient {
    /// Returns the agent's answer to a query; empty if the agent has ended or is stopped. The lock
    /// of the table is held until the answer is there: there is one answer at a time.
    pub(super) fn query(&self, table: &mut ClientTable, query: Submission) -> Vec<u32> {
        // The agent answers at once, unless it is stopped.
        const LIMIT: Duration = Duration::from_secs(1);
        let Ok(number) = self.submit_query(table, query) else { return Vec::new() };
        self.region.await_answer(number, LIMIT).unwrap_or_default()
    }

    /// Opens a port or window of this rank for other nodes. `opened` names it in errors, `missing` is
    /// the reason if it does not lie at its offset, and `space` is the error if it takes too much memory of the node service.
    pub(super) fn open_elsewhere(
        &self,
        open: Submission,
        (opened, missing): (impl Display, &'static str),
        space: Error,
    ) -> Result<(), Error> {
        let answer = self.query_for_certain(&mut self.table(), open)?;
        let why = match answer.first() {
            None => return Ok(()),
            Some(refusal) if *refusal == Refusal::Memory as u32 => return Err(space),
            Some(refusal) if *refusal == Refusal::Taken as u32 => "this rank has it open already",
            Some(_) => missing,
        };
        Err(Error::Operation(format!("cannot open {opened} for other nodes: {why}")))
    }

    /// Returns the agent's answer to a query, however long it takes.
    pub(super) fn query_for_certain(
        &self,
        table: &mut ClientTable,
        query: Submission,
    ) -> Result<Vec<u32>, Error> {
        let number = self.submit_query(table, query)?;
        loop {
            match self.region.await_answer(number, LIVENESS_INTERVAL) {
                Some(answer) => return Ok(answer),
                None => self.check_agent()?,
            }
        }
    }

    /// Submits a query, and returns its number.
    fn submit_query(&self, table: &mut ClientTable, query: Submission) -> Result<u32, Error> {
        self.check_agent()?;
        self.submit(table, query)?;
        // A completion counts the answers, in 30 bits.
        table.queries = (table.queries + 1) % (1 << 30);
        Ok(table.queries)
    }

    /// Returns a list of exits that arrives in several answers if it is long: `query` requests those
    /// from a rank on.
    pub(super) fn query_exits(&self, query: impl Fn(u32) -> Submission) -> Vec<ExitedRank> {
        let mut exited: Vec<ExitedRank> = Vec::new();
        loop {
            // The agent sorts the ranks by number.
            let first = exited.last().map_or(0, |last| last.rank + 1);
            let answer = self.query(&mut self.table(), query(first));
            exited.extend(answer.iter().map(|word| ExitedRank::of_word(*word)));
            if answer.len() < MAX_NAMED {
                return exited;
            }
        }
    }
}

impl RankExits for AgentClient {
    fn exited(&self) -> Vec<ExitedRank> {
        self.query_exits(|first| Submission::QueryExited { first })
    }

    fn announce(&self, started: &[StartedRuns]) {
        let mut table = self.table();
        let counts = started.iter().copied().map(Submission::CountStarted);
        for submission in counts.chain([Submission::AnnounceExit]) {
            // An agent that has ended reports nothing.
            let _ = self.submit(&mut table, submission);
        }
    }

    fn never_start(&self, communicator: u32, sequence: u64) -> Vec<u32> {
        self.query(&mut self.table(), Submission::QueryNeverStart { communicator, sequence })
    }
}
