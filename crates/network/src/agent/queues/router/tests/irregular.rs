//! Damaged queues, bytes that are no messages, and ports with ranks that leave early.

use super::*;
use queues::basic;
use queues::cache_line::CacheLineReceiver;
use shm::mapped::MappedSlice;
use shm::sync::Ordering;

const NEXT: u64 = PORT + 1;
/// The link to the queue of rank 1 for the second port.
const TO: Link = Link { queue: QueueId { owner: 1, port: NEXT }, opener: 0 };
/// Bytes in front of the slots of a queue.
const CONTROL: u64 = 256;
/// A word that no sender and no receiver writes in the first laps of any ring.
const DAMAGE: u64 = 1 << 62 | 7;

/// Overwrites words of the segment.
fn overwrite(node: &Node, at: Offset, step: usize, count: usize) {
    let words = MappedSlice::<AtomicU64>::new(node.arena.segment(), at, step * count);
    let words = words.expect("inside");
    words.iter().step_by(step).for_each(|word| word.store(DAMAGE, Ordering::Relaxed));
}

/// Opens a port of ranks 0 and 1, with one outgoing queue, at an offset.
fn open_at(node: &mut Node, set: &PollSet, at: Offset, lines: u64) {
    let ranks = vec![(0, Offset(0)), (1, at)];
    let table = PortTable { set: set.offset(), lines, ranks }.publish(&node.arena);
    let uses = node.arena.allocate_zeroed(8, 64).expect("memory");
    let table = table.expect("memory");
    let request = PortRequest { port: NEXT, queue: NONE, table, uses };
    let Node { router, arena, transport, .. } = node;
    let none = BTreeSet::new();
    let opened = router.open(0, request, arena.segment(), &nodes(), transport, &none);
    assert_eq!(opened, Ok(()));
}

/// The set is closed, and its links have ended before.
fn assert_ends_once(node: &mut Node) {
    node.router.close_senders(0, NEXT);
    assert_eq!(node.sent(), [], "the link has ended once");
    assert!(!node.router.has_unsent() && node.arm());
    assert!(!node.router.outgoing.contains(0, NEXT), "its memory is released");
}

#[test]
fn a_damaged_express_queue_ends_its_link() {
    for (damaged, word) in [(0, DAMAGE), (1, DAMAGE), (0, 3 << 62), (2, 5)] {
        let mut node = node();
        let to = node.open(0, NEXT, &[0, 1]).expect("the first");
        let sender = to[0].sender();
        (0..4).for_each(|number| sender.try_send(&message(number)).expect("space"));
        let at = Offset(to[0].offset().0 + CONTROL + 8 * damaged);
        let slot = Mapped::<AtomicU64>::new(node.arena.segment(), at).expect("inside");
        slot.store(word, Ordering::Relaxed);
        // What it had sent behind the damage is lost, so its exit must not seem to follow it.
        node.router.exit(0);
        let before = (damaged > 0).then_some((TO, "messages", damaged));
        let expected = before.into_iter().chain([(TO, "end", 0)]);
        let sent = node.sent().into_iter().filter(|(link, ..)| *link == TO);
        assert!(sent.eq(expected), "{damaged} {word:x}");
        assert_eq!(sender.try_send(&message(9)), Err(SendError::Closed));
        assert_ends_once(&mut node);
    }
}

#[test]
fn a_damaged_cache_line_queue_ends_its_link() {
    let mut node = node();
    let set = PollSet::create(&node.arena, 1).expect("memory");
    let lines = CacheLineQueue::create(&node.arena, 16, Some((&set, 0))).expect("memory");
    open_at(&mut node, &set, lines.offset(), 0);
    let sender = lines.sender();
    (0..4).for_each(|_| sender.try_send(&CacheLineMessage::default()).expect("space"));
    overwrite(&node, Offset(lines.offset().0 + CONTROL), 8, 16);
    assert_eq!(node.sent(), [(TO, "end", 0)]);
    assert_eq!(sender.try_send(&CacheLineMessage::default()), Err(SendError::Closed));
    assert_ends_once(&mut node);
}

#[test]
fn a_damaged_basic_ring_ends_its_link() {
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
    assert_eq!(node.sent(), [(TO, "end", 0)]);
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
    node.router.close_senders(0, NEXT);
    assert_eq!(node.sent(), [(TO, "end", 0)]);
    assert_ends_once(&mut node);
}

/// The link from node 1 to the second port of rank 0.
const LINES_IN: Link = Link { queue: QueueId { owner: 0, port: NEXT }, opener: 1 };
/// Messages that the queue of [`open_lines`] holds.
const CAPACITY: usize = 4;

/// Opens a port of ranks 0 and 1 with a cache-line queue of rank 0. Returns its receiver, and a
/// message as bytes.
fn open_lines(node: &mut Node) -> (CacheLineReceiver, Vec<u8>) {
    let queue = CacheLineQueue::create(&node.arena, CAPACITY, None).expect("memory");
    let spare = CacheLineQueue::create(&node.arena, CAPACITY, None).expect("memory");
    let ranks = vec![(0, Offset(0)), (1, Offset(0))];
    let table = PortTable { set: Offset(0), lines: 0, ranks }.publish(&node.arena);
    let uses = node.arena.allocate_zeroed(8, 64).expect("memory");
    let table = table.expect("memory");
    let request = PortRequest { port: NEXT, queue: queue.offset(), table, uses };
    let Node { router, arena, transport, .. } = node;
    let none = BTreeSet::new();
    let opened = router.open(0, request, arena.segment(), &nodes(), transport, &none);
    assert_eq!(opened, Ok(()));
    let message = CacheLineMessage::new(CacheLineHeader::default(), &[1; 48]).expect("48 bytes");
    spare.sender().try_send(&message).expect("space");
    let mut bytes = Vec::new();
    let mut end = outgoing(arena.segment(), spare.offset()).expect("it is there");
    end.take(CREDIT as usize, &mut bytes).expect("open");
    (queue.receiver().expect("the first"), bytes)
}

/// So many messages, and a last one that is cut off.
fn cut_off(message: &[u8], whole: usize) -> Vec<u8> {
    let mut bytes = message.repeat(whole + 1);
    bytes.truncate(bytes.len() - 8);
    record(LINES_IN, Content::Messages(&bytes))
}

fn received(receiver: &mut CacheLineReceiver) -> usize {
    std::iter::from_fn(|| receiver.try_recv().expect("open")).count()
}

#[test]
fn bytes_that_are_no_messages_end_their_link() {
    let mut node = node();
    let (mut receiver, message) = open_lines(&mut node);
    assert_eq!(node.receive(1, &cut_off(&message, 2)), 1, "refused");
    let more = record(LINES_IN, Content::Messages(&message));
    assert_eq!(node.receive(1, &more), 1, "nothing is accepted behind them");
    assert!(node.router.has_last_of(LINES_IN.queue, 1, 1), "and nothing awaited");
    assert_eq!(node.sent(), [(LINES_IN, "closed", 0)], "and no credit returned");
    assert_eq!(received(&mut receiver), 2);
}

#[test]
fn kept_bytes_that_are_no_messages_end_their_link() {
    let mut node = node();
    let (mut receiver, message) = open_lines(&mut node);
    let full = record(LINES_IN, Content::Messages(&message.repeat(CAPACITY + 1)));
    assert_eq!(node.receive(1, &full), 0);
    assert_eq!(node.receive(1, &cut_off(&message, 1)), 0, "they wait for space");
    assert_eq!((received(&mut receiver), node.router.refused()), (CAPACITY, 0));
    assert!(!node.router.has_last_of(LINES_IN.queue, 1, 1));
    assert!(node.router.retry());
    assert_eq!((received(&mut receiver), node.router.refused()), (2, 1));
    assert_eq!(node.router.incoming.kept_capacity(), 0);
    assert!(node.router.has_last_of(LINES_IN.queue, 1, 1));
    assert_eq!(node.sent(), [(LINES_IN, "closed", 0)]);
    assert!(node.arm(), "nothing waits for space");
}

#[test]
fn a_table_with_a_repeated_rank_is_refused() {
    let mut node = node();
    assert_eq!(node.open(0, NEXT, &[0, 1, 2, 1]).err(), Some(Refusal::Invalid));
    assert_eq!(node.open(0, NEXT, &[3, 0, 1, 3]).err(), Some(Refusal::Invalid));
    let to = node.open(0, NEXT, &[3, 2, 0, 1]).expect("in any order");
    to[1].sender().try_send(&message(1)).expect("space");
    assert_eq!(node.sent(), [(TO, "messages", 1)]);
}

#[test]
fn a_rank_that_leaves_a_port_before_it_is_open_sends_nothing_to_it() {
    let mut node = node();
    assert!(node.open(3, NEXT, &[0, 1, 3]).is_ok(), "it opens no link");
    let before = node.router.memory[&3];
    node.router.close_senders(3, NEXT);
    node.router.close_senders(3, NEXT);
    assert_eq!(node.router.memory[&3], before + QUEUE_BYTES, "noted once");
    assert!(node.open(0, NEXT, &[0, 1, 3]).is_ok());
    assert_eq!(node.router.memory[&3], before);
    node.router.close_senders(0, NEXT);
    assert_eq!(node.sent(), [(TO, "end", 0)], "rank 3 has closed its senders, too");
    assert!(!node.router.outgoing.contains(0, NEXT));
    // Notes of ports that are never opened are bounded, and end with the rank.
    (0..2 * MEMORY / QUEUE_BYTES).for_each(|port| node.router.close_senders(3, 100 + port));
    assert!(node.router.memory[&3] <= MEMORY && node.open(3, 9, &[3, 1]).is_err());
    node.router.exit(3);
    assert!(node.router.left.is_empty() && node.open(3, 9, &[3, 1]).is_ok());
}

#[test]
fn an_exit_that_is_reported_before_the_queue_is_open_counts_for_it() {
    let mut node = node();
    let link = Link { queue: QueueId { owner: 0, port: NEXT }, opener: 1 };
    assert_eq!(node.receive(1, &record(link, Content::Exit(4))), 0);
    assert_eq!(node.receive(1, &record(link, Content::Exit(2))), 1, "not a rank of the node");
    // The report of the exit itself is held back, so the router does not get it here.
    assert!(node.open(0, NEXT, &[0, 1, 2, 4]).is_ok());
    let id = link.queue;
    assert!(node.router.has_last_of(id, 1, 4));
    assert!(!node.router.has_last_of(id, 1, 1) && !node.router.has_last_of(id, 2, 2));
}
