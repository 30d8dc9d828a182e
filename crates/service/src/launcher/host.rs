//! The node service of the launcher's children, if the launcher is one.

use crate::error::ServiceError;
use crate::events::{Events, NodeEvent};
use crate::node_service::NodeService;
use engine::Exit;

/// The events of a launcher, and the node service of its ranks.
#[derive(Debug)]
pub(super) enum Host {
    /// This process is the node service.
    Service(Box<NodeService>),
    /// The ranks start one, or the children are launchers of nodes.
    Elsewhere(Events),
}

impl Host {
    pub(super) fn events(&self) -> &Events {
        match self {
            Host::Service(service) => service.events(),
            Host::Elsewhere(events) => events,
        }
    }

    pub(super) fn handle(
        &mut self,
        event: NodeEvent,
        how: impl Fn(u32) -> Option<Exit>,
    ) -> Result<(), ServiceError> {
        match self {
            Host::Service(service) => service.handle(event, how),
            Host::Elsewhere(_) => Ok(()),
        }
    }

    /// Returns true if a process that has joined is alive.
    pub(super) fn has_living(&self) -> bool {
        matches!(self, Host::Service(service) if service.has_living())
    }

    /// Records the end of a child.
    pub(super) fn on_child_exit(
        &mut self,
        rank: u32,
        pid: u32,
        how: Exit,
    ) -> Result<(), ServiceError> {
        let Host::Service(service) = self else { return Ok(()) };
        // It, or a process that it has started, may have joined just before.
        service.receive_all()?;
        service.on_child_exit(rank, pid, how);
        Ok(())
    }

    /// Kills every process that has joined and is alive.
    pub(super) fn kill_all(&self) {
        if let Host::Service(service) = self {
            service.kill_all();
        }
    }
}
