//! What channels claim: every value of every type, in order, once; between threads and processes;
//! deaths and closings.

#[path = "../src/channel/key.rs"]
mod key;
mod part;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use part::{Part, given, memory, until};
use proptest::prelude::*;
use queues::channel::{
    Channel, End, OpenError, ReceiveError, Receiver, SendError, Sender, Value, pair,
};
use shm::arena::Arena;
use shm::segment::{Offset, Segment};
use shm::sync::{AtomicU64, Ordering};

/// Which values a property test sends.
#[derive(Debug, Clone, Copy)]
enum Choice {
    /// Any bits.
    Any(u64),
    /// The value that leaves this word in its slot, whatever the lap: twice in a row in one slot,
    /// nothing changes there.
    Leaving(u64),
}

fn choices() -> impl Strategy<Value = Choice> {
    prop_oneof![
        any::<u64>().prop_map(Choice::Any),
        Just(Choice::Any(0)),
        (0..2u64).prop_map(Choice::Leaving),
        Just(Choice::Leaving(0)),
    ]
}

impl Choice {
    /// The bits of the value when it is the one at `position` in a ring of `slots` slots.
    fn bits(self, position: u64, slots: u64) -> u64 {
        match self {
            Choice::Any(bits) => bits,
            Choice::Leaving(word) => key::of_lap(position / slots) ^ word,
        }
    }
}

/// Sends and receives in the order that `turns` says (true: send) and holds every outcome against a
/// plain queue.
fn behaves_like_a_queue<T: Value>(
    capacity: u64,
    values: &[Choice],
    turns: &[bool],
    of_bits: impl Fn(u64) -> T,
    to_bits: impl Fn(T) -> u64,
) {
    let (_, arena) = memory(1 << 20);
    let (mut sender, mut receiver) = pair::<T>(&arena, capacity).expect("room");
    let slots =
        Channel::<T>::create(&arena, capacity).expect("room").capacity().next_power_of_two();
    let (mut pending, mut sent) = (VecDeque::new(), 0);
    for (choice, &send) in values.iter().zip(turns) {
        if send {
            let bits = to_bits(of_bits(choice.bits(sent, slots)));
            match sender.try_send(of_bits(bits)) {
                Ok(()) => {
                    pending.push_back(bits);
                    sent += 1;
                    assert!(pending.len() as u64 <= slots);
                }
                Err(SendError::Full { .. }) => {
                    assert!(pending.len() as u64 >= capacity, "what fits always fits")
                }
                Err(other) => panic!("{other}"),
            }
        } else {
            match (receiver.try_receive(), pending.pop_front()) {
                (Ok(value), Some(expected)) => assert_eq!(to_bits(value), expected),
                (Err(ReceiveError::Empty { .. }), None) => {}
                (outcome, expected) => panic!("{:?} instead of {expected:?}", outcome.map(to_bits)),
            }
        }
    }
    drop(sender);
    for expected in pending {
        assert_eq!(to_bits(receiver.try_receive().expect("sent before the end")), expected);
    }
    assert!(matches!(receiver.try_receive(), Err(ReceiveError::Closed { .. })));
}

/// A line that differs in every word.
fn line(bits: u64) -> [u64; 8] {
    std::array::from_fn(|index| {
        if index == 7 { bits } else { bits.rotate_left(index as u32 * 7) ^ index as u64 }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn every_type_behaves_like_a_queue_over_its_full_range(
        capacity in 1..12u64,
        values in prop::collection::vec(choices(), 200),
        turns in prop::collection::vec(prop::bool::weighted(0.55), 200),
    ) {
        behaves_like_a_queue::<u64>(capacity, &values, &turns, |bits| bits, |value| value);
        behaves_like_a_queue::<f64>(capacity, &values, &turns, f64::from_bits, f64::to_bits);
        behaves_like_a_queue::<u32>(capacity, &values, &turns, |bits| bits as u32, u64::from);
        behaves_like_a_queue::<f32>(
            capacity, &values, &turns, |bits| f32::from_bits(bits as u32), |value| u64::from(value.to_bits()),
        );
        let whole = |value: [u64; 8]| { assert_eq!(value, line(value[7])); value[7] };
        behaves_like_a_queue::<[u64; 8]>(capacity, &values, &turns, line, whole);
        behaves_like_a_queue::<[f64; 8]>(
            capacity, &values, &turns, |bits| line(bits).map(f64::from_bits), |value| whole(value.map(f64::to_bits)),
        );
        let bytes = |bits| { let mut all = [bits as u8; 64]; all[56..].copy_from_slice(&u64::to_ne_bytes(bits)); all };
        let bits = |all: [u8; 64]| u64::from_ne_bytes(std::array::from_fn(|index| all[56 + index]));
        behaves_like_a_queue::<[u8; 64]>(capacity, &values, &turns, bytes, bits);
    }
}

#[test]
fn values_chosen_by_an_adversary_arrive_although_no_slot_changes() {
    let (segment, arena) = memory(1 << 20);
    let channel = Channel::<u64>::create(&arena, 4).expect("room");
    assert_eq!(channel.capacity(), 4);
    let slots_at = channel.offset().plus(channel.bytes() - 4 * 8).expect("inside");
    let mut sender = Sender::<u64>::open(&segment, channel.offset()).expect("unopened");
    let mut receiver = Receiver::<u64>::open(&segment, channel.offset()).expect("unopened");
    for lap in 0..1000 {
        for _ in 0..4 {
            sender.try_send(key::of_lap(lap)).expect("room");
        }
        for _ in 0..4 {
            assert_eq!(receiver.try_receive().expect("sent"), key::of_lap(lap));
        }
        assert!(matches!(receiver.try_receive(), Err(ReceiveError::Empty { .. })));
        for slot in segment.slice_at::<AtomicU64>(slots_at, 4).expect("inside") {
            assert_eq!(slot.load(Ordering::Relaxed), 0, "so that only the notice can have told");
        }
    }
}

/// What both sides of a long stream agree on: runs of unchanged words among others, for a ring of
/// `slots` slots.
fn streamed(position: u64, slots: u64) -> u64 {
    let choice = match position / 5 % 3 {
        0 => Choice::Any(position),
        1 => Choice::Leaving(0),
        _ => Choice::Leaving(position / 64),
    };
    choice.bits(position, slots)
}

#[test]
fn a_long_stream_between_two_threads_keeps_its_order() {
    let (_, arena) = memory(1 << 20);
    for capacity in [1, 2, 7, 64] {
        let (mut sender, mut receiver) = pair::<u64>(&arena, capacity).expect("room");
        let slots = capacity.next_power_of_two();
        let count = 10_000 * slots;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                (0..count).for_each(|i| sender.send(streamed(i, slots)).expect("received"))
            });
            for position in 0..count {
                assert_eq!(
                    receiver.receive().expect("sent"),
                    streamed(position, slots),
                    "at {position}"
                );
            }
            assert!(matches!(receiver.receive(), Err(ReceiveError::Closed { .. })));
        });
    }
}

#[test]
fn a_stream_to_another_process_and_back_keeps_its_order() {
    let (segment, arena) = memory(1 << 20);
    let there = Channel::<[u64; 8]>::create(&arena, 16).expect("room");
    let back = Channel::<u64>::create(&arena, 16).expect("room");
    let mut other = Part::start_on("part_answers", &segment, &[there.offset(), back.offset()]);
    let mut sender = Sender::<[u64; 8]>::open(&segment, there.offset()).expect("unopened");
    let mut receiver = Receiver::<u64>::open(&segment, back.offset()).expect("unopened");
    for position in 0..20_000 {
        sender.send(line(position)).expect("received");
        if position % 3 == 0 {
            assert_eq!(receiver.receive().expect("answered"), !position);
        }
    }
    drop(sender);
    assert!(matches!(receiver.receive(), Err(ReceiveError::Closed { .. })));
    assert!(other.succeeds());
}

#[test]
#[ignore = "a part of a_stream_to_another_process_and_back_keeps_its_order"]
fn part_answers() {
    let Some((segment, places)) = given() else { return };
    let mut receiver = Receiver::<[u64; 8]>::open(&segment, places[0]).expect("unopened");
    let mut sender = Sender::<u64>::open(&segment, places[1]).expect("unopened");
    let mut position = 0;
    while let Ok(value) = receiver.receive() {
        assert_eq!(value, line(position));
        if position % 3 == 0 {
            sender.send(!position).expect("received");
        }
        position += 1;
    }
    assert_eq!(position, 20_000);
}

#[test]
fn a_sleeping_receiver_is_woken_and_a_sleeping_sender_too() {
    let (segment, arena) = memory(1 << 20);
    let there = Channel::<u64>::create(&arena, 2).expect("room");
    let back = Channel::<u64>::create(&arena, 2).expect("room");
    let mut other = Part::start_on("part_sleeps", &segment, &[there.offset(), back.offset()]);
    let mut sender = Sender::<u64>::open(&segment, there.offset()).expect("unopened");
    let mut receiver = Receiver::<u64>::open(&segment, back.offset()).expect("unopened");
    assert_eq!(receiver.receive().expect("it starts"), 0);
    other.until_asleep();
    sender.send(1).expect("received");
    assert_eq!(receiver.receive().expect("woken"), 1);
    // It sends more than fits and sleeps until there is room.
    other.until_asleep();
    for expected in 2..8 {
        assert_eq!(receiver.receive().expect("woken again"), expected);
    }
    assert!(other.succeeds());
}

#[test]
#[ignore = "a part of a_sleeping_receiver_is_woken_and_a_sleeping_sender_too"]
fn part_sleeps() {
    let Some((segment, places)) = given() else { return };
    let mut receiver = Receiver::<u64>::open(&segment, places[0]).expect("unopened");
    let mut sender = Sender::<u64>::open(&segment, places[1]).expect("unopened");
    sender.send(0).expect("room");
    let value = receiver.receive().expect("sent");
    for value in value..8 {
        sender.send(value).expect("room at last");
    }
}

#[test]
fn the_death_of_the_sender_is_told_by_its_number_after_all_that_it_sent() {
    let (segment, arena) = memory(1 << 20);
    let channel = Channel::<u64>::create(&arena, 8).expect("room");
    let ready = Channel::<u32>::create(&arena, 2).expect("room");
    let mut other =
        Part::start_on("part_sends_three_and_stays", &segment, &[channel.offset(), ready.offset()]);
    let mut receiver = Receiver::<u64>::open(&segment, channel.offset()).expect("unopened");
    Receiver::<u32>::open(&segment, ready.offset())
        .expect("unopened")
        .receive()
        .expect("it has sent all three");
    let process = other.pid();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            (0..3).for_each(|value| assert_eq!(receiver.receive(), Ok(value)));
            receiver.receive()
        });
        other.kill();
        let gone = Err(ReceiveError::PeerGone { channel: channel.offset(), process });
        assert_eq!(waiting.join().expect("it ends"), gone);
    });
    drop(receiver);
    let used = arena.used();
    drop(channel);
    assert!(arena.used() < used, "a dead sender keeps no memory");
}

#[test]
#[ignore = "a part of the_death_of_the_sender_is_told_by_its_number_after_all_that_it_sent"]
fn part_sends_three_and_stays() {
    let Some((segment, places)) = given() else { return };
    let mut sender = Sender::<u64>::open(&segment, places[0]).expect("unopened");
    (0..3).for_each(|value| sender.send(value).expect("room"));
    Sender::<u32>::open(&segment, places[1]).expect("unopened").send(1).expect("room");
    std::io::stdin().read_line(&mut String::new()).expect("the parent's pipe");
}

#[test]
fn the_death_of_the_receiver_is_told_by_its_number() {
    let (segment, arena) = memory(1 << 20);
    let there = Channel::<u64>::create(&arena, 2).expect("room");
    let ready = Channel::<u32>::create(&arena, 2).expect("room");
    let mut other =
        Part::start_on("part_never_receives", &segment, &[there.offset(), ready.offset()]);
    let mut sender = Sender::<u64>::open(&segment, there.offset()).expect("unopened");
    Receiver::<u32>::open(&segment, ready.offset())
        .expect("unopened")
        .receive()
        .expect("it has opened its end");
    sender.send(0).and_then(|()| sender.send(1)).expect("room for two");
    let process = other.pid();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| sender.send(2));
        other.kill();
        let gone = Err(SendError::PeerGone { channel: there.offset(), process });
        assert_eq!(waiting.join().expect("it ends"), gone);
    });
}

#[test]
#[ignore = "a part of the_death_of_the_receiver_is_told_by_its_number"]
fn part_never_receives() {
    let Some((segment, places)) = given() else { return };
    let _receiver = Receiver::<u64>::open(&segment, places[0]).expect("unopened");
    Sender::<u32>::open(&segment, places[1]).expect("unopened").send(1).expect("room");
    std::io::stdin().read_line(&mut String::new()).expect("the parent's pipe");
}

#[test]
fn an_end_opens_once_with_its_own_type_where_a_channel_is() {
    let (segment, arena) = memory(1 << 20);
    let channel = Channel::<f64>::create(&arena, 8).expect("room");
    let at = channel.offset();
    assert!(matches!(
        Sender::<u64>::open(&segment, at),
        Err(OpenError::OtherType { asked: "u64", .. })
    ));
    assert!(matches!(Sender::<f64>::open(&segment, Offset(64)), Err(OpenError::NoChannel { .. })));
    assert!(matches!(Sender::<f64>::open(&segment, Offset(1 << 20)), Err(OpenError::Segment(_))));
    let sender = Sender::<f64>::open(&segment, at).expect("unopened");
    let own = Some(std::process::id());
    let second = Sender::<f64>::open(&segment, at).map(|_| ());
    assert!(
        matches!(second, Err(OpenError::AlreadyOpened { end: End::Sender, process, .. }) if process == own)
    );
    drop(sender);
    let later = Sender::<f64>::open(&segment, at).map(|_| ());
    assert!(matches!(later, Err(OpenError::AlreadyOpened { end: End::Sender, process: None, .. })));
    assert!(matches!(
        Channel::<u32>::create(&arena, 0),
        Err(OpenError::Capacity { capacity: 0, .. })
    ));
    assert!(matches!(Channel::<u32>::create(&arena, u64::MAX), Err(OpenError::Capacity { .. })));
    assert!(matches!(Channel::<u32>::create(&arena, 1 << 20), Err(OpenError::Arena(_))));
}

#[test]
fn whoever_waits_learns_that_the_other_end_was_closed() {
    let (_, arena) = memory(1 << 20);
    let (mut sender, receiver) = pair::<u64>(&arena, 1).expect("room");
    sender.send(1).expect("room");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || sender.send(2));
        drop(receiver);
        assert!(matches!(waiting.join().expect("it ends"), Err(SendError::Closed { .. })));
    });
    let (sender, mut receiver) = pair::<u64>(&arena, 1).expect("room");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || receiver.receive());
        drop(sender);
        assert!(matches!(waiting.join().expect("it ends"), Err(ReceiveError::Closed { .. })));
    });
    let (mut sender, receiver) = pair::<u64>(&arena, 8).expect("room");
    drop(receiver);
    assert!(matches!(sender.send(2), Err(SendError::Closed { .. })), "although there is room");
    drop(sender);
    assert_eq!(arena.used(), 0, "closed pairs keep nothing");
}

#[test]
fn a_deadline_ends_the_wait_and_nothing_else() {
    let (_, arena) = memory(1 << 20);
    let (mut sender, mut receiver) = pair::<f32>(&arena, 1).expect("room");
    let soon = || Instant::now() + Duration::from_millis(2);
    assert!(matches!(receiver.receive_until(soon()), Err(ReceiveError::DeadlinePassed { .. })));
    sender.send_until(1.5, soon()).expect("room");
    assert!(matches!(sender.send_until(2.5, soon()), Err(SendError::DeadlinePassed { .. })));
    assert_eq!(receiver.receive_until(soon()), Ok(1.5));
    assert!(
        matches!(receiver.receive_until(soon()), Err(ReceiveError::DeadlinePassed { .. })),
        "2.5 was not sent"
    );
    sender.send_until(3.5, soon()).expect("room");
    assert_eq!(receiver.receive(), Ok(3.5));
}

#[test]
fn a_channel_whose_owner_goes_is_closed_for_who_has_not_come_and_kept_for_who_has() {
    let (segment, arena) = memory(1 << 20);
    let channel = Channel::<u64>::create(&arena, 4).expect("room");
    let at = channel.offset();
    let mut receiver = Receiver::<u64>::open(&segment, at).expect("unopened");
    let used = arena.used();
    drop(channel);
    assert!(matches!(receiver.receive(), Err(ReceiveError::Closed { .. })));
    let late = Sender::<u64>::open(&segment, at).map(|_| ());
    assert!(matches!(late, Err(OpenError::AlreadyOpened { process: None, .. })));
    assert_eq!(arena.used(), used, "the receiver still holds it");
    drop(Channel::<u64>::create(&arena, 4).expect("room"));
    assert_eq!(arena.used(), used, "nobody held this one");
}

#[test]
fn whatever_somebody_writes_over_a_channel_nobody_panics() {
    let (segment, arena) = memory(1 << 20);
    for seed in 1..200u64 {
        overwritten(&segment, &arena, seed);
    }
}

/// Opens a channel, overwrites it, and uses it; any outcome will do that is one.
fn overwritten(segment: &Arc<Segment>, arena: &Arc<Arena>, seed: u64) {
    let channel = Channel::<u64>::create(arena, 4).expect("room");
    let mut sender = Sender::<u64>::open(segment, channel.offset()).expect("unopened");
    let mut receiver = Receiver::<u64>::open(segment, channel.offset()).expect("unopened");
    let words = segment
        .slice_at::<AtomicU64>(channel.offset(), (channel.bytes() / 8) as usize)
        .expect("inside");
    for (index, word) in words.iter().enumerate() {
        word.store(key::of_lap(seed * 1000 + index as u64), Ordering::Relaxed);
    }
    let deadline = Instant::now();
    for value in 0..20 {
        let _ = sender.try_send(value);
        let _ = receiver.try_receive();
        let _ = sender.send_until(value, deadline);
        let _ = receiver.receive_until(deadline);
    }
    let _ = Sender::<u64>::open(segment, channel.offset());
    drop((sender, receiver));
    for word in words {
        word.store(0, Ordering::Relaxed);
    }
}

#[test]
fn an_idle_receiver_sleeps() {
    let (_, arena) = memory(1 << 20);
    let (mut sender, mut receiver) = pair::<u64>(&arena, 4).expect("room");
    let stat = |thread: &str| {
        std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).expect("/proc")
    };
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || {
            tell.send(rustix::thread::gettid().as_raw_nonzero().to_string())
                .expect("the test listens");
            receiver.receive()
        });
        let thread = told.recv().expect("it starts");
        until("it sleeps", || {
            stat(&thread).rsplit(") ").next().is_some_and(|rest| rest.starts_with('S'))
        });
        sender.send(9).expect("room");
        assert_eq!(waiting.join().expect("it ends"), Ok(9));
    });
}
