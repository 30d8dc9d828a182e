//! A router without a node service, its rings and its transport in one thread.

mod windows;

use super::*;
use crate::agent::channels::ANSWERS;
use crate::transport::memory;
use queues::channel::{Channel, Receiver, SendError, Sender};
use queues::error::RecvError;
use shm::arena::Arena;
use shm::segment::Backing;

const LIMIT: u64 = 1 << 20;
const PORT: u64 = 5;
const VALUES: u64 = 1024;

/// A router of node 0 with rank 0; ranks 1 and 2 are on nodes 1 and 2. Rank 0 sends to rank 1 and
/// receives from it.
struct Node {
    router: ChannelRouter,
    transport: memory::Memory,
    segment: Arc<Segment>,
    /// The rings; a program has them in its ends.
    rings: [Channel<u64>; 2],
    sender: Sender<u64>,
    receiver: Receiver<u64>,
}

const TO: ChannelId = ChannelId { sender: 0, receiver: 1, port: PORT };
const FROM: ChannelId = ChannelId { sender: 1, receiver: 0, port: PORT };

fn node() -> Node {
    let mut transport = memory::connect(3).expect("descriptors").remove(0);
    let segment = Arc::new(Segment::create(1 << 20, Backing::Memory).expect("memory"));
    let arena = Arc::new(Arena::new(Arc::clone(&segment), 64..1 << 20).expect("inside"));
    let mut router = ChannelRouter::new(NodeMap::new([0, 1, 2]), &transport);
    let rings = [0; 2].map(|_| Channel::<u64>::create(&arena, VALUES).expect("memory"));
    let [to, from] = [&rings[0], &rings[1]].map(Channel::offset);
    let mut open = |end, at, node| router.open((0, PORT, end), &segment, at, node, &mut transport);
    assert!(open(ChannelEnd::SendsTo(0), to, 0).is_err(), "the ranks are on one node");
    assert!(open(ChannelEnd::SendsTo(1), to, 1).is_ok());
    assert!(open(ChannelEnd::SendsTo(1), to, 1).is_err(), "once");
    assert!(open(ChannelEnd::ReceivesFrom(1), Offset(8), 1).is_err(), "there is none");
    assert!(open(ChannelEnd::ReceivesFrom(1), from, 1).is_ok());
    let sender = Sender::connect(&segment, to).expect("the first");
    let receiver = Receiver::connect(&segment, from).expect("the first");
    Node { router, transport, segment, rings, sender, receiver }
}

impl ChannelRouter {
    /// Returns true if the agent sleeps after at most one turn without anything to do.
    fn sleeps(&mut self, transport: &memory::Memory) -> bool {
        self.arm(transport, LIMIT) || self.arm(transport, LIMIT)
    }
}

/// A record of these values.
fn record(id: ChannelId, values: std::ops::Range<u64>) -> Vec<u8> {
    let bytes: Vec<u8> = values.flat_map(u64::to_le_bytes).collect();
    [&id.head(Content::Values(&bytes))[..], &bytes].concat()
}

#[test]
fn a_channel_sends_as_much_as_it_has_credit_and_then_its_end() {
    let Node { mut router, mut transport, mut sender, receiver: _receiver, .. } = node();
    let slots = router.outgoing.all[0].ring.slots();
    let fill = |sender: &mut Sender<u64>| while sender.try_send(7).is_ok() {};
    fill(&mut sender);
    assert!(!router.arm(&transport, LIMIT), "there is something to send");
    assert!(!router.serve(&mut transport, 0), "the queue of the node is too long");
    assert!(router.serve(&mut transport, LIMIT));
    assert_eq!(router.outgoing.all[0].in_flight, slots);
    fill(&mut sender);
    assert!(!router.serve(&mut transport, LIMIT) && router.sleeps(&transport));
    let credit = |router: &mut ChannelRouter, node, values| {
        router.receive(node, &TO.head(Content::Credit(values)))
    };
    assert_eq!(credit(&mut router, 2, 1), 1, "node 2 has received nothing");
    assert_eq!(credit(&mut router, 1, slots + 1), 1, "more than was sent");
    assert_eq!(credit(&mut router, 1, 4), 0);
    assert!(router.serve(&mut transport, LIMIT));
    drop(sender);
    assert_eq!(credit(&mut router, 1, slots), 0);
    assert!(router.serve(&mut transport, LIMIT));
    assert!(router.outgoing.all.is_empty(), "the end is sent");
    assert_eq!(credit(&mut router, 1, 8), 0, "late credit is harmless");
}

#[test]
fn values_arrive_in_the_ring_and_their_slots_return_as_credit() {
    let Node { mut router, mut transport, mut receiver, sender: _sender, .. } = node();
    assert_eq!(router.receive(2, &record(FROM, 0..1)), 1, "rank 1 is on node 1");
    let mut next = 0;
    for round in 0..20 {
        let values = 100 * round..100 * (round + 1);
        assert_eq!(router.receive(1, &record(FROM, values)), 0);
        while let Ok(value) = receiver.try_recv() {
            assert_eq!(value, next);
            next += 1;
        }
        router.serve(&mut transport, LIMIT);
    }
    assert_eq!(next, 2000);
    assert!(router.incoming.all[0].reported > 1024);
    assert!(transport.queued(1) > 0, "credit returns");
    assert!(router.sleeps(&transport), "nothing is left to do");
    let end = FROM.head(Content::SenderClosed);
    assert_eq!(router.receive(2, &end), 1, "rank 1 is on node 1");
    assert_eq!(router.receive(1, &end), 0);
    assert_eq!(receiver.try_recv(), Err(RecvError::Closed));
    assert_eq!(router.receive(1, &record(FROM, 0..1)), 0, "a channel that has ended");
}

#[test]
fn a_node_that_ignores_credit_ends_its_own_channel() {
    let Node { mut router, mut transport, mut receiver, sender: _sender, .. } = node();
    let slots = router.incoming.all[0].ring.slots();
    assert_eq!(router.receive(1, &record(FROM, 0..slots)), 0);
    assert_eq!(router.receive(1, &record(FROM, 0..1)), 1);
    assert!(!router.arm(&transport, LIMIT), "the end is to be reported");
    assert!(router.serve(&mut transport, LIMIT) && router.incoming.all.is_empty());
    for value in 0..slots {
        assert_eq!(receiver.try_recv(), Ok(value), "what it may send arrives");
    }
    assert_eq!(receiver.try_recv(), Err(RecvError::Closed));
}

/// Rank 0 has opened the channels of a window of rank 1, and has put its first command into the ring,
/// when the report of the exit is processed.
#[test]
fn the_exit_of_the_owner_of_a_window_ends_the_answers_to_a_command_that_is_not_sent() {
    let Node { mut router, mut transport, segment, mut receiver, sender: _sender, rings } = node();
    let arena = Arc::new(Arena::new(Arc::clone(&segment), 1 << 19..1 << 20).expect("inside"));
    let ring = Channel::<u64>::create(&arena, 8).expect("memory");
    let end = ChannelEnd::ReceivesFrom(1);
    let opened = router.open((0, PORT | ANSWERS, end), &segment, ring.offset(), 1, &mut transport);
    assert!(opened.is_ok());
    let mut answers = Receiver::<u64>::connect(&segment, ring.offset()).expect("the first");
    assert_eq!(answers.try_recv(), Err(RecvError::Empty));
    let slots = router.slots[&0];
    router.end(1);
    assert_eq!(answers.try_recv(), Err(RecvError::Closed));
    assert!(router.slots[&0] < slots);
    // Values that it has sent before still arrive.
    assert_eq!(router.receive(1, &record(FROM, 0..1)), 0);
    assert_eq!(receiver.try_recv(), Ok(0));
    drop(rings);
}

#[test]
fn a_receiver_that_closes_its_end_is_reported() {
    let Node { mut router, mut transport, receiver, mut sender, .. } = node();
    assert!(router.sleeps(&transport));
    drop(receiver);
    assert!(!router.arm(&transport, LIMIT), "there is something to do");
    assert!(router.serve(&mut transport, LIMIT) && router.incoming.all.is_empty());
    let closed = TO.head(Content::ReceiverClosed);
    assert_eq!(router.receive(2, &closed), 1, "rank 1 is on node 1");
    assert_eq!(sender.try_send(1), Ok(()));
    assert_eq!(router.receive(1, &closed), 0);
    assert_eq!(sender.try_send(1), Err(SendError::Closed));
}

#[test]
fn what_a_killed_rank_has_stored_is_sent_before_its_end() {
    let Node { mut router, mut transport, mut sender, receiver, .. } = node();
    assert!(router.sleeps(&transport));
    // As if it had been killed before it could notify the agent.
    sender.try_send(3).expect("space");
    std::mem::forget((sender, receiver));
    router.close(0);
    assert!(router.has_unsent() && router.incoming.all.is_empty());
    assert!(router.serve(&mut transport, LIMIT));
    assert!(!router.has_unsent() && router.outgoing.all.is_empty());
    assert!(transport.queued(1) >= 8 + 2 * HEAD_BYTES as u64);
}

#[test]
fn a_lost_node_ends_its_channels_only() {
    let Node { mut router, mut transport, segment, mut sender, mut receiver, rings } = node();
    let arena = Arc::new(Arena::new(Arc::clone(&segment), 1 << 19..1 << 20).expect("inside"));
    let other = Channel::<u32>::create(&arena, 4).expect("memory");
    let end = ChannelEnd::SendsTo(2);
    let opened = router.open((0, PORT, end), &segment, other.offset(), 2, &mut transport);
    assert!(opened.is_ok());
    assert_eq!(router.receive(1, &record(FROM, 0..3)), 0);
    router.end(1);
    router.lose(1);
    assert_eq!(sender.try_send(1), Err(SendError::Closed));
    assert_eq!([0; 3].map(|_| receiver.try_recv().ok()), [Some(0), Some(1), Some(2)]);
    assert_eq!(receiver.try_recv(), Err(RecvError::Closed));
    let mut other = Sender::<u32>::connect(&segment, other.offset()).expect("the first");
    assert_eq!(other.try_send(1), Ok(()));
    assert!(router.serve(&mut transport, LIMIT) && transport.queued(2) > 0);
    drop(rings);
}

#[test]
fn damaged_rings_end_their_channels() {
    let Node { mut router, mut transport, segment, receiver, rings, sender: _sender } = node();
    // A position that no receiver has reached.
    let words = segment.slice_at::<shm::sync::AtomicU64>(rings[1].offset(), 64).expect("inside");
    words.iter().skip(16).for_each(|word| word.store(u64::MAX, shm::sync::Ordering::Relaxed));
    router.receive(1, &record(FROM, 0..3));
    router.serve(&mut transport, LIMIT);
    assert!(router.incoming.all.is_empty());
    drop(receiver);
}

/// Frames that no agent sends, and those of a stranger, change no channel but the named one.
#[test]
fn damaged_frames_harm_nobody() {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};
    let mut random = SmallRng::seed_from_u64(7);
    let Node { mut router, mut transport, mut sender, receiver: _receiver, .. } = node();
    for _ in 0..100_000 {
        let rank = |random: &mut SmallRng| random.random_range(0..4);
        let id = ChannelId {
            sender: rank(&mut random),
            receiver: rank(&mut random),
            port: PORT + random.random_range(0..2),
        };
        let bytes = vec![1; 8 * random.random_range(0..20)];
        let content = match random.random_range(0..4) {
            0 => Content::Values(&bytes),
            1 => Content::Credit(random.random_range(0..1 << 50)),
            2 => Content::SenderClosed,
            _ => Content::ReceiverClosed,
        };
        let mut frame = id.head(content).to_vec();
        if let Content::Values(bytes) = content {
            frame.extend_from_slice(bytes);
        }
        // Node 1 sends none of it: all that is meant for its channels is refused.
        router.receive(2, &frame);
    }
    assert_eq!((router.outgoing.all.len(), router.incoming.all.len()), (1, 1));
    sender.try_send(1).expect("space");
    assert!(router.serve(&mut transport, LIMIT));
}

#[test]
fn the_barrier_waits_for_a_sleep_without_new_requests() {
    let Node { mut router, mut transport, mut sender, receiver: _receiver, .. } = node();
    let refused = (!shm::fence::heavy()).then_some(UNCERTAIN);
    for value in 0..3 {
        assert!(!router.arm(&transport, LIMIT), "a value may be on its way past the request");
        assert!(router.arm(&transport, LIMIT));
        assert_eq!(router.next_look(), Some(UNCERTAIN), "the request may be missed");
        assert!(router.arm(&transport, LIMIT));
        assert_eq!(router.next_look(), refused);
        sender.try_send(value).expect("space");
        assert!(!router.arm(&transport, LIMIT), "there is something to send");
        assert!(router.serve(&mut transport, LIMIT));
    }
}

#[test]
fn a_value_that_passes_a_request_is_found_before_the_sleep() {
    let Node { mut router, mut transport, mut sender, receiver: _receiver, .. } = node();
    assert!(!router.arm(&transport, LIMIT));
    sender.try_send(1).expect("space");
    assert!(!router.arm(&transport, LIMIT), "there is something to send");
    assert!(router.serve(&mut transport, LIMIT));
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
    other.router.arm(&other.transport, LIMIT);
    let changed = words_of(&other).iter().zip(before);
    let place = changed.map(|(word, before)| word.load(Relaxed) != before).position(|is| is);
    let node = node();
    words_of(&node)[place.expect("the agent has requested")].store(255, Relaxed);
    let Node { mut router, mut transport, mut sender, receiver: _receiver, .. } = node;
    for value in 0..3 {
        assert!(router.sleeps(&transport));
        assert_eq!(router.next_look(), Some(UNCERTAIN), "no notification is certain");
        sender.try_send(value).expect("space");
        assert!(!router.arm(&transport, LIMIT), "there is something to send");
        assert!(router.serve(&mut transport, LIMIT));
    }
}
