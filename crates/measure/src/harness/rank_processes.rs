//! Rank processes of a measurement: this program, started again as the ranks of a job.
//!
//! Rank 0 reports to the process that started it, one JSON value in a line of its standard output.
//! All other lines of the ranks are text for the user.

use serde::Serialize;
use serde::de::DeserializeOwned;
use service::ServiceError;
use service::launcher::{LaunchOptions, Outcome, Output, Stream, launch};
use std::borrow::Cow;
use std::ffi::OsString;
use std::io::{self, Write};

/// A line that a rank process has written.
#[derive(Debug)]
pub enum RankLine<'a, Report> {
    /// A report of rank 0.
    Report(Report),
    /// Any other line of a rank.
    Text {
        /// The rank.
        rank: u32,
        /// Its line, without the end of the line.
        text: Cow<'a, str>,
    },
}

/// Runs this program as the ranks of a job, until all of them have ended. Its command line is `internal rank`,
/// the name of a task, and the task's arguments. `read` is called for every line; an error that it
/// returns ends the ranks.
///
/// # Errors
/// Returns an error if the job cannot be started, or the error of `read`. A rank that fails is no
/// error; the outcome names it.
pub fn run_ranks<Report: DeserializeOwned>(
    task: &str,
    arguments: impl IntoIterator<Item = OsString>,
    mut options: LaunchOptions,
    mut read: impl FnMut(RankLine<'_, Report>) -> io::Result<()> + Send + 'static,
) -> Result<Outcome, ServiceError> {
    options.output = Output::Lines(Box::new(move |line| {
        // A rank may write lines of its own, and a library in it too.
        let report = match line.stream {
            Stream::Output => serde_json::from_slice(line.text).ok(),
            Stream::Error => None,
        };
        read(report.map_or_else(
            || RankLine::Text { rank: line.rank, text: String::from_utf8_lossy(line.text) },
            RankLine::Report,
        ))
    }));
    let task = ["internal".into(), "rank".into(), task.into()];
    let command_line: Vec<OsString> = task.into_iter().chain(arguments).collect();
    launch(&OsString::from("/proc/self/exe"), &command_line, options)
}

/// Writes a report of this rank to the process that started it. Only rank 0 calls this.
///
/// # Errors
/// The report cannot be written, or is no JSON.
pub fn report(report: &impl Serialize) -> io::Result<()> {
    let line = serde_json::to_string(report)?;
    writeln!(io::stdout(), "{line}")
}
