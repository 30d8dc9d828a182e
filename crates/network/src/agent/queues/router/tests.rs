//! A router without a node service, its queues and its transport in one thread.

mod irregular;

use super::*;
use crate::transport::payloads::NoPayloads;
use crate::transport::{Arrival, memory};
use queues::cache_line::{CacheLineHeader, CacheLineMessage, CacheLineQueue};
use queues::error::SendError;
use queues::express::{ExpressMessage, ExpressQueue, ExpressReceiver, ExpressSender};
use queues::id::SourceName;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use shm::arena::Arena;
use shm::segment::Backing;

const LIMIT: u64 = 1 << 20;
const PORT: u64 = 5;
const OWN: QueueId = QueueId { owner: 0, port: PORT };
/// The link from node 0 to the queue of rank 1, and that from node 1 to the queue of rank 0.
const OUT: Link = Link { queue: QueueId { owner: 1, port: PORT }, opener: 0 };
const IN: Link = Link { queue: OWN, opener: 1 };

fn nodes() -> NodeMap {
    NodeMap::new(["a", "b", "c", "a", "b"])
}

/// A router of node 0 with ranks 0 and 3; ranks 1 and 4 are on node 1, rank 2 on node 2. Ranks 0,
/// 1 and 2 have a port. Rank 0 has a queue, and a sender to that of rank 1.
struct Node {
    router: QueueRouter,
    transport: memory::Memory,
    other: memory::Memory,
    _third: memory::Memory,
    arena: Arena,
    queue: ExpressQueue,
    receiver: ExpressReceiver,
    sender: ExpressSender,
    exited: BTreeSet<u32>,
}

fn node() -> Node {
    let mut transports = memory::connect(3).expect("descriptors");
    let third = transports.remove(2);
    let other = transports.remove(1);
    let segment = Arc::new(Segment::create(4 << 20, Backing::Memory).expect("memory"));
    let arena = Arena::new(segment, 64..4 << 20).expect("inside");
    let queue = ExpressQueue::create(&arena, 16, None).expect("memory");
    let mut node = Node {
        router: QueueRouter::new(3),
        transport: transports.remove(0),
        other,
        _third: third,
        receiver: queue.receiver().expect("the first"),
        sender: queue.sender(),
        queue,
        arena,
        exited: BTreeSet::new(),
    };
    let to = node.open(0, PORT, &[0, 1, 2]).expect("it is the first");
    node.sender = to[0].sender();
    node
}

impl Node {
    /// Opens a port of these ranks for a rank of the node, with the node's queue as its own.
    fn open(&mut self, rank: u32, port: u64, ranks: &[u32]) -> Result<Vec<ExpressQueue>, Refusal> {
        let Node { router, transport, arena, queue, exited, .. } = self;
        let set = PollSet::create(arena, ranks.len()).expect("memory");
        let mut to = Vec::new();
        let mut entry = |rank: &u32| {
            if nodes().of(*rank) == Some(0) {
                return (*rank, Offset(0));
            }
            let one = ExpressQueue::create(arena, 1 << 14, Some((&set, to.len()))).expect("memory");
            to.push(one.clone());
            (*rank, one.offset())
        };
        let ranks = ranks.iter().map(&mut entry).collect();
        let table = PortTable { set: set.offset(), lines: 0, ranks };
        let at = table.publish(arena).expect("memory");
        assert_eq!(PortTable::read(arena.segment(), at, 5), Ok(table));
        let uses = arena.allocate_zeroed(8, 64).expect("memory");
        let request = PortRequest { port, queue: queue.offset(), table: at, uses };
        router.open(rank, request, arena.segment(), &nodes(), transport, exited)?;
        Ok(to)
    }

    fn receive(&mut self, node: u32, record: &[u8]) -> u64 {
        self.router.receive(node, record, &nodes())
    }

    fn serve(&mut self) -> bool {
        self.router.serve(&mut self.transport, LIMIT)
    }

    fn arm(&mut self) -> bool {
        self.router.arm(&mut self.transport, LIMIT)
    }

    /// Returns the records that were sent to node 1, each as its link, its kind, and its number of
    /// messages, its rank or its credit.
    fn sent(&mut self) -> Vec<(Link, &'static str, u64)> {
        self.serve();
        self.transport.flush(&mut NoPayloads);
        let mut arrivals = Vec::new();
        self.other.poll(&mut NoPayloads, &mut arrivals).expect("it works");
        let mut all = Vec::new();
        for arrival in arrivals {
            let Arrival::Frame { frame: Frame::Queues { records }, .. } = arrival else {
                panic!("{arrival:?}");
            };
            let mut rest = &records[..];
            while let Some((link, content, behind)) = record::split_first(rest) {
                let (name, word) = match content {
                    Content::Messages(bytes) => ("messages", bytes.len() as u64 / 8),
                    Content::Exit(rank) => ("exit", rank.into()),
                    Content::End => ("end", 0),
                    Content::Credit(bytes) => ("credit", bytes),
                    Content::Closed => ("closed", 0),
                };
                all.push((link, name, word));
                rest = behind;
            }
        }
        all
    }
}

fn message(number: u64) -> ExpressMessage {
    ExpressMessage::of_number(SourceName::default(), 0, number).expect("five bytes")
}

fn record(link: Link, content: Content<'_>) -> Vec<u8> {
    let mut record = Vec::new();
    link.append(content, &mut record);
    record
}

/// A record of messages with these numbers.
fn numbers(link: Link, numbers: std::ops::Range<u64>) -> Vec<u8> {
    let bytes: Vec<u8> = numbers.flat_map(u64::to_le_bytes).collect();
    record(link, Content::Messages(&bytes))
}

fn credit(link: Link, bytes: u64) -> Vec<u8> {
    record(link, Content::Credit(bytes))
}

#[test]
fn an_outgoing_queue_sends_as_much_as_it_has_credit() {
    let mut node = node();
    let all = 2 * CREDIT / 8;
    (0..all).for_each(|number| node.sender.try_send(&message(number)).expect("space"));
    assert!(node.serve());
    let queued = node.transport.queued(1);
    assert!((CREDIT..CREDIT + 8192).contains(&queued), "{queued}");
    assert!(!node.serve() && node.arm());
    assert!(node.router.has_unsent());
    assert_eq!(node.receive(2, &credit(OUT, 8)), 1, "node 2 has taken nothing");
    assert_eq!(node.receive(1, &credit(OUT, CREDIT + 8)), 1, "more than was sent");
    assert_eq!(node.receive(1, &credit(OUT, CREDIT / 4)), 0);
    assert!(!node.arm(), "there is something to send");
    assert!(node.serve());
    assert_eq!(node.receive(1, &credit(OUT, CREDIT / 2)), 0);
    assert!(!node.router.serve(&mut node.transport, 0), "the queue of the node is too long");
    assert!(node.serve());
    assert!(node.router.has_unsent(), "a quarter is left");
    node.router.end(1);
    assert!(!node.router.has_unsent() && !node.serve());
}

#[test]
fn a_full_queue_takes_the_rest_when_it_has_space() {
    let mut node = node();
    assert_eq!(node.receive(1, &numbers(IN, 0..100)), 0);
    assert_eq!(node.receive(1, &numbers(IN, 100..4000)), 0);
    assert_eq!(node.receive(1, &numbers(IN, 4000..8000)), 0);
    assert_eq!(node.receive(1, &numbers(IN, 0..200)), 1, "more than the credit");
    assert_eq!(node.router.incoming.kept_capacity() as u64, CREDIT);
    assert!(node.arm(), "nothing can be delivered");
    for number in 0..8000 {
        let found = node.receiver.try_recv().expect("open").or_else(|| {
            assert!(node.router.retry());
            node.receiver.try_recv().expect("open")
        });
        assert_eq!(found.map(ExpressMessage::number), Some(number));
    }
    assert!(!node.router.retry() && node.router.incoming.kept_capacity() == 0);
    assert!(node.arm());
    assert!(node.sent().iter().any(|(link, name, _)| (*link, *name) == (IN, "credit")));
}

#[test]
fn a_queue_without_credit_that_fills_while_its_bit_is_cleared_is_served_later() {
    let mut node = node();
    node.router.outgoing.queue(OUT).in_flight = CREDIT;
    let Node { router, transport, sender, .. } = &mut node;
    router.outgoing.first_step(&mut router.batches, transport, LIMIT, || {
        // The sender has found the bit set. The poll clears it, and looks once more.
        sender.try_send(&message(1)).expect("space");
    });
    assert!(node.arm(), "nothing can be sent");
    assert_eq!(node.receive(1, &credit(OUT, CREDIT)), 0);
    assert!(!node.arm(), "it can be sent");
    assert!(node.serve() && !node.router.has_unsent());
}

#[test]
fn a_message_behind_an_unpublished_slot_is_sent_without_its_bit() {
    const OTHER: u64 = 6;
    let mut node = node();
    let set = PollSet::create(&node.arena, 1).expect("memory");
    let lines = CacheLineQueue::create(&node.arena, 16, Some((&set, 0))).expect("memory");
    let ranks = vec![(0, Offset(0)), (2, lines.offset())];
    let table =
        PortTable { set: set.offset(), lines: 0, ranks }.publish(&node.arena).expect("memory");
    let uses = node.arena.allocate_zeroed(8, 64).expect("memory");
    let request = PortRequest { port: OTHER, queue: node.queue.offset(), table, uses };
    let Node { router, arena, transport, .. } = &mut node;
    assert_eq!(
        router.open(0, request, arena.segment(), &nodes(), transport, &BTreeSet::new()),
        Ok(())
    );
    let to = Link { queue: QueueId { owner: 2, port: OTHER }, opener: 0 };
    router.outgoing.queue(to).in_flight = CREDIT;
    let sender = lines.sender();
    // As a sender that was killed leaves it.
    std::mem::forget(sender.claim(CacheLineHeader::default()).expect("space"));
    sender.try_send(&CacheLineMessage::default()).expect("space");
    assert!(!node.serve() && node.router.has_unsent());
    assert!(node.arm(), "there is no credit");
    assert_eq!(node.receive(2, &credit(to, CREDIT)), 0);
    let turns = (0..10_000).position(|_| {
        assert!(!node.arm(), "the agent does not sleep");
        node.serve()
    });
    assert!(turns.is_some_and(|turns| turns > 0) && !node.router.has_unsent());
    assert!(node.arm());
}

#[test]
fn nodes_take_turns_at_a_full_queue() {
    let mut node = node();
    let mut received = [0; 2];
    // As soon as a message of the first node has left, another one follows.
    assert_eq!(node.receive(1, &numbers(IN, 0..1024)), 0);
    let second = Link { opener: 2, ..IN };
    assert_eq!(node.receive(2, &numbers(second, 1_000_000..1_000_512)), 0);
    for sent in 1024..2048 {
        let number = node.receiver.try_recv().expect("open").expect("a message").number();
        received[usize::from(number >= 1_000_000)] += 1;
        assert_eq!(node.receive(1, &numbers(IN, sent..sent + 1)), 0);
        node.router.retry();
    }
    assert!(received[1] > 400, "{received:?}");
}

#[test]
fn a_queue_that_has_closed_returns_the_credit() {
    let mut node = node();
    assert_eq!(node.receive(1, &numbers(IN, 0..4000)), 0);
    assert!(node.router.incoming.held(OWN) > 0);
    node.queue.retire();
    node.router.retry();
    assert!(node.sent().contains(&(IN, "credit", 4000 * 8)));
    assert_eq!(node.router.incoming.held(OWN), 0);
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
    let id = QueueId { owner: 1, port: NEXT };
    let mut sent = node.sent();
    sent.sort_by_key(|(link, ..)| link.opener);
    let from = |opener| (Link { queue: id, opener }, "messages", 1);
    assert_eq!(sent, [from(0), from(3)]);
}

#[test]
fn a_queue_admits_the_openers_of_its_port_only() {
    let mut node = node();
    let full = record::MAX_BYTES as u64 / 8;
    // Rank 4 is on node 1, too.
    assert_eq!(node.receive(1, &numbers(Link { opener: 4, ..IN }, 0..full)), 1);
    assert_eq!(node.receive(2, &numbers(IN, 0..full)), 1, "not the node of rank 1");
    assert_eq!(node.receive(2, &record(IN, Content::End)), 1);
    assert_eq!(node.receive(2, &record(IN, Content::Exit(1))), 1);
    assert_eq!(node.receive(1, &record(IN, Content::Exit(2))), 1, "not a rank of the node");
    assert_eq!(node.receive(1, &numbers(IN, 0..full)), 0);
    assert_eq!(node.receive(1, &numbers(IN, 0..full)), 0, "its credit is its own");
    assert_eq!(node.receiver.try_recv().expect("open").map(ExpressMessage::number), Some(0));
}

#[test]
fn a_closed_queue_is_closed_for_the_senders_of_all_nodes() {
    let mut node = node();
    assert_eq!(node.receive(1, &numbers(IN, 0..4000)), 0);
    node.router.close_receiver(0, PORT);
    assert!(node.router.incoming.is_empty(), "what was kept is released");
    assert_eq!(node.sent().last(), Some(&(IN, "closed", 0)));
    assert_eq!(node.receive(1, &numbers(IN, 0..4)), 0, "it was on its way");
    // As the other node receives it.
    assert_eq!(node.receive(2, &record(OUT, Content::Closed)), 1, "rank 1 is on node 1");
    node.sender.try_send(&message(1)).expect("it is open");
    assert_eq!(node.receive(1, &record(OUT, Content::Closed)), 0);
    assert_eq!(node.sender.try_send(&message(2)), Err(SendError::Closed));
    assert!(!node.serve() && !node.router.has_unsent() && node.arm());
}

#[test]
fn queues_without_senders_are_closed_when_everything_was_sent() {
    let mut node = node();
    let both = node.open(0, 7, &[0, 3, 1]).expect("the first");
    assert!(node.open(3, 7, &[0, 3, 1]).is_ok(), "it opens no link");
    let to = Link { queue: QueueId { owner: 1, port: 7 }, opener: 0 };
    node.router.outgoing.queue(to).in_flight = CREDIT;
    both[0].sender().try_send(&message(1)).expect("space");
    node.router.close_senders(0, 7);
    node.router.close_senders(3, 7);
    assert_eq!(node.sent(), [], "there is no credit");
    assert!(node.router.has_unsent());
    assert_eq!(node.receive(1, &credit(to, 8)), 0);
    assert_eq!(node.receive(1, &credit(to, CREDIT - 8)), 0);
    assert_eq!(node.sent(), [(to, "messages", 1), (to, "end", 0)]);
    assert!(!node.router.has_unsent());
    assert_eq!(node.receive(1, &credit(to, 8)), 0, "credit for the last message");
    node.router.close_receiver(0, 7);
    node.router.close_receiver(3, 7);
    assert!(node.open(0, 7, &[0, 3, 1]).is_ok(), "nothing of it is left");
}

#[test]
fn the_exit_of_a_rank_follows_its_messages() {
    let mut node = node();
    node.router.outgoing.queue(OUT).in_flight = CREDIT;
    (0..3).for_each(|number| node.sender.try_send(&message(number)).expect("space"));
    node.router.exit(0);
    assert_eq!(node.sent(), [], "there is no credit");
    assert_eq!(node.receive(1, &credit(OUT, 1024)), 0);
    assert_eq!(node.sent(), [(OUT, "messages", 3), (OUT, "exit", 0), (OUT, "end", 0)]);
}

#[test]
fn a_rank_that_exits_before_the_port_is_open_is_reported() {
    const NEXT: u64 = PORT + 1;
    let mut node = node();
    assert!(node.open(3, NEXT, &[0, 1, 2, 3]).is_ok(), "it opens no link");
    node.router.exit(3);
    node.exited = BTreeSet::from([2, 3]);
    let queues = node.open(0, NEXT, &[0, 1, 2, 3]).expect("the first");
    let to = Link { queue: QueueId { owner: 1, port: NEXT }, opener: 0 };
    assert!(!node.arm(), "there is something to report");
    assert_eq!(node.sent(), [(to, "exit", 3)]);
    queues[0].sender().try_send(&message(1)).expect("it is open for rank 0");
    assert_eq!(node.sent(), [(to, "messages", 1)]);
    node.router.close_senders(0, NEXT);
    assert_eq!(node.sent(), [(to, "end", 0)], "rank 3 closes nothing any more");
    let own = QueueId { owner: 0, port: NEXT };
    assert!(node.router.has_last_of(own, 2, 2) && !node.router.has_last_of(own, 1, 1));
}

#[test]
fn an_exit_is_reported_when_the_ring_has_all_messages() {
    let mut node = node();
    assert!(!node.router.has_last_of(OWN, 1, 1));
    assert_eq!(node.receive(1, &numbers(IN, 0..40)), 0);
    assert_eq!(node.receive(1, &record(IN, Content::Exit(1))), 0);
    assert_eq!(node.receive(1, &record(IN, Content::End)), 0);
    assert_eq!(node.receive(1, &numbers(IN, 0..1)), 1, "nothing follows");
    for number in 0..40 {
        assert!(number >= 32 || !node.router.has_last_of(OWN, 1, 1), "{number}");
        let found = node.receiver.try_recv().expect("open");
        assert_eq!(found.map(ExpressMessage::number), Some(number));
        if number % 16 == 15 {
            node.router.retry();
        }
    }
    assert!(node.router.has_last_of(OWN, 1, 1) && !node.router.has_last_of(OWN, 2, 2));
    // A node that is lost reports nothing.
    assert_eq!(node.receive(2, &numbers(Link { opener: 2, ..IN }, 0..40)), 0);
    node.router.lose(2);
    assert!(!node.router.has_last_of(OWN, 2, 2));
    while node.receiver.try_recv().expect("open").is_some() {
        node.router.retry();
    }
    assert!(node.router.has_last_of(OWN, 2, 2));
}

#[test]
fn the_queues_of_a_rank_take_a_bounded_part_of_the_memory() {
    let mut node = node();
    let uses = node.arena.allocate_zeroed(8, 64).expect("memory");
    let ranks = [0, 1, 3].map(|rank| (rank, Offset(0))).to_vec();
    let table = PortTable { set: Offset(0), lines: 0, ranks }.publish(&node.arena).expect("memory");
    let mut request = PortRequest { port: 100, queue: node.queue.offset(), table, uses };
    let mut opened = 0;
    let Node { router, arena, transport, .. } = &mut node;
    // Rank 3 opens no link to others.
    let mut open = |router: &mut QueueRouter| {
        request.port += 1;
        router.open(3, request, arena.segment(), &nodes(), transport, &BTreeSet::new())
    };
    while open(router) == Ok(()) {
        opened += 1;
    }
    assert_eq!(opened, MEMORY / (CREDIT + 2 * QUEUE_BYTES));
    assert_eq!(open(router), Err(Refusal::Memory));
    router.close_receiver(3, 101);
    assert_eq!(open(router), Ok(()));
    assert!(open(router).is_err());
    router.exit(3);
    assert!(open(router).is_ok());
}

/// A node sends a million records that no agent sends, among them whole messages for queues
/// that exist. The memory stays bounded, and a node in order is served.
#[test]
fn a_million_invalid_records_harm_no_other_node() {
    let mut node = node();
    let mut random = SmallRng::seed_from_u64(7);
    let mut refused = 0;
    for _ in 0..1_000_000 {
        let queue = QueueId { owner: random.random_range(0..3), port: random.random_range(4..7) };
        let link = Link { queue, opener: random.random_range(0..4) };
        let mut record = match random.random_range(0..5) {
            0 => credit(link, random.random()),
            1 => numbers(link, 0..random.random_range(0..20)),
            2 => record(link, Content::Exit(random.random_range(0..4))),
            3 => record(link, Content::Closed),
            _ => link.head(random.random_range(0..4)).to_vec(),
        };
        if random.random_range(0..4) == 0 {
            let at = random.random_range(0..record.len());
            record[at] ^= 1 << random.random_range(0..8);
        }
        if record::is_valid(&record) {
            refused += node.receive(2, &record);
        } else {
            refused += 1;
        }
    }
    assert!(refused > 200_000, "{refused}");
    assert!(node.router.incoming.kept_capacity() as u64 <= 2 * CREDIT);
    while node.receiver.try_recv().expect("open").is_some() {}
    assert_eq!(node.receive(1, &numbers(IN, 1000..1010)), 0);
    let mut ours = Vec::new();
    for _ in 0..40_000 {
        match node.receiver.try_recv().expect("open").map(ExpressMessage::number) {
            Some(number) => ours.extend((1000..1010).contains(&number).then_some(number)),
            None => _ = node.router.retry(),
        }
    }
    assert!((1000..1010).eq(ours));
    assert_eq!(node.sender.try_send(&message(1)), Ok(()), "rank 1 has not closed its queue");
}
