//! `tradewind exec convert`: a GOAL file from text to binary or back.

use crate::failure::problem_of;
use crate::format::Format;
use crate::goal_file::{self, FileFormat, GoalFile};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Converts a GOAL file: to text if the name of the output ends in .goal or .txt, to binary if it
/// ends in .bin, else to what the input is not. The output is written whole or not at all.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The file to read; - is standard input.
    input: PathBuf,

    /// The file to write; - is standard output.
    output: PathBuf,
}

#[derive(Serialize)]
struct ConversionReport {
    input: String,
    output: String,
    from: FileFormat,
    to: FileFormat,
    ranks: usize,
    operations: usize,
    bytes: usize,
}

pub(crate) fn execute(arguments: &Arguments, format: Format) -> anyhow::Result<ExitCode> {
    let Arguments { input, output } = arguments;
    if goal_file::is_same(input, output) {
        let path = output.display();
        anyhow::bail!("{path}: this is also the file to read: name another one to write");
    }
    let read = GoalFile::read(input)?;
    let to = wanted(output, read.format);
    let bytes = goal_file::encode(&read.graphs, to).map_err(problem_of(input))?;
    goal_file::write(output, &bytes)?;
    if output == Path::new("-") {
        return Ok(ExitCode::SUCCESS);
    }
    let report = ConversionReport {
        input: input.display().to_string(),
        output: output.display().to_string(),
        from: read.format,
        to,
        ranks: read.graphs.len(),
        operations: read.operations(),
        bytes: bytes.len(),
    };
    let describe = || {
        let ConversionReport { output, operations, ranks, bytes, .. } = &report;
        format!("{output}: {operations} operations on {ranks} ranks, {bytes} bytes")
    };
    format.print(describe, &report)?;
    Ok(ExitCode::SUCCESS)
}

fn wanted(output: &Path, input: FileFormat) -> FileFormat {
    match output.extension().and_then(|extension| extension.to_str()) {
        Some("goal" | "txt") => FileFormat::Text,
        Some("bin") => FileFormat::Binary,
        _ if input == FileFormat::Text => FileFormat::Binary,
        _ => FileFormat::Text,
    }
}
