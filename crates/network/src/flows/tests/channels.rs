//! Flows to and from channels.

use super::{LIMIT, PORT, of};
use crate::flows::marks::MarkLine;
use crate::flows::router::{TURNS, UNCERTAIN};
use crate::flows::{ANSWERS, ChannelEnd, Flows, Refusal};
use crate::node_map::NodeMap;
use crate::transport::records::flows::{Content, FlowId, FlowKind, HEAD_BYTES};
use crate::transport::{Transport, memory};
use queues::channel::{Channel, OtherNode, Receiver, SendError, Sender};
use queues::error::RecvError;
use queues::remote_waits::RemoteWaits;
use shm::arena::Arena;
use shm::event::Event;
use shm::liveness::{PeerExit, RankLiveness};
use shm::mapped::Mapped;
use shm::segment::{Backing, Offset, Segment};
use std::sync::Arc;

const VALUES: u64 = 1024;

/// The flows of node 0 with rank 0; ranks 1 and 2 are on nodes 1 and 2. Rank 0 sends to rank 1 and
/// receives from it.
struct Node {
    flows: Flows,
    transport: memory::Memory,
    segment: Arc<Segment>,
    /// The rings; a program has them in its ends.
    rings: [Channel<u64>; 2],
    sender: Sender<u64>,
    receiver: Receiver<u64>,
}

const TO: FlowId = FlowId { kind: FlowKind::Channel, sender: 0, receiver: 1, port: PORT };
const FROM: FlowId = FlowId { kind: FlowKind::Channel, sender: 1, receiver: 0, port: PORT };

fn node() -> Node {
    let mut transport = memory::connect(3).expect("descriptors").remove(0);
    let segment = Arc::new(Segment::create(1 << 20, Backing::Memory).expect("memory"));
    let arena = Arc::new(Arena::new(Arc::clone(&segment), 64..1 << 20).expect("inside"));
    let mut flows = Flows::new(NodeMap::new([0, 1, 2]), &transport);
    let rings = [0; 2].map(|_| Channel::<u64>::create(&arena, VALUES).expect("memory"));
    let [to, from] = [&rings[0], &rings[1]].map(Channel::offset);
    let mut open = |end, at| flows.open_channel((0, PORT, end), &segment, at, &mut transport);
    let invalid = Err(Refusal::Invalid);
    assert_eq!(open(ChannelEnd::SendsTo(0), to), invalid, "the ranks are on one node");
    assert_eq!(open(ChannelEnd::SendsTo(1), to), Ok(()));
    assert_eq!(open(ChannelEnd::SendsTo(1), to), Err(Refusal::Taken));
    assert_eq!(open(ChannelEnd::ReceivesFrom(1), Offset(8)), invalid, "there is none");
    assert_eq!(open(ChannelEnd::ReceivesFrom(1), from), Ok(()));
    let sender = Sender::connect(&segment, to).expect("the first");
    let receiver = Receiver::connect(&segment, from).expect("the first");
    Node { flows, transport, segment, rings, sender, receiver }
}

impl Flows {
    /// Returns true if the agent sleeps after at most one turn without anything to do.
    pub(super) fn sleeps(&mut self, transport: &mut memory::Memory) -> bool {
        self.arm(transport, LIMIT) || self.arm(transport, LIMIT)
    }
}

/// A record of these values.
fn record(id: FlowId, values: std::ops::Range<u64>) -> Vec<u8> {
    let bytes: Vec<u8> = values.flat_map(u64::to_le_bytes).collect();
    of(id, Content::Data(&bytes))
}

#[test]
fn values_arrive_in_the_ring_and_their_slots_return_as_credit() {
    let Node { mut flows, mut transport, mut receiver, sender: _sender, .. } = node();
    assert_eq!(flows.receive(2, &record(FROM, 0..1)), 1, "rank 1 is on node 1");
    let mut next = 0;
    for round in 0..20 {
        let values = 100 * round..100 * (round + 1);
        assert_eq!(flows.receive(1, &record(FROM, values)), 0);
        while let Ok(value) = receiver.try_recv() {
            assert_eq!(value, next);
            next += 1;
        }
        flows.serve(&mut transport, LIMIT);
    }
    assert_eq!(next, 2000);
    assert!(transport.queued(1) > 0, "credit returns");
    assert!(flows.sleeps(&mut transport), "nothing is left to do");
    let end = of(FROM, Content::SenderClosed);
    assert_eq!(flows.receive(2, &end), 1, "rank 1 is on node 1");
    assert_eq!(flows.receive(1, &end), 0);
    assert_eq!(receiver.try_recv(), Err(RecvError::Closed));
    assert_eq!(flows.receive(1, &record(FROM, 0..1)), 0, "a channel that has ended");
}

/// Rank 0 has opened the channels of a window of rank 1, and has put its first command into the ring,
/// when the report of the exit is processed.
#[test]
fn the_exit_of_the_owner_of_a_window_ends_the_answers_to_a_command_that_is_not_sent() {
    let Node { mut flows, mut transport, segment, mut receiver, sender: _sender, rings } = node();
    let arena = Arc::new(Arena::new(Arc::clone(&segment), 1 << 19..1 << 20).expect("inside"));
    let ring = Channel::<u64>::create(&arena, 8).expect("memory");
    let end = ChannelEnd::ReceivesFrom(1);
    let opened =
        flows.open_channel((0, PORT | ANSWERS, end), &segment, ring.offset(), &mut transport);
    assert!(opened.is_ok());
    let mut answers = Receiver::<u64>::connect(&segment, ring.offset()).expect("the first");
    assert_eq!(answers.try_recv(), Err(RecvError::Empty));
    let used = flows.memory.used(0);
    flows.end(1);
    assert_eq!(answers.try_recv(), Err(RecvError::Closed));
    assert!(flows.memory.used(0) < used);
    // Values that it has sent before still arrive.
    assert_eq!(flows.receive(1, &record(FROM, 0..1)), 0);
    assert_eq!(receiver.try_recv(), Ok(0));
    drop(rings);
}

#[test]
fn a_receiver_that_closes_its_end_is_reported() {
    let Node { mut flows, mut transport, receiver, mut sender, .. } = node();
    assert!(flows.sleeps(&mut transport));
    drop(receiver);
    assert!(!flows.arm(&mut transport, LIMIT), "there is something to do");
    assert!(flows.serve(&mut transport, LIMIT) && !flows.inbound.contains(&FROM));
    let closed = of(TO, Content::ReceiverClosed);
    assert_eq!(flows.receive(2, &closed), 1, "rank 1 is on node 1");
    assert_eq!(sender.try_send(1), Ok(()));
    assert_eq!(flows.receive(1, &closed), 0);
    assert_eq!(sender.try_send(1), Err(SendError::Closed));
}

#[test]
fn what_a_killed_rank_has_stored_is_sent_before_its_end() {
    let Node { mut flows, mut transport, mut sender, receiver, .. } = node();
    assert!(flows.sleeps(&mut transport));
    // As if it had been killed before it could notify the agent.
    sender.try_send(3).expect("space");
    std::mem::forget((sender, receiver));
    flows.exit(0);
    assert!(flows.has_unsent() && !flows.inbound.contains(&FROM));
    assert!(flows.serve(&mut transport, LIMIT));
    assert!(!flows.has_unsent() && !flows.outbound.contains(&TO));
    assert!(transport.queued(1) >= 8 + 2 * HEAD_BYTES as u64);
}

#[test]
fn a_lost_node_ends_its_channels_only() {
    let Node { mut flows, mut transport, segment, mut sender, mut receiver, rings } = node();
    let arena = Arc::new(Arena::new(Arc::clone(&segment), 1 << 19..1 << 20).expect("inside"));
    let other = Channel::<u32>::create(&arena, 4).expect("memory");
    let end = ChannelEnd::SendsTo(2);
    let opened = flows.open_channel((0, PORT, end), &segment, other.offset(), &mut transport);
    assert!(opened.is_ok());
    assert_eq!(flows.receive(1, &record(FROM, 0..3)), 0);
    flows.end(1);
    flows.lose(1);
    assert_eq!(sender.try_send(1), Err(SendError::Closed));
    assert_eq!([0; 3].map(|_| receiver.try_recv().ok()), [Some(0), Some(1), Some(2)]);
    assert_eq!(receiver.try_recv(), Err(RecvError::Closed));
    let mut other = Sender::<u32>::connect(&segment, other.offset()).expect("the first");
    assert_eq!(other.try_send(1), Ok(()));
    assert!(flows.serve(&mut transport, LIMIT) && transport.queued(2) > 0);
    drop(rings);
}

#[test]
fn damaged_rings_end_their_channels() {
    let Node { mut flows, mut transport, segment, receiver, rings, sender: _sender } = node();
    // A position that no receiver has reached.
    let words = segment.slice_at::<shm::sync::AtomicU64>(rings[1].offset(), 64).expect("inside");
    words.iter().skip(16).for_each(|word| word.store(u64::MAX, shm::sync::Ordering::Relaxed));
    flows.receive(1, &record(FROM, 0..3));
    flows.serve(&mut transport, LIMIT);
    assert!(!flows.inbound.contains(&FROM));
    drop(receiver);
}

/// Frames that no agent sends, and those of a stranger, change no channel but the named one.
#[test]
fn damaged_frames_harm_nobody() {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};
    let mut random = SmallRng::seed_from_u64(7);
    let Node { mut flows, mut transport, mut sender, receiver: _receiver, .. } = node();
    for _ in 0..100_000 {
        let rank = |random: &mut SmallRng| random.random_range(0..4);
        let id = FlowId {
            kind: FlowKind::Channel,
            sender: rank(&mut random),
            receiver: rank(&mut random),
            port: PORT + random.random_range(0..2),
        };
        let bytes = vec![1; 8 * random.random_range(0..20)];
        let content = match random.random_range(0..4) {
            0 => Content::Data(&bytes),
            1 => Content::Credit(random.random_range(0..1 << 45)),
            2 => Content::SenderClosed,
            _ => Content::ReceiverClosed,
        };
        // Node 1 sends none of it: all that is meant for its channels is refused.
        flows.receive(2, &of(id, content));
    }
    assert!(flows.outbound.contains(&TO) && flows.inbound.contains(&FROM));
    sender.try_send(1).expect("space");
    assert!(flows.serve(&mut transport, LIMIT));
}

#[test]
fn the_barrier_waits_for_a_sleep_without_new_requests() {
    let Node { mut flows, mut transport, mut sender, receiver: _receiver, .. } = node();
    let refused = (!shm::fence::heavy()).then_some(UNCERTAIN);
    for value in 0..3 {
        assert!(!flows.arm(&mut transport, LIMIT), "a value may be on its way past the request");
        assert!(flows.arm(&mut transport, LIMIT));
        assert_eq!(flows.next_look(), Some(UNCERTAIN), "the request may be missed");
        assert!(flows.arm(&mut transport, LIMIT));
        assert_eq!(flows.next_look(), refused);
        sender.try_send(value).expect("space");
        assert!(!flows.arm(&mut transport, LIMIT), "there is something to send");
        assert!(flows.serve(&mut transport, LIMIT));
    }
}

#[test]
fn a_value_that_passes_a_request_is_found_before_the_sleep() {
    let Node { mut flows, mut transport, mut sender, receiver: _receiver, .. } = node();
    assert!(!flows.arm(&mut transport, LIMIT));
    sender.try_send(1).expect("space");
    assert!(!flows.arm(&mut transport, LIMIT), "there is something to send");
    assert!(flows.serve(&mut transport, LIMIT));
}

/// Words of the ring of the sender, which a rank can write to.
fn words_of(node: &Node) -> &[shm::sync::AtomicU32] {
    node.segment.slice_at(node.rings[0].offset(), 128).expect("inside")
}

#[test]
fn a_word_without_space_for_a_request_hides_no_value_and_keeps_no_agent_awake() {
    use shm::sync::Ordering::Relaxed;
    // The word is the one that a request changes.
    let mut other = node();
    let before: Vec<u32> = words_of(&other).iter().map(|word| word.load(Relaxed)).collect();
    other.flows.arm(&mut other.transport, LIMIT);
    let changed = words_of(&other).iter().zip(before);
    let place = changed.map(|(word, before)| word.load(Relaxed) != before).position(|is| is);
    let node = node();
    words_of(&node)[place.expect("the agent has requested")].store(255, Relaxed);
    let Node { mut flows, mut transport, mut sender, receiver: _receiver, .. } = node;
    for value in 0..3 {
        assert!(flows.sleeps(&mut transport));
        assert_eq!(flows.next_look(), Some(UNCERTAIN), "no notification is certain");
        sender.try_send(value).expect("space");
        assert!(!flows.arm(&mut transport, LIMIT), "there is something to send");
        assert!(flows.serve(&mut transport, LIMIT));
    }
}

/// Rank 0 has many channels to rank 1, and those from there. After a while nobody looks at them.
#[test]
fn channels_without_traffic_cost_no_turn() {
    const CHANNELS: u64 = 10_000;
    let mut transport = memory::connect(3).expect("descriptors").remove(0);
    let segment = Arc::new(Segment::create(64 << 20, Backing::Memory).expect("memory"));
    let arena = Arc::new(Arena::new(Arc::clone(&segment), 64..64 << 20).expect("inside"));
    let mut flows = Flows::new(NodeMap::new([0, 1, 2]), &transport);
    let marks = Mapped::<MarkLine>::new(&segment, Offset(0)).expect("inside");
    flows.join(0, marks.clone());
    let event = Event::new().expect("a descriptor");
    let waits = Arc::new(Marks(marks));
    let other = OtherNode { service: event.clone(), waits, peer: Arc::new(Lives) };
    let mut ends = Vec::new();
    for port in 0..CHANNELS {
        let rings = [0; 2].map(|_| Channel::<u64>::create(&arena, 16).expect("memory"));
        let [to, from] = [ChannelEnd::SendsTo(1), ChannelEnd::ReceivesFrom(1)];
        for (end, ring) in [to, from].into_iter().zip(&rings) {
            let name = (0, port, end);
            assert_eq!(flows.open_channel(name, &segment, ring.offset(), &mut transport), Ok(()));
        }
        let [to, from] = rings;
        let receiver = from.receiver_from(other.clone()).expect("the first");
        ends.push((to.sender_to(other.clone()).expect("the first"), receiver, from));
    }
    let turn = |flows: &mut Flows, transport: &mut memory::Memory| {
        let had_any = flows.advance();
        flows.serve(transport, LIMIT) || had_any
    };
    let active = |flows: &Flows| flows.outbound.active() + flows.inbound.active();
    // In sleeps, and in an agent that does not sleep.
    if !shm::fence::heavy() {
        return;
    }
    for is_busy in [false, true] {
        let from = FlowId { sender: 1, receiver: 0, port: 7, ..TO };
        for (sender, ..) in &mut ends[..9] {
            sender.try_send(3).expect("space");
        }
        assert_eq!(flows.receive(1, &record(from, 0..8)), 0);
        assert!(turn(&mut flows, &mut transport), "something is sent");
        if is_busy {
            (0..2 * TURNS).for_each(|_| _ = turn(&mut flows, &mut transport));
        } else {
            assert!((0..4).any(|_| flows.arm(&mut transport, LIMIT)));
            assert!(
                (0..4).any(|_| flows.arm(&mut transport, LIMIT) && flows.next_look().is_none())
            );
        }
        assert_eq!(active(&flows), 0, "{is_busy}");
        event.clear();
        ends[5000].0.try_send(5).expect("space");
        assert!(event.clear(), "the agent is woken");
        assert!(turn(&mut flows, &mut transport), "the value is sent");
        assert!(active(&flows) < 2 * CHANNELS as usize / 100, "{} are awake", active(&flows));
        // A receiver that releases slots, and one that closes its end.
        let (_, receiver, _) = &mut ends[7];
        while receiver.try_recv().is_ok() {}
        assert!(turn(&mut flows, &mut transport), "credit is returned");
        let (_, receiver, _) = ends.swap_remove(9000);
        drop(receiver);
        assert!(turn(&mut flows, &mut transport), "the end is reported");
    }
    flows.exit(0);
    assert!(turn(&mut flows, &mut transport) && !flows.has_unsent());
}

/// Marks of a rank.
#[derive(Debug)]
struct Marks(Mapped<MarkLine>);

impl RemoteWaits for Marks {
    fn begin(&self) {}

    fn end(&self) {}

    fn set_polling(&self, _: bool) {}

    fn shares_core(&self) -> bool {
        false
    }

    fn mark(&self, at: Offset) {
        self.0.set(at);
    }
}

/// A peer that does not fail.
#[derive(Debug)]
struct Lives;

impl RankLiveness for Lives {
    fn exited(&self) -> Option<PeerExit> {
        None
    }
}
