//! Runs the ranks and hears what they report.

use super::rank::Report;
use crate::failure::Failure;
use engine::Exit;
use engine::node::EngineKind;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use measure::experiments::queues::{Mechanism, Plan, Row};
use service::launcher::{LaunchOptions, Line, Outcome, Output, Stream, launch};
use std::ffi::OsString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Measured rows, and the end of the job.
pub(super) struct Measured {
    pub(super) rows: Vec<Row>,
    pub(super) skipped: Vec<(Mechanism, String)>,
    pub(super) end: End,
}

/// End of the job.
pub(super) enum End {
    /// Well.
    Complete,
    /// A rank failed; what it had to say it has said on standard error.
    RankFailed { rank: u32, how: Exit, status: u8 },
    /// All ranks ended well, and rows are missing.
    Incomplete { expected: usize },
}

/// Reports of rank 0 so far.
#[derive(Default)]
struct Reports {
    rows: Vec<Row>,
    skipped: Vec<(Mechanism, String)>,
}

/// Measures all rows of the plan in one job. Progress is shown on standard error, if that is a
/// terminal, and redrawn between rows alone, because redrawing takes CPU time from the ranks.
pub(super) fn run(plan: &Plan) -> Result<Measured, Failure> {
    let cases = plan.cases();
    let progress =
        ProgressBar::with_draw_target(Some(cases.len() as u64), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{bar:20} {pos}/{len}  {wide_msg}") {
        progress.set_style(style);
    }
    let reports = Arc::new(Mutex::new(Reports::default()));
    let mut options = LaunchOptions::new(2, EngineKind::Caller)?;
    options.output = Output::Lines(Box::new({
        let reports = Arc::clone(&reports);
        let progress = progress.clone();
        move |line| {
            read_line(line, &mut lock(&reports), &progress);
            Ok(())
        }
    }));
    let program = OsString::from("/proc/self/exe");
    let outcome = launch(&program, &super::rank::command_line(plan), options);
    progress.finish_and_clear();
    let outcome = outcome?;
    let Reports { rows, skipped } = std::mem::take(&mut *lock(&reports));
    let left_out = |mechanism| skipped.iter().any(|(left_out, _)| *left_out == mechanism);
    let expected = cases.iter().filter(|case| !left_out(case.mechanism)).count();
    let end = match outcome {
        Outcome { failed: Some((rank, how)), .. } => {
            End::RankFailed { rank, how, status: outcome.exit_status() }
        }
        _ if rows.len() == expected => End::Complete,
        _ => End::Incomplete { expected },
    };
    Ok(Measured { rows, skipped, end })
}

fn lock(reports: &Mutex<Reports>) -> MutexGuard<'_, Reports> {
    // Each field is written in one step.
    reports.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes in a line of a rank's output.
fn read_line(line: Line<'_>, reports: &mut Reports, progress: &ProgressBar) {
    if line.stream == Stream::Output {
        match serde_json::from_slice(line.text) {
            Ok(Report::Begin { mechanism, threads, bytes }) => {
                progress.set_message(format!("{mechanism}, {threads} threads, {bytes} B"));
                return;
            }
            Ok(Report::Row(row)) => {
                reports.rows.push(*row);
                progress.inc(1);
                return;
            }
            Ok(Report::Skipped { mechanism, why }) => {
                reports.skipped.push((mechanism, why));
                return;
            }
            // Not ours to understand, so ours to pass on.
            Err(_) => {}
        }
    }
    progress.suspend(|| eprintln!("[{}] {}", line.rank, String::from_utf8_lossy(line.text)));
}
