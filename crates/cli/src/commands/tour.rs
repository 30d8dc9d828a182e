//! `tradewind tour`: collectives that complete during a computation, on this machine.

mod meaning;
mod nodes;

use super::figures::{
    DIFFERENCES, RESOLUTION_US, exposed, figure, name_and_size, percent_of, processor_time,
    ranks_on_cores, spread, table_with, trusted,
};
use super::measure::made_nodes::NotMade;
use super::measure::suite::{self, ResultsLocation};
use crate::failure::OutputError;
use crate::format::Format;
use comfy_table::{Cell, Table};
use measure::experiments::overlap::{Case, Collective, OverlapRow, Plan, Progress};
use measure::harness::Setting;
use nodes::BetweenNodes;
use serde::Serialize;
use std::io::Write;
use std::process::ExitCode;

/// The baseline comes first. Both have the algorithm of messages, so that they differ in progress
/// alone.
const PROGRESS: [Progress; 2] = [Progress::Caller, Progress::PeersByMessages];

/// The cases: messages as short as they often are, which are the hardest to overlap (Schneider
/// et al. 2011, section 4).
const CASES: [(Collective, u64); 4] = [
    (Collective::Barrier, 0),
    (Collective::Allreduce, 8),
    (Collective::Alltoall, 1024),
    (Collective::Neighbor, 1024),
];

/// Shows collectives that complete during a computation, on this machine, in less than a minute.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Number of ranks. With four or more, the collectives take several rounds.
    #[arg(short = 'n', long = "ranks", value_name = "N", default_value_t = 2)]
    #[arg(value_parser = super::values::ranks)]
    ranks: u32,
}

/// Measurements of the tour.
#[derive(Debug, Serialize)]
struct Measured<'a> {
    rows: &'a [OverlapRow],
    /// Absent where nodes cannot be made.
    between_nodes: Option<&'a BetweenNodes>,
}

pub(crate) fn execute(arguments: &Arguments, format: Format) -> anyhow::Result<ExitCode> {
    if format == Format::Table {
        writeln!(std::io::stdout(), "{}\n", introduction(arguments.ranks)).map_err(OutputError)?;
    }
    let cases = CASES.map(|(collective, bytes)| Case::new(collective, bytes));
    let plan = Plan { ranks: arguments.ranks, cases: cases.to_vec(), progress: PROGRESS.to_vec() };
    let setting = Setting { options: plan.options(), ..Setting::default() };
    let directory = tempfile::tempdir()?;
    let out = directory.path().to_owned();
    let status = suite::quietly(
        "overlap",
        &setting,
        &ResultsLocation { out, again: false, temporary: true },
    )?;
    let rows = OverlapRow::in_directory(directory.path())?;
    if rows.len() < CASES.len() * PROGRESS.len() {
        return Ok(status);
    }
    if format == Format::Table {
        let meaning = wrapped(&meaning::of(&rows));
        writeln!(std::io::stdout(), "{}\n\n{meaning}\n", table(&rows)).map_err(OutputError)?;
    }
    let between_nodes = match nodes::measure().map_err(|failure| failure.downcast::<NotMade>()) {
        Ok(measured) => Ok(measured),
        Err(Ok(why)) if why.is_missing_requirement() => Err(why),
        Err(Ok(why)) => return Err(why.into()),
        Err(Err(failure)) => return Err(failure),
    };
    let text = || match &between_nodes {
        Ok(measured) => nodes::describe(measured),
        Err(why) => wrapped(&format!("Not shown between nodes: {why}.")),
    };
    let measured = Measured { rows: &rows, between_nodes: between_nodes.as_ref().ok() };
    format.print(text, &measured)?;
    Ok(ExitCode::SUCCESS)
}

fn introduction(ranks: u32) -> String {
    format!(
        "\
{}. Each rank starts a collective, computes without another call, and only then waits for the result.
Both engines run the same algorithm, by messages. With `caller`, a rank executes its operations in its own calls only,
as in most libraries, so the collective makes no progress during the computation. With `peers`, the rank that completes
an operation also executes the operations that depend on it, for any rank.

\"Exposed\" is the time that the collective adds to the computation; the bars show it. \"Unattended\" is the share of the
runs that were complete before their rank made another call. \"CPU added\" is the processor time that all processes
together took from the computation. {DIFFERENCES}",
        ranks_on_cores(ranks),
    )
}

fn table(rows: &[OverlapRow]) -> Table {
    let mut table = table_with(&[
        "collective",
        "algorithm",
        "engine",
        "exposed\nµs",
        "",
        "10 % .. 90 %\nµs",
        "unattended\n%",
        "CPU added\nµs",
    ]);
    for pair in rows.chunks(PROGRESS.len()) {
        let longest = pair.iter().map(|row| row.exposed_us).fold(RESOLUTION_US, f64::max);
        for (number, row) in pair.iter().enumerate() {
            // The names once for both engines.
            let of_first = |text: String| if number == 0 { text } else { String::new() };
            table.add_row([
                Cell::new(of_first(name_and_size(row.op, row.bytes))),
                Cell::new(of_first(row.algorithm.clone())),
                Cell::new(row.engine.name()),
                trusted(exposed(row)),
                Cell::new(bar(row.exposed_us / longest)),
                figure(spread(row)),
                trusted(percent_of(row.unattended)),
                figure(processor_time(row)),
            ]);
        }
    }
    table
}

/// A bar of this share of the longest one.
fn bar(share: f64) -> String {
    const LONGEST: f64 = 24.0;
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * LONGEST * 8.0).round() as usize;
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

/// In lines of a width that reads well.
fn wrapped(text: &str) -> String {
    const WIDTH: usize = 110;
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_have_the_length_of_their_share() {
        let widths = [-0.5, 0.0, 0.5, 1.0, 2.0].map(|share| bar(share).chars().count());
        assert_eq!(widths, [0, 0, 12, 24, 24]);
        assert_eq!(bar(1.0 / 48.0), "▌");
    }

    #[test]
    fn lines_are_broken_between_words() {
        let text = "word ".repeat(100);
        let lines = wrapped(&text);
        assert!(lines.lines().count() > 1 && lines.lines().all(|line| line.chars().count() <= 110));
        assert_eq!(lines.split_whitespace().count(), 100);
    }
}
