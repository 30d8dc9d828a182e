//! How much may be sent to a node before its ranks want it.
//!
//! An eager message that arrives before its receive takes the receiver's memory. So a node counts,
//! for every node, itself among them, the bytes of eager messages that have not been reported to
//! have found their receive, and has its interpreters announce messages instead once these exceed
//! the window: then the payload stays with its sender, whose run does not complete before it is
//! wanted. Announcements always pass, so nothing waits for ever. (Schneider et al. 2011, section
//! 3.2, call the same condition memory pressure.)

/// Bytes of eager messages that one node may have under way to another.
pub(crate) const WINDOW: u64 = 8 << 20;
/// What is reported to the sender at once: rarely enough to cost nothing.
const REPORT: u64 = WINDOW / 4;

#[derive(Debug)]
pub(crate) struct Windows {
    /// By node: what may still be sent.
    left: Vec<u64>,
    /// At most the least of `left`.
    least: u64,
    /// By node: what was received and not reported.
    unreported: Vec<u64>,
    /// Nodes with something to report.
    due: Vec<u32>,
}

impl Windows {
    pub(crate) fn new(nodes: u32) -> Self {
        let nodes = nodes as usize;
        Windows {
            left: vec![WINDOW; nodes],
            least: WINDOW,
            unreported: vec![0; nodes],
            due: Vec::new(),
        }
    }

    /// What may be sent eagerly, to whomever.
    pub(crate) fn budget(&self) -> u64 {
        self.least
    }

    /// An eager message was sent.
    pub(crate) fn sent(&mut self, node: u32, bytes: u64) {
        let left = &mut self.left[node as usize];
        *left = left.saturating_sub(bytes);
        self.least = self.least.min(*left);
    }

    /// A node reports that so much has found its receives.
    pub(crate) fn credit(&mut self, node: u32, bytes: u64) {
        let left = &mut self.left[node as usize];
        *left = left.saturating_add(bytes).min(WINDOW);
        self.least = self.left.iter().copied().min().unwrap_or(WINDOW);
    }

    /// A message from a node has found its receive, or is none of ours.
    pub(crate) fn consumed(&mut self, node: u32, bytes: u64) {
        let unreported = &mut self.unreported[node as usize];
        let before = *unreported;
        *unreported += bytes;
        if before < REPORT && *unreported >= REPORT {
            self.due.push(node);
        }
    }

    /// One that was said to be consumed is kept after all.
    pub(crate) fn withhold(&mut self, node: u32, bytes: u64) {
        let unreported = &mut self.unreported[node as usize];
        *unreported = unreported.saturating_sub(bytes);
    }

    /// The next report to send: node and bytes.
    pub(crate) fn report(&mut self) -> Option<(u32, u64)> {
        let node = self.due.pop()?;
        Some((node, std::mem::take(&mut self.unreported[node as usize])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrowest_window_counts() {
        let mut windows = Windows::new(3);
        windows.sent(1, WINDOW - 10);
        windows.sent(2, 5);
        assert_eq!(windows.budget(), 10);
        windows.credit(1, 100);
        assert_eq!(windows.budget(), 110);
    }

    #[test]
    fn what_is_consumed_is_reported_in_large_pieces() {
        let mut windows = Windows::new(2);
        windows.consumed(1, REPORT - 1);
        assert_eq!(windows.report(), None);
        windows.consumed(1, 11);
        windows.consumed(1, 7);
        windows.withhold(1, 10);
        assert_eq!(windows.report(), Some((1, REPORT + 7)));
        assert_eq!(windows.report(), None);
    }
}
