//! Queues between the node's ranks and those of other nodes.

use super::AgentState;
use crate::agent::queues::record::QueueId;
use crate::agent::run_table::QUEUE_LIMIT;
use crate::agent::session::ProtocolViolation;
use shm::segment::{Offset, Segment};
use std::sync::Arc;

impl AgentState {
    /// The segment of the ranks of this node, in which their queues lie.
    fn job_segment(&self, local: usize) -> Result<Arc<Segment>, ProtocolViolation> {
        self.messages.segment(local).cloned().ok_or(ProtocolViolation)
    }

    /// Opens the queue of a rank to other nodes.
    pub(super) fn open_incoming(
        &mut self,
        local: usize,
        port: u64,
        at: Offset,
    ) -> Result<(), ProtocolViolation> {
        let segment = self.job_segment(local)?;
        self.queues.open_incoming(QueueId { owner: self.ranks[local], port }, &segment, at)
    }

    /// Opens the queues of this node that lead to a port of ranks of other nodes.
    pub(super) fn open_outgoing(
        &mut self,
        local: usize,
        port: u64,
        at: Offset,
    ) -> Result<(), ProtocolViolation> {
        let segment = self.job_segment(local)?;
        let context = &mut self.table.context;
        self.queues.open_outgoing(port, &segment, at, &context.nodes, &mut *context.transport)
    }

    /// Sends what the ranks have put into queues that lead to other nodes. Returns true if there
    /// was anything.
    pub(super) fn serve_queues(&mut self) -> bool {
        self.queues.serve(&mut *self.table.context.transport, QUEUE_LIMIT)
    }
}
