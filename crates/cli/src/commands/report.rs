//! `tradewind report`: measurements as one page.

use crate::failure::cannot_read;
use crate::format::Format;
use crate::goal_file;
use measure::experiments::summary;
use measure::page::{Input, Results};
use models::machine_file::Agreement;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Renders measurements as one self-contained HTML page: every figure, map and table of
/// a directory of results, and the machine's parameters.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The directory that `tradewind measure` wrote, or a machine.json.
    #[arg(value_name = "DIR")]
    results: PathBuf,

    /// Another directory or machine.json to compare with: its curves are added to the first one's,
    /// and the differences of the parameters are printed.
    #[arg(long, value_name = "OTHER_DIR")]
    compare: Option<PathBuf>,

    /// The file to write; - is standard output. Otherwise report.html in the directory.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Serialize)]
struct PageReport {
    output: String,
    parts: usize,
    /// Names of the parts that were interrupted; the summary follows from others.
    incomplete: Vec<String>,
    problems: Vec<String>,
    /// Agreement of the parameters, where two machines are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    agreement: Option<Agreement>,
}

pub(crate) fn execute(arguments: &Arguments, format: Format) -> anyhow::Result<ExitCode> {
    let results = read(&arguments.results)?;
    let other = arguments.compare.as_deref().map(read).transpose()?;
    let output = arguments.out.clone().unwrap_or_else(|| beside(&arguments.results));
    let input = Input { results, other };
    goal_file::write(&output, measure::page::render(&input).as_bytes())?;
    let Input { results, other } = input;
    let machines =
        results.machine.as_ref().zip(other.as_ref().and_then(|other| other.machine.as_ref()));
    let agreement = machines.map(|(one, other)| Agreement::of(one, other));
    let problems: Vec<String> = results
        .problems
        .into_iter()
        .chain(other.into_iter().flat_map(|other| other.problems))
        .collect();
    for problem in &problems {
        eprintln!("tradewind: {problem}");
    }
    let status = if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    if output == Path::new("-") {
        return Ok(status);
    }
    let incomplete: Vec<String> = results
        .parts
        .iter()
        .filter(|part| !part.complete && part.name != summary::NAME)
        .map(|part| part.name.to_string())
        .collect();
    let report = PageReport {
        output: output.display().to_string(),
        parts: results.parts.len(),
        incomplete,
        problems,
        agreement,
    };
    let describe = || {
        let PageReport { output, parts, incomplete, agreement, .. } = &report;
        let incomplete = if incomplete.is_empty() {
            String::new()
        } else {
            format!(", incomplete: {}", incomplete.join(", "))
        };
        let plural = if *parts == 1 { "" } else { "s" };
        let apart =
            agreement.as_ref().map(|agreement| format!("\n{}", describe_agreement(agreement)));
        format!("{output}: {parts} part{plural}{incomplete}{}", apart.unwrap_or_default())
    };
    format.print(describe, &report)?;
    Ok(status)
}

/// Text of the differences between two measurements.
fn describe_agreement(agreement: &Agreement) -> String {
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let each =
        agreement.each.iter().map(|(name, apart)| format!("{name} {}", percent(apart.median)));
    let Agreement { all, .. } = agreement;
    format!(
        "parameters lie {} apart in the median of {} values, a tenth of them more than {}; by parameter: {}",
        percent(all.median),
        all.values,
        percent(all.p90),
        each.collect::<Vec<_>>().join(", ")
    )
}

/// Reads a directory or one machine.json.
fn read(path: &Path) -> anyhow::Result<Results> {
    let results = Results::read(path).map_err(cannot_read(path))?;
    if results.parts.is_empty() && results.machine.is_none() {
        anyhow::ensure!(results.problems.is_empty(), "{}", results.problems.join("\n"));
        anyhow::bail!(
            "{}: no results of a measurement here: name a directory that `tradewind measure` wrote",
            path.display()
        );
    }
    Ok(results)
}

/// Default path of the page: in the directory, or beside the file.
fn beside(results: &Path) -> PathBuf {
    if results.is_dir() {
        results.join("report.html")
    } else {
        results.with_file_name("report.html")
    }
}
