//! Rules that hold for flows of every kind.

use super::{LIMIT, PORT, of, sent_to};
use crate::flows::ports::PortRequest;
use crate::flows::table::PortTable;
use crate::flows::{ANSWERS, COMMANDS, ChannelEnd, Flows, Refusal};
use crate::node_map::NodeMap;
use crate::transport::memory;
use crate::transport::records::flows::{Content, FlowId, FlowKind};
use queues::append;
use queues::basic::{self, BasicHeader};
use queues::cache_line::{CacheLineHeader, CacheLineMessage, CacheLineQueue};
use queues::channel::{Channel, Receiver, Sender};
use queues::express::{ExpressMessage, ExpressQueue};
use queues::internode::{Source, outgoing, outgoing_basic};
use queues::one_poll::PollSet;
use queues::window::{ServedWindow, Window};
use shm::arena::Arena;
use shm::event::Event;
use shm::segment::{Backing, Offset, Segment};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

type Line = [u64; 8];

/// Node 0 with rank 0; ranks 1 and 2 are on nodes 1 and 2.
struct Node {
    flows: Flows,
    transport: memory::Memory,
    other: memory::Memory,
    _third: memory::Memory,
    arena: Arc<Arena>,
}

/// Flows from rank 1 to rank 0 and back.
struct Pair {
    name: &'static str,
    from: FlowId,
    to: FlowId,
    /// A message to rank 0, as bytes.
    message: Vec<u8>,
    /// Sends one to rank 1; false if its end is full or closed. `None` if the node service does.
    send: Option<Box<dyn FnMut() -> bool>>,
    /// Receives all that has arrived, and returns its number. `None` if the node service does.
    receive: Option<Box<dyn FnMut() -> usize>>,
    /// The window, if it is one.
    _window: Option<Window>,
}

impl Node {
    fn new() -> Node {
        let [transport, other, _third] =
            memory::connect(3).expect("descriptors").try_into().expect("three");
        let segment = Arc::new(Segment::create(8 << 20, Backing::Memory).expect("memory"));
        let arena = Arc::new(Arena::new(segment, 64..8 << 20).expect("inside"));
        let flows = Flows::new(NodeMap::new([0, 1, 2]), &transport);
        Node { flows, transport, other, _third, arena }
    }

    fn serve(&mut self) -> Vec<(FlowId, &'static str, u64)> {
        self.flows.advance();
        self.flows.serve(&mut self.transport, LIMIT);
        sent_to(&mut self.transport, &mut self.other)
    }

    fn receive(&mut self, from: u32, id: FlowId, content: Content<'_>) -> u64 {
        self.flows.receive(from, &of(id, content))
    }

    fn is_open(&self, pair: &Pair) -> bool {
        self.flows.inbound.contains(&pair.from)
    }

    /// Opens a port with a receive queue of rank 0 and an outgoing one to rank 1.
    fn open_port(&mut self, set: &PollSet, lines: u64, [own, to]: [Offset; 2]) -> [FlowId; 2] {
        let Node { flows, transport, arena, .. } = self;
        let table = PortTable { set: set.offset(), lines, ranks: vec![(0, Offset(0)), (1, to)] };
        let table = table.publish(arena).expect("memory");
        let uses = arena.allocate_zeroed(8, 64).expect("memory");
        let request = PortRequest { port: PORT, queue: own, table, uses };
        let mut open = || flows.open_port(0, request, arena.segment(), transport, &BTreeSet::new());
        assert_eq!([open(), open()], [Ok(()), Err(Refusal::Taken)]);
        let flow =
            |sender, receiver| FlowId { kind: FlowKind::Queue, sender, receiver, port: PORT };
        [flow(1, 0), flow(0, 1)]
    }

    /// Opens a ring that receives and one that sends.
    fn open_channel<T: queues::channel::Value + Copy + Debug>(
        &mut self,
        name: &'static str,
        marks: [u64; 2],
        value: T,
        message: &[u8],
    ) -> Pair {
        let Node { flows, transport, arena, .. } = self;
        let segment = Arc::clone(arena.segment());
        let rings = [0; 2].map(|_| Channel::<T>::create(arena, 64).expect("memory"));
        let [from, to] = [ChannelEnd::ReceivesFrom(1), ChannelEnd::SendsTo(1)];
        let names = [from, to].into_iter().zip(marks).zip(&rings).map(|((end, mark), ring)| {
            let name = (0, PORT | mark, end);
            let mut open = || flows.open_channel(name, &segment, ring.offset(), transport);
            assert_eq!([open(), open()], [Ok(()), Err(Refusal::Taken)]);
            end.flow(0, PORT | mark).expect("a rank opens it").0
        });
        let [from, to] = names.collect::<Vec<_>>().try_into().expect("two");
        let mut receiver = Receiver::<T>::connect(&segment, rings[0].offset()).expect("the first");
        let mut sender = Sender::<T>::connect(&segment, rings[1].offset()).expect("the first");
        Pair {
            name,
            from,
            to,
            message: message.to_vec(),
            send: Some(Box::new(move || sender.try_send(value).is_ok())),
            receive: Some(Box::new(move || {
                // The rings live as long as their ends.
                let _rings = &rings;
                std::iter::from_fn(|| receiver.try_recv().ok()).count()
            })),
            _window: None,
        }
    }
}

/// Returns the bytes of one message.
fn encoded(mut source: Box<dyn Source>) -> Vec<u8> {
    let mut bytes = Vec::new();
    source.take(source.longest(), &mut bytes).expect("a message");
    bytes
}

fn express(node: &mut Node) -> Pair {
    let arena = Arc::clone(&node.arena);
    let set = PollSet::create(&arena, 1).expect("memory");
    let own = ExpressQueue::create(&arena, 16, None).expect("memory");
    let to = ExpressQueue::create(&arena, 1 << 14, Some((&set, 0))).expect("memory");
    let [from, to_flow] = node.open_port(&set, 0, [own.offset(), to.offset()]);
    let (mut receiver, sender) = (own.receiver().expect("the first"), to.sender());
    Pair {
        name: "Express",
        from,
        to: to_flow,
        message: vec![0; 8],
        send: Some(Box::new(move || sender.try_send(&ExpressMessage::default()).is_ok())),
        receive: Some(Box::new(move || {
            std::iter::from_fn(|| receiver.try_recv().expect("open")).count()
        })),
        _window: None,
    }
}

fn cache_line(node: &mut Node) -> Pair {
    let arena = Arc::clone(&node.arena);
    let set = PollSet::create(&arena, 1).expect("memory");
    let [own, spare] = [0; 2].map(|_| CacheLineQueue::create(&arena, 16, None).expect("memory"));
    let to = CacheLineQueue::create(&arena, 1 << 11, Some((&set, 0))).expect("memory");
    let sent = CacheLineMessage::new(CacheLineHeader::default(), &[1; 48]).expect("48 bytes");
    spare.sender().try_send(&sent).expect("space");
    let message = encoded(outgoing(arena.segment(), spare.offset()).expect("a queue"));
    let [from, to_flow] = node.open_port(&set, 0, [own.offset(), to.offset()]);
    let (mut receiver, sender) = (own.receiver().expect("the first"), to.sender());
    let sent = CacheLineMessage::new(CacheLineHeader::default(), &[1; 48]).expect("48 bytes");
    Pair {
        name: "cache line",
        from,
        to: to_flow,
        message,
        send: Some(Box::new(move || sender.try_send(&sent).is_ok())),
        receive: Some(Box::new(move || {
            std::iter::from_fn(|| receiver.try_recv().expect("open")).count()
        })),
        _window: None,
    }
}

fn basic(node: &mut Node) -> Pair {
    const LINES: u64 = 2048;
    let arena = Arc::clone(&node.arena);
    let set = PollSet::create(&arena, 1).expect("memory");
    let bytes = basic::bytes_for(LINES).expect("a power of two");
    let [own, to, spare] = [0; 3].map(|_| arena.allocate_zeroed(bytes, 128).expect("memory"));
    let connect = |at| basic::Sender::connect(arena.segment(), at, LINES).expect("a ring");
    connect(spare).send(BasicHeader::default(), b"text").expect("space");
    let spares = PollSet::create(&arena, 1).expect("memory");
    let message = outgoing_basic(arena.segment(), spare, LINES, (&spares, 0)).expect("a ring");
    let message = encoded(message);
    let [from, to_flow] = node.open_port(&set, LINES, [own, to]);
    let mut sender = connect(to);
    let receiver = basic::Receiver::connect(arena.segment(), own, LINES);
    let mut receiver = receiver.expect("a ring");
    Pair {
        name: "Basic",
        from,
        to: to_flow,
        message,
        send: Some(Box::new(move || sender.try_send(BasicHeader::default(), b"text") == Ok(true))),
        receive: Some(Box::new(move || {
            (0..).take_while(|_| receiver.try_recv().expect("open").is_some()).count()
        })),
        _window: None,
    }
}

fn append(node: &mut Node) -> Pair {
    let arena = Arc::clone(&node.arena);
    let set = PollSet::create(&arena, 1).expect("memory");
    let create = |records| append::Receiver::create(&arena, records, 56).expect("memory");
    let (mut receiver, spare) = (create(16), create(16));
    let to = append::create_outgoing(&arena, 1 << 11, 56).expect("memory");
    let sender = |at| append::Sender::connect(arena.segment(), at).expect("a buffer");
    sender(spare.offset()).try_send(&[1; 56]).expect("space");
    let message = encoded(outgoing(arena.segment(), spare.offset()).expect("a buffer"));
    let [from, to_flow] = node.open_port(&set, 0, [receiver.offset(), to]);
    let event = Event::new().expect("a descriptor");
    let sender = sender(to).to_node_service((&set, 0), event).expect("a member");
    let mut record = Vec::new();
    Pair {
        name: "append",
        from,
        to: to_flow,
        message,
        send: Some(Box::new(move || sender.try_send(&[1; 56]).is_ok())),
        receive: Some(Box::new(move || {
            (0..).take_while(|_| receiver.try_recv(&mut record).expect("open")).count()
        })),
        _window: None,
    }
}

fn values(node: &mut Node) -> Pair {
    node.open_channel("channel", [0; 2], 7_u64, &[7; 8])
}

fn lines(node: &mut Node) -> Pair {
    node.open_channel("channel of lines", [0; 2], [7_u64; 8], &[7; 64])
}

/// Commands of rank 0 on a window of rank 1, and their answers.
fn commands(node: &mut Node) -> Pair {
    node.open_channel("commands", [ANSWERS, COMMANDS], [7_u64; 8], &[7; 64])
}

/// Commands of rank 1 on a window of rank 0, and their answers.
fn window(node: &mut Node) -> Pair {
    let Node { flows, transport, arena, .. } = node;
    let window = Window::create(arena, 64).expect("memory");
    let ranks = vec![(0, Offset(0)), (1, Offset(0))];
    let table = PortTable { set: Offset(0), lines: 0, ranks };
    let mut open = || {
        let served = ServedWindow::connect(arena.segment(), window.offset()).expect("a window");
        flows.open_window((0, PORT), served, &table, transport)
    };
    assert_eq!([open(), open()], [Ok(()), Err(Refusal::Taken)]);
    // A put of 8 bytes.
    let line: Line = [0, 0, 0, 8, 1, 0, 0, 0];
    let message: Vec<u8> = line.iter().flat_map(|word| word.to_le_bytes()).collect();
    let name = |kind, sender, receiver| FlowId { kind, sender, receiver, port: PORT };
    let (from, to) = (name(FlowKind::Commands, 1, 0), name(FlowKind::Answers, 0, 1));
    assert_eq!(flows.receive(1, &of(from, Content::Data(&message))), 0);
    Pair { name: "window", from, to, message, send: None, receive: None, _window: Some(window) }
}

/// Runs a test with flows of every kind.
fn with_all(test: impl Fn(Node, Pair)) {
    for open in [express, cache_line, basic, append, values, lines, commands, window] {
        let mut node = Node::new();
        let pair = open(&mut node);
        test(node, pair);
    }
}

#[test]
fn nodes_send_in_the_name_of_their_own_ranks_only() {
    with_all(|mut node, pair| {
        let data = Content::Data(&pair.message);
        for content in [data, Content::SenderClosed, Content::Exit(1), Content::Exit(2)] {
            assert_eq!(node.receive(2, pair.from, content), 1, "{}: {content:?}", pair.name);
        }
        for content in [Content::Credit(0), Content::ReceiverClosed] {
            assert_eq!(node.receive(2, pair.to, content), 1, "{}: {content:?}", pair.name);
        }
        assert_eq!(node.receive(1, pair.from, Content::Exit(2)), 1, "not a rank of the node");
        assert_eq!(node.receive(1, pair.from, data), 0, "{}", pair.name);
        assert!(node.is_open(&pair) && node.flows.outbound.contains(&pair.to), "{}", pair.name);
    });
}

#[test]
fn released_space_returns_as_credit() {
    with_all(|mut node, mut pair| {
        let credit = node.flows.inbound.credit(&pair.from);
        let all = 4 * credit / pair.message.len() as u64;
        let (mut received, mut returned) = (0, 0);
        for _ in 0..all {
            assert_eq!(
                node.receive(1, pair.from, Content::Data(&pair.message)),
                0,
                "{}",
                pair.name
            );
            received += pair.receive.as_mut().map_or(1, |receive| receive()) as u64;
            for (id, name, word) in node.serve() {
                match name {
                    "credit" if id == pair.from => returned += word,
                    // The other node has taken the answers.
                    "data" if id == pair.to => {
                        assert_eq!(node.receive(1, id, Content::Credit(8 * word)), 0);
                    }
                    other => panic!("{}: {other}", pair.name),
                }
            }
        }
        assert_eq!(received, all, "{}", pair.name);
        let sent = all * pair.message.len() as u64;
        assert!(returned > sent - credit / 2 && returned <= sent, "{}: {returned}", pair.name);
    });
}

#[test]
fn a_node_that_ignores_its_credit_ends_its_own_flow() {
    with_all(|mut node, pair| {
        let credit = node.flows.inbound.credit(&pair.from);
        let most = 3 * credit / pair.message.len() as u64;
        let refused = (0..most).position(|_| {
            let refused = node.receive(1, pair.from, Content::Data(&pair.message));
            node.flows.advance();
            refused == 1
        });
        assert!(refused.is_some(), "{}", pair.name);
        let closed = (pair.from, "receiver closed", 0);
        assert_eq!(node.serve().iter().filter(|one| **one == closed).count(), 1, "{}", pair.name);
        // What is on its way is answered by nothing.
        node.receive(1, pair.from, Content::Data(&pair.message));
        node.receive(1, pair.from, Content::SenderClosed);
        let late = node.serve();
        assert!(late.iter().all(|(id, ..)| *id != pair.from), "{}: {late:?}", pair.name);
    });
}

#[test]
fn bytes_that_are_no_messages_end_their_flow() {
    with_all(|mut node, pair| {
        if pair.message.len() == 8 {
            // All of 8 bytes are one.
            return;
        }
        let cut_off = &pair.message[..pair.message.len() - 8];
        assert_eq!(node.receive(1, pair.from, Content::Data(cut_off)), 1, "{}", pair.name);
        let closed = (pair.from, "receiver closed", 0);
        assert!(node.serve().contains(&closed), "{}", pair.name);
    });
}

#[test]
fn a_source_sends_as_far_as_it_has_credit() {
    with_all(|mut node, mut pair| {
        let Some(send) = &mut pair.send else { return };
        while send() {}
        let bytes = |sent: Vec<(FlowId, &str, u64)>| {
            let to_it = sent.iter().filter(|(id, name, _)| *id == pair.to && *name == "data");
            8 * to_it.map(|(.., words)| words).sum::<u64>()
        };
        assert!(!node.flows.arm(&mut node.transport, LIMIT), "{}: something is there", pair.name);
        assert!(!node.flows.serve(&mut node.transport, 0), "the queue of the node is too long");
        let mut in_flight = 0;
        loop {
            let more = bytes(node.serve());
            in_flight += more;
            if more == 0 {
                break;
            }
            while send() {}
        }
        let credit = node.flows.outbound.of(pair.to).credit();
        assert!(in_flight > credit / 4 && in_flight <= credit, "{}: {in_flight}", pair.name);
        assert_eq!(node.receive(1, pair.to, Content::Credit(in_flight + 8)), 1, "{}", pair.name);
        assert!(node.flows.has_unsent(), "{}", pair.name);
        assert_eq!(node.receive(1, pair.to, Content::Credit(in_flight)), 0, "{}", pair.name);
        assert!(bytes(node.serve()) > 0, "{}", pair.name);
    });
}

#[test]
fn an_end_that_is_closed_twice_is_closed_once() {
    with_all(|mut node, mut pair| {
        for _ in 0..2 {
            node.receive(1, pair.to, Content::ReceiverClosed);
            node.receive(1, pair.from, Content::SenderClosed);
        }
        assert_eq!(
            node.receive(1, pair.to, Content::Credit(8)),
            u64::from(pair.to.kind == FlowKind::Queue)
        );
        node.receive(1, pair.from, Content::Exit(1));
        if let Some(send) = &mut pair.send {
            while send() {}
        }
        assert_eq!(node.serve(), [], "{}", pair.name);
        assert!(!node.flows.has_unsent(), "{}", pair.name);
    });
}

#[test]
fn a_rank_that_exits_has_sent_everything_before() {
    with_all(|mut node, mut pair| {
        if let Some(send) = &mut pair.send {
            assert!(send(), "{}", pair.name);
        }
        node.flows.check_all();
        node.flows.exit(0);
        let sent = node.serve();
        let to_it: Vec<&str> =
            sent.iter().filter(|(id, ..)| *id == pair.to).map(|(_, name, _)| *name).collect();
        let expected: &[&str] = match pair.to.kind {
            FlowKind::Queue => &["data", "exit", "sender closed"],
            FlowKind::Channel | FlowKind::Commands => &["data", "sender closed"],
            // The end of the commands says it.
            FlowKind::Answers => &[],
        };
        assert_eq!(to_it, expected, "{}", pair.name);
        assert!(!node.is_open(&pair) && !node.flows.has_unsent(), "{}", pair.name);
        assert_eq!(node.flows.memory.used(0), 0, "{}", pair.name);
    });
}

#[test]
fn a_lost_node_ends_its_flows() {
    with_all(|mut node, mut pair| {
        if let Some(send) = &mut pair.send {
            assert!(send(), "{}", pair.name);
        }
        node.flows.lose(1);
        assert_eq!(node.serve(), [], "{}", pair.name);
        assert!(!node.flows.has_unsent(), "{}", pair.name);
        let is_queue = pair.from.kind == FlowKind::Queue;
        assert!(node.flows.has_last_of((0, PORT), 1, 1), "{}", pair.name);
        let late = node.receive(1, pair.from, Content::Data(&pair.message));
        assert_eq!(late, u64::from(is_queue), "{}", pair.name);
    });
}
