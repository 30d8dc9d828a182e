//! A hall of receive queues: order while queues come and go, full queues, classes, and the cost of destinations.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::thread;

use proptest::prelude::*;
use queues::hall::{Class, Destination, Entrance, Hall, HallError, Shape};
use queues::lines::{LineHeader, WideMessage};
use queues::name::SourceName;
use queues::queue::SendError;
use shm::arena::Arena;
use shm::segment::{Backing, Offset, Segment};

fn arena(bytes: u64) -> Arc<Arena> {
    let segment = Arc::new(Segment::create(bytes, Backing::Memory).expect("memory"));
    Arc::new(Arena::new(segment, 0..bytes).expect("the whole segment"))
}

fn make(shape: Shape) -> (Hall, Arc<Entrance>) {
    let arena = arena(4 << 20);
    let hall = Hall::create(&arena, shape).expect("room for it");
    let entrance = Entrance::attach(arena.segment(), hall.offset()).expect("it is there");
    (hall, Arc::new(entrance))
}

fn tiny() -> Shape {
    Shape { queues: 8, rings: 2, ring_capacity: 2, miss_capacity: 4, quota: 3 }
}

fn message(source: usize, number: u64) -> WideMessage {
    let source = SourceName::new(source as u16).expect("few of them");
    let header = LineHeader { source, handler: 0, tag: 0 };
    WideMessage::new(header, &number.to_le_bytes()).expect("eight bytes")
}

fn number(message: &WideMessage) -> u64 {
    u64::from_le_bytes(message.data().try_into().expect("eight bytes"))
}

fn fill(destination: &mut Destination) -> u64 {
    (0..).find(|number| destination.try_send(&message(1, *number)) == Err(SendError::Full)).expect("it is bounded")
}

/// Every sender sends to all queues in turn; each queue has to give its messages in order.
fn exchange(senders: usize, count: u64, steps: &[(u8, u8)]) {
    let shape = tiny();
    let (mut hall, entrance) = make(shape);
    let class = |queue: usize| if queue.is_multiple_of(2) { Class::Request } else { Class::Reply };
    thread::scope(|scope| {
        for sender in 0..senders {
            let entrance = &entrance;
            scope.spawn(move || {
                let open = |queue| entrance.open(queue, class(queue)).expect("it exists");
                let mut destinations: Vec<_> = (0..shape.queues).map(open).collect();
                for number in 0..count {
                    for destination in &mut destinations {
                        destination.send(&message(sender, number)).expect("the hall stays open");
                    }
                }
            });
        }
        let mut next = vec![vec![0; senders]; shape.queues];
        let mut steps = steps.iter().cycle();
        for _ in 0..count * (senders * shape.queues) as u64 {
            let (what, queue) = steps.next().expect("there are some");
            let queue = usize::from(*queue) % shape.queues;
            match what % 4 {
                0 => drop(hall.promote(queue, class(queue))),
                1 => hall.demote(queue, class(queue)).expect("nobody spoils it"),
                _ => {}
            }
            let mut received = None;
            if what % 8 > 3 {
                let one = hall.try_receive(queue, class(queue)).expect("nobody spoils it");
                received = one.map(|message| (queue, message));
            }
            let (queue, message) = received.unwrap_or_else(|| {
                let received = hall.receive_any().expect("nobody spoils it");
                assert_eq!(received.class, class(received.queue));
                (received.queue, received.message)
            });
            assert_eq!(usize::from(message.header().tag), queue);
            let expected = &mut next[queue][usize::from(message.header().source.number())];
            assert_eq!(number(&message), *expected, "queue {queue}");
            *expected += 1;
        }
        assert!(next.iter().flatten().all(|received| *received == count));
        assert_eq!(hall.try_receive_any().expect("nobody spoils it"), None);
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn order_is_kept_while_queues_are_promoted_and_demoted(
        senders in 2usize..=4,
        steps in prop::collection::vec((any::<u8>(), any::<u8>()), 1..200),
    ) {
        exchange(senders, 60, &steps);
    }
}

#[test]
fn order_is_kept_by_one_sender_that_meets_every_state() {
    let (mut hall, entrance) = make(tiny());
    let mut destination = entrance.open(3, Class::Request).unwrap();
    let (mut sent, mut received) = (0, 0);
    for round in 0..2000 {
        match round % 7 {
            0 => drop(hall.promote(3, Class::Request)),
            5 => hall.demote(3, Class::Request).unwrap(),
            2 => drop(hall.try_receive(4, Class::Request).unwrap()),
            _ => {}
        }
        for _ in 0..round % 5 {
            sent += u64::from(destination.try_send(&message(1, sent)).is_ok());
        }
        for _ in 0..round % 3 {
            if let Some(message) = hall.try_receive(3, Class::Request).unwrap() {
                assert_eq!(number(&message), received);
                received += 1;
            }
        }
    }
    while let Some(message) = hall.try_receive(3, Class::Request).unwrap() {
        assert_eq!(number(&message), received);
        received += 1;
    }
    assert_eq!(received, sent);
    assert!(sent > 1000);
}

#[test]
fn a_full_queue_stops_its_own_senders_only() {
    let shape = tiny();
    let (mut hall, entrance) = make(shape);
    let (mut full, mut other) = (entrance.open(0, Class::Request).unwrap(), entrance.open(1, Class::Request).unwrap());
    let mut sent = 0;
    loop {
        let more = fill_from(&mut full, sent);
        // Sorts the miss ring.
        assert_eq!(hall.try_receive(1, Class::Request), Ok(None));
        if more == sent {
            break;
        }
        sent = more;
    }
    assert!(hall.overflow(0, Class::Request) >= shape.quota);
    assert!(sent <= (shape.quota + shape.miss_capacity) as u64);
    for number in 0..100 {
        assert_eq!(full.try_send(&message(1, sent)), Err(SendError::Full));
        other.try_send(&message(1, number)).unwrap();
        let received = hall.try_receive(1, Class::Request).unwrap().expect("just sent");
        assert_eq!(self::number(&received), number);
    }
    for expected in 0..sent {
        let received = hall.try_receive(0, Class::Request).unwrap().expect("it was sent");
        assert_eq!(number(&received), expected);
    }
    full.try_send(&message(1, sent)).unwrap();
}

fn fill_from(destination: &mut Destination, first: u64) -> u64 {
    (first..).find(|number| destination.try_send(&message(1, *number)).is_err()).expect("it is bounded")
}

#[test]
fn replies_pass_full_requests() {
    let (mut hall, entrance) = make(tiny());
    let mut request = entrance.open(0, Class::Request).unwrap();
    let mut reply = entrance.open(0, Class::Reply).unwrap();
    // The miss ring is full: nothing was sorted.
    assert_eq!(fill(&mut request), tiny().miss_capacity as u64);
    for number in 0..100 {
        reply.try_send(&message(2, number)).unwrap();
        let received = hall.try_receive_any().unwrap().expect("just sent");
        assert_eq!((received.class, self::number(&received.message)), (Class::Reply, number));
        fill(&mut request);
    }
}

#[test]
fn traffic_gives_a_queue_a_ring_and_takes_it_from_a_quiet_one() {
    let (mut hall, entrance) = make(Shape { rings: 1, ..Shape::default() });
    for queue in [500, 20] {
        let mut destination = entrance.open(queue, Class::Request).unwrap();
        for number in 0..100 {
            destination.try_send(&message(1, number)).unwrap();
            let received = hall.receive(queue, Class::Request).unwrap();
            assert_eq!(self::number(&received), number);
        }
        if queue == 500 {
            assert!(hall.is_resident(500, Class::Request));
        }
    }
    assert!(!hall.is_resident(20, Class::Request) || !hall.is_resident(500, Class::Request), "there is one ring");
    let mut destination = entrance.open(20, Class::Request).unwrap();
    for number in 0..300 {
        destination.try_send(&message(1, number)).unwrap();
        hall.receive(20, Class::Request).unwrap();
    }
    assert!(hall.is_resident(20, Class::Request) && !hall.is_resident(500, Class::Request));
}

#[test]
fn ten_thousand_open_destinations_cost_less_than_four_mebibytes() {
    let (mut hall, entrance) = make(Shape::default());
    let mut open: Vec<_> = (0..10_000).map(|index| entrance.open(index % 512, Class::Request).unwrap()).collect();
    assert!(size_of::<Destination>() <= 32);
    assert!(open.capacity() * size_of::<Destination>() < 4 << 20);
    for (index, destination) in open.iter_mut().enumerate() {
        destination.try_send(&message(1, index as u64)).unwrap();
        let received = hall.try_receive_any().unwrap().expect("just sent");
        assert_eq!((received.queue, number(&received.message)), (index % 512, index as u64));
    }
}

#[test]
fn errors_say_what_is_wrong() {
    let (hall, entrance) = make(tiny());
    assert!(matches!(entrance.open(8, Class::Reply), Err(HallError::NoQueue { index: 8, queues: 8, .. })));
    let elsewhere = arena(1 << 20);
    let nothing = Entrance::attach(elsewhere.segment(), Offset(0));
    assert!(matches!(nothing, Err(HallError::NoHall { .. })));
    assert!(matches!(Hall::create(&elsewhere, Shape { quota: 0, ..tiny() }), Err(HallError::Shape { .. })));
    let mut destination = entrance.open(0, Class::Request).unwrap();
    drop(hall);
    assert_eq!(destination.try_send(&message(1, 0)), Err(SendError::Closed));
    assert_eq!(destination.send(&message(1, 0)), Err(SendError::Closed));
}
