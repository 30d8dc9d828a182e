//! `tradewind doctor`: what jobs find on this node, or on all nodes of a job.

mod checks;
mod job;

use crate::failure::Failure;
use crate::format::Format;
use launch::detect::{Launch, detect};
use launch::environment::Environment;
use serde::{Deserialize, Serialize};
use std::process::ExitCode;

/// Reports which launcher, network, kernel engine, shared memory and limits a job finds on this
/// node, what is missing, and the way out.
///
/// Under a launcher, as in `srun -N 2 tradewind doctor`, its processes join one job, and rank 0
/// reports all nodes. If they cannot join, each reports the reason. Exit status 1 where something
/// prevents jobs; what only makes them slower is a note.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Do not join a job: report this node only.
    #[arg(long)]
    node_only: bool,
}

/// Importance of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Weight {
    /// All is well.
    Good,
    /// Something is missing that jobs can do without.
    Note,
    /// Jobs cannot run.
    Problem,
}

/// A finding about one subject.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
struct Finding {
    subject: String,
    weight: Weight,
    text: String,
}

/// The findings of a node.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
struct NodeReport {
    node: String,
    /// Ranks on the node, under a launcher.
    ranks: Vec<u32>,
    findings: Vec<Finding>,
}

/// The findings of all nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Report {
    job: Option<Finding>,
    nodes: Vec<NodeReport>,
}

impl Finding {
    fn new(subject: &str, weight: Weight, text: impl Into<String>) -> Self {
        Finding { subject: subject.into(), weight, text: text.into() }
    }

    /// A finding of a check that succeeds with a text.
    fn of(subject: &str, checked: Result<String, String>) -> Self {
        match checked {
            Ok(text) => Finding::new(subject, Weight::Good, text),
            Err(text) => Finding::new(subject, Weight::Problem, text),
        }
    }
}

impl Report {
    fn has_problem(&self) -> bool {
        let findings = self.nodes.iter().flat_map(|node| &node.findings).chain(&self.job);
        findings.into_iter().any(|finding| finding.weight == Weight::Problem)
    }
}

pub(crate) fn execute(arguments: &Arguments, format: Format) -> Result<ExitCode, Failure> {
    let launch = detect(&Environment);
    let is_single = matches!(launch, Ok(Launch::Single) | Err(_));
    let report = if arguments.node_only || is_single {
        Some(Report { job: None, nodes: vec![checks::of_this_node(&launch)] })
    } else {
        job::report(&launch)
    };
    let Some(report) = report else { return Ok(ExitCode::SUCCESS) };
    format.print(|| describe(&report), &report)?;
    Ok(if report.has_problem() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn describe(report: &Report) -> String {
    let mut text = String::new();
    if let Some(job) = &report.job {
        text += &rows(std::slice::from_ref(job));
    }
    for NodeReport { node, ranks, findings } in &report.nodes {
        let numbers: Vec<String> = ranks.iter().map(u32::to_string).collect();
        let ranks =
            if ranks.is_empty() { String::new() } else { format!(", ranks {}", numbers.join(" ")) };
        text += &format!("{node}{ranks}\n{}", rows(findings));
    }
    text.truncate(text.trim_end().len());
    text
}

fn rows(findings: &[Finding]) -> String {
    let row = |Finding { subject, weight, text }: &Finding| {
        let mark = match weight {
            Weight::Good => "ok",
            Weight::Note => "note",
            Weight::Problem => "PROBLEM",
        };
        format!("  {subject:<14} {mark:<8} {text}\n")
    };
    findings.iter().map(row).collect()
}
