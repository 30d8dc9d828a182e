//! Access of ranks of other nodes to the windows of this node's ranks.

use super::{ANSWERS, COMMANDS};
use crate::agent::queues::Refusal;
use crate::node_map::NodeMap;
use crate::transport::Transport;
use crate::transport::batches::Batches;
use crate::transport::frame::Frame;
use crate::transport::records::channels::{ChannelId, Content, HEAD_BYTES, MAX_BYTES};
use queues::channel::Requested;
use queues::window::{Executed, LINE_BYTES, SLOTS, ServedWindow, WindowCommands};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

/// Returns a frame of records.
pub(super) fn frame(records: Vec<u8>) -> Frame {
    Frame::Channels { records }
}

/// Most lines of answers in a record.
const MOST_LINES: u64 = (MAX_BYTES / LINE_BYTES) as u64;

/// Most late commands of one node that wait for an answer. No honest node has so many: a rank sends
/// one frame to a closed window.
pub(super) const MOST_LATE: usize = 1 << 16;

/// Marks of the channels of windows.
const MARKS: u64 = COMMANDS | ANSWERS;

/// Name of a window: its owner, a rank of the job, and its port.
type WindowId = (u32, u64);

/// Windows of the ranks of one node.
#[derive(Debug)]
pub(super) struct ServedWindows {
    /// The nodes of the ranks, and this one.
    nodes: NodeMap,
    node: u32,
    all: HashMap<WindowId, Exposed>,
    /// Commands that have arrived on windows that ranks have closed: the rank of each origin, by its
    /// node. A node that does not read its answers delays those of no other one.
    late: HashMap<u32, HashSet<(u32, WindowId)>>,
    /// Ranks of this node that have exited.
    exited: HashSet<u32>,
}

/// A window that is open to other nodes.
#[derive(Debug)]
struct Exposed {
    window: ServedWindow,
    /// The ranks that may send commands, and their nodes.
    origins: HashMap<u32, u32>,
    /// The links of ranks that have sent some.
    links: HashMap<u32, Link>,
}

/// The two channels of a rank with a window.
#[derive(Debug)]
struct Link {
    node: u32,
    commands: WindowCommands,
    /// Number of lines of answers in slots that have not been released yet.
    in_flight: u64,
    state: LinkState,
    /// The rank sends nothing more: the link goes when everything before is executed.
    has_ended: bool,
    /// There was no space in the queue of the node for answers.
    is_stalled: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinkState {
    Open,
    /// The rank takes no answers any more; what it has sent is executed.
    Orphaned,
    /// The rank has sent what is no command. What follows is ignored, as long as the window is open.
    Failed,
}

/// Returns the name of the channel of the commands of a rank.
fn commands_of(origin: u32, (owner, port): WindowId) -> ChannelId {
    ChannelId { sender: origin, receiver: owner, port: port | COMMANDS }
}

/// Returns the name of the channel of the answers to a rank. Their mark is another one: the origin's
/// window of the same port has the owner's commands.
fn answers_to(origin: u32, (owner, port): WindowId) -> ChannelId {
    ChannelId { sender: owner, receiver: origin, port: port | ANSWERS }
}

/// Returns the window of a channel of commands; `None` for any other channel.
fn window_of_commands(id: ChannelId) -> Option<WindowId> {
    (id.port & MARKS == COMMANDS).then_some((id.receiver, id.port & !MARKS))
}

/// Returns the window of a channel of answers; `None` for any other channel.
fn window_of_answers(id: ChannelId) -> Option<WindowId> {
    (id.port & MARKS == ANSWERS).then_some((id.sender, id.port & !MARKS))
}

/// Returns true if a channel is that of the answers to commands on a window.
pub(super) fn has_answers(id: ChannelId) -> bool {
    window_of_answers(id).is_some()
}

/// Closes both channels of a rank.
fn close_link(node: u32, origin: u32, window: WindowId, batches: &mut Batches) {
    let commands = commands_of(origin, window).head(Content::ReceiverClosed);
    batches.of(node).extend(commands);
    batches.of(node).extend(answers_to(origin, window).head(Content::SenderClosed));
}

impl Link {
    fn new(node: u32) -> Self {
        Link {
            node,
            commands: WindowCommands::default(),
            in_flight: 0,
            state: LinkState::Open,
            has_ended: false,
            is_stalled: false,
        }
    }

    fn has_work(&self) -> bool {
        self.state != LinkState::Failed
            && (self.commands.waiting() > 0 || self.commands.is_awaiting())
    }

    /// Lines of answers for which there is credit.
    fn credit(&self) -> u64 {
        match self.state {
            LinkState::Open => SLOTS - self.in_flight,
            // They are not sent.
            LinkState::Orphaned => SLOTS,
            LinkState::Failed => 0,
        }
    }

    /// Executes commands as far as they can be answered, and appends answers and credit to the batch
    /// of the node.
    fn serve(
        &mut self,
        origin: u32,
        (id, window): (WindowId, &ServedWindow),
        batches: &mut Batches,
        transport: &mut dyn Transport,
        limit: u64,
    ) {
        while self.has_work() {
            self.is_stalled = transport.queued(self.node) >= limit;
            if self.is_stalled {
                return;
            }
            let most = self.credit().min(MOST_LINES);
            let batch = batches.of(self.node);
            let start = batch.len();
            // Holds the place of the head: the length is known once the commands are executed.
            batch.extend(answers_to(origin, id).head_of_values(0));
            let executed = window.execute(&mut self.commands, most, batch);
            let bytes = batch.len() - start - HEAD_BYTES;
            if self.state == LinkState::Orphaned {
                self.commands.forget_awaited();
            }
            let Ok(Executed { commands, answers }) = executed else {
                batch.truncate(start);
                self.fail();
                return close_link(self.node, origin, id, batches);
            };
            if answers > 0 && self.state == LinkState::Open {
                let head = answers_to(origin, id).head_of_values(bytes);
                batch[start..start + HEAD_BYTES].copy_from_slice(&head);
                self.in_flight += answers;
            } else {
                batch.truncate(start);
            }
            // The rank may use the slots of these lines again.
            if commands > 0 {
                let credit = commands_of(origin, id).head(Content::Credit(commands));
                batches.of(self.node).extend(credit);
            }
            batches.send_long(self.node, transport, frame);
            // The next command waits for credit, or the rank for a condition.
            if commands + answers == 0 {
                return;
            }
        }
    }

    /// Ignores the rank from here on.
    fn fail(&mut self) {
        self.state = LinkState::Failed;
        self.commands = WindowCommands::default();
    }

    /// Stops the answers. A rank that takes none waits for nothing.
    fn orphan(&mut self) {
        if self.state == LinkState::Open {
            self.state = LinkState::Orphaned;
            self.commands.forget_awaited();
        }
    }
}

impl ServedWindows {
    pub(super) fn new(nodes: NodeMap, node: u32) -> Self {
        ServedWindows {
            nodes,
            node,
            all: HashMap::new(),
            late: HashMap::new(),
            exited: HashSet::new(),
        }
    }

    /// Opens a window for ranks of other nodes.
    pub(super) fn open(
        &mut self,
        id: WindowId,
        window: ServedWindow,
        origins: HashMap<u32, u32>,
    ) -> Result<(), Refusal> {
        if id.1 & MARKS != 0 {
            return Err(Refusal::Invalid);
        }
        match self.all.entry(id) {
            Entry::Occupied(_) => Err(Refusal::Taken),
            Entry::Vacant(entry) => {
                entry.insert(Exposed { window, origins, links: HashMap::new() });
                Ok(())
            }
        }
    }

    /// Closes a window. Returns the number of ranks for which it was open; `None` if there is none.
    pub(super) fn close(&mut self, id: WindowId, batches: &mut Batches) -> Option<u64> {
        let Exposed { origins, links, .. } = self.all.remove(&id)?;
        let open = links.iter().filter(|(_, link)| link.state == LinkState::Open);
        open.for_each(|(origin, link)| close_link(link.node, *origin, id, batches));
        Some(origins.len() as u64)
    }

    /// Closes the windows of a rank of this node that has exited.
    pub(super) fn close_all(&mut self, owner: u32, batches: &mut Batches) {
        let of_rank = |id: &&WindowId| id.0 == owner;
        let windows: Vec<WindowId> = self.all.keys().filter(of_rank).copied().collect();
        for id in windows {
            self.close(id, batches);
        }
        // The report of the exit ends the channels on the other nodes.
        self.exited.insert(owner);
        self.late.retain(|_, late| {
            late.retain(|(_, (of, _))| *of != owner);
            !late.is_empty()
        });
    }

    /// Executes commands of all ranks.
    pub(super) fn serve(
        &mut self,
        batches: &mut Batches,
        transport: &mut dyn Transport,
        limit: u64,
    ) {
        self.late.retain(|node, late| {
            late.retain(|(origin, window)| {
                let remains = transport.queued(*node) >= limit;
                if !remains {
                    close_link(*node, *origin, *window, batches);
                    batches.send_long(*node, transport, frame);
                }
                remains
            });
            !late.is_empty()
        });
        for (id, Exposed { window, links, .. }) in &mut self.all {
            links.retain(|origin, link| {
                link.serve(*origin, (*id, window), batches, transport, limit);
                // One that has failed stays, so that a rank is answered once, however often it begins
                // anew. Of one that has ended, part of a command may be left.
                let is_stalled = link.is_stalled && link.has_work();
                link.state == LinkState::Failed || !link.has_ended || is_stalled
            });
        }
    }

    /// Takes lines of commands that a node has sent on a channel without a ring; false if it may not
    /// send them. Commands on a window that was closed are answered by the end of their channels. All
    /// other lines are late ones of a channel that this end has closed: they are answered by nothing.
    pub(super) fn receive(
        &mut self,
        node: u32,
        id: ChannelId,
        lines: &[u8],
        batches: &mut Batches,
    ) -> bool {
        let Some(window) = window_of_commands(id) else { return true };
        let Some(Exposed { origins, links, .. }) = self.all.get_mut(&window) else {
            let is_between_these = self.nodes.of(id.sender) == Some(node)
                && self.nodes.of(id.receiver) == Some(self.node);
            if is_between_these && !self.exited.contains(&id.receiver) {
                let late = self.late.entry(node).or_default();
                if late.len() < MOST_LATE {
                    late.insert((id.sender, window));
                }
            }
            return is_between_these;
        };
        if origins.get(&id.sender) != Some(&node) {
            return false;
        }
        let link = links.entry(id.sender).or_insert_with(|| Link::new(node));
        if link.has_ended && link.state != LinkState::Failed {
            return false;
        }
        if link.state == LinkState::Failed {
            return true;
        }
        let count = (lines.len() / LINE_BYTES) as u64;
        // A rank has as many lines under way as its ring has slots. More of them, or a part of a line,
        // come from no correct node.
        let is_valid =
            lines.len().is_multiple_of(LINE_BYTES) && link.commands.waiting() + count <= SLOTS;
        if is_valid {
            link.commands.add(lines);
        } else {
            link.fail();
            close_link(node, id.sender, window, batches);
        }
        is_valid
    }

    /// The link of a channel of a window, if it has one, unless its node is another one.
    fn link(
        &mut self,
        node: u32,
        origin: u32,
        window: Option<WindowId>,
    ) -> Result<Option<&mut Link>, ()> {
        let window = window.and_then(|window| self.all.get_mut(&window));
        match window.and_then(|window| window.links.get_mut(&origin)) {
            Some(link) if link.node != node => Err(()),
            link => Ok(link),
        }
    }

    /// Processes credit for answers; false if the node may not send it.
    pub(super) fn credit(&mut self, node: u32, id: ChannelId, lines: u64) -> bool {
        match self.link(node, id.receiver, window_of_answers(id)) {
            Ok(None) => true,
            Ok(Some(link)) if lines <= link.in_flight => {
                link.in_flight -= lines;
                true
            }
            _ => false,
        }
    }

    /// Processes the end of the commands of a rank; false if the node may not send it.
    pub(super) fn end_commands(&mut self, node: u32, id: ChannelId) -> bool {
        let window = window_of_commands(id);
        let Ok(link) = self.link(node, id.sender, window) else { return false };
        if let Some(link) = link {
            // It has dropped its handle or was killed, and takes no answers. A rank that was killed may
            // have sent commands in this turn.
            link.orphan();
            link.has_ended = true;
        }
        true
    }

    /// Processes the end of the answers to a rank; false if the node may not send it.
    pub(super) fn end_answers(&mut self, node: u32, id: ChannelId) -> bool {
        let link = self.link(node, id.receiver, window_of_answers(id));
        link.map(|link| link.into_iter().for_each(Link::orphan)).is_ok()
    }

    fn links_of(&mut self, origin: u32) -> impl Iterator<Item = &mut Link> {
        self.all.values_mut().filter_map(move |window| window.links.get_mut(&origin))
    }

    /// Sends no more answers to a rank that has exited. What it has sent before may still arrive.
    pub(super) fn orphan(&mut self, origin: u32) {
        self.links_of(origin).for_each(Link::orphan);
    }

    /// Removes the links of a rank of a node that was lost.
    pub(super) fn lose(&mut self, origin: u32) {
        self.late.retain(|_, late| {
            late.retain(|(sender, _)| *sender != origin);
            !late.is_empty()
        });
        self.all.values_mut().for_each(|window| drop(window.links.remove(&origin)));
    }

    /// Returns true if something can be executed or answered that could not be before.
    pub(super) fn is_ready(&self, transport: &dyn Transport, limit: u64) -> bool {
        let mut links =
            self.all.values().flat_map(|one| one.links.values().zip(std::iter::repeat(one)));
        links.any(|(link, Exposed { window, .. })| {
            // A stalled link may have lost its work since: it has failed, or waits for nothing more.
            let is_ready = link.is_stalled && link.has_work()
                || link.credit() > 0 && window.is_ready(&link.commands);
            is_ready && transport.queued(link.node) < limit
        }) || self.late.keys().any(|node| transport.queued(*node) < limit)
    }

    /// Returns true if a rank waits for a condition.
    pub(super) fn is_awaited(&self) -> bool {
        let mut links = self.all.values().flat_map(|window| window.links.values());
        links.any(|link| link.commands.is_awaiting())
    }

    /// Requests notifications with the next changes of what ranks wait for, and passes the result of
    /// each request to `count`.
    pub(super) fn request(&mut self, count: &mut impl FnMut(Requested)) {
        for Exposed { window, links, .. } in self.all.values_mut() {
            for link in links.values() {
                window.request(&link.commands, count);
            }
        }
    }
}
