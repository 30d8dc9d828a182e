//! Messages of the node's ranks that belong to no run.

use super::{AgentState, local_rank_of};
use crate::agent::messages::area::MOST_RING;
use crate::agent::messages::router::TURN_BYTES;
use crate::error::{Error, RankExit};
use crate::runs::run_table::QUEUE_LIMIT;
use shm::mapped::Mapped;
use shm::sync::AtomicU32;

impl AgentState {
    /// Sets the wake-up word of a rank of this node.
    pub(crate) fn set_wakeup(&mut self, rank: u32, word: Mapped<AtomicU32>) {
        if let Some(local) = self.local_rank_of(rank) {
            self.messages.set_wakeup(local, word);
        }
    }

    /// Sends what a rank has put into its send ring, as far as the queues are short enough. Returns
    /// true if there was anything.
    pub(crate) fn serve_messages(&mut self, local: usize) -> bool {
        self.serve_up_to(local, QUEUE_LIMIT)
    }

    fn serve_up_to(&mut self, local: usize, limit: u64) -> bool {
        let rank = self.ranks[local];
        let context = &mut self.table.context;
        match self.messages.serve(local, rank, &context.nodes, &mut *context.transport, limit) {
            Ok(had_any) => had_any,
            Err(violation) => {
                self.reject_rank(local, violation);
                false
            }
        }
    }

    /// Sends all that a rank has put into its send ring before it exited.
    pub(crate) fn drain_messages(&mut self, local: usize) {
        // At most what a ring holds: a process that goes on is no reason to stay here. So much is
        // added to long queues, too, because the send ring is read no more.
        let _ = (0..=MOST_RING / TURN_BYTES).find(|_| !self.serve_up_to(local, u64::MAX));
        self.flows.check_all();
        self.serve_flows();
    }

    /// Delivers messages of a rank of another node.
    pub(super) fn receive(&mut self, node: u32, source: u32, records: &[u8]) {
        // A node sends for its own ranks only. Without this check it could forge the messages of
        // others.
        if self.table.context.nodes.of(source) != Some(node) {
            self.table.refused += 1;
            return;
        }
        self.messages.receive(source, records, |rank| local_rank_of(&self.ranks, rank));
    }

    /// Reports the exit of a rank of another node to the ranks of this one.
    pub(super) fn report_exit(&mut self, rank: u32, how: &RankExit) {
        self.flows.end(rank);
        self.messages.report_exit(rank, &Error::RankFailed { rank, how: how.clone() });
    }

    /// Reports the loss of a node to the ranks of this one.
    pub(super) fn report_loss(&mut self, node: u32, why: &Error) {
        for rank in self.table.context.nodes.members(node) {
            self.messages.report_exit(rank, why);
        }
    }

    /// Wakes the ranks that have received messages. Returns true if there are any.
    pub(super) fn wake_receivers(&mut self) -> bool {
        let sessions = &mut self.sessions;
        self.messages.wake_receivers(|local| {
            if let Some(session) = sessions[local].as_mut() {
                session.set_woken();
            }
        })
    }
}
