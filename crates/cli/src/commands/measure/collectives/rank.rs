//! One rank of a measurement: this program, started by itself.

use engine::node::EngineKind;
use measure::experiments::overlap::{Case, Collective, Experiment, OverlapRow, Progress, Setting};
use measure::harness::processor_time::RankKind;
use measure::harness::rank_processes::report;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use tradewind::Job;

/// Seed of the skews of every measurement: two runs delay the same ranks in the same
/// way.
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
    #[arg(long)]
    engine: EngineKind,
    /// Cores that all ranks share.
    #[arg(long)]
    cores: u32,
    #[arg(long)]
    compute_us: Option<f64>,
    #[arg(long)]
    repetitions: Option<u32>,
}

/// Returns the arguments with which [`measure`] is called.
pub(super) fn arguments(case: &Case, engine: EngineKind, cores: u32) -> Vec<OsString> {
    let mut words = vec![case.collective.to_string(), case.bytes.to_string()];
    let mut option = |name: &str, value: String| words.extend([name.to_owned(), value]);
    option("--engine", engine.to_string());
    option("--cores", cores.to_string());
    if let Some(time) = case.computation_us {
        option("--compute-us", time.to_string());
    }
    if let Some(repetitions) = case.repetitions {
        option("--repetitions", repetitions.to_string());
    }
    words.into_iter().map(OsString::from).collect()
}

pub(crate) fn measure(arguments: &Arguments) -> Result<(), measure::Error> {
    let job = Job::init()?;
    let world = job.world();
    let setting = Setting {
        progress: Progress::OnNode(arguments.engine),
        rank_kind: RankKind::Process,
        cores: arguments.cores,
        service: Some(job.service_process()).filter(|_| world.rank() == 0),
        adds_interrupts: world.rank() == 0,
        has_common_clock: true,
        seed: SEED,
    };
    let case = Case {
        collective: arguments.collective,
        bytes: arguments.bytes,
        computation_us: arguments.compute_us,
        repetitions: arguments.repetitions,
    };
    let is_first = world.rank() == 0;
    let row = Experiment::new(world, setting)?.measure(&case, |plan| {
        if is_first {
            // Without a reader, the launcher reports a missing result.
            let _ = report(&OverlapReport::Plan {
                computation_us: plan.computation_us,
                repetitions: plan.repetitions,
            });
        }
    })?;
    if is_first {
        let _ = report(&OverlapReport::Row(row));
    }
    Ok(job.finish()?)
}
