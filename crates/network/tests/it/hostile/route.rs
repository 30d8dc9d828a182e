//! Way of a rank to one on another node.

use network::agent::AgentClient;
use network::flows::{ANSWERS, COMMANDS, ChannelEnd};
use queues::channel::{Channel, OtherNode, Receiver, Sender, Value};
use queues::window::{CAPACITY, WindowEnds, WindowError, WindowRoute};
use shm::arena::Arena;
use shm::liveness::{PeerExit, RankLiveness};
use std::sync::Arc;

/// The way of a rank to the other one.
#[derive(Clone, Debug)]
pub(super) struct Route {
    pub(super) client: Arc<AgentClient>,
    pub(super) arena: Arc<Arena>,
    pub(super) peer: u32,
    /// Port of the window.
    pub(super) port: u64,
}

impl Route {
    fn node(&self) -> OtherNode {
        let service = self.client.event().expect("a descriptor");
        let waits = Arc::new(self.client.wait_mark());
        OtherNode { service, waits, peer: Arc::new(NeverFails) }
    }

    pub(super) fn sender<T: Value>(&self, ring: Channel<T>, port: u64) -> Sender<T> {
        let at = ring.offset();
        let sender = ring.sender_to(self.node()).expect("the first");
        self.client.open_channel(port, ChannelEnd::SendsTo(self.peer), at).expect("the first");
        sender
    }

    pub(super) fn receiver<T: Value>(&self, ring: &Channel<T>, port: u64) -> Receiver<T> {
        let receiver = ring.receiver_from(self.node()).expect("the first");
        let end = ChannelEnd::ReceivesFrom(self.peer);
        self.client.open_channel(port, end, ring.offset()).expect("the first");
        receiver
    }
}

impl WindowRoute for Route {
    fn open(&self) -> Result<WindowEnds, WindowError> {
        let memory = Channel::create(&self.arena, CAPACITY).expect("memory");
        let answers = self.receiver(&memory, self.port | ANSWERS);
        let commands = Channel::create(&self.arena, CAPACITY).expect("memory");
        let commands = self.sender(commands, self.port | COMMANDS);
        Ok(WindowEnds { commands, answers, memory })
    }
}

/// A failure of the other rank fails the test.
#[derive(Debug)]
struct NeverFails;

impl RankLiveness for NeverFails {
    fn exited(&self) -> Option<PeerExit> {
        None
    }
}
