//! The reports of all nodes of a job.

use super::checks;
use super::report::{Finding, NodeReport, Report, Weight};
use launch::LaunchError;
use launch::detect::Launch;
use tradewind::{Collective, Communicator, Error, Job};

/// Joins the job, and collects the reports of its nodes. `None` in a rank that has nothing to
/// print.
pub(super) fn report(launch: &Result<Launch, LaunchError>) -> Option<Report> {
    match Job::init().and_then(|job| collect(job.world(), launch)) {
        Ok(report) => report,
        Err(error) => {
            let job = Finding::new("job", Weight::Problem, error.to_string());
            Some(Report { job: Some(job), nodes: vec![checks::of_this_node(launch)] })
        }
    }
}

/// Collects the reports of the first ranks of all nodes in rank 0.
fn collect(
    world: &Communicator,
    launch: &Result<Launch, LaunchError>,
) -> Result<Option<Report>, Error> {
    let here = world.split_by_node()?;
    let mut ranks = vec![0; here.size() as usize];
    here.allgather(&[world.rank()], &mut ranks)?;
    let own = if here.rank() == 0 {
        let report = NodeReport { ranks, ..checks::of_this_node(launch) };
        serde_json::to_vec(&report).unwrap_or_default()
    } else {
        Vec::new()
    };
    let size = world.size() as usize;
    let mut lengths = vec![0u64; size];
    world.allgather(&[own.len() as u64], &mut lengths)?;
    let longest = lengths.iter().max().copied().unwrap_or(0) as usize;
    let mut padded = own;
    padded.resize(longest, 0);
    let mut all = vec![0u8; longest * size];
    world.allgather(&padded, &mut all)?;
    if world.rank() != 0 {
        return Ok(None);
    }
    let texts = lengths.iter().enumerate().filter(|(_, length)| **length > 0);
    let text = |(rank, length): (usize, &u64)| &all[rank * longest..][..*length as usize];
    let nodes: Vec<NodeReport> =
        texts.map(text).filter_map(|text| serde_json::from_slice(text).ok()).collect();
    let mut joined = format!("{size} ranks on {} nodes have joined", world.nodes());
    if world.nodes() > 1 {
        let engine = world.explain(Collective::Allreduce, 8).engine;
        joined += &format!("; short nonblocking collectives run in the engine {engine}");
    }
    let job = Finding::new("job", Weight::Good, joined);
    Ok(Some(Report { job: Some(job), nodes }))
}
