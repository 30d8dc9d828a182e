//! Channels between the node's ranks and those of other nodes.

use super::AgentState;
use crate::agent::channel_end::ChannelEnd;
use crate::agent::queues::Refusal;
use crate::agent::queues::table::PortTable;
use crate::agent::session::ProtocolViolation;
use crate::runs::run_table::QUEUE_LIMIT;
use queues::window::ServedWindow;
use shm::segment::Offset;

impl AgentState {
    /// Opens an end of a channel between a rank and one of another node, and answers.
    pub(super) fn open_channel(
        &mut self,
        local: usize,
        port: u64,
        end: ChannelEnd,
        at: Offset,
    ) -> Result<(), ProtocolViolation> {
        let segment = self.job_segment(local)?;
        let context = &mut self.table.context;
        let (ChannelEnd::SendsTo(peer) | ChannelEnd::ReceivesFrom(peer)) = end;
        let node = context.nodes.of(peer).ok_or(ProtocolViolation)?;
        let name = (self.ranks[local], port, end);
        self.channels.open(name, &segment, at, node, &mut *context.transport)?;
        self.sessions[local].iter().for_each(|session| session.answer(&[]));
        Ok(())
    }

    /// Opens a window of a rank for those in a table that are on other nodes, and answers.
    pub(super) fn open_window(
        &mut self,
        local: usize,
        port: u64,
        at: Offset,
        table: Offset,
    ) -> Result<(), ProtocolViolation> {
        let segment = self.job_segment(local)?;
        let context = &mut self.table.context;
        let window = (self.ranks[local], port);
        let opened =
            ServedWindow::connect(&segment, at).map_err(|_| Refusal::Invalid).and_then(|served| {
                let table = PortTable::read(&segment, table, context.nodes.ranks());
                let table = table.map_err(|_| Refusal::Invalid)?;
                let transport = &mut *context.transport;
                self.channels.open_window(window, served, &table, &context.nodes, transport)
            });
        let answer: Vec<u32> = opened.err().map(|refusal| refusal as u32).into_iter().collect();
        self.sessions[local].iter().for_each(|session| session.answer(&answer));
        Ok(())
    }

    /// Sends what the ranks have put into channels that lead to other nodes, and the credit of
    /// those that come from there, and executes commands on windows. Returns true if there was anything.
    pub(super) fn serve_channels(&mut self) -> bool {
        self.channels.serve(&mut *self.table.context.transport, QUEUE_LIMIT)
    }
}
