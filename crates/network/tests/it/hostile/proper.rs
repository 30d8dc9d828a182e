//! Ranks that keep the rules, on two nodes, and exchange messages of every kind.

use super::objects::OTHERS_WINDOW;
use super::route::Route;
use super::until;
use crate::jobs::{deadline, register};
use goal::graph::{Access, Graph};
use network::agent::AgentClient;
use network::agent::messages::port::MessagePort;
use network::backend::{Backend, CommunicatorContext, RunId, ScheduleId};
use network::flows::table::PortTable;
use network::transport::records::messages::{Class, Head};
use queues::channel::{Channel, Receiver, Sender};
use queues::window::{RemoteWindow, Window};
use shm::arena::Arena;
use shm::segment::{Offset, Segment};
use std::sync::Arc;

/// Communicator of these ranks.
pub(super) const COMMUNICATOR: u32 = 5;
/// Port of their channels and windows.
const PORT: u64 = 4;
/// Memory of their objects.
const ARENA: std::ops::Range<u64> = 9 << 20..16 << 20;
const WINDOW_BYTES: u64 = 1 << 10;

/// One of the two ranks.
pub(super) struct Proper {
    // Declared first: their ends are closed before the rank leaves.
    window: RemoteWindow,
    sender: Sender<u64>,
    receiver: Receiver<u64>,
    messages: MessagePort,
    /// Keeps the rings and windows that others use.
    _memory: (Channel<u64>, [Window; 2]),
    own: u32,
    peer: u32,
    exchange: ScheduleId,
    client: Arc<AgentClient>,
    rounds: u64,
    run: Option<RunId>,
}

impl Proper {
    /// Both ranks, with these numbers in the job, and the segments of their nodes.
    pub(super) fn pair(
        clients: [AgentClient; 2],
        ranks: [u32; 2],
        segments: [&Arc<Segment>; 2],
    ) -> [Proper; 2] {
        let clients = clients.map(Arc::new);
        let windows = [0, 1].map(|one| {
            let arena = Arc::new(Arena::new(Arc::clone(segments[one]), ARENA).expect("inside"));
            let windows = [PORT, OTHERS_WINDOW].map(|port| {
                let window = Window::create(&arena, WINDOW_BYTES).expect("memory");
                let listed: &[u32] = if port == PORT { &ranks } else { &[0, 1, 2] };
                let entries = listed.iter().map(|rank| (*rank, Offset(0))).collect();
                let table = PortTable { set: Offset(0), lines: 0, ranks: entries };
                let table = table.publish(&arena).expect("memory");
                clients[one].open_window(port, window.offset(), table).expect("the first");
                window
            });
            (arena, windows)
        });
        let offsets = windows.each_ref().map(|(_, [window, _])| window.offset());
        let mut windows = windows.into_iter();
        [0, 1].map(|number| {
            let (arena, windows) = windows.next().expect("two");
            let [own, peer] = [ranks[number], ranks[1 - number]];
            let client = Arc::clone(&clients[number]);
            let way = Arc::clone(&client);
            let route = Route { client: way, arena: Arc::clone(&arena), peer, port: PORT };
            let context = CommunicatorContext {
                number: COMMUNICATOR,
                members: ranks.into(),
                rank: number as u32,
            };
            let exchange = register(&client, &context, &exchange(number as u32));
            let ring = Channel::<u64>::create(&arena, 64).expect("memory");
            let receiver = route.receiver(&ring, PORT);
            let sender = route.sender(Channel::<u64>::create(&arena, 64).expect("memory"), PORT);
            let messages = client.open_messages(256 << 10).expect("memory");
            let owner = (offsets[1 - number], WINDOW_BYTES, std::process::id());
            let window = RemoteWindow::on_other_node(owner, Box::new(route));
            let _memory = (ring, windows);
            let (rounds, run) = (0, None);
            Proper {
                window,
                sender,
                receiver,
                messages,
                _memory,
                own,
                peer,
                exchange,
                client,
                rounds,
                run,
            }
        })
    }

    pub(super) fn client(&self) -> &Arc<AgentClient> {
        &self.client
    }

    /// Begins a round: sends something of each kind.
    pub(super) fn begin(&mut self) {
        let word = self.rounds << 8 | u64::from(self.peer);
        let run = self.client.start(self.exchange, self.rounds, &[&word.to_le_bytes(), &[]]);
        self.run = Some(run.expect("memory"));
        let head = Head { peer: self.peer, class: Class::Message, bytes: 8, words: [word; 3] };
        assert!(self.messages.put(head, &word.to_le_bytes()), "there is space for one");
        self.messages.publish();
        self.sender.try_send(word).expect("there is space for one");
    }

    /// Ends the round: receives what the other rank has sent, and reads back what it has put.
    pub(super) fn end(&mut self) {
        let word = self.rounds << 8 | u64::from(self.own);
        let run = self.run.take().expect("it has begun");
        assert!(self.client.wait(run, deadline()).expect("the agent lives"), "a run does not end");
        let mut received = [0; 8];
        let fetched = self.client.fetch(run, &mut [&mut [], &mut received]);
        assert_eq!((fetched, u64::from_le_bytes(received)), (Ok(()), word));
        let mut head = None;
        until("a message does not arrive", || {
            head = self.messages.first();
            // The rank that writes garbage may send what it likes, and its exit is reported.
            if head.is_some_and(|head| head.peer != self.peer) {
                self.messages.release();
                head = None;
            }
            head.is_some()
        });
        let expected = Head { peer: self.peer, class: Class::Message, bytes: 8, words: [word; 3] };
        assert_eq!(head, Some(expected));
        self.messages.read(0, &mut received);
        assert_eq!(u64::from_le_bytes(received), word);
        self.messages.release();
        let mut value = None;
        until("a value does not arrive", || {
            value = self.receiver.try_recv().ok();
            value.is_some()
        });
        assert_eq!(value, Some(word));
        let at = 8 * (self.rounds % (WINDOW_BYTES / 8));
        self.window.put_value(at, word).expect("it is open");
        assert_eq!(self.window.get_value::<u64>(at), Ok(word));
        self.rounds += 1;
    }
}

/// Each of two ranks sends 8 bytes to the other one.
fn exchange(rank: u32) -> Graph {
    let mut graph = Graph::new(rank, 2);
    let block = graph.buffer(Access::Input, 8);
    graph.send(block, 1 - rank, 0);
    let block = graph.buffer(Access::Output, 8);
    graph.receive(block, 1 - rank, 0);
    graph
}
