//! How much may be sent to a host before its ranks want it.
//!
//! An eager message that arrives before its receive takes the receiver's memory. So a host counts, for every host, itself among
//! them, the bytes of eager messages that have not been reported to have found their receive, and has its interpreters announce
//! messages instead once these exceed the window: then the payload stays with its sender, whose run does not complete
//! before it is wanted. Announcements always pass, so nothing waits for ever. (Schneider et al. 2011, section 3.2, call
//! the same condition memory pressure.)

/// Bytes of eager messages that one host may have under way to another.
pub(crate) const WINDOW: u64 = 8 << 20;
/// What is reported to the sender at once: rarely enough to cost nothing.
const REPORT: u64 = WINDOW / 4;

#[derive(Debug)]
pub(crate) struct Windows {
    /// By host: what may still be sent.
    left: Vec<u64>,
    /// At most the least of `left`.
    least: u64,
    /// By host: what was received and not reported.
    unreported: Vec<u64>,
    /// Hosts with something to report.
    due: Vec<u32>,
}

impl Windows {
    pub(crate) fn new(hosts: u32) -> Self {
        let hosts = hosts as usize;
        Windows {
            left: vec![WINDOW; hosts],
            least: WINDOW,
            unreported: vec![0; hosts],
            due: Vec::new(),
        }
    }

    /// What may be sent eagerly, to whomever.
    pub(crate) fn budget(&self) -> u64 {
        self.least
    }

    /// An eager message was sent.
    pub(crate) fn sent(&mut self, host: u32, bytes: u64) {
        let left = &mut self.left[host as usize];
        *left = left.saturating_sub(bytes);
        self.least = self.least.min(*left);
    }

    /// A host reports that so much has found its receives.
    pub(crate) fn credit(&mut self, host: u32, bytes: u64) {
        let left = &mut self.left[host as usize];
        *left = left.saturating_add(bytes).min(WINDOW);
        self.least = self.left.iter().copied().min().unwrap_or(WINDOW);
    }

    /// A message from a host has found its receive, or is none of ours.
    pub(crate) fn consumed(&mut self, host: u32, bytes: u64) {
        let unreported = &mut self.unreported[host as usize];
        let before = *unreported;
        *unreported += bytes;
        if before < REPORT && *unreported >= REPORT {
            self.due.push(host);
        }
    }

    /// One that was said to be consumed is kept after all.
    pub(crate) fn withhold(&mut self, host: u32, bytes: u64) {
        let unreported = &mut self.unreported[host as usize];
        *unreported = unreported.saturating_sub(bytes);
    }

    /// The next report to send: host and bytes.
    pub(crate) fn report(&mut self) -> Option<(u32, u64)> {
        let host = self.due.pop()?;
        Some((host, std::mem::take(&mut self.unreported[host as usize])))
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
