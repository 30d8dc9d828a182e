//! One rank of a GOAL file: this program, started by itself.

use super::messages::Messages;
use super::pattern;
use super::placement::PlacedGraph;
use super::verification::verify;
use crate::failure::problem_of;
use crate::goal_file::GoalFile;
use goal::graph::Graph;
use measure::harness::rank_processes::report;
use serde::{Deserialize, Serialize};
use shm::clock::monotonic_nanoseconds;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use tradewind::{Buffers, Communicator, Error, Job, Op};

/// Number of wrong receives that a rank describes.
const DESCRIBED: usize = 5;

/// Runs one rank of a GOAL file; `tradewind exec` starts it.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    file: PathBuf,
}

/// Report that rank 0 writes to its standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RankReport {
    /// From the moment the first rank starts to the end of the last operation of all ranks.
    pub(crate) nanoseconds: u64,
    /// Receives of all ranks that do not hold what they should.
    pub(crate) wrong: u64,
}

/// Returns the arguments with which [`execute`] is called.
pub(super) fn arguments(file: &Path) -> Vec<OsString> {
    // The name of the file may begin like an option.
    vec!["--".into(), file.into()]
}

pub(crate) fn execute(arguments: &Arguments) -> anyhow::Result<()> {
    let job = Job::init()?;
    let world = job.world();
    let graphs = GoalFile::read(&arguments.file)?.graphs;
    if graphs.len() != world.size() as usize {
        let problem = format!(
            "it has changed: {} ranks were started and it has {}",
            world.size(),
            graphs.len()
        );
        return Err(problem_of(&arguments.file)(problem));
    }
    let result = run(world, graphs)?;
    if world.rank() == 0 {
        report(&result)?;
    }
    Ok(job.finish()?)
}

/// Runs this rank's graph with all others and checks what has arrived.
fn run(world: &Communicator, graphs: Vec<Graph>) -> Result<RankReport, Error> {
    let messages = Messages::of(&graphs, world.rank());
    let placement = PlacedGraph::new(&graphs[world.rank() as usize], &messages);
    drop(graphs);
    let schedule = world.compile(&placement.graph)?;
    let mut sent = world.alloc::<u8>(placement.pattern_bytes as usize)?;
    pattern::fill(&mut sent);
    let received = world.alloc::<u8>(placement.received_bytes as usize)?;
    world.barrier()?;
    let begun = monotonic_nanoseconds();
    let buffers = schedule.run(Buffers::new().shared(sent).shared(received))?.wait()?;
    let ended = monotonic_nanoseconds();
    let received = buffers.get(1).map_or(&[][..], |received| received);
    let wrong = verify(&placement, &messages, received);
    for line in wrong.iter().take(DESCRIBED) {
        eprintln!("tradewind: {line}");
    }
    let mut first = [0];
    let mut last = [0];
    let mut total = [0];
    world.allreduce(&[begun], &mut first, Op::Minimum)?;
    world.allreduce(&[ended], &mut last, Op::Maximum)?;
    world.allreduce(&[wrong.len() as u64], &mut total, Op::Sum)?;
    Ok(RankReport { nanoseconds: last[0] - first[0], wrong: total[0] })
}
