//! State that the threads of the relay share.

use super::control::{Control, lock};
use crate::server::connections::Connections;
use crate::server::records::ClientId;
use crate::wire::{Refusal, Response};
use std::collections::HashMap;
use std::fmt::{self, Debug};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// The connections of the server, which other threads change too.
pub(in crate::server) trait ChangeConnections: Debug + Send + Sync {
    /// Changes the connections, and sends the resulting messages.
    fn change(&self, change: Box<dyn FnOnce(&mut Connections) + '_>);
}

/// Another node's name server, and the key with which it is reached.
pub(super) type NodeId = (String, [u8; 16]);

/// State that the threads of the relay share.
pub(super) struct Shared {
    /// Name of the server of this node.
    pub(super) server: String,
    pub(super) state: Arc<dyn ChangeConnections>,
    /// Links that this server has opened, as long as their threads run.
    pub(super) links: Mutex<HashMap<NodeId, Weak<Control>>>,
    /// All links, as long as their threads run.
    pub(super) controls: Mutex<Vec<Weak<Control>>>,
    pub(super) next_proxy: AtomicU32,
    pub(super) unanswered: Duration,
}

/// Omits the keys of the other nodes: secrets do not belong into logs.
impl fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Shared").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Shared {
    /// Changes the connections of the server.
    pub(super) fn change(&self, change: impl FnOnce(&mut Connections)) {
        self.state.change(Box::new(change));
    }

    /// Creates the control of a link.
    pub(super) fn control(&self) -> std::io::Result<Arc<Control>> {
        let control = Arc::new(Control::new()?);
        let mut controls = lock(&self.controls);
        controls.retain(|control| control.strong_count() > 0);
        controls.push(Arc::downgrade(&control));
        Ok(control)
    }

    /// Makes the server run at least as long as a link.
    pub(super) fn keep_running(self: &Arc<Self>) -> LinkGuard {
        self.change(|connections| connections.links += 1);
        LinkGuard { shared: Arc::clone(self) }
    }

    pub(super) fn refuse(&self, client: ClientId, question: u32, refusal: Refusal) {
        self.change(|connections| connections.refuse(client, question, refusal));
    }

    pub(super) fn answer(&self, client: ClientId, question: u32, response: Response) {
        self.change(|connections| connections.answer(client, question, response, Vec::new()));
    }

    /// Returns a number for the name of a proxy.
    pub(super) fn next_proxy(&self) -> u32 {
        // Relaxed: the numbers only have to differ.
        self.next_proxy.fetch_add(1, Ordering::Relaxed)
    }
}

/// A link with bytes that must be written before the server ends.
#[derive(Debug)]
pub(super) struct LinkGuard {
    shared: Arc<Shared>,
}

impl Drop for LinkGuard {
    fn drop(&mut self) {
        self.shared.change(|connections| connections.links -= 1);
    }
}
