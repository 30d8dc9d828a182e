//! Receive queues: order during promotions and demotions, full queues, classes, and the cost of
//! senders.
#![allow(clippy::unwrap_used)]

mod failures;

use std::sync::Arc;
use std::thread;

use proptest::prelude::*;
use queues::cache_line::{CacheLineHeader, CacheLineMessage};
use queues::error::CreateError;
use queues::id::SourceName;
use queues::queue::SendError;
use queues::receive_queues::{
    Class, Event, Notify, QueueSender, QueuesConfig, ReceiveQueues, RemoteQueues,
};
use shm::arena::Arena;
use shm::segment::{Backing, Offset, Segment};

testing::tests![
    order_is_kept_while_queues_are_promoted_and_demoted,
    one_sender_keeps_its_order_in_every_state,
    a_full_queue_stops_its_own_senders_only,
    replies_overtake_full_request_queues,
    a_busy_queue_becomes_resident_and_displaces_an_idle_one,
    ten_thousand_open_senders_cost_less_than_four_mebibytes,
    errors_name_their_reason,
    memory_is_freed_when_no_process_can_access_it,
    queues_with_all_their_rings_fit_into_max_bytes,
    the_polls_of_a_receive_do_not_depend_on_the_number_of_queues,
    the_event_is_notified_of_an_arrival_and_of_a_half_full_ring,
];

fn arena(bytes: u64) -> Arc<Arena> {
    let segment = Arc::new(Segment::create(bytes, Backing::Memory).expect("memory"));
    Arc::new(Arena::new(segment, 0..bytes).expect("the whole segment"))
}

fn create(config: QueuesConfig) -> (ReceiveQueues, Arc<RemoteQueues>) {
    let arena = arena(4 << 20);
    let queues = ReceiveQueues::create(&arena, config).expect("memory");
    let remote = RemoteQueues::connect(arena.segment(), queues.offset()).expect("it is there");
    (queues, Arc::new(remote))
}

fn tiny() -> QueuesConfig {
    QueuesConfig { queues: 8, rings: 2, ring_capacity: 2, non_resident_capacity: 4, quota: 3 }
}

fn message(source: usize, number: u64) -> CacheLineMessage {
    let source = SourceName::new(source as u16).expect("few of them");
    let header = CacheLineHeader { source, handler: 0, tag: 0 };
    CacheLineMessage::new(header, &number.to_le_bytes()).expect("eight bytes")
}

fn number(message: &CacheLineMessage) -> u64 {
    u64::from_le_bytes(message.data().try_into().expect("eight bytes"))
}

fn fill(target: &mut QueueSender) -> u64 {
    (0..)
        .find(|number| target.try_send(&message(1, *number)) == Err(SendError::Full))
        .expect("it is bounded")
}

/// Every sender sends to all queues in turn; each queue has to deliver its messages in order.
fn exchange(senders: usize, count: u64, steps: &[(u8, u8)]) {
    let config = tiny();
    let (mut queues, remote) = create(config);
    let class = |queue: usize| if queue.is_multiple_of(2) { Class::Request } else { Class::Reply };
    thread::scope(|scope| {
        for sender in 0..senders {
            let remote = &remote;
            scope.spawn(move || {
                let open = |queue| remote.open(queue, class(queue)).expect("it exists");
                let mut outgoing: Vec<_> = (0..config.queues).map(open).collect();
                for number in 0..count {
                    for target in &mut outgoing {
                        target.send(&message(sender, number)).expect("still open");
                    }
                }
            });
        }
        let mut next = vec![vec![0; senders]; config.queues];
        let mut steps = steps.iter().cycle();
        for _ in 0..count * (senders * config.queues) as u64 {
            let (what, queue) = steps.next().expect("there are some");
            let queue = usize::from(*queue) % config.queues;
            match what % 4 {
                0 => drop(queues.promote(queue, class(queue))),
                1 => queues.demote(queue, class(queue)).expect("intact"),
                _ => {}
            }
            let mut received = None;
            if what % 8 > 3 {
                let one = queues.try_recv(queue, class(queue)).expect("intact");
                received = one.map(|message| (queue, message));
            }
            let (queue, message) = received.unwrap_or_else(|| {
                let received = queues.recv_any().expect("intact");
                assert_eq!(received.class, class(received.queue));
                (received.queue, received.message)
            });
            assert_eq!(usize::from(message.header().tag), queue);
            let expected = &mut next[queue][usize::from(message.header().source.number())];
            assert_eq!(number(&message), *expected, "queue {queue}");
            *expected += 1;
        }
        assert!(next.iter().flatten().all(|received| *received == count));
        assert_eq!(queues.try_recv_any().expect("intact"), None);
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    fn order_is_kept_while_queues_are_promoted_and_demoted(
        senders in 2usize..=4,
        steps in prop::collection::vec((any::<u8>(), any::<u8>()), 1..200),
    ) {
        exchange(senders, 60, &steps);
    }
}

fn one_sender_keeps_its_order_in_every_state() {
    let (mut queues, remote) = create(tiny());
    let mut target = remote.open(3, Class::Request).unwrap();
    let (mut sent, mut received) = (0, 0);
    for round in 0..2000 {
        match round % 7 {
            0 => drop(queues.promote(3, Class::Request)),
            5 => queues.demote(3, Class::Request).unwrap(),
            2 => drop(queues.try_recv(4, Class::Request).unwrap()),
            _ => {}
        }
        for _ in 0..round % 5 {
            sent += u64::from(target.try_send(&message(1, sent)).is_ok());
        }
        for _ in 0..round % 3 {
            if let Some(message) = queues.try_recv(3, Class::Request).unwrap() {
                assert_eq!(number(&message), received);
                received += 1;
            }
        }
    }
    while let Some(message) = queues.try_recv(3, Class::Request).unwrap() {
        assert_eq!(number(&message), received);
        received += 1;
    }
    assert_eq!(received, sent);
    assert!(sent > 1000);
}

fn a_full_queue_stops_its_own_senders_only() {
    let config = tiny();
    let (mut queues, remote) = create(config);
    let (mut full, mut other) =
        (remote.open(0, Class::Request).unwrap(), remote.open(1, Class::Request).unwrap());
    let mut sent = 0;
    loop {
        let more = fill_from(&mut full, sent);
        // Sorts the non-resident queue.
        assert_eq!(queues.try_recv(1, Class::Request), Ok(None));
        if more == sent {
            break;
        }
        sent = more;
    }
    assert!(queues.overflow(0, Class::Request) >= config.quota);
    assert!(sent <= (config.quota + config.non_resident_capacity) as u64);
    for number in 0..100 {
        assert_eq!(full.try_send(&message(1, sent)), Err(SendError::Full));
        other.try_send(&message(1, number)).unwrap();
        let received = queues.try_recv(1, Class::Request).unwrap().expect("just sent");
        assert_eq!(self::number(&received), number);
    }
    for expected in 0..sent {
        let received = queues.try_recv(0, Class::Request).unwrap().expect("it was sent");
        assert_eq!(number(&received), expected);
    }
    full.try_send(&message(1, sent)).unwrap();
}

fn fill_from(target: &mut QueueSender, first: u64) -> u64 {
    (first..).find(|number| target.try_send(&message(1, *number)).is_err()).expect("it is bounded")
}

fn replies_overtake_full_request_queues() {
    let (mut queues, remote) = create(tiny());
    let mut request = remote.open(0, Class::Request).unwrap();
    let mut reply = remote.open(0, Class::Reply).unwrap();
    // The non-resident queue is full: nothing was sorted.
    assert_eq!(fill(&mut request), tiny().non_resident_capacity as u64);
    for number in 0..100 {
        reply.try_send(&message(2, number)).unwrap();
        let received = queues.try_recv_any().unwrap().expect("just sent");
        assert_eq!((received.class, self::number(&received.message)), (Class::Reply, number));
        fill(&mut request);
    }
}

fn a_busy_queue_becomes_resident_and_displaces_an_idle_one() {
    let (mut queues, remote) = create(QueuesConfig { rings: 1, ..QueuesConfig::default() });
    for queue in [500, 20] {
        let mut target = remote.open(queue, Class::Request).unwrap();
        for number in 0..100 {
            target.try_send(&message(1, number)).unwrap();
            let received = queues.recv(queue, Class::Request).unwrap();
            assert_eq!(self::number(&received), number);
        }
        if queue == 500 {
            assert!(queues.is_resident(500, Class::Request));
        }
    }
    assert!(
        !queues.is_resident(20, Class::Request) || !queues.is_resident(500, Class::Request),
        "there is one ring"
    );
    let mut target = remote.open(20, Class::Request).unwrap();
    for number in 0..300 {
        target.try_send(&message(1, number)).unwrap();
        queues.recv(20, Class::Request).unwrap();
    }
    assert!(queues.is_resident(20, Class::Request) && !queues.is_resident(500, Class::Request));
}

fn ten_thousand_open_senders_cost_less_than_four_mebibytes() {
    let (mut queues, remote) = create(QueuesConfig::default());
    let mut open: Vec<_> =
        (0..10_000).map(|index| remote.open(index % 512, Class::Request).unwrap()).collect();
    assert!(size_of::<QueueSender>() <= 32);
    assert!(open.capacity() * size_of::<QueueSender>() < 4 << 20);
    for (index, target) in open.iter_mut().enumerate() {
        target.try_send(&message(1, index as u64)).unwrap();
        let received = queues.try_recv_any().unwrap().expect("just sent");
        assert_eq!((received.queue, number(&received.message)), (index % 512, index as u64));
    }
}

fn errors_name_their_reason() {
    let (queues, remote) = create(tiny());
    assert!(matches!(
        remote.open(8, Class::Reply),
        Err(CreateError::NoIndex { index: 8, count: 8, .. })
    ));
    let elsewhere = arena(1 << 20);
    let nothing = RemoteQueues::connect(elsewhere.segment(), Offset(0));
    assert!(matches!(nothing, Err(CreateError::NotFound { .. })));
    assert!(matches!(
        ReceiveQueues::create(&elsewhere, QueuesConfig { quota: 0, ..tiny() }),
        Err(CreateError::Size { .. })
    ));
    let mut target = remote.open(0, Class::Request).unwrap();
    drop(queues);
    assert_eq!(target.try_send(&message(1, 0)), Err(SendError::Closed));
    assert_eq!(target.send(&message(1, 0)), Err(SendError::Closed));
}

fn memory_is_freed_when_no_process_can_access_it() {
    let arena = arena(4 << 20);
    let config = QueuesConfig::default();
    let queues = ReceiveQueues::create(&arena, config).unwrap();
    // The figures of the module's page.
    assert_eq!(arena.used(), 2240 + 16 * 16 + 2 * 64 + 512 * 64 + 2 * (768 + 256 * 64));
    assert_eq!(arena.used(), config.bytes().unwrap());
    let offset = queues.offset();
    let remote = Arc::new(RemoteQueues::connect(arena.segment(), offset).unwrap());
    let ended = queues.close().expect_err("there is an remote");
    assert!(matches!(
        RemoteQueues::connect(arena.segment(), offset),
        Err(CreateError::Closed { .. })
    ));
    let target = remote.open(0, Class::Request).unwrap();
    drop(remote);
    let ended = ended.free().expect_err("there is a target");
    assert_ne!(arena.used(), 0);
    drop(target);
    ended.free().expect("no process is attached");
    assert_eq!(arena.used(), 0);
    // Repeatedly, with rings.
    for _ in 0..100 {
        let mut queues = ReceiveQueues::create(&arena, config).unwrap();
        for queue in 0..20 {
            assert_eq!(queues.promote(queue, Class::Request), queue < 16);
        }
        assert_eq!(arena.used(), config.bytes().unwrap() + 16 * (768 + 64 * 64));
        let segment = arena.segment();
        let offset = queues.offset();
        drop(RemoteQueues::connect(segment, offset).unwrap());
        drop(queues);
        assert_eq!(arena.used(), 0);
        assert!(matches!(
            RemoteQueues::connect(segment, offset),
            Err(CreateError::NotFound { .. })
        ));
    }
}

fn queues_with_all_their_rings_fit_into_max_bytes() {
    for config in [
        tiny(),
        QueuesConfig::default(),
        QueuesConfig { queues: 700, rings: 3, ring_capacity: 8, ..QueuesConfig::default() },
    ] {
        let bytes = config.max_bytes().unwrap();
        let arena = arena(bytes.next_multiple_of(4096));
        let mut queues = ReceiveQueues::create(&arena, config).unwrap();
        for ring in 0..config.rings {
            assert!(queues.promote(ring, Class::Request) && queues.promote(ring, Class::Reply));
        }
        assert!(arena.used() <= bytes);
    }
}

/// Sends messages to each of these queues, so that the first become resident, then receives them
/// all. Returns the number of polls of the most expensive receive.
fn max_polls(config: QueuesConfig, indices: &[usize]) -> u64 {
    let arena = arena(64 << 20);
    let mut queues = ReceiveQueues::create(&arena, config).unwrap();
    let remote = Arc::new(RemoteQueues::connect(arena.segment(), queues.offset()).unwrap());
    let mut open: Vec<_> =
        indices.iter().map(|queue| remote.open(*queue, Class::Request).unwrap()).collect();
    let mut most = 0;
    for round in 0..200 {
        for target in &mut open {
            target.try_send(&message(1, round)).unwrap();
        }
        for _ in &open {
            let before = queues.polls();
            queues.try_recv_any().unwrap().expect("just sent");
            most = most.max(queues.polls() - before);
        }
        let before = queues.polls();
        assert_eq!(queues.try_recv_any().unwrap(), None);
        most = most.max(queues.polls() - before);
    }
    assert!(queues.is_resident(indices[0], Class::Request));
    most
}

fn the_polls_of_a_receive_do_not_depend_on_the_number_of_queues() {
    let one = max_polls(QueuesConfig { queues: 1, rings: 1, ..QueuesConfig::default() }, &[0]);
    let few = max_polls(QueuesConfig { queues: 16, ..QueuesConfig::default() }, &[3, 15]);
    let usual = max_polls(QueuesConfig::default(), &[40, 511]);
    let many = max_polls(
        QueuesConfig { queues: 65_536, rings: 500, ..QueuesConfig::default() },
        &[700, 65_535],
    );
    assert_eq!((few, usual), (usual, many));
    assert!(one <= few && many <= 8, "{one} {few} {usual} {many}");
}

fn the_event_is_notified_of_an_arrival_and_of_a_half_full_ring() {
    let arena = arena(4 << 20);
    let config =
        QueuesConfig { non_resident_capacity: 8, ring_capacity: 8, ..QueuesConfig::default() };
    let mut queues = ReceiveQueues::create(&arena, config).unwrap();
    let event = Event::new().expect("a descriptor");
    let remote =
        RemoteQueues::connect(arena.segment(), queues.offset()).unwrap().with_event(event.clone());
    let mut target = Arc::new(remote).open(9, Class::Request).unwrap();
    for is_resident in [false, true] {
        assert_eq!(queues.promote(9, Class::Request) && is_resident, is_resident);
        if !is_resident {
            queues.demote(9, Class::Request).unwrap();
        }
        assert!(!queues.request_event(Notify::Arrival), "nothing is there");
        assert!(!event.clear(), "nothing was sent");
        target.try_send(&message(1, 0)).unwrap();
        assert!(event.clear());
        target.try_send(&message(1, 0)).unwrap();
        assert!(!event.clear(), "once for each request");
        assert!(queues.request_event(Notify::Arrival), "already so");
        queues.cancel_event_request();
        assert!(!queues.request_event(Notify::HalfFull));
        target.try_send(&message(1, 0)).unwrap();
        assert!(!event.clear(), "three of eight");
        target.try_send(&message(1, 0)).unwrap();
        assert!(event.clear(), "four of eight");
        assert!(queues.request_event(Notify::HalfFull), "already so");
        queues.cancel_event_request();
        while queues.try_recv_any().unwrap().is_some() {}
    }
}
