//! The findings of the command, and their text.

use serde::{Deserialize, Serialize};

/// Importance of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Weight {
    /// All is well.
    Good,
    /// Something is missing that jobs can do without.
    Note,
    /// Jobs cannot run.
    Problem,
}

/// A finding about one subject.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Finding {
    pub(super) subject: String,
    pub(super) weight: Weight,
    pub(super) text: String,
}

/// The findings of a node.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct NodeReport {
    pub(super) node: String,
    /// Ranks on the node, under a launcher.
    pub(super) ranks: Vec<u32>,
    pub(super) findings: Vec<Finding>,
}

/// The findings of all nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Report {
    pub(super) job: Option<Finding>,
    pub(super) nodes: Vec<NodeReport>,
}

impl Finding {
    pub(super) fn new(subject: &str, weight: Weight, text: impl Into<String>) -> Self {
        Finding { subject: subject.into(), weight, text: text.into() }
    }

    /// A finding of a check that succeeds with a text.
    pub(super) fn of(subject: &str, checked: Result<String, String>) -> Self {
        match checked {
            Ok(text) => Finding::new(subject, Weight::Good, text),
            Err(text) => Finding::new(subject, Weight::Problem, text),
        }
    }
}

impl Report {
    pub(super) fn has_problem(&self) -> bool {
        let findings = self.nodes.iter().flat_map(|node| &node.findings).chain(&self.job);
        findings.into_iter().any(|finding| finding.weight == Weight::Problem)
    }
}

/// Formats a report as text.
pub(super) fn describe(report: &Report) -> String {
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
