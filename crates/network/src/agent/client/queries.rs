//! Queries of a rank, and the agent's answers.

use super::{AgentClient, LIVENESS_INTERVAL};
use crate::agent::client_table::ClientTable;
use crate::agent::shared_region::MAX_NAMED;
use crate::agent::submission::Submission;
use crate::backend::{ExitedRank, RankExits};
use crate::error::Error;
use crate::flows::{Purpose, Refusal};
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

    /// Opens an end of this rank for other nodes. `opened` names it in errors, and `missing` is the
    /// reason if it does not lie at its offset. `purpose` is that of the memory which it takes.
    pub(super) fn open_elsewhere(
        &self,
        open: Submission,
        (opened, missing): (impl Display, &'static str),
        purpose: Purpose,
    ) -> Result<(), Error> {
        let answer = self.query_for_certain(&mut self.table(), open)?;
        let why = match answer.first() {
            None => return Ok(()),
            Some(refusal) if *refusal == Refusal::Memory as u32 => {
                return Err(Error::TooLarge {
                    backend: "agent",
                    what: match purpose {
                        Purpose::Queues => "the queues of this rank with other nodes".into(),
                        Purpose::Channels => "the channels of this rank with other nodes".into(),
                        Purpose::Windows => "the windows of this rank with other nodes".into(),
                    },
                    needed: purpose.limit() + 1,
                    limit: purpose.limit(),
                    way_out: "drop those that are no longer used before you open more",
                });
            }
            Some(refusal) if *refusal == Refusal::Taken as u32 => {
                "this rank has it open already".to_owned()
            }
            Some(_) => format!("{missing} in the segment of the job"),
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
