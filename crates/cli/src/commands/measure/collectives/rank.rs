//! One rank of a measurement: this program, started by itself.

use engine::node::EngineKind;
use measure::experiments::overlap::{Case, Collective, OverlapRow, Progress, measure as overlap};
use measure::harness::rank_processes::report;
use measure::harness::{JobShape, Nodes, RowsOrigin, StepContext};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use tradewind::Job;

/// Seed of the skews of every measurement: two runs delay the same ranks in the same way.
const SEED: u64 = 2011;

/// Report of rank 0.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OverlapReport {
    /// The measurement begins.
    Plan { computation_us: f64, repetitions: u32 },
    /// The result.
    Row(OverlapRow),
}

/// Measures one row; `tradewind measure collectives` and `tradewind tour` start it.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    collective: Collective,
    bytes: u64,
    #[arg(long, required_unless_present = "report")]
    engine: Option<EngineKind>,
    /// Takes the algorithm of messages, whatever the engine.
    #[arg(long)]
    by_messages: bool,
    /// Measures between nodes, in a job of this command's launcher, and writes the row to this file.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Between nodes: calls the collective after the computation.
    #[arg(long, requires = "report")]
    in_calls: bool,
    /// Cores that all ranks share.
    #[arg(long)]
    cores: u32,
    #[arg(long)]
    compute_us: Option<f64>,
    #[arg(long)]
    repetitions: Option<u32>,
}

/// The progress that a row is measured with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way<'a> {
    /// On one node, by an engine.
    OnNode { engine: EngineKind, by_messages: bool },
    /// Between nodes; the row is written to the file.
    BetweenNodes { in_calls: bool, report: &'a Path },
}

/// Returns the arguments with which [`measure`] is called.
pub(crate) fn arguments(case: &Case, way: Way<'_>, cores: u32) -> Vec<OsString> {
    let mut words = vec![case.collective.to_string(), case.bytes.to_string()];
    match way {
        Way::OnNode { engine, by_messages } => {
            words.extend(["--engine".to_owned(), engine.to_string()]);
            words.extend(by_messages.then(|| "--by-messages".to_owned()));
        }
        Way::BetweenNodes { in_calls, report } => {
            words.extend(["--report".to_owned(), report.display().to_string()]);
            words.extend(in_calls.then(|| "--in-calls".to_owned()));
        }
    }
    let mut option = |name: &str, value: String| words.extend([name.to_owned(), value]);
    option("--cores", cores.to_string());
    if let Some(time) = case.computation_us {
        option("--compute-us", time.to_string());
    }
    if let Some(repetitions) = case.repetitions {
        option("--repetitions", repetitions.to_string());
    }
    words.into_iter().map(OsString::from).collect()
}

impl Arguments {
    fn progress(&self) -> Progress {
        match self.engine {
            // `Caller` selects the algorithm of messages; the job itself runs `Peers`.
            Some(_) if self.by_messages => Progress::OnNode(EngineKind::Caller),
            Some(engine) => Progress::OnNode(engine),
            None if self.in_calls => Progress::InCalls,
            None => Progress::Nonblocking,
        }
    }
}

pub(crate) fn measure(arguments: &Arguments) -> anyhow::Result<()> {
    let job = Job::init()?;
    let world = job.world();
    let is_between_nodes = arguments.engine.is_none();
    let nodes = is_between_nodes.then(|| Nodes::of(world, None)).transpose()?;
    let shape = JobShape {
        ranks: world.size(),
        engine: arguments.engine.unwrap_or(EngineKind::Peers),
        cores: Vec::new(),
        shared_cores: arguments.cores,
        nodes,
    };
    let origin = RowsOrigin { experiment: "overlap".to_owned(), link: None };
    let here = StepContext {
        world,
        shape: &shape,
        service: Some(job.service_process()),
        directory: None,
        origin: &origin,
    };
    let case = Case {
        collective: arguments.collective,
        bytes: arguments.bytes,
        computation_us: arguments.compute_us,
        repetitions: arguments.repetitions,
    };
    let is_first = world.rank() == 0;
    let progress = arguments.progress();
    let rows = overlap(&here, progress, &case, SEED, |computation_us, repetitions| {
        if is_first && arguments.report.is_none() {
            // Without a reader, the launcher reports a missing result.
            let _ = report(&OverlapReport::Plan { computation_us, repetitions });
        }
    })?;
    for (row, _) in OverlapRow::all(&rows) {
        match &arguments.report {
            _ if !is_first => {}
            Some(file) => std::fs::write(file, serde_json::to_vec(&row)?)?,
            None => {
                let _ = report(&OverlapReport::Row(row));
            }
        }
    }
    Ok(job.finish()?)
}
