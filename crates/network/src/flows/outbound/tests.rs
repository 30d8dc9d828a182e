//! Accesses of tests to the sending ends.

use super::*;

impl OutboundFlows {
    /// Polls the first source of the first set, which is empty. Then `meanwhile` runs, and the poll
    /// checks once more. No other poll follows.
    pub(in crate::flows) fn first_step(
        &mut self,
        batches: &mut Batches,
        transport: &mut dyn Transport,
        limit: u64,
        meanwhile: impl FnOnce(),
    ) {
        let OutboundFlows { ends, sets } = self;
        let SourceSet { poll, members, .. } = sets[0].as_mut().expect("it is open");
        let mut serving = Serving { ends, members, batches, transport, limit };
        assert!(serving.take(0).is_none(), "it is empty");
        meanwhile();
        assert!(!serving.is_ready(0), "there is no credit");
        while poll.poll(&mut Cleared).is_some() {}
    }
}

/// Members that are always empty, so that a poll clears their bits.
struct Cleared;

impl Members for Cleared {
    type Item = ();

    fn take(&mut self, _: usize) -> Option<()> {
        None
    }

    fn is_ready(&mut self, _: usize) -> bool {
        false
    }
}
