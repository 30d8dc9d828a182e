//! Bulk transfers of which an end is late, is closed, dies, or overwrites the link.

use super::{AREA, link_and_window, message};
use crate::child::{Child, memory, segment_and_offsets};
use queues::bulk::{
    BulkError, BulkLink, DirectAccessError, End, Path, Policy, Receiver, Sender, pair,
};
use queues::error::CreateError;
use queues::window::RemoteWindow;
use shm::arena::Arena;
use shm::segment::{Offset, Segment};
use shm::sync::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

testing::tests![
    a_message_longer_than_the_buffer_stays_available,
    a_message_aborted_at_its_deadline_was_never_sent,
    the_death_of_either_process_is_reported_with_its_number,
    each_end_connects_once_and_reports_when_the_other_is_closed,
    a_waiting_sender_fails_when_the_receiver_is_closed,
    an_overwritten_link_causes_no_panic,
];
testing::parts![child_receives_for_ever, child_sends_for_ever];

fn a_message_longer_than_the_buffer_stays_available() {
    let (_, arena) = memory(8 << 20);
    let (mut sender, mut receiver) = pair(&arena, AREA).expect("memory");
    for length in [100, 1 << 20] {
        std::thread::scope(|scope| {
            let sending = scope.spawn(|| sender.send(&message(5, length)));
            let mut buffer = vec![0; length];
            let small = length as u64 - 1;
            match receiver.recv(&mut buffer[..length - 1]) {
                Err(BulkError::TooLong { bytes, capacity: there, .. }) => {
                    assert_eq!((bytes, there), (length as u64, small))
                }
                other => panic!("{other:?}"),
            }
            assert_eq!(receiver.recv(&mut buffer).expect("still there").bytes, length);
            assert!(buffer == message(5, length));
            sending.join().expect("it ends").expect("received");
        });
    }
}

fn a_message_aborted_at_its_deadline_was_never_sent() {
    let (_, arena) = memory(8 << 20);
    let soon = || Instant::now() + Duration::from_millis(2);
    let late = |outcome: Result<Path, BulkError>| {
        assert!(matches!(outcome, Err(BulkError::Timeout { .. })))
    };
    let (mut sender, mut receiver) = pair(&arena, 4096).expect("memory");
    let mut buffer = vec![0; 100_000];
    assert!(matches!(receiver.recv_deadline(&mut buffer, soon()), Err(BulkError::Timeout { .. })));
    for policy in [Policy::Staged, Policy::Direct] {
        if policy == Policy::Direct && !sender.direct_path().exists() {
            continue;
        }
        sender.set_policy(policy);
        // Without a receiver the send stops in the middle of the staging area, or before anything
        // was copied.
        late(sender.send_deadline(&message(1, 100_000), soon()));
        late(sender.send_deadline(&message(2, 100_000), soon()));
        std::thread::scope(|scope| {
            let sending = scope.spawn(|| {
                sender
                    .send(&message(3, 50_000))
                    .and_then(|_| sender.send(&message(4, 70_000)))
                    .expect("received")
            });
            for (number, length) in [(3, 50_000), (4, 70_000)] {
                assert_eq!(receiver.recv(&mut buffer).expect("sent").bytes, length);
                assert!(
                    buffer[..length] == message(number, length),
                    "the first that was not aborted"
                );
            }
            sending.join().expect("it ends");
        });
    }
}

/// The other process is killed at an arbitrary moment in the middle of a stream of messages.
fn the_death_of_either_process_is_reported_with_its_number() {
    for (policy, part) in [
        (Policy::Staged, "bulk::failures::child_receives_for_ever"),
        (Policy::Automatic, "bulk::failures::child_receives_for_ever"),
        (Policy::Staged, "bulk::failures::child_sends_for_ever"),
        (Policy::Automatic, "bulk::failures::child_sends_for_ever"),
    ] {
        let (segment, arena) = memory(8 << 20);
        let (link, ready) = link_and_window(&arena, 16 << 10);
        ready.local().put_value(0, u64::from(policy == Policy::Staged)).expect("inside");
        let mut other = Child::start_on(part, &segment, &[link.offset(), ready.offset()]);
        let process = other.pid();
        let outcome = std::thread::scope(|scope| {
            let streaming = scope.spawn(|| match part {
                "bulk::failures::child_sends_for_ever" => {
                    let mut receiver = Receiver::connect(&segment, link.offset()).expect("free");
                    receive_for_ever(&mut receiver, ready.local())
                }
                _ => send_for_ever(
                    &mut Sender::connect(&segment, link.offset()).expect("free"),
                    policy,
                ),
            });
            ready.wait_for_notifications(20, None);
            other.kill();
            streaming.join().expect("it ends")
        });
        match outcome {
            BulkError::ProcessExited { pid: gone, .. } => assert_eq!(gone, process),
            other => panic!("{other:?}"),
        }
        drop((link, ready));
        assert_eq!(arena.used(), 0, "dead processes keep no memory");
    }
}

fn send_for_ever(sender: &mut Sender, policy: Policy) -> BulkError {
    sender.set_policy(policy);
    (0..).find_map(|number| sender.send(&message(number, 100_000)).err()).expect("for ever")
}

/// Receives until an error, compares every byte, and notifies the window of every message.
fn receive_for_ever(receiver: &mut Receiver, count: &RemoteWindow) -> BulkError {
    let mut buffer = vec![0; 100_000];
    let mut receive = |number: u64| {
        let outcome = receiver.recv(&mut buffer);
        count.notify().expect("of this node");
        outcome.map(|_| assert!(buffer == message(number, 100_000))).err()
    };
    (0..).find_map(&mut receive).expect("for ever")
}

/// Child process of `the_death_of_either_process_is_reported_with_its_number`.
fn child_receives_for_ever() {
    let (segment, offsets) = segment_and_offsets();
    let ready = RemoteWindow::connect(&segment, offsets[1]).expect("exposed");
    receive_for_ever(&mut Receiver::connect(&segment, offsets[0]).expect("free"), &ready);
}

/// Child process of `the_death_of_either_process_is_reported_with_its_number`.
fn child_sends_for_ever() {
    let (segment, offsets) = segment_and_offsets();
    let ready = RemoteWindow::connect(&segment, offsets[1]).expect("exposed");
    let staged = ready.get_value::<u64>(0) == Ok(1);
    let policy = if staged { Policy::Staged } else { Policy::Automatic };
    send_for_ever(&mut Sender::connect(&segment, offsets[0]).expect("free"), policy);
}

fn each_end_connects_once_and_reports_when_the_other_is_closed() {
    let (segment, arena) = memory(8 << 20);
    let link = BulkLink::create(&arena, 4096).expect("memory");
    assert!(matches!(Sender::connect(&segment, Offset(64)), Err(CreateError::NotFound { .. })));
    let mut sender = Sender::connect(&segment, link.offset()).expect("free");
    assert_eq!(sender.direct_path().here, Err(DirectAccessError::Unknown), "not connected yet");
    let own = Some(std::process::id());
    let second = Sender::connect(&segment, link.offset()).map(|_| ());
    assert!(
        matches!(second, Err(CreateError::Taken { end: End::Sender, process, .. }) if process == own),
        "{second:?}"
    );
    let mut receiver = Receiver::connect(&segment, link.offset()).expect("free");
    sender.send(&[1, 2, 3]).expect("memory");
    drop(sender);
    let mut buffer = [0; 10];
    assert_eq!(receiver.recv(&mut buffer).expect("sent before it closed").bytes, 3);
    assert!(matches!(receiver.recv(&mut buffer), Err(BulkError::Closed { .. })));
    drop((receiver, link));
    assert_eq!(arena.used(), 0);
    let (mut sender, receiver) = pair(&arena, 4096).expect("memory");
    drop(receiver);
    assert!(matches!(sender.send(&[1]), Err(BulkError::Closed { .. })));
    assert!(matches!(sender.send(&[1; 1 << 20]), Err(BulkError::Closed { .. })));
    for staging in [0, 4095, u64::MAX] {
        assert!(matches!(BulkLink::create(&arena, staging), Err(CreateError::Size { .. })));
    }
    // A dropped owner closes the end that is still free.
    let link = BulkLink::create(&arena, 4096).expect("memory");
    let mut receiver = Receiver::connect(&segment, link.offset()).expect("free");
    drop(link);
    assert!(matches!(receiver.recv(&mut buffer), Err(BulkError::Closed { .. })));
}

fn a_waiting_sender_fails_when_the_receiver_is_closed() {
    let (_, arena) = memory(8 << 20);
    for policy in [Policy::Staged, Policy::Automatic] {
        let (mut sender, receiver) = pair(&arena, 4096).expect("memory");
        sender.set_policy(policy);
        std::thread::scope(|scope| {
            let sending = scope.spawn(move || sender.send(&message(1, 1 << 20)));
            drop(receiver);
            assert!(matches!(sending.join().expect("it ends"), Err(BulkError::Closed { .. })));
        });
    }
}

fn an_overwritten_link_causes_no_panic() {
    let (segment, arena) = memory(4 << 20);
    for seed in 1..200_u64 {
        overwritten(&segment, &arena, seed);
    }
}

/// Creates a link, overwrites its positions and its staging area, and uses it. Any result is
/// acceptable.
fn overwritten(segment: &Arc<Segment>, arena: &Arc<Arena>, seed: u64) {
    let link = BulkLink::create(arena, 4096).expect("memory");
    let mut sender = Sender::connect(segment, link.offset()).expect("free");
    let mut receiver = Receiver::connect(segment, link.offset()).expect("free");
    let noise = message(seed, link.bytes() as usize);
    let (noise, _) = noise.as_chunks::<8>();
    let words = segment.slice_at::<AtomicU64>(link.offset(), noise.len()).expect("inside");
    // Small numbers pass more checks than large ones. The first line, with the holders of the ends,
    // is kept: without it every wait would end at once.
    for (index, (word, noise)) in words.iter().zip(noise).enumerate().skip(8) {
        let noise = u64::from_le_bytes(*noise);
        let value = if seed.is_multiple_of(2) { noise } else { noise >> (noise % 64) };
        word.store(
            if index < 24 && seed.is_multiple_of(3) { value % 4096 } else { value },
            Ordering::Relaxed,
        );
    }
    let mut buffer = vec![0; 1 << 16];
    let now = Instant::now();
    sender.set_policy(Policy::Staged);
    for _ in 0..5 {
        let _ = sender.send_deadline(&[1; 100], now);
        let _ = receiver.recv_deadline(&mut buffer, now);
    }
    drop((sender, receiver));
    for word in words {
        word.store(0, Ordering::Relaxed);
    }
}
