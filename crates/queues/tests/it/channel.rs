//! Channels: every value of every type, in order, once, between threads and processes; deaths and
//! closed ends.

#[path = "../../src/channel/key.rs"]
mod key;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use crate::child::{Child, memory, segment_and_offsets, until};
use crate::ends;
use proptest::prelude::*;
use queues::channel::{Channel, End, Receiver, RecvError, SendError, Sender, Value, pair};
use queues::error::CreateError;
use shm::arena::Arena;
use shm::segment::{Offset, Segment};
use shm::sync::{AtomicU64, Ordering};
use testing::mechanism::{self, Wait, closed_ends_end_waits, deadlines_end_waits_without_loss};

testing::tests![
    every_type_behaves_like_a_queue_over_its_full_range,
    values_that_change_no_slot_arrive,
    a_long_stream_between_two_threads_keeps_its_order,
    a_stream_to_another_process_and_back_keeps_its_order,
    a_sleeping_receiver_is_woken_and_a_sleeping_sender_too,
    the_death_of_the_sender_is_reported_after_its_values,
    the_death_of_the_receiver_is_reported_with_its_number,
    an_end_connects_once_and_with_its_own_type,
    waits_end_by_a_close_and_by_a_deadline,
    a_dropped_channel_closes_its_free_end_and_keeps_memory_for_the_taken_one,
    an_overwritten_channel_causes_no_panic,
    an_idle_receiver_sleeps,
];
testing::parts![child_answers, child_sleeps, child_sends_three_and_stays, child_never_receives,];

/// Values that a property test sends.
#[derive(Debug, Clone, Copy)]
enum Choice {
    /// Any bits.
    Any(u64),
    /// The value that leaves this word in its slot in any lap: sent twice in a row into one slot,
    /// it changes nothing there.
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
    /// Returns the bits of the value at `position` in a ring of `slots` slots.
    fn bits(self, position: u64, slots: u64) -> u64 {
        match self {
            Choice::Any(bits) => bits,
            Choice::Leaving(word) => key::of_lap(position / slots) ^ word,
        }
    }
}

/// Sends and receives in the order of `turns` (true: send) and compares every result with a plain
/// queue.
fn behaves_like_a_queue<T: Value>(
    capacity: u64,
    values: &[Choice],
    turns: &[bool],
    of_bits: impl Fn(u64) -> T,
    to_bits: impl Fn(T) -> u64,
) {
    let (_, arena) = memory(1 << 20);
    let (mut sender, mut receiver) = pair::<T>(&arena, capacity).expect("space");
    let slots =
        Channel::<T>::create(&arena, capacity).expect("space").capacity().next_power_of_two();
    let mut pending = VecDeque::new();
    let mut sent = 0;
    for (choice, &send) in values.iter().zip(turns) {
        if send {
            let bits = to_bits(of_bits(choice.bits(sent, slots)));
            match sender.try_send(of_bits(bits)) {
                Ok(()) => {
                    pending.push_back(bits);
                    sent += 1;
                    assert!(pending.len() as u64 <= slots);
                }
                Err(SendError::Full) => {
                    assert!(pending.len() as u64 >= capacity, "what fits always fits")
                }
                Err(other) => panic!("{other}"),
            }
        } else {
            match (receiver.try_recv(), pending.pop_front()) {
                (Ok(value), Some(expected)) => assert_eq!(to_bits(value), expected),
                (Err(RecvError::Empty), None) => {}
                (outcome, expected) => panic!("{:?} instead of {expected:?}", outcome.map(to_bits)),
            }
        }
    }
    drop(sender);
    for expected in pending {
        assert_eq!(to_bits(receiver.try_recv().expect("sent before the end")), expected);
    }
    assert!(matches!(receiver.try_recv(), Err(RecvError::Closed)));
}

/// Returns a line that differs in every word.
fn line(bits: u64) -> [u64; 8] {
    std::array::from_fn(|index| {
        if index == 7 { bits } else { bits.rotate_left(index as u32 * 7) ^ index as u64 }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

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

fn values_that_change_no_slot_arrive() {
    let (segment, arena) = memory(1 << 20);
    let channel = Channel::<u64>::create(&arena, 4).expect("space");
    assert_eq!(channel.capacity(), 4);
    let slots_at = channel.offset().plus(channel.bytes() - 4 * 8).expect("inside");
    let mut sender = Sender::<u64>::connect(&segment, channel.offset()).expect("free");
    let mut receiver = Receiver::<u64>::connect(&segment, channel.offset()).expect("free");
    for lap in 0..1000 {
        for _ in 0..4 {
            sender.try_send(key::of_lap(lap)).expect("space");
        }
        for _ in 0..4 {
            assert_eq!(receiver.try_recv().expect("sent"), key::of_lap(lap));
        }
        assert!(matches!(receiver.try_recv(), Err(RecvError::Empty)));
        for slot in segment.slice_at::<AtomicU64>(slots_at, 4).expect("inside") {
            assert_eq!(
                slot.load(Ordering::Relaxed),
                0,
                "so that only the notice announces the value"
            );
        }
    }
}

/// Returns the value at a position of a long stream: runs of unchanged words among others, for a
/// ring of `slots` slots.
fn streamed(position: u64, slots: u64) -> u64 {
    let choice = match position / 5 % 3 {
        0 => Choice::Any(position),
        1 => Choice::Leaving(0),
        _ => Choice::Leaving(position / 64),
    };
    choice.bits(position, slots)
}

fn a_long_stream_between_two_threads_keeps_its_order() {
    let (_, arena) = memory(1 << 20);
    for capacity in [1, 2, 7, 64] {
        let (mut sender, mut receiver) = pair::<u64>(&arena, capacity).expect("space");
        let slots = capacity.next_power_of_two();
        let count = 2000 * slots;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                (0..count).for_each(|i| sender.send(streamed(i, slots)).expect("received"))
            });
            for position in 0..count {
                assert_eq!(
                    receiver.recv().expect("sent"),
                    streamed(position, slots),
                    "at {position}"
                );
            }
            assert!(matches!(receiver.recv(), Err(RecvError::Closed)));
        });
    }
}

fn a_stream_to_another_process_and_back_keeps_its_order() {
    let (segment, arena) = memory(1 << 20);
    let there = Channel::<[u64; 8]>::create(&arena, 16).expect("space");
    let back = Channel::<u64>::create(&arena, 16).expect("space");
    let mut other =
        Child::start_on("channel::child_answers", &segment, &[there.offset(), back.offset()]);
    let mut sender = Sender::<[u64; 8]>::connect(&segment, there.offset()).expect("free");
    let mut receiver = Receiver::<u64>::connect(&segment, back.offset()).expect("free");
    for position in 0..20_000 {
        sender.send(line(position)).expect("received");
        if position % 3 == 0 {
            assert_eq!(receiver.recv().expect("answered"), !position);
        }
    }
    drop(sender);
    assert!(matches!(receiver.recv(), Err(RecvError::Closed)));
    assert!(other.succeeds());
}

/// Child process of `a_stream_to_another_process_and_back_keeps_its_order`.
fn child_answers() {
    let (segment, offsets) = segment_and_offsets();
    let mut receiver = Receiver::<[u64; 8]>::connect(&segment, offsets[0]).expect("free");
    let mut sender = Sender::<u64>::connect(&segment, offsets[1]).expect("free");
    let mut position = 0;
    while let Ok(value) = receiver.recv() {
        assert_eq!(value, line(position));
        if position % 3 == 0 {
            sender.send(!position).expect("received");
        }
        position += 1;
    }
    assert_eq!(position, 20_000);
}

fn a_sleeping_receiver_is_woken_and_a_sleeping_sender_too() {
    let (segment, arena) = memory(1 << 20);
    let there = Channel::<u64>::create(&arena, 2).expect("space");
    let back = Channel::<u64>::create(&arena, 2).expect("space");
    let mut other =
        Child::start_on("channel::child_sleeps", &segment, &[there.offset(), back.offset()]);
    let mut sender = Sender::<u64>::connect(&segment, there.offset()).expect("free");
    let mut receiver = Receiver::<u64>::connect(&segment, back.offset()).expect("free");
    assert_eq!(receiver.recv().expect("it starts"), 0);
    other.until_asleep();
    sender.send(1).expect("received");
    assert_eq!(receiver.recv().expect("woken"), 1);
    // It sends more values than fit and sleeps until slots are free.
    other.until_asleep();
    for expected in 2..8 {
        assert_eq!(receiver.recv().expect("woken again"), expected);
    }
    assert!(other.succeeds());
}

/// Child process of `a_sleeping_receiver_is_woken_and_a_sleeping_sender_too`.
fn child_sleeps() {
    let (segment, offsets) = segment_and_offsets();
    let mut receiver = Receiver::<u64>::connect(&segment, offsets[0]).expect("free");
    let mut sender = Sender::<u64>::connect(&segment, offsets[1]).expect("free");
    sender.send(0).expect("space");
    let value = receiver.recv().expect("sent");
    for value in value..8 {
        sender.send(value).expect("space at last");
    }
}

fn the_death_of_the_sender_is_reported_after_its_values() {
    let (segment, arena) = memory(1 << 20);
    let channel = Channel::<u64>::create(&arena, 8).expect("space");
    let ready = Channel::<u32>::create(&arena, 2).expect("space");
    let mut other = Child::start_on(
        "channel::child_sends_three_and_stays",
        &segment,
        &[channel.offset(), ready.offset()],
    );
    let mut receiver = Receiver::<u64>::connect(&segment, channel.offset()).expect("free");
    Receiver::<u32>::connect(&segment, ready.offset())
        .expect("free")
        .recv()
        .expect("it has sent all three");
    let process = other.pid();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            (0..3).for_each(|value| assert_eq!(receiver.recv(), Ok(value)));
            receiver.recv()
        });
        other.kill();
        let gone = Err(RecvError::ProcessExited { pid: process });
        assert_eq!(waiting.join().expect("it ends"), gone);
    });
    drop(receiver);
    let used = arena.used();
    drop(channel);
    assert!(arena.used() < used, "a dead sender keeps no memory");
}

/// Child process of `the_death_of_the_sender_is_reported_after_its_values`.
fn child_sends_three_and_stays() {
    let (segment, offsets) = segment_and_offsets();
    let mut sender = Sender::<u64>::connect(&segment, offsets[0]).expect("free");
    (0..3).for_each(|value| sender.send(value).expect("space"));
    Sender::<u32>::connect(&segment, offsets[1]).expect("free").send(1).expect("space");
    std::io::stdin().read_line(&mut String::new()).expect("the parent's pipe");
}

fn the_death_of_the_receiver_is_reported_with_its_number() {
    let (segment, arena) = memory(1 << 20);
    let there = Channel::<u64>::create(&arena, 2).expect("space");
    let ready = Channel::<u32>::create(&arena, 2).expect("space");
    let mut other = Child::start_on(
        "channel::child_never_receives",
        &segment,
        &[there.offset(), ready.offset()],
    );
    let mut sender = Sender::<u64>::connect(&segment, there.offset()).expect("free");
    Receiver::<u32>::connect(&segment, ready.offset())
        .expect("free")
        .recv()
        .expect("it has opened its end");
    sender.send(0).and_then(|()| sender.send(1)).expect("space for two");
    let process = other.pid();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| sender.send(2));
        other.kill();
        let gone = Err(SendError::ProcessExited { pid: process });
        assert_eq!(waiting.join().expect("it ends"), gone);
    });
}

/// Child process of `the_death_of_the_receiver_is_reported_with_its_number`.
fn child_never_receives() {
    let (segment, offsets) = segment_and_offsets();
    let _receiver = Receiver::<u64>::connect(&segment, offsets[0]).expect("free");
    Sender::<u32>::connect(&segment, offsets[1]).expect("free").send(1).expect("space");
    std::io::stdin().read_line(&mut String::new()).expect("the parent's pipe");
}

fn an_end_connects_once_and_with_its_own_type() {
    let (segment, arena) = memory(1 << 20);
    let channel = Channel::<f64>::create(&arena, 8).expect("space");
    let at = channel.offset();
    assert!(matches!(
        Sender::<u64>::connect(&segment, at),
        Err(CreateError::OtherType { requested: "u64", .. })
    ));
    assert!(matches!(
        Sender::<f64>::connect(&segment, Offset(64)),
        Err(CreateError::NotFound { .. })
    ));
    assert!(matches!(
        Sender::<f64>::connect(&segment, Offset(1 << 20)),
        Err(CreateError::Segment(_))
    ));
    let sender = Sender::<f64>::connect(&segment, at).expect("free");
    let own = Some(std::process::id());
    let second = Sender::<f64>::connect(&segment, at).map(|_| ());
    assert!(
        matches!(second, Err(CreateError::Taken { end: End::Sender, process, .. }) if process == own)
    );
    drop(sender);
    let later = Sender::<f64>::connect(&segment, at).map(|_| ());
    assert!(matches!(later, Err(CreateError::Taken { end: End::Sender, process: None, .. })));
    assert!(matches!(
        Channel::<u32>::create(&arena, 0),
        Err(CreateError::Size { requested: 0, .. })
    ));
    assert!(matches!(Channel::<u32>::create(&arena, u64::MAX), Err(CreateError::Size { .. })));
    assert!(matches!(Channel::<u32>::create(&arena, 1 << 20), Err(CreateError::Arena(_))));
}

fn waits_end_by_a_close_and_by_a_deadline() {
    let (_, arena) = memory(1 << 20);
    let open = || {
        let (sender, receiver) = pair::<u64>(&arena, 1).expect("space");
        (ends::channel(sender), ends::of_channel(0, Box::new(receiver)))
    };
    closed_ends_end_waits(open);
    let (mut sender, mut receiver) = open();
    deadlines_end_waits_without_loss(&mut sender, &mut receiver);
    drop(receiver);
    assert_eq!(sender(9, Wait::Forever), Err(mechanism::End::Closed), "at once");
    drop(sender);
    assert_eq!(arena.used(), 0, "closed pairs keep nothing");
}

fn a_dropped_channel_closes_its_free_end_and_keeps_memory_for_the_taken_one() {
    let (segment, arena) = memory(1 << 20);
    let channel = Channel::<u64>::create(&arena, 4).expect("space");
    let at = channel.offset();
    let mut receiver = Receiver::<u64>::connect(&segment, at).expect("free");
    let used = arena.used();
    drop(channel);
    assert!(matches!(receiver.recv(), Err(RecvError::Closed)));
    let late = Sender::<u64>::connect(&segment, at).map(|_| ());
    assert!(matches!(late, Err(CreateError::Taken { process: None, .. })));
    assert_eq!(arena.used(), used, "the receiver still uses it");
    drop(Channel::<u64>::create(&arena, 4).expect("space"));
    assert_eq!(arena.used(), used, "both ends were free");
}

fn an_overwritten_channel_causes_no_panic() {
    let (segment, arena) = memory(1 << 20);
    for seed in 1..200u64 {
        overwritten(&segment, &arena, seed);
    }
}

/// Creates a channel, overwrites it, and uses it. Any result is acceptable.
fn overwritten(segment: &Arc<Segment>, arena: &Arc<Arena>, seed: u64) {
    let channel = Channel::<u64>::create(arena, 4).expect("space");
    let mut sender = Sender::<u64>::connect(segment, channel.offset()).expect("free");
    let mut receiver = Receiver::<u64>::connect(segment, channel.offset()).expect("free");
    let words = segment
        .slice_at::<AtomicU64>(channel.offset(), (channel.bytes() / 8) as usize)
        .expect("inside");
    for (index, word) in words.iter().enumerate() {
        word.store(key::of_lap(seed * 1000 + index as u64), Ordering::Relaxed);
    }
    let deadline = Instant::now();
    for value in 0..20 {
        let _ = sender.try_send(value);
        let _ = receiver.try_recv();
        let _ = sender.send_deadline(value, deadline);
        let _ = receiver.recv_deadline(deadline);
    }
    let _ = Sender::<u64>::connect(segment, channel.offset());
    drop((sender, receiver));
    for word in words {
        word.store(0, Ordering::Relaxed);
    }
}

fn an_idle_receiver_sleeps() {
    let (_, arena) = memory(1 << 20);
    let (mut sender, mut receiver) = pair::<u64>(&arena, 4).expect("space");
    let stat = |thread: &str| {
        std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).expect("/proc")
    };
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || {
            tell.send(rustix::thread::gettid().as_raw_nonzero().to_string())
                .expect("the test listens");
            receiver.recv()
        });
        let thread = told.recv().expect("it starts");
        until("it sleeps", || {
            stat(&thread).rsplit(") ").next().is_some_and(|rest| rest.starts_with('S'))
        });
        sender.send(9).expect("space");
        assert_eq!(waiting.join().expect("it ends"), Ok(9));
    });
}
