//! Measuring a row on rank processes: this very program, started as the ranks of a job.

use super::figures::{microseconds, name_and_size};
use super::rank::Report;
use crate::failure::Failure;
use engine::Exit;
use engine::node::EngineKind;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use measure::experiments::overlap::{Case, Row};
use service::ServiceError;
use service::launcher::{LaunchOptions, Line, Outcome, Output, Stream, launch};
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Rows measured one after the other, and how far that is.
pub(crate) struct Measurements {
    ranks: u32,
    progress: ProgressBar,
}

/// Why a row could not be measured.
pub(crate) enum Interruption {
    /// The job could not be run.
    Job(ServiceError),
    /// A rank failed; what it had to say it has said on standard error.
    Rank { rank: u32, how: Exit, status: u8 },
    /// All ranks ended well, and there is no row.
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

/// Reports of rank 0 so far.
#[derive(Default)]
struct Reports {
    computation_us: Option<f64>,
    row: Option<Row>,
}

impl Measurements {
    /// Of so many rows. Progress is shown on standard error, if that is a terminal; it is redrawn
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

    /// One row for each engine, right after each other so that they see the same machine, over the
    /// same computation: that which the first engine settles, unless the case says it.
    pub(crate) fn compare(
        &self,
        case: &Case,
        engines: &[EngineKind],
    ) -> Result<Vec<Row>, Interruption> {
        let mut case = *case;
        let mut rows = Vec::new();
        for engine in engines {
            let reports = self.run(&case, *engine)?;
            case.computation_us = case.computation_us.or(reports.computation_us);
            rows.push(reports.row.ok_or(Interruption::NoRow)?);
            self.progress.inc(1);
        }
        Ok(rows)
    }

    /// Runs the ranks, until they have ended.
    fn run(&self, case: &Case, engine: EngineKind) -> Result<Reports, Interruption> {
        let what = format!("{}, {engine}", name_and_size(case.collective, case.bytes));
        self.progress.set_message(what.clone());
        let reports = Arc::new(Mutex::new(Reports::default()));
        let mut options = LaunchOptions::new(self.ranks, engine)?;
        let arguments = super::rank::command_line(case, engine, options.job.cores);
        options.output = Output::Lines(Box::new({
            let reports = Arc::clone(&reports);
            let progress = self.progress.clone();
            move |line| {
                read_line(line, &mut lock(&reports), &progress, &what);
                Ok(())
            }
        }));
        let program = OsString::from("/proc/self/exe");
        let outcome = launch(&program, &arguments, options)?;
        if let Outcome { failed: Some((rank, how)), .. } = outcome {
            return Err(Interruption::Rank { rank, how, status: outcome.exit_status() });
        }
        let reports = std::mem::take(&mut *lock(&reports));
        Ok(reports)
    }

    /// Takes the progress from the screen.
    pub(crate) fn finish(&self) {
        self.progress.finish_and_clear();
    }

    /// The same, and says why there will be no result.
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

fn lock(reports: &Mutex<Reports>) -> MutexGuard<'_, Reports> {
    // Each field is written in one step.
    reports.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes in a line of a rank's output.
fn read_line(line: Line<'_>, reports: &mut Reports, progress: &ProgressBar, what: &str) {
    if line.stream == Stream::Output {
        match serde_json::from_slice(line.text) {
            Ok(Report::Plan { computation_us, repetitions }) => {
                reports.computation_us = Some(computation_us);
                let computation = microseconds(computation_us);
                progress.set_message(format!(
                    "{what}: {repetitions} times over {computation} µs of computation"
                ));
                return;
            }
            Ok(Report::Row(row)) => {
                reports.row = Some(row);
                return;
            }
            // Not ours to understand, so ours to pass on.
            Err(_) => {}
        }
    }
    progress.suspend(|| eprintln!("[{}] {}", line.rank, String::from_utf8_lossy(line.text)));
}
