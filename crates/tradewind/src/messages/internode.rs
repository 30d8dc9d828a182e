//! Ports between nodes.

use super::port::{AgentPort, PortMemory};
use crate::communicator::Communicator;
use crate::error::Result;
use crate::internode::group::InternodeGroup;
use network::agent::messages::port::WaitMark;
use network::flows::ANSWERS;
use shm::event::Event;
use shm::segment::Offset;
use std::sync::Arc;

/// A port between nodes.
pub(super) struct Internode<'a> {
    pub(super) group: &'a Arc<InternodeGroup>,
    pub(super) port: u64,
}

impl Communicator {
    /// The next port; `None` if all ranks are on one node.
    pub(super) fn next_port(&self) -> Option<Internode<'_>> {
        let group = self.internode()?;
        // Below the marks, so that no port is that of a channel of a window. The numbers of a
        // communicator return after 2^30 ports; one that is still open is then refused.
        let number = self.next_port_number() & (ANSWERS - 1);
        let port = u64::from(group.context().number) << 32 | number;
        Some(Internode { group, port })
    }
}

impl Internode<'_> {
    /// Opens the port at the agent, which uses the objects of this rank `users` times from then on.
    pub(super) fn open(&self, at: [Offset; 3], memory: &PortMemory, users: u64) -> Result<()> {
        let opened = self.group.job().agent().open_port(self.port, at);
        if opened.is_err() {
            // It never begins to use them.
            memory.release(users);
        }
        Ok(opened?)
    }

    /// The agent's part, for the ends.
    pub(super) fn agent(&self) -> AgentPort {
        AgentPort { job: Arc::downgrade(self.group.job()), port: self.port }
    }

    /// Event of the agent, which senders to other nodes notify.
    pub(super) fn event(&self) -> Result<Event> {
        Ok(self.group.job().agent().event()?)
    }

    /// Mark of this rank's waits for messages of other nodes.
    pub(super) fn waits(&self) -> Arc<WaitMark> {
        Arc::new(self.group.job().agent().wait_mark())
    }
}
