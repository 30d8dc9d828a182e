//! Equal blocks of scratchpad.

use crate::CollectiveError;
use crate::builder::GraphBuilder;
use goal::graph::Block;

/// Equal blocks of scratchpad, taken one after the other.
pub(crate) struct Row {
    rest: Block,
    bytes: u64,
}

impl Row {
    pub(crate) fn new(
        builder: &mut GraphBuilder,
        count: usize,
        bytes: u64,
    ) -> Result<Self, CollectiveError> {
        let count = count as u64;
        let what = "the scratchpad";
        let all =
            count.checked_mul(bytes).ok_or(CollectiveError::TooManyBytes { what, count, bytes })?;
        Ok(Row { rest: builder.scratchpad(all)?, bytes })
    }

    pub(crate) fn next_block(&mut self) -> Block {
        let block = self.rest.part(0, self.bytes);
        self.rest = self.rest.part(self.bytes, self.rest.length.saturating_sub(self.bytes));
        block
    }
}
