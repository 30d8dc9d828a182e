//! Bulk transfers: every byte over every path between two processes, also when a path is forbidden.

mod failures;

use crate::child::{Child, memory, segment_and_offsets, until};
use queues::bulk::{
    BulkError, BulkLink, DEFAULT_STAGING_BYTES, DirectAccessError, Path, Policy, Receiver, Sender,
    pair,
};
use queues::window::{RemoteWindow, Window};
use shm::arena::Arena;
use shm::owned::OwnedBytes;
use std::sync::Arc;
use std::time::Duration;

testing::tests![
    every_byte_arrives_through_the_staging_area,
    every_byte_arrives_directly_if_permitted,
    every_byte_arrives_over_the_chosen_path,
    bytes_in_the_segment_are_read_in_place,
    a_message_is_received_while_its_sender_computes,
    a_panic_of_the_computation_leaves_the_link_usable,
    a_computation_goes_on_beside_a_receiver_that_is_gone,
    without_a_direct_path_everything_is_staged_and_the_reason_is_kept,
];
testing::tests![needs(Root): the_only_end_with_permission_copies_for_both];
testing::parts![
    child_receives_all,
    child_reads_in_place,
    child_isolated_sends,
    child_isolated_receives,
    child_unprivileged_receives,
    child_unprivileged_sends,
];

/// Returns the bytes of message `number`, different at every position and for every number.
fn message(number: u64, bytes: usize) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut all: Vec<u8> =
        std::iter::repeat_with(|| next().to_le_bytes()).take(bytes.div_ceil(8)).flatten().collect();
    all.truncate(bytes);
    all
}

/// Longest wait for what must happen.
const LIMIT: Duration = Duration::from_secs(60);

/// Staging area; many of the lengths below are more than twice as long.
const AREA: u64 = 16 << 10;

/// Lengths around every limit: empty, one line, one piece, the staging area, several parts and odd
/// ends.
const LENGTHS: [usize; 16] = [
    0,
    1,
    63,
    64,
    65,
    1000,
    1024,
    4096,
    8191,
    32_767,
    32_768,
    100_000,
    (256 << 10) - 64,
    256 << 10,
    (1 << 20) + 1,
    (3 << 20) + 4097,
];

/// Creates a link, and a window through which the other process of a test reports that it is ready.
fn link_and_window(arena: &Arc<Arena>, staging: u64) -> (BulkLink, Window) {
    (BulkLink::create(arena, staging).expect("memory"), Window::create(arena, 64).expect("memory"))
}

/// Receives messages of all lengths, compares every byte, and returns their paths.
fn receive_all(receiver: &mut Receiver) -> Vec<Path> {
    let mut buffer = vec![0; 4 << 20];
    let mut paths = Vec::new();
    for (number, length) in LENGTHS.into_iter().enumerate() {
        buffer[..length + 1].fill(0xee);
        let received = receiver.recv(&mut buffer[..length + 1]).expect("sent");
        assert_eq!(received.bytes, length);
        assert!(
            buffer[..length] == message(number as u64, length),
            "every byte of the message of {length} bytes"
        );
        assert_eq!(buffer[length], 0xee, "and not one more");
        paths.push(received.path);
    }
    paths
}

/// Sends messages of all lengths from private memory.
fn send_all(sender: &mut Sender) -> Vec<Path> {
    let send = |(number, length): (usize, usize)| {
        sender.send(&message(number as u64, length)).expect("received")
    };
    LENGTHS.into_iter().enumerate().map(send).collect()
}

/// Runs `test` with a sender here and a child that receives all lengths, over a link with this
/// staging area.
fn with_a_receiver(staging: u64, part: &str, test: impl FnOnce(&mut Sender, &Window)) {
    let (segment, arena) = memory(8 << 20);
    let (link, ready) = link_and_window(&arena, staging);
    let mut other = Child::start_on(part, &segment, &[link.offset(), ready.offset()]);
    ready.wait_for_notifications(1, None);
    let mut sender = Sender::connect(&segment, link.offset()).expect("free");
    test(&mut sender, &ready);
    drop(sender);
    assert!(other.succeeds());
}

fn every_byte_arrives_through_the_staging_area() {
    for staging in [4096, 10_000, DEFAULT_STAGING_BYTES] {
        with_a_receiver(staging, "bulk::child_receives_all", |sender, _| {
            sender.set_policy(Policy::Staged);
            assert_eq!(send_all(sender), [Path::Staged; LENGTHS.len()]);
        });
    }
}

/// The computation of the sender ends only after the receiver has the message, so the receiver has
/// copied it without the sender.
fn a_message_is_received_while_its_sender_computes() {
    let (_, arena) = memory(8 << 20);
    let (mut sender, mut receiver) = pair(&arena, AREA).expect("memory");
    // Each end has probed the other.
    assert!(receiver.direct_path().here.is_ok() && sender.direct_path().there, "threads may read");
    let (received, is_received) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for (number, length) in LENGTHS.into_iter().enumerate() {
                let mut buffer = vec![0; length];
                receiver.recv(&mut buffer).expect("sent");
                received.send(buffer == message(number as u64, length)).expect("awaited");
            }
        });
        for (number, length) in LENGTHS.into_iter().enumerate() {
            let bytes = message(number as u64, length);
            let (is_right, sent) =
                sender.send_while(&bytes, || is_received.recv_timeout(LIMIT).expect("received"));
            assert!(is_right, "every byte of the message of {length} bytes");
            let expected = if length < 32 << 10 { Path::Staged } else { Path::Direct };
            assert_eq!(sent.expect("received"), expected, "{length} bytes");
        }
    });
}

fn a_panic_of_the_computation_leaves_the_link_usable() {
    let (_, arena) = memory(8 << 20);
    let (mut sender, mut receiver) = pair(&arena, AREA).expect("memory");
    assert!(receiver.direct_path().here.is_ok());
    let bytes = message(1, 1 << 20);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..2 {
                let mut buffer = vec![0; 1 << 20];
                receiver.recv(&mut buffer).expect("sent");
                assert!(buffer == message(1, 1 << 20));
            }
        });
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let (never, _) = sender.send_while(&bytes, || std::panic::resume_unwind(Box::new(7)));
            never
        }));
        let payload = panicked.expect_err("the computation panics");
        assert_eq!(payload.downcast().ok(), Some(Box::new(7)));
        sender.send(&bytes).expect("received");
    });
}

fn a_computation_goes_on_beside_a_receiver_that_is_gone() {
    let (_, arena) = memory(8 << 20);
    let (mut sender, mut receiver) = pair(&arena, AREA).expect("memory");
    assert!(receiver.direct_path().here.is_ok());
    let (is_closed, sent) = sender.send_while(&message(1, 1 << 20), || {
        drop(receiver);
        true
    });
    assert!(is_closed);
    assert!(matches!(sent, Err(BulkError::Closed { .. })), "{sent:?}");
}

fn every_byte_arrives_directly_if_permitted() {
    with_a_receiver(AREA, "bulk::child_receives_all", |sender, _| {
        sender.set_policy(Policy::Direct);
        if sender.direct_path().exists() {
            assert_eq!(send_all(sender), [Path::Direct; LENGTHS.len()]);
        } else {
            // A sandbox forbids it: the send reports so, and everything is staged.
            assert!(matches!(sender.send(&[1]), Err(BulkError::NoDirectPath { .. })));
            sender.set_policy(Policy::Automatic);
            send_all(sender);
        }
    });
}

fn every_byte_arrives_over_the_chosen_path() {
    with_a_receiver(AREA, "bulk::child_receives_all", |sender, _| {
        let exists = sender.direct_path().exists();
        for (path, length) in send_all(sender).into_iter().zip(LENGTHS) {
            assert_eq!(path == Path::Direct, exists && length as u64 > 2 * AREA, "{length}");
        }
    });
}

/// Child process of the tests above.
fn child_receives_all() {
    let (segment, offsets) = segment_and_offsets();
    let mut receiver = Receiver::connect(&segment, offsets[0]).expect("free");
    RemoteWindow::connect(&segment, offsets[1]).expect("exposed").notify().expect("of this node");
    receive_all(&mut receiver);
    assert!(matches!(receiver.recv(&mut []), Err(BulkError::Closed { .. })));
}

fn bytes_in_the_segment_are_read_in_place() {
    let (segment, arena) = memory(16 << 20);
    let (link, ready) = link_and_window(&arena, AREA);
    let mut other =
        Child::start_on("bulk::child_reads_in_place", &segment, &[link.offset(), ready.offset()]);
    let mut sender = Sender::connect(&segment, link.offset()).expect("free");
    for number in 0..3 {
        let mut bytes = OwnedBytes::new(&arena, 1 << 20, 64).expect("memory");
        bytes.as_mut_slice().copy_from_slice(&message(number, 1 << 20));
        assert_eq!(sender.send_in_place(&bytes).expect("received"), Path::InPlace);
    }
    assert_eq!(sender.send(&message(3, 100)).expect("received"), Path::Staged);
    let (_, elsewhere) = memory(1 << 20);
    let foreign = OwnedBytes::new(&elsewhere, 10, 64).expect("memory");
    assert!(matches!(sender.send_in_place(&foreign), Err(BulkError::OtherSegment { .. })));
    assert!(other.succeeds());
}

/// Child process of `bytes_in_the_segment_are_read_in_place`.
fn child_reads_in_place() {
    let (segment, offsets) = segment_and_offsets();
    let mut receiver = Receiver::connect(&segment, offsets[0]).expect("free");
    let mut seen = receiver.recv_with(|bytes| bytes == message(0, 1 << 20)).expect("sent");
    seen &= receiver.recv_with(|bytes| bytes == message(1, 1 << 20)).expect("sent");
    assert!(seen);
    let mut copy = vec![0; 1 << 20];
    assert_eq!(receiver.recv(&mut copy).expect("sent").path, Path::InPlace);
    assert!(copy == message(2, 1 << 20));
    assert!(receiver.recv_with(|bytes| bytes == message(3, 100)).expect("sent"));
}

/// Starts two processes that may not access each other's memory: not dumpable, and not root.
fn two_isolated(parts: [&str; 2]) -> (BulkLink, Window, [Child; 2]) {
    let (segment, arena) = memory(8 << 20);
    let (link, ready) = link_and_window(&arena, AREA);
    let user = rustix::process::geteuid().is_root().then_some(65534);
    let offsets = [link.offset(), ready.offset()];
    (link, ready, parts.map(|part| Child::start_as(user, part, &segment, &offsets)))
}

fn become_isolated() {
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
        .expect("always allowed");
}

fn without_a_direct_path_everything_is_staged_and_the_reason_is_kept() {
    let (_link, _ready, others) =
        two_isolated(["bulk::child_isolated_sends", "bulk::child_isolated_receives"]);
    for mut other in others {
        assert!(other.succeeds());
    }
}

/// Child process of `without_a_direct_path_everything_is_staged_and_the_reason_is_kept`.
fn child_isolated_sends() {
    let (segment, offsets) = segment_and_offsets();
    become_isolated();
    let mut sender = Sender::connect(&segment, offsets[0]).expect("free");
    let ready = RemoteWindow::connect(&segment, offsets[1]).expect("exposed");
    let condition = queues::window::Condition { at: 0, at_least: 1 };
    ready
        .fetch_when(condition, 0, [])
        .and_then(|request| request.wait())
        .expect("the other end connects");
    let forbidden = |outcome: &Result<(), DirectAccessError>| match outcome {
        Err(DirectAccessError::Forbidden { reason, .. }) => {
            assert!(reason.contains("not permitted"), "{reason}")
        }
        other => panic!("{other:?}"),
    };
    forbidden(&sender.direct_path().here);
    assert!(!sender.direct_path().exists());
    assert_eq!(send_all(&mut sender), [Path::Staged; LENGTHS.len()]);
    forbidden(&sender.direct_path().here);
    sender.set_policy(Policy::Direct);
    assert!(matches!(sender.send(&[1]), Err(BulkError::NoDirectPath { .. })));
}

/// Child process of `without_a_direct_path_everything_is_staged_and_the_reason_is_kept`.
fn child_isolated_receives() {
    let (segment, offsets) = segment_and_offsets();
    become_isolated();
    let mut receiver = Receiver::connect(&segment, offsets[0]).expect("free");
    RemoteWindow::connect(&segment, offsets[1])
        .expect("exposed")
        .put_value(0, 1_u64)
        .expect("inside");
    until("the other end connects", || {
        receiver.direct_path().here != Err(DirectAccessError::Unknown)
    });
    assert!(matches!(receiver.direct_path().here, Err(DirectAccessError::Forbidden { .. })));
    assert_eq!(receive_all(&mut receiver), [Path::Staged; LENGTHS.len()]);
}

/// Needs root: only then can exactly one of the two have the permission.
fn the_only_end_with_permission_copies_for_both() {
    let (segment, arena) = memory(8 << 20);
    for part in ["bulk::child_unprivileged_receives", "bulk::child_unprivileged_sends"] {
        let (link, ready) = link_and_window(&arena, AREA);
        let mut other =
            Child::start_as(Some(65534), part, &segment, &[link.offset(), ready.offset()]);
        if part == "bulk::child_unprivileged_receives" {
            ready.wait_for_notifications(1, None);
            let mut sender = Sender::connect(&segment, link.offset()).expect("free");
            sender.set_policy(Policy::Direct);
            if sender.direct_path().exists() {
                assert_eq!(send_all(&mut sender), [Path::Direct; LENGTHS.len()]);
            } else {
                sender.set_policy(Policy::Staged);
                send_all(&mut sender);
            }
        } else {
            let mut receiver = Receiver::connect(&segment, link.offset()).expect("free");
            let condition = queues::window::Condition { at: 0, at_least: 1 };
            ready
                .local()
                .fetch_when(condition, 0, [])
                .and_then(|request| request.wait())
                .expect("the other end connects");
            receiver.direct_path();
            ready.local().put_value(8, 1_u64).expect("inside");
            receive_all(&mut receiver);
        }
        assert!(other.succeeds());
    }
}

/// Child process of `the_only_end_with_permission_copies_for_both`.
fn child_unprivileged_receives() {
    let (segment, offsets) = segment_and_offsets();
    let mut receiver = Receiver::connect(&segment, offsets[0]).expect("free");
    RemoteWindow::connect(&segment, offsets[1]).expect("exposed").notify().expect("of this node");
    until("the other end connects", || {
        receiver.direct_path().here != Err(DirectAccessError::Unknown)
    });
    assert!(receiver.direct_path().here.is_err(), "so that the sender copies it all");
    receive_all(&mut receiver);
}

/// Child process of `the_only_end_with_permission_copies_for_both`.
fn child_unprivileged_sends() {
    let (segment, offsets) = segment_and_offsets();
    let mut sender = Sender::connect(&segment, offsets[0]).expect("free");
    let ready = RemoteWindow::connect(&segment, offsets[1]).expect("exposed");
    ready.put_value(0, 1_u64).expect("inside");
    let condition = queues::window::Condition { at: 8, at_least: 1 };
    ready
        .fetch_when(condition, 0, [])
        .and_then(|request| request.wait())
        .expect("the other end has probed");
    let direct = sender.direct_path();
    assert!(direct.here.is_err());
    for (path, length) in send_all(&mut sender).into_iter().zip(LENGTHS) {
        assert_eq!(path == Path::Direct, direct.there && length as u64 > 2 * AREA, "{length}");
    }
}
