//! Flows between the node's ranks and those of other nodes.

use super::AgentState;
use crate::flows::ports::PortRequest;
use crate::flows::table::PortTable;
use crate::flows::{ChannelEnd, Refusal};
use crate::runs::run_table::QUEUE_LIMIT;
use queues::window::ServedWindow;
use shm::segment::{Offset, Segment};
use std::sync::Arc;

impl AgentState {
    /// The segment of the ranks of this node, in which their ends lie.
    fn job_segment(&self, local: usize) -> Result<Arc<Segment>, Refusal> {
        self.messages.segment(local).cloned().ok_or(Refusal::Invalid)
    }

    /// Answers a rank whether its end was opened.
    fn answer_opened(&self, local: usize, opened: Result<(), Refusal>) {
        let answer: Vec<u32> = opened.err().map(|refusal| refusal as u32).into_iter().collect();
        self.sessions[local].iter().for_each(|session| session.answer(&answer));
    }

    /// Opens a port of a rank, and answers.
    pub(super) fn open_port(&mut self, local: usize, request: PortRequest) {
        let rank = self.ranks[local];
        let context = &self.table.context;
        let exited = self.table.membership.exited(&context.nodes).into_keys().collect();
        let opened = self.job_segment(local).and_then(|segment| {
            let transport = &mut *self.table.context.transport;
            self.flows.open_port(rank, request, &segment, transport, &exited)
        });
        self.answer_opened(local, opened);
    }

    /// Opens an end of a channel between a rank and one of another node, and answers.
    pub(super) fn open_channel(&mut self, local: usize, port: u64, end: ChannelEnd, at: Offset) {
        let name = (self.ranks[local], port, end);
        let opened = self.job_segment(local).and_then(|segment| {
            self.flows.open_channel(name, &segment, at, &mut *self.table.context.transport)
        });
        self.answer_opened(local, opened);
    }

    /// Opens a window of a rank for those in a table that are on other nodes, and answers.
    pub(super) fn open_window(&mut self, local: usize, port: u64, at: Offset, table: Offset) {
        let window = (self.ranks[local], port);
        let opened = self.job_segment(local).and_then(|segment| {
            let context = &mut self.table.context;
            let invalid = Refusal::Invalid;
            let served = ServedWindow::connect(&segment, at).map_err(|_| invalid)?;
            let table = PortTable::read(&segment, table, context.nodes.ranks());
            let table = table.map_err(|_| invalid)?;
            self.flows.open_window(window, served, &table, &mut *context.transport)
        });
        self.answer_opened(local, opened);
    }

    /// Answers with the ranks from `first` on that have exited, and from which nothing follows in
    /// the queue of a rank.
    pub(super) fn answer_queue_exits(&self, local: usize, port: u64, first: u32) {
        let nodes = &self.table.context.nodes;
        let queue = (self.ranks[local], port);
        let exited = self.table.membership.exited(nodes);
        let has_last_of =
            |rank: u32| nodes.of(rank).is_none_or(|node| self.flows.has_last_of(queue, node, rank));
        let exited = exited.range(first..).filter(|(rank, _)| has_last_of(**rank));
        let words: Vec<u32> = exited.map(|(_, rank)| rank.word()).collect();
        self.sessions[local].iter().for_each(|session| session.answer(&words));
    }

    /// Sends what the ranks have put into flows to other nodes, and the credit of those from there,
    /// and executes commands on windows. Returns true if there was anything.
    pub(super) fn serve_flows(&mut self) -> bool {
        self.flows.serve(&mut *self.table.context.transport, QUEUE_LIMIT)
    }
}
