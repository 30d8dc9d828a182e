//! Reports of other nodes that wait: one of each node on each rank or node.

use crate::transport::frame::Frame;
use std::collections::HashSet;

/// Reports that wait, in order.
#[derive(Debug, Default)]
pub(crate) struct WaitingReports {
    pub(super) reports: Vec<WaitingReport>,
    /// By reporting node.
    subjects: HashSet<(u32, Subject)>,
}

#[derive(Debug)]
pub(crate) struct WaitingReport {
    /// The node that has reported.
    pub(super) from: u32,
    pub(super) frame: Frame,
    pub(super) since: u64,
}

/// Subject of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    /// The exit of a rank.
    Exit(u32),
    /// The announcement of a rank that it leaves.
    Leaving(u32),
    /// The end of a node.
    NodeEnd(u32),
    /// The shutdown of the reporting node.
    Shutdown,
}

impl Subject {
    /// `None` for a frame that is no report.
    pub(super) fn of(frame: &Frame) -> Option<Self> {
        match frame {
            Frame::RankExited { rank, .. } => Some(Subject::Exit(*rank)),
            Frame::RankLeaves { rank, .. } => Some(Subject::Leaving(*rank)),
            Frame::NodeEnded { node, .. } => Some(Subject::NodeEnd(*node)),
            Frame::Shutdown => Some(Subject::Shutdown),
            _ => None,
        }
    }
}

impl WaitingReports {
    pub(super) fn is_empty(&self) -> bool {
        self.reports.is_empty()
    }

    /// Adds a report, unless one of the same node on the same subject waits.
    pub(super) fn push(&mut self, report: WaitingReport) {
        let subject = Subject::of(&report.frame);
        if subject.is_some_and(|subject| self.subjects.insert((report.from, subject))) {
            self.reports.push(report);
        }
    }

    /// Removes all reports.
    pub(super) fn take(&mut self) -> Vec<WaitingReport> {
        self.subjects.clear();
        std::mem::take(&mut self.reports)
    }
}
