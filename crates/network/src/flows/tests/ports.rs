//! Flows to and from queues.

mod irregular;

use super::{LIMIT, Node, PORT, nodes, of};
use crate::flows::inbound::{Inbound, queue_name};
use crate::flows::memory::END_BYTES;
use crate::flows::ports::NONE;
use crate::flows::{Purpose, Refusal};
use crate::transport::records::flows::{self as record, Content, FlowId, FlowKind};
use queues::cache_line::{CacheLineHeader, CacheLineMessage, CacheLineQueue};
use queues::error::SendError;
use queues::express::{ExpressMessage, ExpressQueue, ExpressReceiver, ExpressSender};
use queues::id::SourceName;
use queues::internode::{QUEUE_CREDIT as CREDIT, outgoing};
use queues::one_poll::PollSet;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use shm::mapped::Mapped;
use shm::segment::Offset;
use shm::sync::AtomicU64;
use std::collections::BTreeSet;

const MEMORY: u64 = Purpose::Queues.limit();
const OWN: (u32, u64) = (0, PORT);
/// The flow from node 0 to the queue of rank 1, and that from node 1 to the queue of rank 0.
const OUT: FlowId = flow(0, 1, PORT);
const IN: FlowId = flow(1, 0, PORT);

/// The flow of an opener to the queue of a rank.
const fn flow(sender: u32, receiver: u32, port: u64) -> FlowId {
    FlowId { kind: FlowKind::Queue, sender, receiver, port }
}

/// A node on which ranks 0, 1 and 2 have a port. Rank 0 has a queue, and a sender to that of rank 1.
struct QueueNode {
    node: Node,
    queue: ExpressQueue,
    receiver: ExpressReceiver,
    sender: ExpressSender,
}

derefs_to_node!(QueueNode);

fn node() -> QueueNode {
    let node = Node::new();
    let queue = ExpressQueue::create(&node.arena, 16, None).expect("memory");
    let receiver = queue.receiver().expect("the first");
    let mut node = QueueNode { node, receiver, sender: queue.sender(), queue };
    let to = node.open(0, PORT, &[0, 1, 2]).expect("it is the first");
    node.sender = to[0].sender();
    node
}

impl QueueNode {
    /// Opens a port of these ranks for a rank of the node, with the node's queue as its own.
    fn open(&mut self, rank: u32, port: u64, ranks: &[u32]) -> Result<Vec<ExpressQueue>, Refusal> {
        let QueueNode { node, queue, .. } = self;
        let set = PollSet::create(&node.arena, ranks.len()).expect("memory");
        let mut to = Vec::new();
        let mut entry = |rank: &u32| {
            if nodes().of(*rank) == Some(0) {
                return (*rank, NONE);
            }
            let member = Some((&set, to.len()));
            let one = ExpressQueue::create(&node.arena, 1 << 14, member).expect("memory");
            to.push(one.clone());
            (*rank, one.offset())
        };
        let ranks: Vec<_> = ranks.iter().map(&mut entry).collect();
        node.open_port((rank, port, queue.offset()), (set.offset(), 0), &ranks)?;
        Ok(to)
    }

    /// Bytes of arrived messages for which the queue has returned no credit.
    fn held(&self) -> u64 {
        self.flows.inbound.ends.of(&queue_name(0, PORT)).map_or(0, Inbound::held)
    }

    fn kept_capacity(&self) -> usize {
        self.flows.inbound.ends.values().map(Inbound::kept_capacity).sum()
    }

    fn set_in_flight(&mut self, id: FlowId, bytes: u64) {
        self.flows.outbound.ends.of_mut(&id).expect("it is open").in_flight = bytes;
    }
}

fn message(number: u64) -> ExpressMessage {
    ExpressMessage::of_number(SourceName::default(), 0, number).expect("five bytes")
}

/// Messages with these numbers, as bytes.
fn numbers(numbers: std::ops::Range<u64>) -> Vec<u8> {
    numbers.flat_map(u64::to_le_bytes).collect()
}

#[test]
fn a_full_queue_takes_the_rest_when_it_has_space() {
    let mut node = node();
    assert_eq!(node.receive(1, IN, Content::Data(&numbers(0..100))), 0);
    assert_eq!(node.receive(1, IN, Content::Data(&numbers(100..4000))), 0);
    assert_eq!(node.receive(1, IN, Content::Data(&numbers(4000..8000))), 0);
    assert_eq!(node.kept_capacity() as u64, CREDIT);
    assert!(node.arm(), "nothing can be delivered");
    for number in 0..8000 {
        let found = node.receiver.try_recv().expect("open").or_else(|| {
            assert!(node.flows.advance());
            node.receiver.try_recv().expect("open")
        });
        assert_eq!(found.map(ExpressMessage::number), Some(number));
    }
    assert!(!node.flows.advance() && node.kept_capacity() == 0);
    assert!(node.turn() && node.arm());
    assert!(node.sent().iter().any(|(id, name, _)| (*id, *name) == (IN, "credit")));
}

#[test]
fn a_queue_without_credit_that_fills_while_its_bit_is_cleared_is_served_later() {
    let mut node = node();
    node.set_in_flight(OUT, CREDIT);
    let QueueNode { node: Node { flows, transport, .. }, sender, .. } = &mut node;
    flows.outbound.first_step(&mut flows.batches, transport, LIMIT, || {
        // The sender has found the bit set. The poll clears it, and checks once more.
        sender.try_send(&message(1)).expect("space");
    });
    assert!(node.arm(), "nothing can be sent");
    assert_eq!(node.receive(1, OUT, Content::Credit(CREDIT)), 0);
    assert!(!node.arm(), "it can be sent");
    assert!(node.turn() && !node.flows.has_unsent());
}

#[test]
fn a_message_behind_an_unpublished_slot_is_sent_without_its_bit() {
    const OTHER: u64 = 6;
    let mut node = node();
    let set = PollSet::create(&node.arena, 1).expect("memory");
    let lines = CacheLineQueue::create(&node.arena, 16, Some((&set, 0))).expect("memory");
    let own = (0, OTHER, node.queue.offset());
    let opened = node.open_port(own, (set.offset(), 0), &[(0, NONE), (2, lines.offset())]);
    assert_eq!(opened, Ok(()));
    let to = flow(0, 2, OTHER);
    node.set_in_flight(to, CREDIT);
    let sender = lines.sender();
    // As a sender that was killed leaves it.
    std::mem::forget(sender.claim(CacheLineHeader::default()).expect("space"));
    sender.try_send(&CacheLineMessage::default()).expect("space");
    assert!(!node.turn() && node.flows.has_unsent());
    assert!(node.arm(), "there is no credit");
    assert_eq!(node.receive(2, to, Content::Credit(CREDIT)), 0);
    let turns = (0..10_000).position(|_| {
        assert!(!node.arm(), "the agent does not sleep");
        node.turn()
    });
    assert!(turns.is_some_and(|turns| turns > 0) && !node.flows.has_unsent());
    assert!(node.arm());
}

#[test]
fn nodes_take_turns_at_a_full_queue() {
    let mut node = node();
    let mut received = [0; 2];
    // As soon as a message of the first node has left, another one follows.
    assert_eq!(node.receive(1, IN, Content::Data(&numbers(0..1024))), 0);
    let second = flow(2, 0, PORT);
    assert_eq!(node.receive(2, second, Content::Data(&numbers(1_000_000..1_000_512))), 0);
    for sent in 1024..2048 {
        let number = node.receiver.try_recv().expect("open").expect("a message").number();
        received[usize::from(number >= 1_000_000)] += 1;
        assert_eq!(node.receive(1, IN, Content::Data(&numbers(sent..sent + 1))), 0);
        // As in a turn of the agent.
        node.flows.advance();
        node.flows.advance();
    }
    assert!(received[1] > 400, "{received:?}");
}

#[test]
fn a_queue_that_has_closed_returns_the_credit() {
    let mut node = node();
    assert_eq!(node.receive(1, IN, Content::Data(&numbers(0..4000))), 0);
    assert!(node.held() > 0);
    node.queue.retire();
    node.flows.advance();
    assert!(node.sent().contains(&(IN, "credit", 4000 * 8)));
    assert_eq!(node.held(), 0);
}

#[test]
fn a_rank_that_opens_the_port_of_another_takes_nothing_from_it() {
    const NEXT: u64 = PORT + 1;
    let mut node = node();
    // Rank 3 is quicker than rank 0, the owner of this port.
    let false_queues = node.open(3, NEXT, &[3, 1, 2]).expect("a name of its own");
    let queues = node.open(0, NEXT, &[0, 1, 2]).expect("the name is not that of rank 3");
    assert_eq!(node.open(3, NEXT, &[3, 1]).err(), Some(Refusal::Taken));
    assert_eq!(node.open(3, NEXT + 1, &[0, 1]).err(), Some(Refusal::Invalid), "no member");
    assert_eq!(node.open(3, NEXT + 1, &[3, 9]).err(), Some(Refusal::Invalid), "no rank");
    queues[0].sender().try_send(&message(1)).expect("space");
    false_queues[0].sender().try_send(&message(2)).expect("space");
    let mut sent = node.sent();
    sent.sort_by_key(|(id, ..)| id.sender);
    let from = |opener| (flow(opener, 1, NEXT), "data", 1);
    assert_eq!(sent, [from(0), from(3)]);
}

#[test]
fn a_queue_admits_the_openers_of_its_port_only() {
    let mut node = node();
    let full = record::MAX_BYTES as u64 / 8;
    // Rank 4 is on node 1, too.
    assert_eq!(node.receive(1, flow(4, 0, PORT), Content::Data(&numbers(0..full))), 1);
    assert_eq!(node.receive(2, IN, Content::Data(&numbers(0..full))), 1, "not the node of rank 1");
    assert_eq!(node.receive(2, IN, Content::SenderClosed), 1);
    assert_eq!(node.receive(2, IN, Content::Exit(1)), 1);
    assert_eq!(node.receive(1, IN, Content::Exit(2)), 1, "not a rank of the node");
    assert_eq!(node.receive(1, IN, Content::Data(&numbers(0..full))), 0);
    assert_eq!(node.receive(1, IN, Content::Data(&numbers(0..full))), 0, "its credit is its own");
    assert_eq!(node.receiver.try_recv().expect("open").map(ExpressMessage::number), Some(0));
}

#[test]
fn a_closed_queue_is_closed_for_the_senders_of_all_nodes() {
    let mut node = node();
    assert_eq!(node.receive(1, IN, Content::Data(&numbers(0..4000))), 0);
    node.flows.close_receiver(0, PORT);
    assert!(node.flows.inbound.ends.values().next().is_none(), "what was kept is released");
    assert_eq!(node.sent().last(), Some(&(IN, "receiver closed", 0)));
    assert_eq!(node.receive(1, IN, Content::Data(&numbers(0..4))), 0, "it was on its way");
    // As the other node receives it.
    assert_eq!(node.receive(2, OUT, Content::ReceiverClosed), 1, "rank 1 is on node 1");
    node.sender.try_send(&message(1)).expect("it is open");
    assert_eq!(node.receive(1, OUT, Content::ReceiverClosed), 0);
    assert_eq!(node.sender.try_send(&message(2)), Err(SendError::Closed));
    assert!(!node.turn() && !node.flows.has_unsent() && node.arm());
}

#[test]
fn queues_without_senders_are_closed_when_everything_was_sent() {
    let mut node = node();
    let both = node.open(0, 7, &[0, 3, 1]).expect("the first");
    assert!(node.open(3, 7, &[0, 3, 1]).is_ok(), "it opens no flow");
    let to = flow(0, 1, 7);
    node.set_in_flight(to, CREDIT);
    both[0].sender().try_send(&message(1)).expect("space");
    node.flows.close_senders(0, 7);
    node.flows.close_senders(3, 7);
    assert_eq!(node.sent(), [], "there is no credit");
    assert!(node.flows.has_unsent());
    assert_eq!(node.receive(1, to, Content::Credit(8)), 0);
    assert_eq!(node.receive(1, to, Content::Credit(CREDIT - 8)), 0);
    assert_eq!(node.sent(), [(to, "data", 1), (to, "sender closed", 0)]);
    assert!(!node.flows.has_unsent());
    assert_eq!(node.receive(1, to, Content::Credit(8)), 0, "credit for the last message");
    node.flows.close_receiver(0, 7);
    node.flows.close_receiver(3, 7);
    assert!(node.open(0, 7, &[0, 3, 1]).is_ok(), "nothing of it is left");
}

#[test]
fn the_exit_of_a_rank_follows_its_messages() {
    let mut node = node();
    node.set_in_flight(OUT, CREDIT);
    (0..3).for_each(|number| node.sender.try_send(&message(number)).expect("space"));
    node.flows.exit(0);
    assert_eq!(node.sent(), [], "there is no credit");
    assert_eq!(node.receive(1, OUT, Content::Credit(1024)), 0);
    assert_eq!(node.sent(), [(OUT, "data", 3), (OUT, "exit", 0), (OUT, "sender closed", 0)]);
}

#[test]
fn a_rank_that_exits_before_the_port_is_open_is_reported() {
    const NEXT: u64 = PORT + 1;
    let mut node = node();
    assert!(node.open(3, NEXT, &[0, 1, 2, 3]).is_ok(), "it opens no flow");
    node.flows.exit(3);
    node.exited = BTreeSet::from([2, 3]);
    let queues = node.open(0, NEXT, &[0, 1, 2, 3]).expect("the first");
    let to = flow(0, 1, NEXT);
    assert!(!node.arm(), "there is something to report");
    assert_eq!(node.sent(), [(to, "exit", 3)]);
    queues[0].sender().try_send(&message(1)).expect("it is open for rank 0");
    assert_eq!(node.sent(), [(to, "data", 1)]);
    node.flows.close_senders(0, NEXT);
    assert_eq!(node.sent(), [(to, "sender closed", 0)], "rank 3 closes nothing any more");
    let own = (0, NEXT);
    assert!(node.flows.has_last_of(own, 2, 2) && !node.flows.has_last_of(own, 1, 1));
}

#[test]
fn an_exit_is_reported_when_the_ring_has_all_messages() {
    let mut node = node();
    assert!(!node.flows.has_last_of(OWN, 1, 1));
    assert_eq!(node.receive(1, IN, Content::Data(&numbers(0..40))), 0);
    assert_eq!(node.receive(1, IN, Content::Exit(1)), 0);
    assert_eq!(node.receive(1, IN, Content::SenderClosed), 0);
    assert_eq!(node.receive(1, IN, Content::Data(&numbers(0..1))), 1, "nothing follows");
    for number in 0..40 {
        assert!(number >= 32 || !node.flows.has_last_of(OWN, 1, 1), "{number}");
        let found = node.receiver.try_recv().expect("open");
        assert_eq!(found.map(ExpressMessage::number), Some(number));
        if number % 16 == 15 {
            node.flows.advance();
        }
    }
    assert!(node.flows.has_last_of(OWN, 1, 1) && !node.flows.has_last_of(OWN, 2, 2));
    // A node that is lost reports nothing.
    assert_eq!(node.receive(2, flow(2, 0, PORT), Content::Data(&numbers(0..40))), 0);
    node.flows.lose(2);
    assert!(!node.flows.has_last_of(OWN, 2, 2));
    while node.receiver.try_recv().expect("open").is_some() {
        node.flows.advance();
    }
    assert!(node.flows.has_last_of(OWN, 2, 2));
}

#[test]
fn the_queues_of_a_rank_take_a_bounded_part_of_the_memory() {
    let mut node = node();
    let mut port = 100;
    // Rank 3 opens no flow to others.
    let mut open = |node: &mut QueueNode| {
        port += 1;
        let own = (3, port, node.queue.offset());
        node.open_port(own, (NONE, 0), &[0, 1, 3].map(|rank| (rank, NONE)))
    };
    let mut opened = 0;
    while open(&mut node) == Ok(()) {
        opened += 1;
    }
    assert_eq!(opened, MEMORY / (CREDIT + 2 * END_BYTES));
    assert_eq!(open(&mut node), Err(Refusal::Memory));
    node.flows.close_receiver(3, 101);
    assert_eq!(open(&mut node), Ok(()));
    assert!(open(&mut node).is_err());
    node.flows.exit(3);
    assert!(open(&mut node).is_ok());
}

/// A node sends a million records that no agent sends, among them whole messages for queues
/// that exist. The memory stays bounded, and a node in order is served.
#[test]
fn a_million_invalid_records_harm_no_other_node() {
    let mut node = node();
    let mut random = SmallRng::seed_from_u64(7);
    let mut refused = 0;
    for _ in 0..1_000_000 {
        let [receiver, sender] = [random.random_range(0..3), random.random_range(0..4)];
        let id = flow(sender, receiver, random.random_range(4..7));
        let mut record = match random.random_range(0..5) {
            0 => of(id, Content::Credit(random.random())),
            1 => of(id, Content::Data(&numbers(0..random.random_range(0..20)))),
            2 => of(id, Content::Exit(random.random_range(0..4))),
            3 => of(id, Content::ReceiverClosed),
            _ => id.head(random.random_range(0..4)).to_vec(),
        };
        if random.random_range(0..4) == 0 {
            let at = random.random_range(0..record.len());
            record[at] ^= 1 << random.random_range(0..8);
        }
        if record::is_valid(&record) {
            refused += node.flows.receive(2, &record);
        } else {
            refused += 1;
        }
    }
    assert!(refused > 200_000, "{refused}");
    assert!(node.kept_capacity() as u64 <= 2 * CREDIT);
    while node.receiver.try_recv().expect("open").is_some() {}
    assert_eq!(node.receive(1, IN, Content::Data(&numbers(1000..1010))), 0);
    let mut ours = Vec::new();
    for _ in 0..40_000 {
        match node.receiver.try_recv().expect("open").map(ExpressMessage::number) {
            Some(number) => ours.extend((1000..1010).contains(&number).then_some(number)),
            None => _ = node.flows.advance(),
        }
    }
    assert!((1000..1010).eq(ours));
    assert_eq!(node.sender.try_send(&message(1)), Ok(()), "rank 1 has not closed its queue");
}
