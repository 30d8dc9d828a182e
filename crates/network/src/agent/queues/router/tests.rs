//! A router without a node service, its queues and its transport in one thread.

use super::*;
use crate::transport::memory;
use queues::cache_line::{CacheLineHeader, CacheLineMessage, CacheLineQueue};
use queues::express::{ExpressMessage, ExpressQueue, ExpressReceiver, ExpressSender};
use queues::id::SourceName;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use shm::arena::Arena;
use shm::segment::Backing;

const LIMIT: u64 = 1 << 20;
const PORT: u64 = 5;

/// A router of node 0 with rank 0; ranks 1 and 2 are on nodes 1 and 2. Rank 0 has a queue, and
/// a sender to that of rank 1.
struct Node {
    router: QueueRouter,
    transport: memory::Memory,
    queue: ExpressQueue,
    receiver: ExpressReceiver,
    sender: ExpressSender,
}

fn node() -> Node {
    let nodes = NodeMap::new(["a", "b", "c"]);
    let mut transport = memory::connect(3).expect("descriptors").remove(0);
    let segment = Arc::new(Segment::create(1 << 20, Backing::Memory).expect("memory"));
    let arena = Arena::new(Arc::clone(&segment), 64..1 << 20).expect("inside");
    let mut router = QueueRouter::new(3);
    let queue = ExpressQueue::create(&arena, 16, None).expect("memory");
    let own = QueueId { owner: 0, port: PORT };
    assert!(router.open_incoming(own, &segment, queue.offset()).is_ok());
    assert!(router.open_incoming(own, &segment, queue.offset()).is_err(), "once");
    let set = PollSet::create(&arena, 1).expect("memory");
    let to = ExpressQueue::create(&arena, 1 << 14, Some((&set, 0))).expect("memory");
    let table = OutgoingTable { set: set.offset(), queues: vec![(1, to.offset())] };
    let at = table.publish(&arena).expect("memory");
    assert_eq!(OutgoingTable::read(&segment, at, 3), Ok(table));
    let opened = router.open_outgoing(PORT, &segment, at, &nodes, &mut transport);
    assert!(opened.is_ok());
    let to_itself = OutgoingTable { set: set.offset(), queues: vec![(0, to.offset())] };
    let at = to_itself.publish(&arena).expect("memory");
    let refused = router.open_outgoing(PORT, &segment, at, &nodes, &mut transport);
    assert!(refused.is_err(), "a rank of this node needs no way out");
    let receiver = queue.receiver().expect("the first");
    Node { router, transport, queue, receiver, sender: to.sender() }
}

fn message(number: u64) -> ExpressMessage {
    ExpressMessage::of_number(SourceName::default(), 0, number).expect("five bytes")
}

/// A record of messages with these numbers.
fn record(id: QueueId, numbers: std::ops::Range<u64>) -> Vec<u8> {
    let mut record = id.head(8 * (numbers.end - numbers.start) as usize).to_vec();
    numbers.for_each(|number| record.extend(number.to_le_bytes()));
    record
}

#[test]
fn an_outgoing_queue_sends_as_much_as_it_has_credit() {
    let Node { mut router, mut transport, sender, .. } = node();
    let to = QueueId { owner: 1, port: PORT };
    let all = 2 * CREDIT / 8;
    (0..all).for_each(|number| sender.try_send(&message(number)).expect("space"));
    assert!(router.serve(&mut transport, LIMIT));
    let queued = transport.queued(1);
    assert!((CREDIT..CREDIT + 8192).contains(&queued), "{queued}");
    assert!(!router.serve(&mut transport, LIMIT) && router.arm(&mut transport, LIMIT));
    assert!(router.has_unsent());
    assert_eq!(router.receive(2, &to.credit(8)), 1, "node 2 has taken nothing");
    assert_eq!(router.receive(1, &to.credit(CREDIT + 8)), 1, "more than was sent");
    assert_eq!(router.receive(1, &to.credit(CREDIT / 4)), 0);
    assert!(!router.arm(&mut transport, LIMIT), "there is something to send");
    assert!(router.serve(&mut transport, LIMIT));
    assert_eq!(router.receive(1, &to.credit(CREDIT / 2)), 0);
    assert!(!router.serve(&mut transport, 0), "the queue of the node is too long");
    assert!(router.serve(&mut transport, LIMIT));
    assert!(router.has_unsent(), "a quarter is left");
    router.end(1);
    assert!(!router.has_unsent() && !router.serve(&mut transport, LIMIT));
}

#[test]
fn a_full_queue_takes_the_rest_when_it_has_space() {
    let Node { mut router, mut transport, mut receiver, .. } = node();
    let own = QueueId { owner: 0, port: PORT };
    assert_eq!(router.receive(1, &record(own, 0..100)), 0);
    assert_eq!(router.receive(1, &record(own, 100..4000)), 0);
    assert_eq!(router.receive(1, &record(own, 4000..8000)), 0);
    assert_eq!(router.receive(1, &record(own, 0..200)), 1, "more than the credit");
    for number in 0..8000 {
        let found = receiver.try_recv().expect("open").or_else(|| {
            assert!(router.next_retry().is_some() && router.retry());
            receiver.try_recv().expect("open")
        });
        assert_eq!(found.map(ExpressMessage::number), Some(number));
    }
    assert!(!router.retry() && router.next_retry().is_none());
    assert!(router.arm(&mut transport, LIMIT));
    router.serve(&mut transport, LIMIT);
    assert!(transport.queued(1) > 0, "credit returns");
}

/// Serves the only set as far as the given step of a poll.
fn serving(node: &mut Node) -> Serving<'_> {
    let QueueRouter { outgoing, waiting, batches, .. } = &mut node.router;
    let transport = &mut node.transport;
    Serving { outgoing, first: 0, waiting, batches, transport, limit: LIMIT }
}

#[test]
fn a_queue_without_credit_that_fills_while_its_bit_is_cleared_is_served_later() {
    let mut node = node();
    let to = QueueId { owner: 1, port: PORT };
    node.router.outgoing[0].in_flight = CREDIT;
    assert!(serving(&mut node).take(0).is_none(), "it is empty");
    // The sender has found the bit set. The poll clears it, and looks once more.
    node.sender.try_send(&message(1)).expect("space");
    assert!(!serving(&mut node).is_ready(0), "there is no credit");
    node.router.sets.clear();
    assert!(node.router.arm(&mut node.transport, LIMIT), "nothing can be sent");
    assert_eq!(node.router.receive(1, &to.credit(CREDIT)), 0);
    assert!(!node.router.arm(&mut node.transport, LIMIT), "it can be sent");
    assert!(node.router.serve(&mut node.transport, LIMIT) && !node.router.has_unsent());
}

#[test]
fn a_message_behind_an_unpublished_slot_is_sent_without_its_bit() {
    let Node { mut router, mut transport, .. } = node();
    let segment = Arc::new(Segment::create(1 << 20, Backing::Memory).expect("memory"));
    let arena = Arena::new(Arc::clone(&segment), 64..1 << 20).expect("inside");
    let set = PollSet::create(&arena, 1).expect("memory");
    let lines = CacheLineQueue::create(&arena, 16, Some((&set, 0))).expect("memory");
    let queues = vec![(2, lines.offset())];
    let table = OutgoingTable { set: set.offset(), queues };
    let at = table.publish(&arena).expect("memory");
    let nodes = NodeMap::new(["a", "b", "c"]);
    assert!(router.open_outgoing(PORT, &segment, at, &nodes, &mut transport).is_ok());
    let credit = QueueId { owner: 2, port: PORT }.credit(CREDIT);
    router.outgoing[1].in_flight = CREDIT;
    let sender = lines.sender();
    // As a sender that was killed leaves it.
    std::mem::forget(sender.claim(CacheLineHeader::default()).expect("space"));
    sender.try_send(&CacheLineMessage::default()).expect("space");
    assert!(!router.serve(&mut transport, LIMIT) && router.has_unsent());
    router.sets.clear();
    assert!(router.arm(&mut transport, LIMIT), "there is no credit");
    assert_eq!(router.receive(2, &credit), 0);
    let turns = (0..10_000).position(|_| {
        assert!(!router.arm(&mut transport, LIMIT), "the agent does not sleep");
        router.serve(&mut transport, LIMIT)
    });
    assert!(turns.is_some_and(|turns| turns > 0) && !router.has_unsent());
    assert!(router.arm(&mut transport, LIMIT) && router.next_retry().is_none());
}

#[test]
fn nodes_take_turns_at_a_full_queue() {
    let Node { mut router, mut receiver, .. } = node();
    let own = QueueId { owner: 0, port: PORT };
    let mut received = [0; 2];
    // As soon as a message of the first node has left, another one follows.
    assert_eq!(router.receive(1, &record(own, 0..1024)), 0);
    assert_eq!(router.receive(2, &record(own, 1_000_000..1_000_512)), 0);
    for sent in 1024..2048 {
        let number = receiver.try_recv().expect("open").expect("a message").number();
        received[usize::from(number >= 1_000_000)] += 1;
        assert_eq!(router.receive(1, &record(own, sent..sent + 1)), 0);
        router.retry();
    }
    assert!(received[1] > 400, "{received:?}");
}

#[test]
fn a_queue_that_has_closed_returns_the_credit() {
    let Node { mut router, mut transport, queue, .. } = node();
    let own = QueueId { owner: 0, port: PORT };
    assert_eq!(router.receive(1, &record(own, 0..4000)), 0);
    assert!(router.next_retry().is_some());
    queue.retire();
    router.retry();
    assert!(router.next_retry().is_none());
    router.serve(&mut transport, LIMIT);
    assert!(transport.queued(1) > 0, "credit returns");
    assert_eq!(router.receive(1, &record(own, 0..4000)), 1);
    assert_eq!(router.incoming[&own].senders[&1].held, 0);
}

/// A node sends a million records that no agent sends, among them whole messages for queues
/// that exist. The memory stays bounded, and a node in order is served.
#[test]
fn a_million_invalid_records_harm_no_other_node() {
    let Node { mut router, mut receiver, .. } = node();
    let mut random = SmallRng::seed_from_u64(7);
    let own = QueueId { owner: 0, port: PORT };
    let mut refused = 0;
    for _ in 0..1_000_000 {
        let id = QueueId { owner: random.random_range(0..3), port: random.random_range(4..7) };
        let mut record = match random.random_range(0..3) {
            0 => id.credit(random.random()).to_vec(),
            1 => record(id, 0..random.random_range(0..20)),
            _ => id.head(random.random_range(0..4)).to_vec(),
        };
        if random.random_range(0..4) == 0 {
            let at = random.random_range(0..record.len());
            record[at] ^= 1 << random.random_range(0..8);
        }
        if record::is_valid(&record) {
            refused += router.receive(2, &record);
        } else {
            refused += 1;
        }
    }
    assert!(refused > 500_000, "{refused}");
    let kept: usize = router
        .incoming
        .values()
        .flat_map(|one| one.senders.values())
        .map(|sender| sender.kept.len())
        .sum();
    assert!(kept as u64 <= 2 * CREDIT, "{kept}");
    while receiver.try_recv().expect("open").is_some() {}
    assert_eq!(router.receive(1, &record(own, 1000..1010)), 0);
    let mut ours = Vec::new();
    for _ in 0..40_000 {
        match receiver.try_recv().expect("open").map(ExpressMessage::number) {
            Some(number) => ours.extend((1000..1010).contains(&number).then_some(number)),
            None => _ = router.retry(),
        }
    }
    assert!((1000..1010).eq(ours));
}
