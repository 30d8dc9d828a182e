//! `tradewind exec check`: reports the errors of a GOAL file.

use crate::format::Format;
use crate::goal_file::{FileFormat, GoalFile, Malformed};
use goal::check::{GlobalOptions, global, least_eager_limit};
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

/// Reports the errors of a GOAL file, text or binary: every invalid operation, with its line.
///
/// Operations of several ranks may wait for each other for ever if sends wait for their receives.
/// This is decided for the eager limit that `tradewind exec` has with the same options, and
/// the least limit with which the file runs is stated.
#[derive(Debug, clap::Args)]
#[command(after_help = JSON)]
pub(crate) struct Arguments {
    /// The file; - is standard input.
    file: PathBuf,

    #[command(flatten)]
    eager_limit: crate::commands::values::EagerLimit,
}

const JSON: &str = "\
With --format json: {file, format, ranks, operations, eager_bytes, least_eager_bytes, problems}.
least_eager_bytes is null if no eager limit lets the file run, or if it cannot be read.";

#[derive(Serialize)]
struct CheckReport {
    file: String,
    format: Option<FileFormat>,
    ranks: usize,
    operations: usize,
    eager_bytes: u64,
    least_eager_bytes: Option<u64>,
    problems: Vec<String>,
}

pub(crate) fn execute(arguments: &Arguments, format: Format) -> anyhow::Result<ExitCode> {
    let file = arguments.file.display().to_string();
    let eager_limit = arguments.eager_limit.bytes()?;
    let report = match GoalFile::read(&arguments.file) {
        Ok(read) => {
            let problems = global(&read.graphs, &GlobalOptions { eager_limit }).err();
            let problems = problems.unwrap_or_default();
            CheckReport {
                file,
                format: Some(read.format),
                ranks: read.graphs.len(),
                operations: read.operations(),
                eager_bytes: eager_limit,
                least_eager_bytes: least_eager_limit(&read.graphs),
                problems: problems.iter().map(ToString::to_string).collect(),
            }
        }
        Err(failure) => CheckReport {
            file,
            format: None,
            ranks: 0,
            operations: 0,
            eager_bytes: eager_limit,
            least_eager_bytes: None,
            problems: vec![failure.downcast::<Malformed>()?.problem],
        },
    };
    format.print(|| describe(&report), &report)?;
    Ok(if report.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn describe(report: &CheckReport) -> String {
    let CheckReport { file, ranks, operations, problems, .. } = report;
    if problems.is_empty() {
        let limits = match report.least_eager_bytes.unwrap_or_default() {
            0 => "with every eager limit".to_owned(),
            least => format!("with eager limits from {least} bytes on"),
        };
        return format!("{file}: {operations} operations on {ranks} ranks, nothing wrong {limits}");
    }
    problems.iter().map(|problem| format!("{file}: {problem}")).collect::<Vec<_>>().join("\n")
}
