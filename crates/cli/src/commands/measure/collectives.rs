//! `tradewind measure collectives`: exposed time of collectives beside a computation.

pub(crate) mod job;
pub(crate) mod rank;
mod table;

use crate::format::Format;
use clap::error::ErrorKind;
use engine::node::EngineKind;
use job::Measurements;
use measure::experiments::overlap::{Case, Collective};
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
    /// Number of ranks.
    #[arg(short = 'n', long = "ranks", value_name = "N", default_value_t = 2)]
    #[arg(value_parser = crate::commands::values::ranks)]
    ranks: u32,

    /// Collectives: barrier, allreduce (a sum of doubles), alltoall, bcast, neighbor (on a torus of
    /// two dimensions).
    #[arg(long = "op", value_name = "OP,...", value_delimiter = ',')]
    #[arg(default_value = "barrier,allreduce,alltoall,bcast,neighbor")]
    collectives: Vec<Collective>,

    /// Sizes in bytes: of the whole message in allreduce (a multiple of 8) and bcast, of what one
    /// rank has for one other in alltoall and neighbor. A barrier has none and is measured once.
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',')]
    #[arg(default_value = "8,1024,65536,1048576")]
    #[arg(value_parser = crate::commands::values::number("bytes", 0..=u64::MAX))]
    bytes: Vec<u64>,

    /// Engines to compare: caller (in-call progress: each rank runs its own operations) or peers
    /// (cooperative progress: the rank that completes the last dependency runs the operation).
    #[arg(
        long = "engine",
        value_name = "ENGINE,...",
        value_delimiter = ',',
        default_value = "caller,peers"
    )]
    engines: Vec<EngineKind>,

    /// Length of the computation of each rank, in microseconds [default: all ranks of a core together ten
    /// times as long as the collective takes alone with the first engine, each at least 20].
    #[arg(long, value_name = "US")]
    compute_us: Option<f64>,

    /// Repetitions of each row [default: as many as take a second, from 5 to 4000].
    #[arg(long, value_name = "R")]
    repetitions: Option<u32>,
}

const JSON: &str = "\
With --format json: one array of {op, algorithm, ranks, bytes, engine, alone_us, compute_us, total_us, exposed_us, overlap,
unattended, stolen_us, repetitions, p10_us, p90_us}. Times are medians in microseconds, p10 and p90 are those of the exposed
time, overlap is in percent (0 to 100), unattended is a share (0 to 1).";

impl Arguments {
    /// The rows, engines aside.
    fn cases(&self) -> Vec<Case> {
        let computation_us = self.compute_us;
        let repetitions = self.repetitions;
        let case = |collective, bytes| Case { collective, bytes, computation_us, repetitions };
        let mut cases = Vec::new();
        for collective in &self.collectives {
            let sizes = if collective.has_data() { self.bytes.as_slice() } else { &[0] };
            cases.extend(sizes.iter().map(|bytes| case(*collective, *bytes)));
        }
        cases
    }
}

pub(crate) fn execute(arguments: &Arguments, format: Format) -> anyhow::Result<ExitCode> {
    let cases = arguments.cases();
    for case in &cases {
        // Before any rank is started.
        if let Err(error) = case.check() {
            clap::Error::raw(ErrorKind::ValueValidation, format!("{error}\n")).exit();
        }
    }
    let measurements = Measurements::new(arguments.ranks, cases.len() * arguments.engines.len());
    let mut rows = Vec::new();
    for case in &cases {
        rows.extend(measurements.compare(case, &arguments.engines)?);
    }
    drop(measurements);
    format.print(|| table::of(arguments.ranks, &rows), &rows)?;
    Ok(ExitCode::SUCCESS)
}
