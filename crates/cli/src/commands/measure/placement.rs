//! `tradewind measure placement`: where ranks lie, and where those of a program should.

use super::suite::{self, Measured};
use crate::failure::Failure;
use crate::format::Format;
use crate::goal_file::GoalFile;
use goal::graph::{Graph, Operation};
use measure::mapping::{Distances, Traffic, propose};
use measure::results::{Part, Table};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Messages against where two ranks lie: on cores of their own, on one core, not bound, and every
/// mapping of two ranks to cores.
///
/// With --traffic it also proposes which core each rank of a program should run on (--map, or
/// `tradewind run` with a wrapper that binds), and prints the gain over ranks on cores in turn.
#[derive(Debug, clap::Args)]
pub(crate) struct PlacementArguments {
    #[command(flatten)]
    suite: suite::Arguments,

    /// Traffic between the ranks of a program: a row of bytes for each rank, or
    /// a GOAL file.
    #[arg(long, value_name = "FILE")]
    traffic: Option<PathBuf>,
}

pub(super) fn execute(arguments: &PlacementArguments, format: Format) -> Result<ExitCode, Failure> {
    // Before anything is measured.
    let traffic = arguments.traffic.as_deref().map(read).transpose()?;
    let mut measured =
        suite::measure_one("placement", &arguments.suite.setting()?, &arguments.suite.place)?;
    if let (Some((path, traffic)), Some(placement)) =
        (traffic, measured.parts.first().filter(|part| part.complete))
    {
        let part = proposal(&path, &traffic, placement);
        suite::keep(&arguments.suite.place, &part)?;
        measured.parts.push(part);
    }
    let Measured { parts, status } = measured;
    suite::show(Measured { parts, status }, &arguments.suite.place, format)
}

/// Traffic as a matrix or as the messages of a GOAL file.
fn read(path: &Path) -> Result<(PathBuf, Traffic), Failure> {
    let failed = |source| Failure::Read { path: path.to_owned(), source };
    let bytes = std::fs::read(path).map_err(failed)?;
    let text = String::from_utf8_lossy(&bytes);
    let begins = text.trim_start().chars().next();
    let traffic = if begins.is_some_and(|first| first.is_ascii_digit() || "#.+-".contains(first)) {
        Traffic::parse(&text).map_err(|error| Failure::Malformed {
            path: path.to_owned(),
            problem: error.to_string(),
        })?
    } else {
        of_graphs(&GoalFile::read(path)?.graphs)
    };
    Ok((path.to_owned(), traffic))
}

fn of_graphs(graphs: &[Graph]) -> Traffic {
    let mut traffic = Traffic::new(graphs.len());
    for graph in graphs {
        for entry in graph.vertices() {
            if let Operation::Send { data, peer, .. } = &entry.operation {
                traffic.add(
                    graph.rank() as usize,
                    *peer as usize,
                    data.bytes().unwrap_or(u64::MAX) as f64,
                );
            }
        }
    }
    traffic
}

fn proposal(path: &Path, traffic: &Traffic, placement: &Part) -> Part {
    let mut part = Part::new("mapping", "Proposed mapping");
    part.about = format!(
        "Which core each of the {} ranks of {} should run on, by what messages cost between cores here. No core gets more ranks \
         than it has to. The cost is the sum of all bytes, each times the cost of a message between the cores of its ranks, over \
         that of the fastest mapping of two ranks.",
        traffic.ranks(),
        path.display()
    );
    part.source = "Bokhari 1995, sections 6 and 8".to_owned();
    part.setting = placement.setting.clone();
    part.complete = true;
    let columns =
        ["--map", "cost", "cost of ranks in turn", "gain (%)"].map(str::to_owned).to_vec();
    let rows = Distances::of(placement).map(|distances| propose(traffic, &distances).row());
    let name = "proposal".to_owned();
    part.tables.push(Table {
        name,
        title: "Proposal".to_owned(),
        caption: String::new(),
        columns,
        rows: rows.into_iter().collect(),
    });
    part
}
