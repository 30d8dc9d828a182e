//! Rules that hold for flows of every kind.

use super::{Node, PORT, Sent};
use crate::flows::{ANSWERS, COMMANDS, ChannelEnd, Refusal};
use crate::transport::records::flows::{Content, FlowId, FlowKind};
use queues::append;
use queues::basic::{self, BasicHeader};
use queues::cache_line::{CacheLineHeader, CacheLineMessage, CacheLineQueue};
use queues::channel::{Channel, Receiver, Sender, Value};
use queues::express::{ExpressMessage, ExpressQueue};
use queues::internode::{Source, outgoing, outgoing_basic};
use queues::one_poll::PollSet;
use queues::window::Window;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use shm::event::Event;
use shm::segment::Offset;
use shm::sync::Ordering;
use std::fmt::Debug;
use std::sync::Arc;

type Line = [u64; 8];

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
    fn is_open(&self, pair: &Pair) -> bool {
        self.flows.inbound.ends.contains(&pair.from)
    }

    fn credit(&self, pair: &Pair) -> u64 {
        self.flows.inbound.ends.of(&pair.from).expect("it is open").sink.credit()
    }

    /// Opens a port with a receive queue of rank 0 and an outgoing one to rank 1.
    fn open_pair(&mut self, set: &PollSet, lines: u64, [own, to]: [Offset; 2]) -> [FlowId; 2] {
        let ranks = [(0, Offset(0)), (1, to)];
        let mut open = || self.open_port((0, PORT, own), (set.offset(), lines), &ranks);
        assert_eq!([open(), open()], [Ok(()), Err(Refusal::Taken)]);
        [(1, 0), (0, 1)].map(|(sender, receiver)| FlowId {
            kind: FlowKind::Queue,
            sender,
            receiver,
            port: PORT,
        })
    }

    /// Opens a ring that receives and one that sends.
    fn open_rings<T: Value + Copy + Debug>(
        &mut self,
        name: &'static str,
        marks: [u64; 2],
        value: T,
        message: &[u8],
    ) -> Pair {
        let rings = [0; 2].map(|_| Channel::<T>::create(&self.arena, 64).expect("memory"));
        let [from, to] = [ChannelEnd::ReceivesFrom(1), ChannelEnd::SendsTo(1)];
        let names = [from, to].into_iter().zip(marks).zip(&rings).map(|((end, mark), ring)| {
            let mut open = || self.open_channel(PORT | mark, end, ring.offset());
            assert_eq!([open(), open()], [Ok(()), Err(Refusal::Taken)]);
            end.flow(0, PORT | mark).expect("a rank opens it").0
        });
        let [from, to] = names.collect::<Vec<_>>().try_into().expect("two");
        let segment = self.segment();
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
    let [from, to_flow] = node.open_pair(&set, 0, [own.offset(), to.offset()]);
    let mut receiver = own.receiver().expect("the first");
    let sender = to.sender();
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
    let [from, to_flow] = node.open_pair(&set, 0, [own.offset(), to.offset()]);
    let mut receiver = own.receiver().expect("the first");
    let sender = to.sender();
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
    let [from, to_flow] = node.open_pair(&set, LINES, [own, to]);
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
            (0..).take_while(|_| matches!(receiver.try_recv(), Ok(Some(_)))).count()
        })),
        _window: None,
    }
}

fn append(node: &mut Node) -> Pair {
    let arena = Arc::clone(&node.arena);
    let set = PollSet::create(&arena, 1).expect("memory");
    let create = |records| append::Receiver::create(&arena, records, 56).expect("memory");
    let mut receiver = create(16);
    let spare = create(16);
    let to = append::create_outgoing(&arena, 1 << 11, 56).expect("memory");
    let sender = |at| append::Sender::connect(arena.segment(), at).expect("a buffer");
    sender(spare.offset()).try_send(&[1; 56]).expect("space");
    let message = encoded(outgoing(arena.segment(), spare.offset()).expect("a buffer"));
    let [from, to_flow] = node.open_pair(&set, 0, [receiver.offset(), to]);
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
    node.open_rings("channel", [0; 2], 7_u64, &[7; 8])
}

fn lines(node: &mut Node) -> Pair {
    node.open_rings("channel of lines", [0; 2], [7_u64; 8], &[7; 64])
}

/// Commands of rank 0 on a window of rank 1, and their answers.
fn commands(node: &mut Node) -> Pair {
    node.open_rings("commands", [ANSWERS, COMMANDS], [7_u64; 8], &[7; 64])
}

/// Commands of rank 1 on a window of rank 0, and their answers.
fn window(node: &mut Node) -> Pair {
    let window = Window::create(&node.arena, 64).expect("memory");
    let mut open = || node.open_window(PORT, window.offset(), &[0, 1]);
    assert_eq!([open(), open()], [Ok(()), Err(Refusal::Taken)]);
    // A put of 8 bytes.
    let line: Line = [0, 0, 0, 8, 1, 0, 0, 0];
    let message: Vec<u8> = line.iter().flat_map(|word| word.to_le_bytes()).collect();
    let name = |kind, sender, receiver| FlowId { kind, sender, receiver, port: PORT };
    let from = name(FlowKind::Commands, 1, 0);
    let to = name(FlowKind::Answers, 0, 1);
    assert_eq!(node.receive(1, from, Content::Data(&message)), 0);
    Pair { name: "window", from, to, message, send: None, receive: None, _window: Some(window) }
}

/// Runs a test with flows of every kind.
fn with_all(mut test: impl FnMut(Node, Pair)) {
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
        assert!(!node.flows.take_delivered(), "{}: nothing was accepted", pair.name);
        // A rank ends its channels and its commands; its exit concerns queues.
        let is_queue = pair.from.kind == FlowKind::Queue;
        let exit = node.receive(1, pair.from, Content::Exit(4));
        assert_eq!(exit, u64::from(!is_queue), "{}", pair.name);
        assert_eq!(node.receive(1, pair.from, data), 0, "{}", pair.name);
        let has_values = matches!(pair.from.kind, FlowKind::Channel | FlowKind::Answers);
        assert_eq!(node.flows.take_delivered(), has_values, "{}", pair.name);
        let is_open = node.flows.outbound.ends.contains(&pair.to);
        assert!(is_open && node.is_open(&pair), "{}", pair.name);
    });
}

/// Records that no node service sends, and those of a stranger.
#[test]
fn damaged_records_harm_no_flow_of_another_node() {
    let mut random = SmallRng::seed_from_u64(7);
    with_all(|mut node, mut pair| {
        for _ in 0..30_000 {
            use FlowKind::{Answers, Channel, Commands, Queue};
            let kind = [Queue, Channel, Commands, Answers][random.random_range(0..4)];
            let [sender, receiver] = [0; 2].map(|_| random.random_range(0..6));
            let id = FlowId { kind, sender, receiver, port: PORT + random.random_range(0..2) };
            let bytes = vec![1; 8 * random.random_range(0..20)];
            let content = match random.random_range(0..5) {
                0 => Content::Data(&bytes),
                1 => Content::Credit(random.random_range(0..1 << 45)),
                2 => Content::Exit(random.random_range(0..6)),
                3 => Content::SenderClosed,
                _ => Content::ReceiverClosed,
            };
            node.receive(2, id, content);
        }
        assert_eq!(node.receive(1, pair.from, Content::Data(&pair.message)), 0, "{}", pair.name);
        assert!(node.is_open(&pair), "{}", pair.name);
        if let Some(send) = &mut pair.send {
            assert!(send(), "{}", pair.name);
        }
        let sent = node.sent();
        assert!(
            sent.iter().any(|(id, name, _)| (*id, *name) == (pair.to, "data")),
            "{}",
            pair.name
        );
        let received = pair.receive.as_mut().map_or(1, |receive| receive());
        assert_eq!(received, 1, "{}", pair.name);
    });
}

#[test]
fn released_space_returns_as_credit() {
    with_all(|mut node, mut pair| {
        let credit = node.credit(&pair);
        let all = 4 * credit / pair.message.len() as u64;
        let mut received = 0;
        let mut returned = 0;
        for _ in 0..all {
            assert_eq!(
                node.receive(1, pair.from, Content::Data(&pair.message)),
                0,
                "{}",
                pair.name
            );
            received += pair.receive.as_mut().map_or(1, |receive| receive()) as u64;
            for (id, name, word) in node.sent() {
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
        let credit = node.credit(&pair);
        let most = 3 * credit / pair.message.len() as u64;
        let refused = (0..most).position(|_| {
            let refused = node.receive(1, pair.from, Content::Data(&pair.message));
            node.flows.advance();
            refused == 1
        });
        assert!(refused.is_some(), "{}", pair.name);
        let closed = (pair.from, "receiver closed", 0);
        assert_eq!(node.sent().iter().filter(|one| **one == closed).count(), 1, "{}", pair.name);
        // What is on its way is answered by nothing.
        node.receive(1, pair.from, Content::Data(&pair.message));
        node.receive(1, pair.from, Content::SenderClosed);
        let late = node.sent();
        assert!(late.iter().all(|(id, ..)| *id != pair.from), "{}: {late:?}", pair.name);
    });
}

#[test]
fn bytes_that_are_no_messages_end_their_flow() {
    with_all(|mut node, mut pair| {
        if pair.message.len() == 8 {
            // All of 8 bytes are one.
            return;
        }
        let whole = if pair.receive.is_some() { 2 } else { 0 };
        let mut cut_off = pair.message.repeat(whole + 1);
        cut_off.truncate(cut_off.len() - 8);
        assert_eq!(node.receive(1, pair.from, Content::Data(&cut_off)), 1, "{}", pair.name);
        let late = node.receive(1, pair.from, Content::Data(&pair.message));
        let is_queue = pair.from.kind == FlowKind::Queue;
        assert_eq!(late, u64::from(is_queue), "{}: nothing is accepted behind them", pair.name);
        assert!(node.flows.has_last_of((0, PORT), 1, 1), "{}: and nothing awaited", pair.name);
        let sent = node.sent().into_iter().filter(|(id, ..)| *id == pair.from);
        assert!(sent.eq([(pair.from, "receiver closed", 0)]), "{}: without credit", pair.name);
        let received = pair.receive.as_mut().map_or(0, |receive| receive());
        // A channel takes all values of a record or none.
        assert!(received == whole || !is_queue && received == 0, "{}: {received}", pair.name);
    });
}

#[test]
fn a_source_sends_as_far_as_it_has_credit() {
    with_all(|mut node, mut pair| {
        let Some(send) = &mut pair.send else { return };
        while send() {}
        let bytes = |sent: Vec<Sent>| {
            let to_it = sent.iter().filter(|(id, name, _)| *id == pair.to && *name == "data");
            8 * to_it.map(|(.., words)| words).sum::<u64>()
        };
        assert!(!node.arm(), "{}: something is there", pair.name);
        assert!(!node.flows.serve(&mut node.transport, 0), "the queue of the node is too long");
        let mut in_flight = 0;
        loop {
            let more = bytes(node.sent());
            in_flight += more;
            if more == 0 {
                break;
            }
            while send() {}
        }
        let credit = node.flows.outbound.ends.of(&pair.to).expect("it is open").source.credit();
        assert!(in_flight > credit / 4 && in_flight <= credit, "{}: {in_flight}", pair.name);
        assert_eq!(node.receive(1, pair.to, Content::Credit(in_flight + 8)), 1, "{}", pair.name);
        assert!(node.flows.has_unsent(), "{}", pair.name);
        assert_eq!(node.receive(1, pair.to, Content::Credit(in_flight)), 0, "{}", pair.name);
        assert!(bytes(node.sent()) > 0, "{}", pair.name);
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
        assert_eq!(node.sent(), [], "{}", pair.name);
        assert!(!node.flows.has_unsent(), "{}", pair.name);
    });
}

#[test]
fn a_rank_that_exits_has_sent_everything_before() {
    with_all(|mut node, mut pair| {
        let used = node.flows.memory.counts(0);
        let sum = || used.iter().map(|one| one.load(Ordering::Relaxed)).sum::<u64>();
        assert!(sum() > 0, "{}", pair.name);
        node.sent();
        assert!(node.sleeps(), "{}", pair.name);
        // As if the rank had been killed before it could notify the node service.
        if let Some(send) = &mut pair.send {
            assert!(send(), "{}", pair.name);
        }
        node.flows.check_all();
        node.flows.exit(0);
        assert!(node.flows.has_unsent(), "{}", pair.name);
        let sent = node.sent();
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
        assert_eq!(sum(), 0, "{}: its memory is released", pair.name);
    });
}

#[test]
fn a_lost_node_ends_its_flows() {
    with_all(|mut node, mut pair| {
        assert_eq!(node.receive(1, pair.from, Content::Data(&pair.message)), 0, "{}", pair.name);
        node.flows.lose(2);
        assert!(node.is_open(&pair), "{}: it is of another node", pair.name);
        if let Some(send) = &mut pair.send {
            assert!(send(), "{}", pair.name);
        }
        node.flows.end(1);
        node.flows.lose(1);
        assert_eq!(node.sent(), [], "{}", pair.name);
        assert!(!node.flows.has_unsent(), "{}", pair.name);
        // The answers end with the exit of the rank. What else has arrived is received.
        let received = pair.receive.as_mut().map_or(0, |receive| receive());
        assert_eq!(received, usize::from(pair.receive.is_some()), "{}", pair.name);
        let is_queue = pair.from.kind == FlowKind::Queue;
        assert!(node.flows.has_last_of((0, PORT), 1, 1), "{}", pair.name);
        let late = node.receive(1, pair.from, Content::Data(&pair.message));
        assert_eq!(late, u64::from(is_queue), "{}", pair.name);
    });
}
