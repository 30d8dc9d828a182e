//! Rows measured on rank processes.

use super::rank::OverlapReport;
use crate::commands::figures::{microseconds, name_and_size};
use crate::failure::Failure;
use engine::Exit;
use engine::node::EngineKind;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use measure::experiments::overlap::{Case, OverlapRow};
use measure::harness::rank_processes::{RankLine, run_ranks};
use service::ServiceError;
use service::launcher::{LaunchOptions, Outcome};
use std::process::ExitCode;
use std::sync::mpsc;

/// Rows measured one after the other, with their progress.
pub(crate) struct Measurements {
    ranks: u32,
    progress: ProgressBar,
}

/// Reason why a row was not measured.
pub(crate) enum Interruption {
    /// The job could not be run.
    Job(ServiceError),
    /// A rank failed; its message is on standard error.
    Rank { rank: u32, how: Exit, status: u8 },
    /// All ranks ended in order without a row.
    NoRow,
}

impl From<ServiceError> for Interruption {
    fn from(error: ServiceError) -> Self {
        Interruption::Job(error)
    }
}

impl From<engine::Error> for Interruption {
    fn from(error: engine::Error) -> Self {
        Interruption::Job(error.into())
    }
}

impl Measurements {
    /// Prepares so many rows. Progress is shown on standard error, if that is a terminal; it is redrawn
    /// when something happens and never by a clock, because redrawing takes processor time from the
    /// ranks.
    pub(crate) fn new(ranks: u32, rows: usize) -> Self {
        let progress =
            ProgressBar::with_draw_target(Some(rows as u64), ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{bar:20} {pos}/{len}  {wide_msg}") {
            progress.set_style(style);
        }
        Measurements { ranks, progress }
    }

    /// Measures one row for each engine, right after each other so that they meet the same state of
    /// the machine, over the same computation: the one that the first engine determines, unless
    /// the case contains one.
    pub(crate) fn compare(
        &self,
        case: &Case,
        engines: &[EngineKind],
    ) -> Result<Vec<OverlapRow>, Interruption> {
        let mut case = *case;
        let mut rows = Vec::new();
        for engine in engines {
            for report in self.run(&case, *engine)? {
                match report {
                    OverlapReport::Plan { computation_us, .. } => {
                        case.computation_us.get_or_insert(computation_us);
                    }
                    OverlapReport::Row(row) => rows.push(row),
                }
            }
            self.progress.inc(1);
        }
        if rows.len() == engines.len() { Ok(rows) } else { Err(Interruption::NoRow) }
    }

    /// Runs the ranks until they have ended. Returns the reports of rank 0.
    fn run(&self, case: &Case, engine: EngineKind) -> Result<Vec<OverlapReport>, Interruption> {
        let what = format!("{}, {engine}", name_and_size(case.collective, case.bytes));
        self.progress.set_message(what.clone());
        let options = LaunchOptions::new(self.ranks, engine)?;
        let arguments = super::rank::arguments(case, engine, options.job.cores);
        let (sender, reports) = mpsc::channel();
        let progress = self.progress.clone();
        let outcome = run_ranks("collectives", arguments, options, move |line| {
            match line {
                RankLine::Report(report) => {
                    if let OverlapReport::Plan { computation_us, repetitions } = report {
                        let computation = microseconds(computation_us);
                        progress.set_message(format!(
                            "{what}: {repetitions} times over {computation} µs of computation"
                        ));
                    }
                    // The receiver lives until the job has ended.
                    let _ = sender.send(report);
                }
                RankLine::Text { rank, text } => {
                    progress.suspend(|| eprintln!("[{rank}] {text}"));
                }
            }
            Ok(())
        })?;
        if let Outcome { failed: Some((rank, how)), .. } = outcome {
            return Err(Interruption::Rank { rank, how, status: outcome.exit_status() });
        }
        Ok(reports.try_iter().collect())
    }

    /// Removes the progress from the screen.
    pub(crate) fn finish(&self) {
        self.progress.finish_and_clear();
    }

    /// Removes the progress from the screen, and reports why there is no result.
    pub(crate) fn give_up(&self, interruption: Interruption) -> Result<ExitCode, Failure> {
        self.finish();
        match interruption {
            Interruption::Job(error) => Err(error.into()),
            Interruption::Rank { rank, how, status } => {
                eprintln!("tradewind: the measurement stopped, rank {rank} failed: {how}");
                Ok(ExitCode::from(status))
            }
            Interruption::NoRow => {
                eprintln!("tradewind: the measurement stopped, its ranks ended without a result");
                Ok(ExitCode::FAILURE)
            }
        }
    }
}
