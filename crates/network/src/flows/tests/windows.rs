//! Commands on a window of rank 0 by ranks 1 and 2, each on a node of its own, as frames.

mod irregular;
mod unanswered;

use super::{Node, PORT, records};
use crate::flows::router::{ACCESS_BYTES, UNCERTAIN};
use crate::flows::table::PortTable;
use crate::flows::windows::MOST_LATE;
use crate::flows::{ANSWERS, Flows, Refusal};
use crate::node_map::NodeMap;
use crate::transport::memory;
use crate::transport::records::flows::{Content, FlowId, FlowKind};
use queues::window::{LINE_BYTES, MAX_LINES, RemoteWindow, SLOTS, ServedWindow, Window};
use shm::arena::Arena;
use shm::event::Event;
use shm::segment::{Backing, Offset, Segment};
use std::sync::Arc;

const BYTES: u64 = 1024;
/// Kinds of commands.
const PUT: u64 = 0;
const GET: u64 = 1;
const AWAIT: u64 = 6;
const CANCEL: u64 = 7;
/// Outcomes.
const DONE: u64 = 0;
const NOT_TRUE: u64 = 1;
const WITHDRAWN: u64 = 2;
const REFUSED: u64 = 3;

type Line = [u64; 8];

/// A node with a window of rank 0.
struct WindowNode {
    node: Node,
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

derefs_to_node!(WindowNode);

fn node() -> WindowNode {
    let mut node = Node::new();
    let window = Window::create(&node.arena, BYTES).expect("memory");
    let mut open = |port| node.open_window(port, window.offset(), &[0, 1, 2]);
    assert_eq!([open(PORT), open(PORT)], [Ok(()), Err(Refusal::Taken)]);
    assert_eq!(open(PORT | ANSWERS), Err(Refusal::Invalid), "the port of no window");
    WindowNode { node, window }
}

impl WindowNode {
    /// Sends lines as rank 1 or 2. Returns the number of refused records.
    fn send(&mut self, origin: u32, lines: &[Line]) -> u64 {
        let bytes: Vec<u8> = lines.iter().flatten().flat_map(|word| word.to_le_bytes()).collect();
        self.receive(origin, commands(origin), Content::Data(&bytes))
    }

    /// Takes a turn, and returns what the node of this rank has received, without credit.
    fn received(&mut self, origin: u32) -> Vec<Received> {
        let mut received = self.received_with_credit(origin);
        received.retain(|one| !matches!(one, Received::Credit(_)));
        received
    }

    fn received_with_credit(&mut self, origin: u32) -> Vec<Received> {
        self.turn();
        let frame = self.sent_to(origin);
        let received = records(&frame).flat_map(|(id, content)| {
            let is_command = id == commands(origin);
            assert!(is_command || id == answers(origin), "{id:?}");
            match content {
                Content::Data(bytes) => Received::answers(bytes),
                Content::Credit(lines) => vec![Received::Credit(lines)],
                Content::ReceiverClosed => vec![Received::CommandsClosed],
                Content::SenderClosed => vec![Received::AnswersClosed],
                Content::Exit(rank) => panic!("the exit of rank {rank}"),
            }
        });
        received.collect()
    }

    /// Serves without space in the queues of the nodes.
    fn serve_delayed(&mut self) {
        let Node { flows, transport, .. } = &mut self.node;
        flows.serve(transport, 0);
    }

    fn release(&mut self, origin: u32, lines: u64) -> u64 {
        let credit = Content::Credit(lines * LINE_BYTES as u64);
        self.receive(origin, answers(origin), credit)
    }

    /// Sends commands of rank 1 until one waits for its answer. Returns their number.
    fn fill_answers(&mut self) -> u64 {
        let [mut sent, mut answered, mut credit] = [0, 0, SLOTS];
        while credit > 0 {
            let count = credit.min(400);
            let lines: Vec<Line> =
                (0..count).map(|n| line(sent + n, PUT, 0, 0, sent + n)).collect();
            assert_eq!(self.send(1, &lines), 0);
            sent += count;
            credit -= count;
            for one in self.received_with_credit(1) {
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
        let is_kept = sent > SLOTS + SLOTS / 2 && sent <= SLOTS + answered;
        assert!(is_kept, "{sent}: the others are kept");
        sent
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
    assert_eq!(flows.memory.used(0), 0);
}

#[test]
fn a_window_is_charged_what_its_commands_may_take() {
    let mut node = node();
    assert_eq!(node.send(1, &[line(0, PUT, 0, 0, 1)]), 0);
    let credit = node.flows.inbound.ends.of(&commands(1)).expect("it is open").sink.credit();
    assert!(credit < ACCESS_BYTES);
    // For each of two ranks, and for the window itself.
    assert_eq!(node.flows.memory.used(0), 3 * ACCESS_BYTES);
    node.flows.close_window(0, PORT);
    assert_eq!(node.flows.memory.used(0), 0);
    // One for no rank of another node counts, too.
    let at = node.window.offset();
    assert_eq!(node.open_window(PORT, at, &[0]), Ok(()));
    assert_eq!(node.flows.memory.used(0), ACCESS_BYTES);
    node.flows.close_window(0, PORT);
    node.flows.close_window(0, PORT);
    assert_eq!(node.flows.memory.used(0), 0);
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
    let mut node = node();
    let sent = [line(0, PUT, 8, 0, 5), line(1, GET, 8, 8, 0)];
    assert_eq!(node.send(1, &sent), 0);
    assert_eq!(node.received(1), [answer(0, DONE), answer(1, DONE)]);
    assert_eq!(node.window.local().get_value::<u64>(8), Ok(5));
    assert!(node.sleeps(), "nothing is left to do");
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
fn a_window_takes_commands_of_the_ranks_it_is_open_for() {
    let mut node = node();
    let put = line(0, PUT, 0, 0, 9);
    let bytes: Vec<u8> = put.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut send = |from: u32, id: FlowId| node.receive(from, id, Content::Data(&bytes));
    assert_eq!(send(2, commands(1)), 1, "rank 1 is on node 1");
    assert_eq!(send(1, commands(4)), 1, "the window is not open for rank 4");
    assert_eq!(send(1, commands(9)), 1, "there is no rank 9");
    assert_eq!(send(0, commands(0)), 1, "rank 0 has the window itself");
    assert_eq!(node.window.local().get_value::<u64>(0), Ok(0));
}

#[test]
fn damaged_commands_end_the_link_of_their_rank_only() {
    let valid = line(0, PUT, 0, 0, 1);
    // A kind that there is not, too many bytes, too long an answer, an element of two sizes.
    let damaged = [
        line(0, 99, 0, 0, 0),
        [0, 0, 0, u64::from(u32::MAX), 0, 0, 0, 0],
        line(0, GET, 0, u64::MAX, 0),
        [0, 0, 0, 5 | 8 << 32, 0, 0, 0, 0],
        [0, 0, 1 << 61, 3 << 32, 0, 0, 0, 0],
    ];
    for line in damaged {
        let mut node = node();
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
    let mut node = node();
    node.send(1, &[line(0, PUT, BYTES - 4, 0, 1), line(1, GET, u64::MAX, 8, 0)]);
    node.send(1, &[line(2, AWAIT, 4, 0, 0), line(3, AWAIT, BYTES, 0, 0), line(4, CANCEL, 0, 0, 0)]);
    let expected = [0, 1, 2, 3].map(|number| answer(number, REFUSED));
    assert_eq!(node.received(1)[..4], expected);
}

#[test]
fn a_rank_that_damages_its_link_again_and_again_is_answered_once() {
    let mut node = node();
    let end = Content::SenderClosed;
    assert_eq!(node.receive(1, commands(1), Content::Data(&[0; 8])), 1);
    assert!(is_end(&node.received(1)));
    for _ in 0..3 {
        assert_eq!(node.receive(1, commands(1), end), 0);
        node.receive(1, commands(1), Content::Data(&[0; 8]));
        assert_eq!(node.received(1), []);
    }
}

#[test]
fn a_rank_that_takes_no_answers_is_answered_as_far_as_its_credit() {
    let mut node = node();
    node.fill_answers();
    assert_eq!(node.send(2, &[line(7, PUT, 0, 0, 1)]), 0);
    assert_eq!(node.received(2), [answer(7, DONE)], "the other one goes on");
    assert_eq!(node.release(1, SLOTS + 1), 1, "more than was sent");
    assert!(node.sleeps(), "nothing can be done");
    assert_eq!(node.release(1, MAX_LINES), 0);
    assert!(matches!(node.received(1)[..], [Received::Answer { .. }, ..]));
}

#[test]
fn commands_without_answers_are_executed_if_the_origin_has_gone() {
    for has_gone in [false, true] {
        let mut node = node();
        let last = node.fill_answers() - 1;
        let before = node.window.local().get_value::<u64>(0).expect("inside");
        assert!(before < last, "the others wait");
        if has_gone {
            node.flows.end(1);
        } else {
            node.flows.close_window(0, PORT);
        }
        node.turn();
        let expected = if has_gone { last } else { before };
        assert_eq!(node.window.local().get_value::<u64>(0), Ok(expected));
    }
}

#[test]
fn a_condition_is_answered_when_a_rank_of_any_node_makes_it_true() {
    let mut node = node();
    let event = Event::new().expect("a descriptor");
    let here = RemoteWindow::connect(node.arena.segment(), node.window.offset()).expect("a window");
    let here = here.beside_node_service(&event);
    let awaits = [line(0, AWAIT, 16, 3, 0), line(1, AWAIT, 24, 1, 0), line(2, AWAIT, 32, 1, 0)];
    assert_eq!(node.send(1, &awaits), 0);
    assert_eq!(node.received(1), []);
    assert!(node.sleeps());
    assert_eq!(node.flows.next_poll(), Some(UNCERTAIN), "the request may be missed");
    here.put_value(16, 2_u64).expect("inside");
    assert!(event.clear(), "a change wakes the agent");
    assert_eq!(node.received(1), []);
    assert!(node.sleeps());
    here.put_value(16, 3_u64).expect("inside");
    assert!(event.clear() && !node.arm());
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
    let mut node = node();
    assert_eq!(node.send(1, &[line(0, AWAIT, 8, 1, 0)]), 0);
    assert_eq!(node.received(1), []);
    // Without space in the queue of the node.
    node.serve_delayed();
    node.flows.end(1);
    assert!(node.sleeps());
}

#[test]
fn a_window_that_is_closed_ends_its_links_and_those_of_late_commands() {
    let mut node = node();
    let put = line(0, PUT, 0, 0, 1);
    assert_eq!(node.send(1, &[put, line(1, AWAIT, 8, 1, 0)]), 0);
    assert_eq!(node.received(1), [answer(0, DONE)]);
    node.flows.close_window(0, PORT);
    assert!(!node.arm() && node.flows.has_unsent());
    assert!(is_end(&node.received(1)));
    assert!(!node.flows.has_unsent());
    // The first command of rank 2.
    assert_eq!(node.send(2, &[put]), 0);
    assert!(!node.arm(), "it is answered in the next turn");
    assert!(is_end(&node.received(2)));
    assert_eq!(node.received(2), []);
    assert!(node.flows.windows.late.is_empty(), "nothing of it is left");
    assert_eq!(node.window.local().get_value::<u64>(0), Ok(1));
}

#[test]
fn late_commands_of_a_node_delay_those_of_no_other_one() {
    let mut node = node();
    node.flows.close_window(0, PORT);
    let bytes = [0; 64];
    let mut send = |from: u32, sender, receiver, number: u64| {
        let id = FlowId { kind: FlowKind::Commands, sender, receiver, port: number << 32 };
        node.receive(from, id, Content::Data(&bytes))
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
    let mut node = node();
    node.flows.close_window(0, PORT);
    let put = line(0, PUT, 0, 0, 1);
    assert_eq!(node.send(1, &[put]), 0);
    // Without space in the queue of the node.
    node.serve_delayed();
    node.flows.exit(0);
    assert_eq!(node.send(1, &[put]), 0);
    node.serve_delayed();
    assert!(!node.flows.has_unsent(), "the report of the exit answers them");
    assert!(node.sleeps());
    assert_eq!(node.received(1), []);
}

/// Ports are consecutive: what is answered by the end of a channel must name that channel only.
#[test]
fn late_values_and_late_answers_close_no_other_channel() {
    let mut node = node();
    let bytes = [0; 64];
    use FlowKind::{Answers, Channel, Commands};
    let from = |kind, port| FlowId { kind, sender: 1, receiver: 0, port };
    // Values on a channel whose receiver has gone, and answers to a rank that has dropped its handle.
    let channels = [PORT - 1, PORT, PORT + 1].map(|port| (Channel, port));
    for (kind, port) in channels.into_iter().chain([(Answers, PORT), (Answers, PORT + 1)]) {
        assert_eq!(node.receive(1, from(kind, port), Content::Data(&bytes)), 0);
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
        assert_eq!(node.receive(1, from(kind, port), Content::SenderClosed), 0);
        let to = FlowId { kind: back, sender: 0, receiver: 1, port };
        assert_eq!(node.receive(1, to, Content::ReceiverClosed), 0);
    }
    node.window.local().put_value(8, 1_u64).expect("inside");
    assert_eq!(node.received(1), [answer(0, DONE)], "the wait goes on");
}

#[test]
fn a_window_of_a_rank_that_has_exited_is_closed() {
    let mut node = node();
    assert_eq!(node.send(1, &[line(0, PUT, 0, 0, 1)]), 0);
    node.received(1);
    node.flows.exit(0);
    assert!(is_end(&node.received(1)));
    // The first command of rank 2 is late. The report of the exit ends its channels.
    assert_eq!(node.send(2, &[line(0, PUT, 0, 0, 1)]), 0);
    assert_eq!(node.received(2), []);
    // Its memory, which the agent has used, is free.
    let WindowNode { window, node: Node { flows, arena, .. } } = node;
    let at = window.offset();
    drop((window, flows));
    assert!(RemoteWindow::connect(arena.segment(), at).is_err());
}

#[test]
fn commands_of_a_killed_rank_are_executed_and_not_answered() {
    let mut node = node();
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
    let end = Content::SenderClosed;
    assert_eq!(node.receive(1, commands(1), end), 0);
    assert_eq!(node.received(1), []);
    assert_eq!(node.window.local().get_value::<u64>(8), Ok(7));
    assert!(!node.flows.inbound.ends.contains(&commands(1)), "the flow has gone");
    assert_eq!(node.flows.outbound.ends.active(), 0, "and waits for nothing");
    // Another handle of the rank begins anew.
    assert_eq!(node.send(1, &[line(4, PUT, 8, 0, 9)]), 0);
    assert_eq!(node.received(1), [answer(4, DONE)]);
    node.flows.lose(2);
    assert!(node.sleeps());
}
