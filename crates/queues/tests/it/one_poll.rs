//! OnePoll over queues in a segment with threads: priority, no lost message, sleep, and events.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use queues::basic;
use queues::cache_line::{CacheLineHeader, CacheLineMessage, CacheLineQueue, CacheLineReceiver};
use queues::error::{CreateError, RecvError};
use queues::event::{Event, Notify};
use queues::express::ExpressMessage;
use queues::express::{Express, ExpressQueue, ExpressReceiver, Multi};
use queues::id::SourceName;
use queues::one_poll::{MAX_QUEUES, Members, OnePoll, PollSet, Polled};
use queues::queue::Receiver;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use shm::arena::Arena;
use shm::segment::{Backing, Segment};

testing::tests![
    the_first_non_empty_queue_is_received_from,
    only_wanted_queues_are_received_from,
    queues_of_several_kinds_share_a_set,
    a_sleeping_poller_loses_no_message_of_basic_rings,
    a_ring_can_join_an_existing_set_late,
    sleeping_pollers_lose_no_message_of_many_senders,
    each_request_is_answered_by_one_event_on_arrival_or_at_half_full,
    a_poll_set_requests_an_event_too,
    an_invalid_set_or_index_is_refused,
];

fn arena(bytes: u64) -> Arena {
    let segment = Arc::new(Segment::create(bytes, Backing::Memory).expect("memory"));
    Arena::new(segment, 0..bytes).expect("a range of the segment")
}

fn message(source: u16, number: u64) -> ExpressMessage {
    ExpressMessage::of_number(SourceName::new(source).expect("14 bits"), 0, number)
        .expect("40 bits")
}

type Receivers = Vec<Option<Receiver<Express, Multi>>>;

/// Creates queues with these indices in a set, and their receivers.
fn queues(arena: &Arena, set: &PollSet, indices: &[usize]) -> (Vec<ExpressQueue>, Receivers) {
    let mut receivers: Receivers = (0..set.capacity()).map(|_| None).collect();
    let queues = indices.iter().map(|&index| {
        let queue = ExpressQueue::create(arena, 16, Some((set, index))).expect("space");
        receivers[index] = Some(queue.receiver().expect("free"));
        queue
    });
    (queues.collect(), receivers)
}

fn the_first_non_empty_queue_is_received_from() {
    for capacity in [10, 512, 513, 2000] {
        let arena = arena(1 << 20);
        let set = PollSet::create(&arena, capacity).expect("space");
        let indices = [0, 1, capacity / 2, capacity - 2, capacity - 1];
        let (queues, mut receivers) = queues(&arena, &set, &indices);
        let mut view =
            OnePoll::new(&PollSet::connect(arena.segment(), set.offset()).expect("a set"));
        assert_eq!(view.poll(&mut receivers[..]), None);
        let mut expected = Vec::new();
        for (place, queue) in queues.iter().enumerate().rev() {
            (0..2).for_each(|number| {
                queue.sender().try_send(&message(place as u16, number)).expect("space")
            });
            expected
                .splice(0..0, (0..2).map(|number| (indices[place], message(place as u16, number))));
        }
        let got: Vec<_> = std::iter::from_fn(|| view.poll(&mut receivers[..])).collect();
        assert_eq!(got, expected, "of {capacity}");
        // Messages that arrive while the bits of the last queues are set are found too.
        for (place, queue) in queues.iter().enumerate() {
            queue.sender().try_send(&message(place as u16, 9)).expect("space");
            assert_eq!(
                view.poll(&mut receivers[..]),
                Some((indices[place], message(place as u16, 9)))
            );
        }
        assert_eq!(view.poll(&mut receivers[..]), None);
    }
}

fn only_wanted_queues_are_received_from() {
    let arena = arena(1 << 20);
    let set = PollSet::create(&arena, 512).expect("space");
    let (queues, mut receivers) = queues(&arena, &set, &[3, 64, 511]);
    queues.iter().for_each(|queue| queue.sender().try_send(&message(1, 1)).expect("space"));
    let mut view = OnePoll::new(&set);
    let wanted = [0, 1, 0, 0, 0, 0, 0, 1 << 63];
    let mut next =
        |wanted: &[u64]| view.poll_among(wanted, &mut receivers[..]).map(|(index, _)| index);
    assert_eq!([next(&wanted), next(&wanted), next(&wanted)], [Some(64), Some(511), None]);
    assert_eq!([next(&[8]), next(&[8])], [Some(3), None]);
}

/// Express queues and cache-line queues in one set, distinguished by the program.
struct Mixed {
    words: ExpressReceiver,
    lines: CacheLineReceiver,
    ring: basic::Receiver,
}

#[derive(Debug, PartialEq)]
enum Item {
    Word(ExpressMessage),
    Line(CacheLineMessage),
    Ring,
}

impl Members for Mixed {
    type Item = Item;

    fn take(&mut self, index: usize) -> Option<Item> {
        match index {
            1 => self.words.try_recv().ok()?.map(Item::Word),
            3 => self.ring.take().map(|()| Item::Ring),
            _ => self.lines.try_recv().ok()?.map(Item::Line),
        }
    }

    fn is_ready(&mut self, index: usize) -> bool {
        match index {
            1 => self.words.is_ready(),
            2 => self.lines.is_ready(),
            3 => self.ring.is_ready(),
            _ => false,
        }
    }
}

fn queues_of_several_kinds_share_a_set() {
    let arena = arena(1 << 20);
    let set = PollSet::create(&arena, 64).expect("space");
    let words = ExpressQueue::create(&arena, 8, Some((&set, 1))).expect("space");
    let lines = CacheLineQueue::create(&arena, 8, Some((&set, 2))).expect("space");
    let (mut sender, ring) = ring(&arena, &set, 3);
    let mut members = Mixed {
        words: words.receiver().expect("free"),
        lines: lines.receiver().expect("free"),
        ring,
    };
    let line = CacheLineMessage::new(CacheLineHeader::default(), b"a line").expect("short");
    let mut view = OnePoll::new(&set);
    sender.send(basic::BasicHeader::default(), b"in a ring").expect("space");
    lines.sender().try_send(&line).expect("space");
    words.sender().try_send(&message(1, 2)).expect("space");
    assert_eq!(view.poll(&mut members), Some((1, Item::Word(message(1, 2)))));
    assert_eq!(view.poll(&mut members), Some((2, Item::Line(line))));
    assert_eq!(view.poll(&mut members), Some((3, Item::Ring)));
    assert_eq!(members.ring.recv().expect("it waits").as_slice(), b"in a ring");
    assert_eq!(view.poll_deadline(&mut members, Instant::now()), Ok(None));
}

/// Creates a Basic ring of sixteen lines whose receiver is in the set.
fn ring(arena: &Arena, set: &PollSet, index: usize) -> (basic::Sender, basic::Receiver) {
    let at =
        arena.allocate_zeroed(basic::bytes_for(16).expect("a power of two"), 128).expect("space");
    let sender = basic::Sender::connect(arena.segment(), at, 16).expect("inside");
    let receiver = basic::Receiver::connect(arena.segment(), at, 16).expect("inside");
    (sender, receiver.in_set(set, index).expect("a set"))
}

fn a_sleeping_poller_loses_no_message_of_basic_rings() {
    const EACH: u64 = 4_000;
    let arena = arena(1 << 20);
    let set = PollSet::create(&arena, 600).expect("space");
    let mut receivers: Vec<_> = (0..600).map(|_| None).collect();
    let indices = [3, 100, 511, 599, 0, 77];
    let senders = indices.map(|index| {
        let (sender, receiver) = ring(&arena, &set, index);
        receivers[index] = Some(receiver);
        sender
    });
    let mut next = [0; 600];
    let mut view = OnePoll::new(&set);
    thread::scope(|scope| {
        for (mut sender, index) in senders.into_iter().zip(indices) {
            scope.spawn(move || {
                for number in 0..EACH {
                    sender
                        .send(
                            basic::BasicHeader::default(),
                            &(number << 10 | index as u64).to_le_bytes(),
                        )
                        .expect("open");
                }
            });
        }
        let mut open = indices.len();
        while open > 0 {
            let (index, ()) = view.poll_blocking(&mut receivers[..]).expect("a sender lives");
            let receiver = receivers[index].as_mut().expect("one that is open");
            let end = match receiver.try_recv() {
                Ok(message) => {
                    let expected: u64 = next[index] << 10 | index as u64;
                    let message = message.expect("a poll says that something waits");
                    assert_eq!(message.as_slice(), expected.to_le_bytes());
                    next[index] += 1;
                    continue;
                }
                Err(error) => error,
            };
            assert!(matches!(end, RecvError::Closed), "{end}");
            receivers[index] = None;
            open -= 1;
        }
    });
    assert!(indices.iter().all(|&index| next[index] == EACH), "nothing lost");
}

fn a_ring_can_join_an_existing_set_late() {
    let arena = arena(1 << 20);
    let set = PollSet::create(&arena, 8).expect("space");
    let place = || {
        arena.allocate_zeroed(basic::bytes_for(16).expect("a power of two"), 128).expect("space")
    };
    let open = |at| basic::Receiver::connect(arena.segment(), at, 16).expect("inside");
    let refused = open(place()).in_set(&set, 8);
    assert!(matches!(refused, Err(CreateError::NoIndex { index: 8, .. })));
    let at = place();
    let mut sender = basic::Sender::connect(arena.segment(), at, 16).expect("inside");
    sender.send(basic::BasicHeader::default(), b"before").expect("space");
    let receiver = open(at).in_set(&set, 7).expect("a set");
    let mut members = [const { None }; 8];
    members[7] = Some(receiver);
    let mut view = OnePoll::new(&set);
    let event = Event::new().expect("a descriptor");
    assert!(view.ask_for_event(&mut members[..]), "it was sent before");
    assert_eq!(view.poll(&mut members[..]), Some((7, ())));
    assert!(members[7].as_mut().expect("it").try_recv().expect("open").is_some());
    assert_eq!(view.poll(&mut members[..]), None);
    let mut sender = sender.with_event(event.clone());
    assert!(!view.ask_for_event(&mut members[..]));
    sender.send(basic::BasicHeader::default(), b"after").expect("space");
    assert!(is_readable(&event), "of the set");
    assert_eq!(view.poll(&mut members[..]), Some((7, ())));
}

fn sleeping_pollers_lose_no_message_of_many_senders() {
    const SENDERS: u64 = 3;
    const EACH: u64 = 4_000;
    let arena = arena(1 << 20);
    let set = PollSet::create(&arena, 600).expect("space");
    let indices = [5, 100, 550];
    let (queues, receivers) = queues(&arena, &set, &indices);
    drop(receivers);
    thread::scope(|scope| {
        let senders = (0..SENDERS as u16).map(|source| {
            // Each sends to all queues in turn.
            let senders: Vec<_> = queues.iter().map(ExpressQueue::sender).collect();
            scope.spawn(move || {
                for number in 0..EACH {
                    senders[number as usize % senders.len()]
                        .send(&message(source, number))
                        .expect("open");
                    if number % 64 == 0 {
                        // Time for the pollers to fall asleep.
                        thread::sleep(Duration::from_micros(200));
                    }
                }
            })
        });
        let senders: Vec<_> = senders.collect();
        let pollers: Vec<_> = (0..2)
            .map(|_| {
                let mut receivers: Receivers = (0..600).map(|_| None).collect();
                for (queue, &index) in queues.iter().zip(&indices) {
                    receivers[index] = Some(queue.receiver().expect("shared"));
                }
                let mut view = OnePoll::new(&set);
                scope.spawn(move || {
                    let mut got = Vec::new();
                    // A number out of range ends it.
                    while let Ok((_, message)) = view.poll_blocking(&mut receivers[..])
                        && message.number() < EACH
                    {
                        got.push((message.source().number(), message.number()));
                    }
                    got
                })
            })
            .collect();
        senders.into_iter().for_each(|sender| sender.join().expect("no panic"));
        // The ends go to the lowest priority, so that everything else is received before.
        pollers.iter().for_each(|_| queues[2].sender().send(&message(9, EACH)).expect("open"));
        let mut got = pollers
            .into_iter()
            .flat_map(|poller| poller.join().expect("no panic"))
            .collect::<Vec<_>>();
        got.sort_unstable();
        let all =
            (0..SENDERS as u16).flat_map(|source| (0..EACH).map(move |number| (source, number)));
        assert!(got.into_iter().eq(all), "nothing lost or doubled");
    });
}

/// Returns true if the event's descriptor is readable.
fn is_readable(event: &Event) -> bool {
    let mut watched = [PollFd::new(event, PollFlags::IN)];
    poll(&mut watched, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).expect("a descriptor") == 1
}

fn each_request_is_answered_by_one_event_on_arrival_or_at_half_full() {
    let arena = arena(1 << 20);
    let queue = ExpressQueue::create(&arena, 8, None).expect("space");
    let event = Event::new().expect("a descriptor");
    // As a sender in another process would receive it.
    let passed = Event::from_fd(event.as_fd().try_clone_to_owned().expect("a descriptor"));
    let sender = queue.sender().with_event(passed);
    let mut receiver = queue.receiver().expect("free");
    let send = |number| sender.try_send(&message(0, number)).expect("space");

    send(0);
    assert!(!is_readable(&event), "no request");
    assert!(receiver.request_event(Notify::Arrival), "something is there already");
    assert_eq!(receiver.recv_or_empty(), message(0, 0));
    assert!(!receiver.request_event(Notify::Arrival));
    send(1);
    assert!(is_readable(&event) && event.clear());
    send(2);
    assert!(!is_readable(&event), "one for a request");

    while receiver.try_recv().expect("open").is_some() {}
    assert!(!receiver.request_event(Notify::HalfFull));
    (0..3).for_each(send);
    assert!(!is_readable(&event));
    send(3);
    assert!(is_readable(&event) && event.clear());
    assert!(receiver.request_event(Notify::HalfFull), "it is half full");
    receiver.cancel_event();
    send(4);
    assert!(!is_readable(&event));
}

fn a_poll_set_requests_an_event_too() {
    let arena = arena(1 << 20);
    let set = PollSet::create(&arena, 512).expect("space");
    let (queues, mut receivers) = queues(&arena, &set, &[7]);
    let event = Event::new().expect("a descriptor");
    let sender = queues[0].sender().with_event(event.clone());
    let mut view = OnePoll::new(&set);
    assert!(!view.ask_for_event(&mut receivers[..]));
    sender.try_send(&message(0, 1)).expect("space");
    assert!(is_readable(&event) && event.clear());
    assert!(view.ask_for_event(&mut receivers[..]), "it was not received");
    assert_eq!(view.poll(&mut receivers[..]), Some((7, message(0, 1))));
    assert!(!view.ask_for_event(&mut receivers[..]));
}

fn an_invalid_set_or_index_is_refused() {
    let arena = arena(1 << 20);
    assert!(matches!(PollSet::create(&arena, 0), Err(CreateError::Size { requested: 0, .. })));
    assert!(matches!(PollSet::create(&arena, MAX_QUEUES + 1), Err(CreateError::Size { .. })));
    let set = PollSet::create(&arena, 3).expect("space");
    assert_eq!(PollSet::connect(arena.segment(), set.offset()).expect("a set").capacity(), 3);
    let beyond = ExpressQueue::create(&arena, 4, Some((&set, 3)));
    assert!(matches!(beyond, Err(CreateError::NoIndex { count: 3, index: 3, .. })));
    let queue = ExpressQueue::create(&arena, 4, Some((&set, 2))).expect("space");
    assert!(matches!(
        PollSet::connect(arena.segment(), queue.offset()),
        Err(CreateError::NotFound { .. })
    ));
}
