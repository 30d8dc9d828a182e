//! Rows measured on rank processes.

use super::rank::{OverlapReport, Way};
use crate::commands::figures::{microseconds, name_and_size};
use crate::failure::JobFailed;
use engine::node::EngineKind;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use measure::experiments::overlap::{Case, OverlapRow};
use measure::harness::rank_processes::{RankLine, run_ranks};
use service::launcher::{LaunchOptions, Outcome};
use std::sync::mpsc;

/// Rows measured one after the other, with their progress.
pub(crate) struct Measurements {
    ranks: u32,
    by_messages: bool,
    progress: ProgressBar,
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
        Measurements { ranks, by_messages: false, progress }
    }

    /// Measures the algorithm of messages with every engine, so that the engines differ in progress
    /// alone.
    pub(crate) fn by_messages(mut self) -> Self {
        self.by_messages = true;
        self
    }

    /// Measures one row for each engine, right after each other so that they meet the same state of
    /// the machine, over the same computation: the one that the first engine determines, unless
    /// the case contains one.
    pub(crate) fn compare(
        &self,
        case: &Case,
        engines: &[EngineKind],
    ) -> anyhow::Result<Vec<OverlapRow>> {
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
        anyhow::ensure!(
            rows.len() == engines.len(),
            "the measurement stopped, its ranks ended without a result"
        );
        Ok(rows)
    }

    /// Runs the ranks until they have ended. Returns the reports of rank 0.
    fn run(&self, case: &Case, engine: EngineKind) -> anyhow::Result<Vec<OverlapReport>> {
        let what = format!("{}, {engine}", name_and_size(case.collective, case.bytes));
        self.progress.set_message(what.clone());
        let options = LaunchOptions::new(self.ranks, engine)?;
        let way = Way::OnNode { engine, by_messages: self.by_messages };
        let arguments = super::rank::arguments(case, way, options.job.cores);
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
            let why = format!("the measurement stopped, rank {rank} failed: {how}");
            return Err(JobFailed { why, status: outcome.exit_status() }.into());
        }
        Ok(reports.try_iter().collect())
    }
}

impl Drop for Measurements {
    /// Removes the progress from the screen.
    fn drop(&mut self) {
        self.progress.finish_and_clear();
    }
}
