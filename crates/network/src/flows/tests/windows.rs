//! Commands on a window of rank 0 by ranks 1 and 2, each on a node of its own, as frames.

use super::{LIMIT, PORT, of};
use crate::flows::router::{SLOT_BYTES, UNCERTAIN};
use crate::flows::table::PortTable;
use crate::flows::windows::MOST_LATE;
use crate::flows::{ANSWERS, Flows, Refusal};
use crate::node_map::NodeMap;
use crate::transport::frame::Frame;
use crate::transport::payloads::NoPayloads;
use crate::transport::records::flows::{self as record, Content, FlowId, FlowKind};
use crate::transport::{Arrival, Transport, memory};
use queues::window::{LINE_BYTES, MAX_LINES, RemoteWindow, SLOTS, ServedWindow, Window};
use shm::arena::Arena;
use shm::event::Event;
use shm::segment::{Backing, Offset, Segment};
use std::sync::Arc;

const BYTES: u64 = 1024;
/// Kinds of commands.
const PUT: u64 = 0;
const GET: u64 = 1;
const AWAIT: u64 = 7;
const CANCEL: u64 = 8;
/// Outcomes.
const DONE: u64 = 0;
const NOT_TRUE: u64 = 1;
const WITHDRAWN: u64 = 2;
const REFUSED: u64 = 4;

type Line = [u64; 8];

/// The flows of node 0 with a window of rank 0.
struct Node {
    flows: Flows,
    transport: memory::Memory,
    others: Vec<memory::Memory>,
    segment: Arc<Segment>,
    window: Window,
}

/// What a node has received.
#[derive(Debug, PartialEq, Eq)]
enum Received {
    Answer { number: u64, outcome: u64 },
    Credit(u64),
    CommandsClosed,
    AnswersClosed,
}

fn commands(origin: u32) -> FlowId {
    FlowId { kind: FlowKind::Commands, sender: origin, receiver: 0, port: PORT }
}

fn answers(origin: u32) -> FlowId {
    FlowId { kind: FlowKind::Answers, sender: 0, receiver: origin, port: PORT }
}

/// A command with a value of 8 bytes.
fn line(number: u64, kind: u64, at: u64, length: u64, value: u64) -> Line {
    let bytes = if kind == PUT { 8 } else { 0 };
    [number, at, length, bytes | kind << 32, value, 0, 0, 0]
}

impl Node {
    fn new() -> Node {
        let mut others = memory::connect(3).expect("descriptors");
        let mut transport = others.remove(0);
        let segment = Arc::new(Segment::create(1 << 20, Backing::Memory).expect("memory"));
        let arena = Arc::new(Arena::new(Arc::clone(&segment), 64..1 << 20).expect("inside"));
        let window = Window::create(&arena, BYTES).expect("memory");
        let nodes = NodeMap::new([0, 1, 2]);
        let mut flows = Flows::new(nodes.clone(), &transport);
        let ranks = [0, 1, 2].map(|rank| (rank, Offset(0))).to_vec();
        let table = PortTable { set: Offset(0), lines: 0, ranks };
        let mut open = |port| {
            let served = ServedWindow::connect(&segment, window.offset()).expect("a window");
            flows.open_window((0, port), served, &table, &mut transport)
        };
        assert_eq!(open(PORT), Ok(()));
        assert_eq!(open(PORT), Err(Refusal::Taken));
        assert_eq!(open(PORT | ANSWERS), Err(Refusal::Invalid), "the port of no window");
        Node { flows, transport, others, segment, window }
    }

    /// Sends lines as rank 1 or 2. Returns the number of refused records.
    fn send(&mut self, origin: u32, lines: &[Line]) -> u64 {
        let bytes: Vec<u8> = lines.iter().flatten().flat_map(|word| word.to_le_bytes()).collect();
        self.send_bytes(origin, &bytes)
    }

    fn send_bytes(&mut self, origin: u32, bytes: &[u8]) -> u64 {
        self.flows.receive(origin, &of(commands(origin), Content::Data(bytes)))
    }

    /// Serves, and returns what the node of this rank has received, without credit.
    fn received(&mut self, origin: u32) -> Vec<Received> {
        let mut received = self.received_with_credit(origin);
        received.retain(|one| !matches!(one, Received::Credit(_)));
        received
    }

    fn received_with_credit(&mut self, origin: u32) -> Vec<Received> {
        self.flows.serve(&mut self.transport, LIMIT);
        self.transport.flush(&mut NoPayloads);
        let mut arrivals = Vec::new();
        let other = &mut self.others[origin as usize - 1];
        other.poll(&mut NoPayloads, &mut arrivals).expect("it works");
        let mut received = Vec::new();
        for arrival in arrivals {
            let Arrival::Frame { frame: Frame::Flows { records }, .. } = arrival else {
                panic!("{arrival:?}");
            };
            let mut rest = &records[..];
            while let Some((id, content, behind)) = record::split_first(rest) {
                rest = behind;
                let is_command = id == commands(origin);
                assert!(is_command || id == answers(origin), "{id:?}");
                match content {
                    Content::Data(bytes) => received.extend(Received::answers(bytes)),
                    Content::Credit(lines) => received.push(Received::Credit(lines)),
                    Content::ReceiverClosed => received.push(Received::CommandsClosed),
                    Content::SenderClosed => received.push(Received::AnswersClosed),
                    Content::Exit(rank) => panic!("the exit of rank {rank}"),
                }
            }
        }
        received
    }

    fn release(&mut self, origin: u32, lines: u64) -> u64 {
        self.flows.receive(origin, &of(answers(origin), Content::Credit(lines * LINE_BYTES as u64)))
    }
}

impl Received {
    /// The heads of answers; none of them has more than 32 bytes.
    fn answers(bytes: &[u8]) -> Vec<Received> {
        let (words, _) = bytes.as_chunks::<8>();
        let lines = words.chunks(8);
        let word = |line: &[[u8; 8]], index: usize| u64::from_le_bytes(line[index]);
        let answer = |line: &[[u8; 8]]| Received::Answer {
            number: word(line, 0),
            outcome: word(line, 3) >> 32,
        };
        lines.map(answer).collect()
    }
}

#[test]
fn windows_for_more_ranks_than_there_is_memory_for_are_refused() {
    const RANKS: u32 = 200_000;
    let mut transport = memory::connect(2).expect("descriptors").remove(0);
    let segment = Arc::new(Segment::create(1 << 20, Backing::Memory).expect("memory"));
    let arena = Arc::new(Arena::new(Arc::clone(&segment), 64..1 << 20).expect("inside"));
    let window = Window::create(&arena, BYTES).expect("memory");
    let nodes = NodeMap::new((0..RANKS).map(|rank| rank > 0));
    let mut flows = Flows::new(nodes.clone(), &transport);
    let mut open = |port, ranks| {
        let served = ServedWindow::connect(&segment, window.offset()).expect("a window");
        let ranks = (0..ranks).map(|rank| (rank, Offset(0))).collect();
        let table = PortTable { set: Offset(0), lines: 0, ranks };
        flows.open_window((0, port), served, &table, &mut transport)
    };
    assert_eq!(open(0, RANKS), Err(Refusal::Memory));
    assert_eq!([open(0, RANKS / 2), open(1, RANKS / 2)], [Ok(()), Err(Refusal::Memory)]);
    flows.close_window(0, 0);
    let table = PortTable { set: Offset(0), lines: 0, ranks: vec![(1, Offset(0))] };
    let served = ServedWindow::connect(&segment, window.offset()).expect("a window");
    assert_eq!(flows.open_window((0, 1), served, &table, &mut transport), Ok(()));
    flows.close_window(0, 1);
    assert_eq!(flows.memory.used(0), 0);
    // A window for no rank of another node counts, too.
    let table = PortTable { set: Offset(0), lines: 0, ranks: vec![(0, Offset(0))] };
    let served = ServedWindow::connect(&segment, window.offset()).expect("a window");
    assert_eq!(flows.open_window((0, 2), served, &table, &mut transport), Ok(()));
    assert_eq!(flows.memory.used(0), SLOT_BYTES * SLOTS);
    flows.close_window(0, 2);
    flows.close_window(0, 2);
    assert_eq!(flows.memory.used(0), 0);
}

const fn answer(number: u64, outcome: u64) -> Received {
    Received::Answer { number, outcome }
}

/// Returns true if the flow of the commands has ended, and nothing was answered.
fn is_end(received: &[Received]) -> bool {
    let is_closed =
        |one: &Received| matches!(one, Received::CommandsClosed | Received::AnswersClosed);
    received.contains(&Received::CommandsClosed) && received.iter().all(is_closed)
}

#[test]
fn commands_are_executed_in_the_turn_in_which_they_arrive() {
    let mut node = Node::new();
    let sent = [line(0, PUT, 8, 0, 5), line(1, GET, 8, 8, 0)];
    assert_eq!(node.send(1, &sent), 0);
    assert_eq!(node.received(1), [answer(0, DONE), answer(1, DONE)]);
    assert_eq!(node.window.local().get_value::<u64>(8), Ok(5));
    assert!(node.flows.sleeps(&mut node.transport), "nothing is left to do");
    // A command of two lines that arrive one after the other.
    let long = line(2, PUT, 64, 0, 0);
    let head = [long[0], long[1], long[2], 40, 0, 0, 0, 0];
    assert_eq!(node.send(1, &[head]), 0);
    assert_eq!(node.received(1), []);
    assert_eq!(node.send(1, &[[6; 8]]), 0);
    assert_eq!(node.received(1), [answer(2, DONE)]);
    assert_eq!(node.window.local().get_value::<u64>(96), Ok(6));
    assert_eq!(node.window.local().get_value::<u64>(104), Ok(0));
}

#[test]
fn a_rank_sends_from_its_node_and_to_windows_that_are_open_for_it() {
    let mut node = Node::new();
    let put = line(0, PUT, 0, 0, 9);
    let bytes: Vec<u8> = put.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut send = |from: u32, id: FlowId| node.flows.receive(from, &of(id, Content::Data(&bytes)));
    assert_eq!(send(2, commands(1)), 1, "rank 1 is on node 1");
    assert_eq!(send(1, commands(3)), 1, "there is no rank 3");
    assert_eq!(send(0, commands(0)), 1, "rank 0 has the window itself");
    assert_eq!(node.window.local().get_value::<u64>(0), Ok(0));
    assert_eq!(node.send(1, &[put]), 0);
    assert_eq!(node.flows.receive(2, &of(commands(1), Content::SenderClosed)), 1);
    assert_eq!(node.flows.receive(2, &of(answers(1), Content::Credit(0))), 1);
    assert_eq!(node.flows.receive(2, &of(answers(1), Content::ReceiverClosed)), 1);
    assert_eq!(node.received(1), [answer(0, DONE)]);
}

#[test]
fn damaged_commands_end_the_link_of_their_rank_only() {
    let valid = line(0, PUT, 0, 0, 1);
    // A kind that there is not, too many bytes, too long an answer, an element of two sizes.
    let damaged = [
        line(0, 99, 0, 0, 0),
        [0, 0, 0, u64::from(u32::MAX), 0, 0, 0, 0],
        line(0, GET, 0, u64::MAX, 0),
        [0, 0, 0, 5 | 9 << 32, 0, 0, 0, 0],
        [0, 0, 1 << 61, 3 << 32, 0, 0, 0, 0],
    ];
    for line in damaged {
        let mut node = Node::new();
        assert_eq!(node.send(2, &[valid]), 0);
        assert_eq!(node.send(1, &[line]), 0);
        assert!(is_end(&node.received(1)), "{line:?}");
        assert_eq!(node.received(2), [answer(0, DONE)]);
        // What is on its way is ignored, and the other rank goes on.
        node.send(1, &[valid, valid]);
        assert_eq!(node.received(1), []);
        assert_eq!(node.send(2, &[valid]), 0);
        assert_eq!(node.received(2), [answer(0, DONE)]);
    }
    // Whole commands that no window executes.
    let mut node = Node::new();
    node.send(1, &[line(0, PUT, BYTES - 4, 0, 1), line(1, GET, u64::MAX, 8, 0)]);
    node.send(1, &[line(2, AWAIT, 4, 0, 0), line(3, AWAIT, BYTES, 0, 0), line(4, CANCEL, 0, 0, 0)]);
    let expected = [0, 1, 2, 3].map(|number| answer(number, REFUSED));
    assert_eq!(node.received(1)[..4], expected);
    // No whole lines, and more than a ring holds.
    assert_eq!(node.send_bytes(1, &[0; 8]), 1);
    assert!(is_end(&node.received(1)));
    let full = vec![[0; 8]; SLOTS as usize / 4];
    let outcomes = [0; 6].map(|_| node.send(2, &full));
    assert_eq!(outcomes, [0, 0, 0, 0, 1, 0], "what follows is ignored");
    assert!(is_end(&node.received(2)));
}

#[test]
fn a_rank_that_damages_its_link_again_and_again_is_answered_once() {
    let mut node = Node::new();
    let end = of(commands(1), Content::SenderClosed);
    assert_eq!(node.send_bytes(1, &[0; 8]), 1);
    assert!(is_end(&node.received(1)));
    for _ in 0..3 {
        assert_eq!(node.flows.receive(1, &end), 0);
        node.send_bytes(1, &[0; 8]);
        assert_eq!(node.received(1), []);
    }
}

#[test]
fn a_rank_that_takes_no_answers_is_answered_as_far_as_its_credit() {
    let mut node = Node::new();
    let mut sent = 0;
    let mut answered = 0;
    let mut credit = SLOTS;
    // As much as the ring of its agent has credit for.
    while credit > 0 {
        let count = credit.min(400);
        let lines: Vec<Line> = (0..count).map(|n| line(sent + n, PUT, 0, 0, n)).collect();
        assert_eq!(node.send(1, &lines), 0);
        sent += count;
        credit -= count;
        for one in node.received_with_credit(1) {
            match one {
                Received::Answer { number, outcome: DONE } => {
                    assert_eq!(number, answered);
                    answered += 1;
                }
                Received::Credit(bytes) => credit += bytes / LINE_BYTES as u64,
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(answered <= SLOTS && answered > SLOTS - MAX_LINES, "{answered}");
    assert!(sent > SLOTS + SLOTS / 2 && sent <= SLOTS + answered, "{sent}: the others are kept");
    assert_eq!(node.send(2, &[line(7, PUT, 0, 0, 1)]), 0);
    assert_eq!(node.received(2), [answer(7, DONE)], "the other one goes on");
    assert_eq!(node.release(1, SLOTS + 1), 1, "more than was sent");
    assert!(node.flows.sleeps(&mut node.transport), "nothing can be done");
    assert_eq!(node.release(1, MAX_LINES), 0);
    assert!(matches!(node.received(1)[..], [Received::Answer { .. }, ..]));
    // More than there is credit for.
    let most = vec![line(0, PUT, 0, 0, 0); SLOTS as usize / 2];
    assert_eq!(
        [0; 3].map(|_| node.send(1, &most)).iter().sum::<u64>(),
        1,
        "what follows is ignored"
    );
    assert!(is_end(&node.received(1)));
}

#[test]
fn a_condition_is_answered_when_a_rank_of_any_node_makes_it_true() {
    let mut node = Node::new();
    let event = Event::new().expect("a descriptor");
    let here = RemoteWindow::connect(&node.segment, node.window.offset()).expect("a window");
    let here = here.beside_node_service(&event);
    let awaits = [line(0, AWAIT, 16, 3, 0), line(1, AWAIT, 24, 1, 0), line(2, AWAIT, 32, 1, 0)];
    assert_eq!(node.send(1, &awaits), 0);
    assert_eq!(node.received(1), []);
    assert!(node.flows.sleeps(&mut node.transport));
    assert_eq!(node.flows.next_look(), Some(UNCERTAIN), "the request may be missed");
    here.put_value(16, 2_u64).expect("inside");
    assert!(event.clear(), "a change wakes the agent");
    assert_eq!(node.received(1), []);
    assert!(node.flows.sleeps(&mut node.transport));
    here.put_value(16, 3_u64).expect("inside");
    assert!(event.clear() && !node.flows.arm(&mut node.transport, LIMIT));
    assert_eq!(node.received(1), [answer(0, DONE)]);
    assert_eq!(node.send(2, &[line(9, PUT, 24, 0, 1)]), 0);
    assert_eq!(node.received(2), [answer(9, DONE)]);
    assert_eq!(node.received(1), [answer(1, DONE)]);
    assert_eq!(node.send(1, &[line(2, CANCEL, 0, 0, 0)]), 0);
    assert_eq!(node.received(1), [answer(2, NOT_TRUE)]);
    // More than a rank may wait for.
    let many: Vec<Line> = (0..500).map(|number| line(number, AWAIT, 0, 1, 0)).collect();
    assert_eq!(node.send(1, &many), 0);
    assert!(is_end(&node.received(1)));
}

#[test]
fn a_link_that_loses_its_work_keeps_no_agent_awake() {
    let mut node = Node::new();
    assert_eq!(node.send(1, &[line(0, AWAIT, 8, 1, 0)]), 0);
    assert_eq!(node.received(1), []);
    // Without space in the queue of the node.
    node.flows.serve(&mut node.transport, 0);
    node.flows.end(1);
    assert!(node.flows.sleeps(&mut node.transport));
}

#[test]
fn a_window_that_is_closed_ends_its_links_and_those_of_late_commands() {
    let mut node = Node::new();
    let put = line(0, PUT, 0, 0, 1);
    assert_eq!(node.send(1, &[put, line(1, AWAIT, 8, 1, 0)]), 0);
    assert_eq!(node.received(1), [answer(0, DONE)]);
    node.flows.close_window(0, PORT);
    assert!(!node.flows.arm(&mut node.transport, LIMIT) && node.flows.has_unsent());
    assert!(is_end(&node.received(1)));
    assert!(!node.flows.has_unsent());
    // The first command of rank 2.
    assert_eq!(node.send(2, &[put]), 0);
    assert!(!node.flows.arm(&mut node.transport, LIMIT), "it is answered in the next turn");
    assert!(is_end(&node.received(2)));
    assert_eq!(node.received(2), []);
    assert_eq!(node.window.local().get_value::<u64>(0), Ok(1));
}

#[test]
fn late_commands_of_a_node_delay_those_of_no_other_one() {
    let mut node = Node::new();
    node.flows.close_window(0, PORT);
    let bytes = [0; 64];
    let mut send = |from: u32, sender, receiver, number: u64| {
        let id = FlowId { kind: FlowKind::Commands, sender, receiver, port: number << 32 };
        node.flows.receive(from, &of(id, Content::Data(&bytes)))
    };
    assert_eq!(send(2, 1, 0, 0), 1, "rank 1 is on node 1");
    assert_eq!(send(1, 1, 2, 0), 1, "rank 2 is not on this node");
    assert_eq!(send(1, 9, 0, 0), 1, "there is no rank 9");
    assert_eq!((0..=MOST_LATE as u64).map(|number| send(1, 1, 0, number)).sum::<u64>(), 0);
    assert_eq!(node.send(2, &[line(0, PUT, 0, 0, 1)]), 0);
    assert!(is_end(&node.received(2)));
}

#[test]
fn late_commands_of_a_node_that_reads_nothing_hold_no_shutdown() {
    let mut node = Node::new();
    node.flows.close_window(0, PORT);
    let put = line(0, PUT, 0, 0, 1);
    assert_eq!(node.send(1, &[put]), 0);
    // Without space in the queue of the node.
    node.flows.serve(&mut node.transport, 0);
    node.flows.exit(0);
    assert_eq!(node.send(1, &[put]), 0);
    node.flows.serve(&mut node.transport, 0);
    assert!(!node.flows.has_unsent(), "the report of the exit answers them");
    assert!(node.flows.sleeps(&mut node.transport));
    assert_eq!(node.received(1), []);
}

/// Ports are consecutive: what is answered by the end of a channel must name that channel only.
#[test]
fn late_values_and_late_answers_close_no_other_channel() {
    let mut node = Node::new();
    let bytes = [0; 64];
    use FlowKind::{Answers, Channel, Commands};
    let from = |kind, port| FlowId { kind, sender: 1, receiver: 0, port };
    // Values on a channel whose receiver has gone, and answers to a rank that has dropped its handle.
    let channels = [PORT - 1, PORT, PORT + 1].map(|port| (Channel, port));
    for (kind, port) in channels.into_iter().chain([(Answers, PORT), (Answers, PORT + 1)]) {
        let late = of(from(kind, port), Content::Data(&bytes));
        assert_eq!(node.flows.receive(1, &late), 0);
        assert!(!node.flows.has_unsent(), "{kind:?} {port:#x}");
        assert_eq!(node.received(1), []);
    }
    assert_eq!(node.send(1, &[line(0, AWAIT, 8, 1, 0)]), 0);
    assert_eq!(node.received(1), []);
    // The ends of channels of other windows and of no window.
    let windows = [PORT - 1, PORT + 1].map(|port| (Commands, Answers, port));
    for (kind, back, port) in
        windows.into_iter().chain(channels.map(|(kind, port)| (kind, kind, port)))
    {
        assert_eq!(node.flows.receive(1, &of(from(kind, port), Content::SenderClosed)), 0);
        let to = FlowId { kind: back, sender: 0, receiver: 1, port };
        assert_eq!(node.flows.receive(1, &of(to, Content::ReceiverClosed)), 0);
    }
    node.window.local().put_value(8, 1_u64).expect("inside");
    assert_eq!(node.received(1), [answer(0, DONE)], "the wait goes on");
}

#[test]
fn a_window_of_a_rank_that_has_exited_is_closed() {
    let mut node = Node::new();
    assert_eq!(node.send(1, &[line(0, PUT, 0, 0, 1)]), 0);
    node.received(1);
    node.flows.exit(0);
    assert!(is_end(&node.received(1)));
    // The first command of rank 2 is late. The report of the exit ends its channels.
    assert_eq!(node.send(2, &[line(0, PUT, 0, 0, 1)]), 0);
    assert_eq!(node.received(2), []);
    // Its memory, which the agent has used, is free.
    let Node { window, segment, flows, .. } = node;
    let at = window.offset();
    drop((window, flows));
    assert!(RemoteWindow::connect(&segment, at).is_err());
}

#[test]
fn a_window_that_its_owner_withdraws_first_says_so() {
    let Node { flows, transport, others, segment, window } = Node::new();
    drop(window);
    let arena = Arc::new(Arena::new(Arc::clone(&segment), 1 << 19..1 << 20).expect("inside"));
    let window = Window::create(&arena, 8).expect("memory");
    let mut node = Node { flows, transport, others, segment, window };
    assert_eq!(node.send(1, &[line(0, PUT, 0, 0, 1)]), 0);
    assert_eq!(node.received(1), [answer(0, WITHDRAWN)]);
}

#[test]
fn commands_of_a_killed_rank_are_executed_and_not_answered() {
    let mut node = Node::new();
    assert_eq!(node.send(1, &[line(0, AWAIT, 8, 1, 0)]), 0);
    assert_eq!(node.received(1), []);
    node.flows.end(1);
    node.window.local().put_value(8, 1_u64).expect("inside");
    assert_eq!(node.received(1), []);
    // More than there is credit for.
    for number in 0..3 * SLOTS {
        assert_eq!(node.send(1, &[line(number, PUT, 0, 0, number)]), 0);
        assert_eq!(node.received(1), []);
    }
    assert_eq!(node.window.local().get_value::<u64>(0), Ok(3 * SLOTS - 1));
    // The last ones arrive with the end, and part of one that never follows.
    let last = [line(1, PUT, 8, 0, 7), line(2, AWAIT, 16, 1, 0), [3, 64, 0, 40, 0, 0, 0, 0]];
    assert_eq!(node.send(1, &last), 0);
    let end = of(commands(1), Content::SenderClosed);
    assert_eq!(node.flows.receive(1, &end), 0);
    assert_eq!(node.received(1), []);
    assert_eq!(node.window.local().get_value::<u64>(8), Ok(7));
    assert!(!node.flows.inbound.contains(&commands(1)), "the flow has gone");
    assert_eq!(node.flows.outbound.active(), 0, "and waits for nothing");
    // Another handle of the rank begins anew.
    assert_eq!(node.send(1, &[line(4, PUT, 8, 0, 9)]), 0);
    assert_eq!(node.received(1), [answer(4, DONE)]);
    node.flows.lose(2);
    assert!(node.flows.sleeps(&mut node.transport));
}
