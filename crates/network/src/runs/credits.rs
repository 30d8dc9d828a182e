//! Flow control of eager messages between nodes, by credits.
//!
//! An eager message that arrives before its receive is posted takes memory of the receiver. So a
//! node counts for every node, itself included, the bytes of eager messages that are not known to
//! have met their receive. Once they exceed the credit, its interpreters use the rendezvous
//! protocol instead: the payload stays with the sender, and its run does not complete before the
//! message is requested. Requests to send are always admitted, so nothing waits for ever.
//! (Schneider et al. 2011, section 3.2, call the same condition memory pressure.)

/// Bytes of eager messages that one node may have outstanding at another.
pub(crate) const CREDIT: u64 = 8 << 20;
/// Bytes that are returned to the sender at once: rarely enough to cost nothing.
const RETURN: u64 = CREDIT / 4;

/// The credits of one node at all nodes.
#[derive(Debug)]
pub(crate) struct Credits {
    /// By node: bytes that may still be sent.
    left: Vec<u64>,
    /// At most the least of `left`.
    least: u64,
    /// By node: bytes that have met their receives and were not returned yet.
    unreturned: Vec<u64>,
    /// Nodes with enough bytes to return.
    due: Vec<u32>,
}

impl Credits {
    pub(crate) fn new(nodes: u32) -> Self {
        let nodes = nodes as usize;
        Credits {
            left: vec![CREDIT; nodes],
            least: CREDIT,
            unreturned: vec![0; nodes],
            due: Vec::new(),
        }
    }

    /// Bytes that may be sent eagerly to any node.
    pub(crate) fn budget(&self) -> u64 {
        self.least
    }

    /// Counts an eager message that was sent.
    pub(crate) fn sent(&mut self, node: u32, bytes: u64) {
        let left = &mut self.left[node as usize];
        *left = left.saturating_sub(bytes);
        // A minimum over all nodes costs one comparison here. Only `add` computes it anew, once per
        // returned quarter.
        self.least = self.least.min(*left);
    }

    /// Adds credit that a node has returned.
    pub(crate) fn add(&mut self, node: u32, bytes: u64) {
        let left = &mut self.left[node as usize];
        // A damaged or malicious frame cannot raise the credit above its initial value.
        *left = left.saturating_add(bytes).min(CREDIT);
        self.least = self.left.iter().copied().min().unwrap_or(CREDIT);
    }

    /// Counts a message of a node that has met its receive or was dropped.
    pub(crate) fn consumed(&mut self, node: u32, bytes: u64) {
        let unreturned = &mut self.unreturned[node as usize];
        let before = *unreturned;
        *unreturned += bytes;
        // Crosses the threshold once until `next_return` resets it, so a node is in the list at
        // most once.
        if before < RETURN && *unreturned >= RETURN {
            self.due.push(node);
        }
    }

    /// Takes back a message that was counted as consumed and is kept after all.
    pub(crate) fn withhold(&mut self, node: u32, bytes: u64) {
        let unreturned = &mut self.unreturned[node as usize];
        *unreturned = unreturned.saturating_sub(bytes);
    }

    /// The next node to which credit is to be returned, and how many bytes.
    pub(crate) fn next_return(&mut self) -> Option<(u32, u64)> {
        let node = self.due.pop()?;
        Some((node, std::mem::take(&mut self.unreturned[node as usize])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_credit_bounds_the_budget() {
        let mut credits = Credits::new(3);
        credits.sent(1, CREDIT - 10);
        credits.sent(2, 5);
        assert_eq!(credits.budget(), 10);
        credits.add(1, 100);
        assert_eq!(credits.budget(), 110);
    }

    #[test]
    fn credit_is_returned_in_large_pieces() {
        let mut credits = Credits::new(2);
        credits.consumed(1, RETURN - 1);
        assert_eq!(credits.next_return(), None);
        credits.consumed(1, 11);
        credits.consumed(1, 7);
        credits.withhold(1, 10);
        assert_eq!(credits.next_return(), Some((1, RETURN + 7)));
        assert_eq!(credits.next_return(), None);
    }
}
