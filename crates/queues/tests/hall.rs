//! A hall of receive queues: order while queues come and go, full queues, classes, and the cost of
//! destinations.
#![allow(clippy::unwrap_used)]

mod part;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use queues::cache_line::{CacheLineHeader, CacheLineMessage};
use queues::hall::{Class, Destination, Entrance, Event, Hall, HallError, NEWS, Notify, Shape};
use queues::name::SourceName;
use queues::queue::SendError;
use shm::arena::Arena;
use shm::segment::{Backing, Offset, Segment};
use shm::sync::{AtomicU64, Ordering};

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

fn message(source: usize, number: u64) -> CacheLineMessage {
    let source = SourceName::new(source as u16).expect("few of them");
    let header = CacheLineHeader { source, handler: 0, tag: 0 };
    CacheLineMessage::new(header, &number.to_le_bytes()).expect("eight bytes")
}

fn number(message: &CacheLineMessage) -> u64 {
    u64::from_le_bytes(message.data().try_into().expect("eight bytes"))
}

fn fill(destination: &mut Destination) -> u64 {
    (0..)
        .find(|number| destination.try_send(&message(1, *number)) == Err(SendError::Full))
        .expect("it is bounded")
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
    let (mut full, mut other) =
        (entrance.open(0, Class::Request).unwrap(), entrance.open(1, Class::Request).unwrap());
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
    (first..)
        .find(|number| destination.try_send(&message(1, *number)).is_err())
        .expect("it is bounded")
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
    assert!(
        !hall.is_resident(20, Class::Request) || !hall.is_resident(500, Class::Request),
        "there is one ring"
    );
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
    let mut open: Vec<_> =
        (0..10_000).map(|index| entrance.open(index % 512, Class::Request).unwrap()).collect();
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
    assert!(matches!(
        entrance.open(8, Class::Reply),
        Err(HallError::NoQueue { index: 8, queues: 8, .. })
    ));
    let elsewhere = arena(1 << 20);
    let nothing = Entrance::attach(elsewhere.segment(), Offset(0));
    assert!(matches!(nothing, Err(HallError::NoHall { .. })));
    assert!(matches!(
        Hall::create(&elsewhere, Shape { quota: 0, ..tiny() }),
        Err(HallError::Shape { .. })
    ));
    let mut destination = entrance.open(0, Class::Request).unwrap();
    drop(hall);
    assert_eq!(destination.try_send(&message(1, 0)), Err(SendError::Closed));
    assert_eq!(destination.send(&message(1, 0)), Err(SendError::Closed));
}

#[test]
fn memory_goes_back_when_nobody_can_touch_it() {
    let arena = arena(4 << 20);
    let shape = Shape::default();
    let hall = Hall::create(&arena, shape).unwrap();
    // What the module's page says.
    assert_eq!(arena.used(), 2240 + 16 * 16 + 2 * 64 + 512 * 64 + 2 * (768 + 256 * 64));
    assert_eq!(arena.used(), shape.bytes().unwrap());
    let offset = hall.offset();
    let entrance = Arc::new(Entrance::attach(arena.segment(), offset).unwrap());
    let ended = hall.end().expect_err("there is an entrance");
    assert!(matches!(Entrance::attach(arena.segment(), offset), Err(HallError::Closed { .. })));
    let destination = entrance.open(0, Class::Request).unwrap();
    drop(entrance);
    let ended = ended.free().expect_err("there is a destination");
    assert_ne!(arena.used(), 0);
    drop(destination);
    ended.free().expect("nobody is left");
    assert_eq!(arena.used(), 0);
    // Again and again, with rings.
    for _ in 0..100 {
        let mut hall = Hall::create(&arena, shape).unwrap();
        for queue in 0..20 {
            assert_eq!(hall.promote(queue, Class::Request), queue < 16);
        }
        assert_eq!(arena.used(), shape.bytes().unwrap() + 16 * (768 + 64 * 64));
        let (segment, offset) = (arena.segment(), hall.offset());
        drop(Entrance::attach(segment, offset).unwrap());
        drop(hall);
        assert_eq!(arena.used(), 0);
        assert!(matches!(Entrance::attach(segment, offset), Err(HallError::NoHall { .. })));
    }
}

#[test]
fn a_hall_with_all_its_rings_fits_where_it_is_said_to() {
    for shape in [
        tiny(),
        Shape::default(),
        Shape { queues: 700, rings: 3, ring_capacity: 8, ..Shape::default() },
    ] {
        let bytes = shape.most_bytes().unwrap();
        let arena = arena(bytes.next_multiple_of(4096));
        let mut hall = Hall::create(&arena, shape).unwrap();
        for ring in 0..shape.rings {
            assert!(hall.promote(ring, Class::Request) && hall.promote(ring, Class::Reply));
        }
        assert!(arena.used() <= bytes);
    }
}

/// Some messages for each of these queues, so that the first become resident, then as many received
/// as sent; gives how many looks the most expensive receive took.
fn most_looks(shape: Shape, queues: &[usize]) -> u64 {
    let arena = arena(64 << 20);
    let mut hall = Hall::create(&arena, shape).unwrap();
    let entrance = Arc::new(Entrance::attach(arena.segment(), hall.offset()).unwrap());
    let mut open: Vec<_> =
        queues.iter().map(|queue| entrance.open(*queue, Class::Request).unwrap()).collect();
    let mut most = 0;
    for round in 0..200 {
        for destination in &mut open {
            destination.try_send(&message(1, round)).unwrap();
        }
        for _ in &open {
            let before = hall.looks();
            hall.try_receive_any().unwrap().expect("just sent");
            most = most.max(hall.looks() - before);
        }
        let before = hall.looks();
        assert_eq!(hall.try_receive_any().unwrap(), None);
        most = most.max(hall.looks() - before);
    }
    assert!(hall.is_resident(queues[0], Class::Request));
    most
}

#[test]
fn receiving_from_any_queue_costs_as_many_looks_however_many_there_are() {
    let one = most_looks(Shape { queues: 1, rings: 1, ..Shape::default() }, &[0]);
    let few = most_looks(Shape { queues: 16, ..Shape::default() }, &[3, 15]);
    let usual = most_looks(Shape::default(), &[40, 511]);
    let many = most_looks(Shape { queues: 65_536, rings: 500, ..Shape::default() }, &[700, 65_535]);
    assert_eq!((few, usual), (usual, many));
    assert!(one <= few && many <= 8, "{one} {few} {usual} {many}");
}

#[test]
fn an_event_tells_of_an_arrival_and_of_a_half_full_ring() {
    let arena = arena(4 << 20);
    let shape = Shape { miss_capacity: 8, ring_capacity: 8, ..Shape::default() };
    let mut hall = Hall::create(&arena, shape).unwrap();
    let event = Event::new().expect("a descriptor");
    let entrance =
        Entrance::attach(arena.segment(), hall.offset()).unwrap().with_event(event.clone());
    let mut destination = Arc::new(entrance).open(9, Class::Request).unwrap();
    for is_resident in [false, true] {
        assert_eq!(hall.promote(9, Class::Request) && is_resident, is_resident);
        if !is_resident {
            hall.demote(9, Class::Request).unwrap();
        }
        assert!(!hall.ask_for_event(Notify::Arrival), "nothing is there");
        assert!(!event.clear(), "nothing was sent");
        destination.try_send(&message(1, 0)).unwrap();
        assert!(event.clear());
        destination.try_send(&message(1, 0)).unwrap();
        assert!(!event.clear(), "once for each request");
        assert!(hall.ask_for_event(Notify::Arrival), "already so");
        hall.ask_for_no_event();
        assert!(!hall.ask_for_event(Notify::HalfFull));
        destination.try_send(&message(1, 0)).unwrap();
        assert!(!event.clear(), "three of eight");
        destination.try_send(&message(1, 0)).unwrap();
        assert!(event.clear(), "four of eight");
        assert!(hall.ask_for_event(Notify::HalfFull), "already so");
        hall.ask_for_no_event();
        while hall.try_receive_any().unwrap().is_some() {}
    }
}

#[test]
fn the_owners_death_is_named_by_every_form_of_sending() {
    let (segment, arena) = part::memory(4 << 20);
    let told = arena.allocate_zeroed(64, 64).unwrap();
    let heard = || segment.at::<AtomicU64>(told).unwrap().load(Ordering::Acquire);
    let mut receiver = part::Part::start_on("part_owns_a_hall", &segment, &[told]);
    part::until("there is a hall", || heard() != 0);
    let entrance = Arc::new(Entrance::attach(&segment, Offset(heard())).unwrap());
    let mut open: Vec<_> =
        (0..4).map(|queue| entrance.open(queue, Class::Request).unwrap()).collect();
    open[0].send(&message(1, 1)).unwrap();
    receiver.stop();
    for destination in &mut open {
        fill(destination);
    }
    let gone = SendError::Gone { pid: receiver.pid() };
    let sleeper = open.pop().expect("four");
    let asleep = thread::spawn(move || {
        let mut sleeper = sleeper;
        sleeper.send(&message(1, 0))
    });
    receiver.kill();
    assert_eq!(asleep.join().expect("no panic"), Err(gone));
    assert_eq!(open[0].try_send(&message(1, 0)), Err(gone));
    assert_eq!(open[1].send(&message(1, 0)), Err(gone));
    let late = Instant::now() + Duration::from_secs(600);
    assert_eq!(open[2].send_until(&message(1, 0), late), Err(gone));
    assert_eq!(
        gone.to_string(),
        format!("process {}, which received from the queue, has ended", receiver.pid())
    );
    // A hall with room is noticed too, if not at once.
    let entrance = Arc::new(Entrance::attach(&segment, Offset(heard())).unwrap());
    let mut other = entrance.open(7, Class::Reply).unwrap();
    let sent = (0..)
        .find(|number| other.try_send(&message(1, *number)) == Err(gone))
        .expect("it is bounded");
    assert!(sent <= u64::from(NEWS));
}

#[test]
#[ignore = "the owner of the hall of the_owners_death_is_named_by_every_form_of_sending"]
fn part_owns_a_hall() {
    let Some((segment, places)) = part::given() else { return };
    let arena = Arc::new(Arena::new(Arc::clone(&segment), 1 << 20..4 << 20).unwrap());
    let mut hall = Hall::create(&arena, Shape::default()).unwrap();
    segment.at::<AtomicU64>(places[0]).unwrap().store(hall.offset().0, Ordering::Release);
    loop {
        hall.receive_any().unwrap();
    }
}

/// A sender that is killed anywhere leaves a hall from which everybody else is received, and whose
/// memory goes back.
#[test]
fn senders_killed_anywhere_hold_nobody_up() {
    let (segment, arena) = part::memory(8 << 20);
    let hall_arena = Arc::new(Arena::new(Arc::clone(&segment), 1 << 20..8 << 20).unwrap());
    let mut hall =
        Hall::create(&hall_arena, Shape { queues: 8, rings: 2, ..Shape::default() }).unwrap();
    let told = arena.allocate_zeroed(64, 64).unwrap();
    segment.at::<AtomicU64>(told).unwrap().store(hall.offset().0, Ordering::Release);
    let entrance = Arc::new(Entrance::attach(&segment, hall.offset()).unwrap());
    let mut own: Vec<_> =
        (0..8).map(|queue| entrance.open(queue, Class::Request).unwrap()).collect();
    for round in 0..8u64 {
        let mut victim = part::Part::start_on("part_floods_a_hall", &segment, &[told]);
        let mut next: [Option<u64>; 8] = [None; 8];
        let check = |hall: &mut Hall, next: &mut [Option<u64>; 8]| {
            let Some(received) = hall.try_receive_any().unwrap() else { return false };
            let (source, number) =
                (received.message.header().source.number(), number(&received.message));
            if source == 2 {
                let expected = next[received.queue].map_or(number, |last| last + 1);
                assert_eq!(number, expected, "queue {}", received.queue);
                next[received.queue] = Some(number);
            }
            true
        };
        for _ in 0..2000 * (round + 1) {
            part::until("a message comes", || check(&mut hall, &mut next));
        }
        victim.kill();
        while check(&mut hall, &mut next) {}
        for (queue, destination) in own.iter_mut().enumerate() {
            destination.try_send(&message(1, round)).unwrap();
            let received =
                part::until_some("it arrives", || hall.try_receive(queue, Class::Request).unwrap());
            assert_eq!((received.header().source.number(), number(&received)), (1, round));
        }
    }
    drop((own, entrance));
    hall.end().expect("the others are dead");
    assert_eq!(hall_arena.used(), 0);
}

#[test]
#[ignore = "a sender of senders_killed_anywhere_hold_nobody_up"]
fn part_floods_a_hall() {
    let Some((segment, places)) = part::given() else { return };
    let offset = segment.at::<AtomicU64>(places[0]).unwrap().load(Ordering::Acquire);
    let entrance = Arc::new(Entrance::attach(&segment, Offset(offset)).unwrap());
    let mut open: Vec<_> =
        (0..8).map(|queue| entrance.open(queue, Class::Request).unwrap()).collect();
    for round in 0.. {
        for destination in &mut open {
            destination.send(&message(2, round)).unwrap();
        }
    }
}

/// Messages for a stopped receiver keep arriving until it is full, and those for another receiver
/// are not disturbed.
#[test]
fn a_stopped_receiver_takes_what_it_has_room_for_and_disturbs_nobody() {
    let (segment, arena) = part::memory(8 << 20);
    let told = arena.allocate_zeroed(64, 64).unwrap();
    let heard = || segment.at::<AtomicU64>(told).unwrap().load(Ordering::Acquire);
    let mut stopped = part::Part::start_on("part_owns_a_hall", &segment, &[told]);
    part::until("there is a hall", || heard() != 0);
    let entrance = Arc::new(Entrance::attach(&segment, Offset(heard())).unwrap());
    stopped.stop();
    let other_arena = Arc::new(Arena::new(Arc::clone(&segment), 4 << 20..8 << 20).unwrap());
    let mut hall = Hall::create(&other_arena, Shape::default()).unwrap();
    let other = Arc::new(Entrance::attach(&segment, hall.offset()).unwrap());
    let mut to_stopped = entrance.open(5, Class::Request).unwrap();
    let mut to_other = other.open(5, Class::Request).unwrap();
    let mut room = 0;
    while to_stopped.try_send(&message(1, room)).is_ok() {
        room += 1;
        to_other.try_send(&message(1, room)).unwrap();
        assert_eq!(
            hall.try_receive(5, Class::Request).unwrap().map(|message| number(&message)),
            Some(room)
        );
    }
    assert!(room >= Shape::default().miss_capacity as u64 - 1, "{room}");
    for more in 0..1000 {
        assert_eq!(to_stopped.try_send(&message(1, room)), Err(SendError::Full));
        to_other.try_send(&message(1, more)).unwrap();
        assert_eq!(
            hall.try_receive(5, Class::Request).unwrap().map(|message| number(&message)),
            Some(more)
        );
    }
    stopped.go_on();
    to_stopped.send(&message(1, room)).unwrap();
    stopped.kill();
}
