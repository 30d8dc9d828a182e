//! One job of an experiment: rank processes that make some of its steps.

use super::kept::SavedPart;
use super::progress::Progress;
use super::rank::{self, StepReport};
use measure::harness::rank_processes::{RankLine, run_ranks};
use measure::harness::{Setting, Step};
use measure::rows::StepRows;
use service::launcher::{Binding, LaunchOptions, Outcome};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A job may take so many times as long as expected, and …
const LIMIT_FACTOR: u32 = 20;
/// … this long besides.
const STARTING: Duration = Duration::from_secs(120);

/// End of a job.
pub(super) enum JobEnd {
    /// All its steps are made.
    Done,
    /// Interrupted by a signal; the exit status for it.
    Interrupted(u8),
    /// It could not be made.
    Failed { why: String, code: u8 },
}

/// Makes these steps. What each found is on the disk when this returns.
pub(super) fn run(
    kept: &Arc<Mutex<SavedPart>>,
    steps: Range<usize>,
    setting: &Setting,
    progress: &Progress,
) -> anyhow::Result<JobEnd> {
    let experiment = Arc::clone(lock(kept).experiment());
    let job = &experiment.steps()[steps.clone()];
    let Some(Step { shape, .. }) = job.first() else { return Ok(JobEnd::Done) };
    let mut options = LaunchOptions::new(shape.ranks, shape.engine)?;
    // The ranks bind themselves: several may share a core.
    options.binding = Binding::None;
    // What is measured does not depend on what was found out before.
    options.job.decisions = None;
    options.job.cores = shape.shared_cores;
    let expected: u64 = job.iter().map(|step| step.milliseconds).sum();
    options.limit = Some(STARTING + Duration::from_millis(expected) * LIMIT_FACTOR);
    let arguments = {
        let kept = lock(kept);
        progress.begin(kept.what_comes());
        rank::arguments(kept.name(), steps.clone(), setting, kept.directory())
    };
    let trouble = Arc::new(Mutex::new(None));
    let mut reader = ReportReader {
        kept: Arc::clone(kept),
        trouble: Arc::clone(&trouble),
        progress: progress.clone(),
    };
    let launched = run_ranks("steps", arguments, options, move |line| reader.read_line(line));
    if let Some(failure) = lock_any(&trouble).take() {
        return Err(failure);
    }
    lock(kept).conclude()?;
    let outcome = launched?;
    let code = outcome.exit_status();
    let is_done = {
        let kept = lock(kept);
        steps.clone().all(|step| kept.is_done(step))
    };
    Ok(match outcome {
        Outcome { interrupted: true, .. } if !is_done => JobEnd::Interrupted(code),
        Outcome { out_of_time: true, .. } => {
            JobEnd::Failed { why: "it took far too long".to_owned(), code }
        }
        Outcome { failed: Some((rank, how)), .. } => {
            JobEnd::Failed { why: format!("rank {rank} failed: {how}"), code }
        }
        _ if is_done => JobEnd::Done,
        _ => JobEnd::Failed { why: "its ranks ended before they were done".to_owned(), code: 1 },
    })
}

/// Reads the reports of the ranks.
struct ReportReader {
    kept: Arc<Mutex<SavedPart>>,
    /// Why nothing more can be taken in.
    trouble: Arc<Mutex<Option<anyhow::Error>>>,
    progress: Progress,
}

impl ReportReader {
    /// Reads a line. An error ends the ranks.
    fn read_line(&mut self, line: RankLine<'_, StepReport>) -> std::io::Result<()> {
        match line {
            RankLine::Report(StepReport { step, found }) => {
                self.take_in(step, found).map_err(|failure| {
                    let said = std::io::Error::other(failure.to_string());
                    lock_any(&self.trouble).get_or_insert(failure);
                    said
                })
            }
            RankLine::Text { rank, text } => {
                self.progress.say(&format!("[{rank}] {text}"));
                Ok(())
            }
        }
    }

    fn take_in(&mut self, step: usize, found: StepRows) -> anyhow::Result<()> {
        let mut kept = lock(&self.kept);
        self.progress.done(kept.experiment().steps().get(step).map_or(0, |step| step.milliseconds));
        kept.add(step, found)?;
        self.progress.begin(kept.what_comes());
        Ok(())
    }
}

/// A run is changed in one step; a thread that panics leaves it as it was.
pub(super) fn lock(kept: &Mutex<SavedPart>) -> MutexGuard<'_, SavedPart> {
    lock_any(kept)
}

fn lock_any<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
