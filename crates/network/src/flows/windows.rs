//! Access of ranks of other nodes to the windows of this node's ranks.

use super::memory::Charge;
use crate::transport::records::flows::{FlowId, FlowKind};
use queues::window::{ServedWindow, WindowLink};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

/// Most flows of commands of one node, on windows that are not open, of which the end is to be
/// reported. No honest node has so many: a rank sends one frame to a closed window.
pub(super) const MOST_LATE: usize = 1 << 16;

/// Name of a window: its owner, a rank of the job, and its port.
pub(super) type WindowName = (u32, u64);

/// Windows of the ranks of one node.
#[derive(Debug, Default)]
pub(super) struct ServedWindows {
    all: HashMap<WindowName, Exposed>,
    /// Flows of commands on windows that ranks have closed, by the node that sends. A node that does
    /// not read its answers delays those of no other one. No set is empty.
    pub(super) late: HashMap<u32, HashSet<FlowId>>,
}

/// A window that is open to other nodes.
#[derive(Debug)]
struct Exposed {
    window: Arc<Mutex<ServedWindow>>,
    /// The ranks that may send commands, and their nodes.
    origins: HashMap<u32, u32>,
    /// The access of those that have sent some.
    links: HashMap<u32, WindowLink>,
    _charge: Charge,
}

/// Returns the window of a flow of commands.
pub(super) fn window_of(commands: FlowId) -> WindowName {
    (commands.receiver, commands.port)
}

/// Returns the flow of the answers to commands.
pub(super) fn answers_to(commands: FlowId) -> FlowId {
    let FlowId { sender, receiver, port, .. } = commands;
    FlowId { kind: FlowKind::Answers, sender: receiver, receiver: sender, port }
}

impl ServedWindows {
    pub(super) fn is_open(&self, window: WindowName) -> bool {
        self.all.contains_key(&window)
    }

    /// Opens a window, which is not open, for these ranks of other nodes, each with its node.
    pub(super) fn open(
        &mut self,
        name: WindowName,
        window: ServedWindow,
        origins: HashMap<u32, u32>,
        charge: Charge,
    ) {
        let window = Arc::new(Mutex::new(window));
        let exposed = Exposed { window, origins, links: HashMap::new(), _charge: charge };
        self.all.insert(name, exposed);
    }

    /// Closes a window. Returns the flows of commands that may be open.
    pub(super) fn close(&mut self, name @ (owner, port): WindowName) -> Vec<FlowId> {
        let links = self.all.remove(&name).map(|exposed| exposed.links);
        let commands = |sender| FlowId { kind: FlowKind::Commands, sender, receiver: owner, port };
        links.into_iter().flat_map(HashMap::into_keys).map(commands).collect()
    }

    /// Returns the windows of a rank.
    pub(super) fn of_rank(&self, rank: u32) -> Vec<WindowName> {
        self.all.keys().filter(|(owner, _)| *owner == rank).copied().collect()
    }

    /// Returns the access of the rank that sends commands, which have no end: a new one, unless the
    /// rank has failed before. `None` if its node may not send them, or the window is not open.
    pub(super) fn link(&mut self, node: u32, commands: FlowId) -> Option<WindowLink> {
        let exposed = self.all.get_mut(&window_of(commands))?;
        if exposed.origins.get(&commands.sender) != Some(&node) {
            return None;
        }
        let before = exposed.links.get(&commands.sender).filter(|link| link.has_failed());
        let link = before.cloned().unwrap_or_else(|| WindowLink::new(&exposed.window));
        exposed.links.insert(commands.sender, link.clone());
        Some(link)
    }

    /// Ignores a rank from here on: its node has sent what no rank sends.
    pub(super) fn ignore(&mut self, commands: FlowId) {
        let exposed = self.all.get(&window_of(commands));
        let link = exposed.and_then(|exposed| exposed.links.get(&commands.sender));
        link.into_iter().for_each(WindowLink::fail);
    }

    /// Notes commands on a window that is not open. Its end is reported to the node.
    pub(super) fn note_late(&mut self, node: u32, commands: FlowId) {
        let late = self.late.entry(node).or_default();
        if late.len() < MOST_LATE {
            late.insert(commands);
        }
    }

    /// Forgets late commands to a rank that has exited: the report of the exit answers them.
    pub(super) fn forget_late(&mut self, rank: u32) {
        self.late.retain(|_, late| {
            late.retain(|id| id.receiver != rank);
            !late.is_empty()
        });
    }

    /// Forgets a node that has ended.
    pub(super) fn lose(&mut self, node: u32) {
        self.late.remove(&node);
        for Exposed { links, origins, .. } in self.all.values_mut() {
            links.retain(|origin, _| origins.get(origin) != Some(&node));
        }
    }
}
