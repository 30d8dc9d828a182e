//! `tradewind tour`: what this is all about, on this machine, in less than a minute.

mod meaning;

use super::figures::{
    figure, microseconds, name_and_size, percent_of, ranks_on_cores, spread, table_with, trusted,
};
use super::measure::collectives::job::Measurements;
use crate::failure::Failure;
use crate::format::Format;
use comfy_table::{Cell, Table};
use engine::node::EngineKind;
use measure::experiments::overlap::{Case, Collective, OverlapRow};
use std::io::Write;
use std::process::ExitCode;

/// The baseline comes first.
const ENGINES: [EngineKind; 2] = [EngineKind::Caller, EngineKind::Peers];

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

pub(crate) fn execute(arguments: &Arguments, format: Format) -> Result<ExitCode, Failure> {
    if format == Format::Table {
        writeln!(std::io::stdout(), "{}\n", introduction(arguments.ranks))?;
    }
    let measurements = Measurements::new(arguments.ranks, CASES.len() * ENGINES.len());
    let mut rows = Vec::new();
    for (collective, bytes) in CASES {
        match measurements.compare(&Case::new(collective, bytes), &ENGINES) {
            Ok(measured) => rows.extend(measured),
            Err(interruption) => return measurements.give_up(interruption),
        }
    }
    measurements.finish();
    format.print(|| format!("{}\n\n{}", table(&rows), wrapped(&meaning::of(&rows))), &rows)?;
    Ok(ExitCode::SUCCESS)
}

fn introduction(ranks: u32) -> String {
    format!(
        "\
{}. Each rank starts a collective, computes without another call, and only then waits for the result.
With the engine `caller`, a rank executes its operations in its own calls only, as in most libraries, so the
collective makes no progress during the computation. With `peers`, the rank that completes an operation also executes
the operations that depend on it, for any rank.

\"Exposed\" is the time that the collective adds to the computation. \"Unattended\" is the share of the runs that were
complete before their rank made another call. \"Overlap\" favours slow collectives: compare the other two. \"CPU
added\" is the processor time that all processes together took from the computation.",
        ranks_on_cores(ranks),
    )
}

fn table(rows: &[OverlapRow]) -> Table {
    let mut table = table_with(&[
        "collective",
        "engine",
        "alone\nµs",
        "computation\nµs",
        "total\nµs",
        "exposed\nµs",
        "10 % .. 90 %\nµs",
        "overlap\n%",
        "unattended\n%",
        "CPU added\nµs",
    ]);
    for row in rows {
        // The name once for both engines.
        let name = if row.engine.name() == ENGINES[0].name() {
            name_and_size(row.op, row.bytes)
        } else {
            String::new()
        };
        table.add_row([
            Cell::new(name),
            Cell::new(row.engine.name()),
            figure(microseconds(row.alone_us)),
            figure(microseconds(row.compute_us)),
            figure(microseconds(row.total_us)),
            trusted(microseconds(row.exposed_us)),
            figure(spread(row)),
            figure(format!("{:.0}", row.overlap)),
            trusted(percent_of(row.unattended)),
            figure(microseconds(row.stolen_us)),
        ]);
    }
    table
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
    fn lines_are_broken_between_words() {
        let text = "word ".repeat(100);
        let lines = wrapped(&text);
        assert!(lines.lines().count() > 1 && lines.lines().all(|line| line.chars().count() <= 110));
        assert_eq!(lines.split_whitespace().count(), 100);
    }
}
