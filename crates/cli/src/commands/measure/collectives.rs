//! `tradewind measure collectives`: exposed time of collectives beside a computation.

mod table;

use super::planned::{Place, Planned, USUAL_RANKS, refuse};
use crate::commands::values::number;
use crate::format::Format;
use engine::node::RANK_LIMIT;
use measure::experiments::overlap::{Case, OverlapRow, Plan, Progress};
use measure::rows::Run;
use std::num::NonZeroU32;
use std::process::ExitCode;

/// Measures the time that nonblocking collectives add to a computation.
///
/// Starts N rank processes for each row. In every repetition each rank starts the collective after
/// a random skew, computes for a fixed number of steps, and waits; nothing is called in between.
/// Computations without a collective take turns with those. `exposed` is the difference of the two
/// times, for each repetition that of the slowest rank. `overlap` is 1 - exposed/alone in percent:
/// a slow collective has a high overlap, so compare exposed times. `unattended` is the share of
/// repetitions in which the collective was complete after the computation, before the rank made any
/// call; checks before all ranks had started do not count. `stolen` is the processor time of all
/// ranks, the node service and softirqs (of the whole machine, where the system has that), less
/// that of the computation alone.
///
/// With more ranks than cores, a repetition is timed from the first rank's start to the last rank's
/// end.
#[derive(Debug, clap::Args)]
#[command(after_help = JSON)]
pub(crate) struct Arguments {
    /// Number of ranks; with --nodes on each node [default: 2; with --nodes 1].
    #[arg(short = 'n', long = "ranks", value_name = "N")]
    #[arg(value_parser = number("ranks", RANKS[0]..=RANKS[1]))]
    ranks: Option<NonZeroU32>,

    /// Collectives: barrier, allreduce (a sum of doubles), alltoall, bcast, neighbor (on a torus of
    /// two dimensions); with a size of its own as in allreduce:8.
    #[arg(long = "op", value_name = "OP[:BYTES],...", value_delimiter = ',')]
    #[arg(default_value = "barrier,allreduce,alltoall,bcast,neighbor")]
    collectives: Vec<Case>,

    /// Sizes in bytes: of the whole message in allreduce (a multiple of 8) and bcast, of what one
    /// rank has for one other in alltoall and neighbor. A barrier has none and is measured once.
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',')]
    #[arg(default_value = "8,1024,65536,1048576")]
    #[arg(value_parser = number("bytes", 0..=u64::MAX))]
    bytes: Vec<u64>,

    /// Progress to compare: caller (in-call progress: each rank runs its own operations), peers
    /// (cooperative progress: the rank that completes the last dependency runs the operation), or
    /// peers-by-messages (the same with the algorithm of caller) [default: caller,peers]. Between
    /// nodes: in-calls (the blocking call, after the computation) or nonblocking [default: both],
    /// with --nodes by the engines in user space.
    #[arg(long = "engine", value_name = "PROGRESS,...", value_delimiter = ',')]
    progress: Vec<Progress>,

    /// Length of the computation of each rank, in microseconds [default: all ranks of a core
    /// together ten times as long as the collective takes alone with the first progress, each at
    /// least 20].
    #[arg(long, value_name = "US")]
    compute_us: Option<f64>,

    /// Repetitions of each row [default: as many as take a second, from 5 to 4000].
    #[arg(long, value_name = "R")]
    repetitions: Option<u32>,

    #[command(flatten)]
    place: Place,
}

/// The fewest and the most ranks.
const RANKS: [NonZeroU32; 2] = [NonZeroU32::MIN, NonZeroU32::new(RANK_LIMIT).expect("not zero")];

const JSON: &str = "\
With --format json: one array of {op, algorithm, ranks, bytes, engine, alone_us, compute_us, total_us, exposed_us, overlap,
unattended, stolen_us, repetitions, p10_us, p90_us}. Times are medians in microseconds, p10 and p90 are those of the exposed
time, overlap is in percent (0 to 100), unattended is a share (0 to 1).";

impl Arguments {
    fn plan(&self, is_between_nodes: bool, ranks: NonZeroU32) -> Plan {
        let computation_us = self.compute_us;
        let repetitions = self.repetitions;
        let mut cases = Vec::new();
        for case in &self.collectives {
            let case = Case { computation_us, repetitions, ..*case };
            if case.collective.has_data() && case.bytes == 0 {
                cases.extend(self.bytes.iter().map(|bytes| Case { bytes: *bytes, ..case }));
            } else {
                cases.push(case);
            }
        }
        let progress = match self.progress.as_slice() {
            [] => Progress::usual(is_between_nodes).to_vec(),
            named => named.to_vec(),
        };
        Plan { ranks: ranks.get(), cases, progress }
    }
}

pub(crate) fn execute(arguments: Arguments, format: Format) -> anyhow::Result<ExitCode> {
    let is_between_nodes = arguments.place.is_between_nodes();
    let ranks = USUAL_RANKS.map(|usual| arguments.ranks.unwrap_or(usual));
    let plan = arguments.plan(is_between_nodes, ranks[usize::from(is_between_nodes)]);
    refuse(plan.check(is_between_nodes));
    let planned = Planned {
        name: "overlap",
        command: "collectives",
        options: plan.options(),
        ranks,
        print: &print,
    };
    planned.execute(arguments.place, format)
}

fn print(ranks: &str, run: &Run, format: Format) -> anyhow::Result<()> {
    let rows = OverlapRow::all(run.rows());
    let figures: Vec<&OverlapRow> = rows.iter().map(|(row, _)| row).collect();
    format.print(|| table::of(ranks, &rows), &figures)
}
