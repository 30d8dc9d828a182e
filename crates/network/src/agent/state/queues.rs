//! Queues between the node's ranks and those of other nodes.

use super::AgentState;
use crate::agent::queues::Refusal;
use crate::agent::queues::router::PortRequest;
use crate::agent::session::ProtocolViolation;
use crate::runs::run_table::QUEUE_LIMIT;
use crate::transport::records::queues::QueueId;
use shm::segment::Segment;
use std::sync::Arc;

impl AgentState {
    /// The segment of the ranks of this node, in which their queues lie.
    pub(super) fn job_segment(&self, local: usize) -> Result<Arc<Segment>, ProtocolViolation> {
        self.messages.segment(local).cloned().ok_or(ProtocolViolation)
    }

    /// Opens a port of a rank, and answers.
    pub(super) fn open_port(&mut self, local: usize, request: PortRequest) {
        let rank = self.ranks[local];
        let context = &mut self.table.context;
        let exited = self.table.membership.exited(&context.nodes).into_keys().collect();
        // Queues lie in the segment of the ranks of this node.
        let segment = self.messages.segment(local);
        let opened = segment.ok_or(Refusal::Invalid).and_then(|segment| {
            let transport = &mut *context.transport;
            self.queues.open(rank, request, segment, &context.nodes, transport, &exited)
        });
        let answer: Vec<u32> = opened.err().map(|refusal| refusal as u32).into_iter().collect();
        self.sessions[local].iter().for_each(|session| session.answer(&answer));
    }

    /// Answers with the ranks from `first` on that have exited, and from which nothing follows in
    /// the queue of a rank.
    pub(super) fn answer_queue_exits(&self, local: usize, port: u64, first: u32) {
        let nodes = &self.table.context.nodes;
        let id = QueueId { owner: self.ranks[local], port };
        let exited = self.table.membership.exited(nodes);
        let has_last_of =
            |rank: u32| nodes.of(rank).is_none_or(|node| self.queues.has_last_of(id, node, rank));
        let exited = exited.range(first..).filter(|(rank, _)| has_last_of(**rank));
        let words: Vec<u32> = exited.map(|(_, rank)| rank.word()).collect();
        self.sessions[local].iter().for_each(|session| session.answer(&words));
    }

    /// Sends what the ranks have put into queues that lead to other nodes. Returns true if there
    /// was anything.
    pub(super) fn serve_queues(&mut self) -> bool {
        self.queues.serve(&mut *self.table.context.transport, QUEUE_LIMIT)
    }
}
