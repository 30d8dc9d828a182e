//! The shutdown handshake between the agents.

use crate::backend::PendingTraffic;
use std::time::Duration;

/// The shutdown handshake of one agent with all others to which it is connected. The rest learn of
/// the end from those.
///
/// `Shutdown` follows every message of its connection, and `ShutdownAck` answers it. So when all
/// nodes have answered, their agents have read everything that this node has sent. It is not enough
/// that the data lies in a socket's buffer: if this process is killed with unread data in its
/// socket, the kernel discards what it has not sent yet and resets the connection.
#[derive(Debug)]
pub(super) struct ShutdownState {
    /// True once `Shutdown` has been sent.
    pub(super) is_sent: bool,
    /// By node: whether it has answered, or has failed.
    pub(super) acknowledged: Vec<bool>,
    /// By node: whether its own `Shutdown` has arrived or was reported, or it has failed.
    pub(super) received: Vec<bool>,
    /// By node: the answer to its `Shutdown` on its present connection.
    pub(super) answers: Vec<ShutdownAnswer>,
    /// By node: whether its end has been passed on.
    pub(super) passed_on: Vec<bool>,
    /// Messages of another backend of this node.
    pub(super) pending: Option<Box<dyn PendingTraffic>>,
    /// True once everything that this node's ranks have started to send has reached the other nodes.
    pub(super) is_drained: bool,
    /// Time until `pending` is polled again.
    interval: Duration,
}

/// The answer to a node's `Shutdown`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ShutdownAnswer {
    /// No `Shutdown` has arrived.
    #[default]
    NotDue,
    /// `Shutdown` has arrived before the exits of all ranks of the node were processed.
    Postponed,
    Sent,
}

/// First and longest time between two polls of the other backend.
const INTERVALS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(32)];

impl ShutdownState {
    /// The state of one of `nodes` nodes. It needs no handshake with itself.
    pub(super) fn of_node(node: u32, nodes: u32) -> Self {
        let mut own = vec![false; nodes as usize];
        own[node as usize] = true;
        ShutdownState {
            is_sent: false,
            acknowledged: own.clone(),
            answers: vec![ShutdownAnswer::default(); nodes as usize],
            passed_on: own.clone(),
            received: own,
            pending: None,
            is_drained: false,
            interval: INTERVALS[0],
        }
    }

    /// Returns true once everything has been sent and acknowledged. `lost` nodes do not count.
    pub(super) fn poll_drained(&mut self, lost: &[bool]) -> bool {
        // The agents' own messages first: `pending` covers the other backend only.
        if !self.is_drained && self.is_acknowledged() {
            // If the ranks of all nodes have left, no run needs the rest.
            self.is_drained = all(&self.received)
                || self.pending.as_mut().is_none_or(|pending| pending.is_empty(lost));
        }
        self.is_drained
    }

    /// Time until [`poll_drained`](Self::poll_drained) should be called again, if it waits for the
    /// other backend, which does not wake the agent.
    pub(super) fn next_poll(&mut self) -> Option<Duration> {
        if self.is_drained || !self.is_acknowledged() {
            return None;
        }
        let next = (2 * self.interval).min(INTERVALS[1]);
        Some(std::mem::replace(&mut self.interval, next))
    }

    fn is_acknowledged(&self) -> bool {
        self.is_sent && all(&self.acknowledged)
    }

    /// Returns true if no node needs this agent any more. With another backend that is so when the
    /// ranks of all nodes have left: its program forwards packets until then.
    pub(super) fn is_done(&self) -> bool {
        self.is_acknowledged() && (self.pending.is_none() || all(&self.received))
    }
}

fn all(nodes: &[bool]) -> bool {
    nodes.iter().all(|node| *node)
}
