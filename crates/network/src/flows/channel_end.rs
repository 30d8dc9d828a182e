//! The ends of channels between nodes.

use crate::transport::records::flows::{FlowId, FlowKind};

/// Bit in the port of the channel of the commands on a window.
pub const COMMANDS: u64 = 1 << 31;
/// Bit in the port of the channel of the answers. The ports of windows themselves, and those of all
/// other channels, have neither bit.
pub const ANSWERS: u64 = 1 << 30;

/// The end of a channel that a rank opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelEnd {
    /// The rank sends to this rank of the job.
    SendsTo(u32),
    /// The rank receives from this rank of the job.
    ReceivesFrom(u32),
}

impl ChannelEnd {
    /// Returns the flow of an end that a rank opens, and the rank at the other end; `None` if a rank
    /// opens no such end: it sends commands and receives answers.
    pub(super) fn flow(self, rank: u32, port: u64) -> Option<(FlowId, u32)> {
        let bits = COMMANDS | ANSWERS;
        let kind = match (port & bits, self) {
            (0, _) => FlowKind::Channel,
            (COMMANDS, ChannelEnd::SendsTo(_)) => FlowKind::Commands,
            (ANSWERS, ChannelEnd::ReceivesFrom(_)) => FlowKind::Answers,
            _ => return None,
        };
        let port = port & !bits;
        Some(match self {
            ChannelEnd::SendsTo(peer) => {
                (FlowId { kind, sender: rank, receiver: peer, port }, peer)
            }
            ChannelEnd::ReceivesFrom(peer) => {
                (FlowId { kind, sender: peer, receiver: rank, port }, peer)
            }
        })
    }
}
