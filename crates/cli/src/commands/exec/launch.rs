//! Starting the ranks of a GOAL file.

use super::rank::{self, RankReport};
use measure::harness::rank_processes::{RankLine, run_ranks};
use service::launcher::{LaunchOptions, Outcome};
use std::path::Path;
use std::sync::mpsc;

/// Runs the ranks of the file until they have ended. Returns what rank 0 has reported.
pub(super) fn run(
    file: &Path,
    options: LaunchOptions,
) -> anyhow::Result<(Outcome, Option<RankReport>)> {
    let (sender, reports) = mpsc::channel();
    let outcome = run_ranks("file", rank::arguments(file), options, move |line| {
        match line {
            RankLine::Report(report) => {
                // The receiver lives until the job has ended.
                let _ = sender.send(report);
            }
            RankLine::Text { text, .. } => eprintln!("{text}"),
        }
        Ok(())
    })?;
    Ok((outcome, reports.try_iter().last()))
}
