//! Damaged queues, bytes that are no messages, and ports with ranks that leave early.

use super::*;
use queues::basic;
use queues::cache_line::CacheLineReceiver;
use shm::mapped::MappedSlice;
use shm::sync::Ordering;

const NEXT: u64 = PORT + 1;
/// The flow to the queue of rank 1 for the second port.
const TO: FlowId = flow(0, 1, NEXT);
/// Bytes in front of the slots of a queue.
const CONTROL: u64 = 256;
/// A word that no sender and no receiver writes in the first laps of any ring.
const DAMAGE: u64 = 1 << 62 | 7;

/// Overwrites words of the segment.
fn overwrite(node: &QueueNode, at: Offset, step: usize, count: usize) {
    let words = MappedSlice::<AtomicU64>::new(node.arena.segment(), at, step * count);
    let words = words.expect("inside");
    words.iter().step_by(step).for_each(|word| word.store(DAMAGE, Ordering::Relaxed));
}

/// Opens a port of ranks 0 and 1, with one outgoing queue, at an offset.
fn open_at(node: &mut QueueNode, set: &PollSet, at: Offset, lines: u64) {
    let opened = node.open_port((0, NEXT, NONE), (set.offset(), lines), &[(0, NONE), (1, at)]);
    assert_eq!(opened, Ok(()));
}

/// The set is closed, and its flows have ended before.
fn assert_ends_once(node: &mut QueueNode) {
    node.flows.close_senders(0, NEXT);
    assert_eq!(node.sent(), [], "the flow has ended once");
    assert!(!node.flows.has_unsent() && node.arm());
    assert!(!node.flows.outbound.has_set(0, NEXT), "its memory is released");
}

#[test]
fn a_damaged_express_queue_ends_its_flow() {
    for (damaged, word) in [(0, DAMAGE), (1, DAMAGE), (0, 3 << 62), (2, 5)] {
        let mut node = node();
        let to = node.open(0, NEXT, &[0, 1]).expect("the first");
        let sender = to[0].sender();
        (0..4).for_each(|number| sender.try_send(&message(number)).expect("space"));
        let at = Offset(to[0].offset().0 + CONTROL + 8 * damaged);
        let slot = Mapped::<AtomicU64>::new(node.arena.segment(), at).expect("inside");
        slot.store(word, Ordering::Relaxed);
        // What it had sent behind the damage is lost, so its exit must not seem to follow it.
        node.flows.exit(0);
        let before = (damaged > 0).then_some((TO, "data", damaged));
        let expected = before.into_iter().chain([(TO, "sender closed", 0)]);
        let sent = node.sent().into_iter().filter(|(id, ..)| *id == TO);
        assert!(sent.eq(expected), "{damaged} {word:x}");
        assert_eq!(sender.try_send(&message(9)), Err(SendError::Closed));
        assert_ends_once(&mut node);
    }
}

#[test]
fn a_damaged_cache_line_queue_ends_its_flow() {
    let mut node = node();
    let set = PollSet::create(&node.arena, 1).expect("memory");
    let lines = CacheLineQueue::create(&node.arena, 16, Some((&set, 0))).expect("memory");
    open_at(&mut node, &set, lines.offset(), 0);
    let sender = lines.sender();
    (0..4).for_each(|_| sender.try_send(&CacheLineMessage::default()).expect("space"));
    overwrite(&node, Offset(lines.offset().0 + CONTROL), 8, 16);
    assert_eq!(node.sent(), [(TO, "sender closed", 0)]);
    assert_eq!(sender.try_send(&CacheLineMessage::default()), Err(SendError::Closed));
    assert_ends_once(&mut node);
}

#[test]
fn a_damaged_basic_ring_ends_its_flow() {
    const LINES: u64 = 16;
    let mut node = node();
    let set = PollSet::create(&node.arena, 1).expect("memory");
    let bytes = basic::bytes_for(LINES).expect("a power of two");
    let at = node.arena.allocate_zeroed(bytes, 128).expect("memory");
    open_at(&mut node, &set, at, LINES);
    let mut sender = basic::Sender::connect(node.arena.segment(), at, LINES).expect("it is there");
    sender.send(Default::default(), b"lost").expect("space");
    let lines = bytes - LINES * 64;
    overwrite(&node, Offset(at.0 + lines), 8, LINES as usize);
    assert_eq!(node.sent(), [(TO, "sender closed", 0)]);
    // It finds out when it looks for space.
    let late = (0..=LINES).find_map(|_| sender.send(Default::default(), b"late").err());
    assert_eq!(late, Some(SendError::Closed));
    assert_ends_once(&mut node);
}

#[test]
fn damage_that_no_message_announces_is_found_when_the_ranks_leave() {
    let mut node = node();
    let to = node.open(0, NEXT, &[0, 1]).expect("the first");
    overwrite(&node, Offset(to[0].offset().0 + CONTROL), 1, 1);
    assert_eq!(node.sent(), [], "nothing was sent");
    node.flows.close_senders(0, NEXT);
    assert_eq!(node.sent(), [(TO, "sender closed", 0)]);
    assert_ends_once(&mut node);
}

/// The flow from node 1 to the second port of rank 0.
const LINES_IN: FlowId = flow(1, 0, NEXT);
/// Messages that the queue of [`open_lines`] holds.
const CAPACITY: usize = 4;

/// Opens a port of ranks 0 and 1 with a cache-line queue of rank 0. Returns its receiver, and a
/// message as bytes.
fn open_lines(node: &mut QueueNode) -> (CacheLineReceiver, Vec<u8>) {
    let queue = CacheLineQueue::create(&node.arena, CAPACITY, None).expect("memory");
    let spare = CacheLineQueue::create(&node.arena, CAPACITY, None).expect("memory");
    let own = (0, NEXT, queue.offset());
    assert_eq!(node.open_port(own, (NONE, 0), &[(0, NONE), (1, NONE)]), Ok(()));
    let message = CacheLineMessage::new(CacheLineHeader::default(), &[1; 48]).expect("48 bytes");
    spare.sender().try_send(&message).expect("space");
    let mut bytes = Vec::new();
    let mut end = outgoing(node.arena.segment(), spare.offset()).expect("it is there");
    end.take(CREDIT as usize, &mut bytes).expect("open");
    (queue.receiver().expect("the first"), bytes)
}

fn received(receiver: &mut CacheLineReceiver) -> usize {
    std::iter::from_fn(|| receiver.try_recv().expect("open")).count()
}

#[test]
fn kept_bytes_that_are_no_messages_end_their_flow() {
    let mut node = node();
    let (mut receiver, message) = open_lines(&mut node);
    let full = message.repeat(CAPACITY + 1);
    assert_eq!(node.receive(1, LINES_IN, Content::Data(&full)), 0);
    let cut_off = &full[..2 * message.len() - 8];
    assert_eq!(node.receive(1, LINES_IN, Content::Data(cut_off)), 0, "they wait for space");
    assert_eq!((received(&mut receiver), node.flows.refused()), (CAPACITY, 0));
    assert!(!node.flows.has_last_of((0, NEXT), 1, 1));
    assert!(node.flows.advance());
    assert_eq!((received(&mut receiver), node.flows.refused()), (2, 1));
    assert_eq!(node.kept_capacity(), 0);
    assert!(node.flows.has_last_of((0, NEXT), 1, 1));
    assert_eq!(node.sent(), [(LINES_IN, "receiver closed", 0)]);
    assert!(node.arm(), "nothing waits for space");
}

#[test]
fn a_table_with_a_repeated_rank_is_refused() {
    let mut node = node();
    assert_eq!(node.open(0, NEXT, &[0, 1, 2, 1]).err(), Some(Refusal::Invalid));
    assert_eq!(node.open(0, NEXT, &[3, 0, 1, 3]).err(), Some(Refusal::Invalid));
    let to = node.open(0, NEXT, &[3, 2, 0, 1]).expect("in any order");
    to[1].sender().try_send(&message(1)).expect("space");
    assert_eq!(node.sent(), [(TO, "data", 1)]);
}

#[test]
fn a_rank_that_leaves_a_port_before_it_is_open_sends_nothing_to_it() {
    let mut node = node();
    assert!(node.open(3, NEXT, &[0, 1, 3]).is_ok(), "it opens no flow");
    let before = node.flows.memory.used(3);
    node.flows.close_senders(3, NEXT);
    node.flows.close_senders(3, NEXT);
    assert_eq!(node.flows.memory.used(3), before + END_BYTES, "noted once");
    assert!(node.open(0, NEXT, &[0, 1, 3]).is_ok());
    assert_eq!(node.flows.memory.used(3), before);
    node.flows.close_senders(0, NEXT);
    assert_eq!(node.sent(), [(TO, "sender closed", 0)], "rank 3 has closed its senders, too");
    assert!(!node.flows.outbound.has_set(0, NEXT));
    // Notes of ports that are never opened are bounded, and end with the rank.
    (0..2 * MEMORY / END_BYTES).for_each(|port| node.flows.close_senders(3, 100 + port));
    assert!(node.flows.memory.used(3) <= MEMORY && node.open(3, 9, &[3, 1]).is_err());
    node.flows.exit(3);
    assert!(node.flows.left.is_empty() && node.open(3, 9, &[3, 1]).is_ok());
}

#[test]
fn an_exit_that_is_reported_before_the_queue_is_open_counts_for_it() {
    let mut node = node();
    let id = flow(1, 0, NEXT);
    assert_eq!(node.receive(1, id, Content::Exit(4)), 0);
    assert_eq!(node.receive(1, id, Content::Exit(2)), 1, "not a rank of the node");
    // The report of the exit itself is held back, so the flows do not get it here.
    assert!(node.open(0, NEXT, &[0, 1, 2, 4]).is_ok());
    let queue = (0, NEXT);
    assert!(node.flows.has_last_of(queue, 1, 4));
    assert!(!node.flows.has_last_of(queue, 1, 1) && !node.flows.has_last_of(queue, 2, 2));
}
