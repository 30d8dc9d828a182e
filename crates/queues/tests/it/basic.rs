//! What the unshared Basic ring claims, beside a plain queue, between threads and between
//! processes.

use crate::child::{Child, TIMEOUT, argument};
use crate::ends;
use proptest::prelude::*;
use queues::basic::{BasicHeader, Receiver, Sender, bytes_for};
use queues::error::{CreateError, RecvError, SendError};
use queues::event::{Event, Notify};
use queues::id::SourceName;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use shm::process::ProcessHandle;
use shm::segment::{Backing, Offset, Segment};
use shm::sync::{AtomicU64, Ordering};
use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Instant;
use testing::mechanism::{
    self, between_threads, closed_ends_end_waits, deadlines_end_waits_without_loss,
};

testing::tests![
    a_ring_is_a_queue,
    two_threads_exchange_messages_of_all_lengths,
    nothing_is_seen_before_it_is_published,
    a_batch_keeps_its_lines_until_it_is_dropped,
    waits_end_by_a_close_and_by_a_deadline,
    two_threads_publish_batches_of_all_sizes,
    sizes_that_cannot_be_are_refused,
    what_no_sender_writes_is_an_error_and_no_message,
    each_event_request_is_answered_once,
    an_event_tells_that_the_sender_has_closed,
    a_receiver_that_sleeps_on_an_event_misses_nothing,
    two_processes_answer_each_other_asleep,
    a_sleeper_learns_of_its_peers_death_after_its_last_message,
];
testing::parts![child_echoes, child_sends_and_sleeps,];

/// Not at the segment's start, so that a wrong offset is seen.
const AT: Offset = Offset(4096);

fn memory(lines: u64) -> Arc<Segment> {
    let bytes = AT.0 + bytes_for(lines).expect("a power of two");
    let segment = Segment::create(bytes, Backing::Memory).expect("some pages");
    segment.commit(Offset(0), bytes).expect("some pages");
    Arc::new(segment)
}

fn sender(segment: &Arc<Segment>, lines: u64) -> Sender {
    Sender::connect(segment, AT, lines).expect("inside")
}

fn receiver(segment: &Arc<Segment>, lines: u64) -> Receiver {
    Receiver::connect(segment, AT, lines).expect("inside")
}

fn header(number: usize) -> BasicHeader {
    let source = SourceName::new(number as u16 % 16_384).expect("below 16,384");
    BasicHeader { source, handler: number as u8 }
}

/// Bytes that identify their message and their place in it.
fn content(number: usize, length: usize) -> Vec<u8> {
    (0..length).map(|place| (number.wrapping_mul(31) ^ place.wrapping_mul(7)) as u8).collect()
}

#[derive(Debug, Clone)]
enum Step {
    Compose(usize),
    Abandon(usize),
    Publish,
    Receive,
    Batch(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => prop_oneof![Just(0), 1..60usize, 50..250usize].prop_map(Step::Compose),
        1 => (0..250usize).prop_map(Step::Abandon),
        3 => Just(Step::Publish),
        4 => Just(Step::Receive),
        1 => (0..5usize).prop_map(Step::Batch),
    ];
    prop::collection::vec(step, 0..400)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    fn a_ring_is_a_queue(steps in steps(), lines in prop::sample::select(vec![4u64, 8, 16])) {
        let segment = memory(lines);
        let mut sender = sender(&segment, lines);
        let mut receiver = receiver(&segment, lines);
        let mut composed: Vec<(usize, usize)> = Vec::new();
        let mut published: VecDeque<(usize, usize)> = VecDeque::new();
        let longest = lines as usize / 4 * 64 - 8;
        prop_assert_eq!(sender.longest_message(), longest);
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Compose(bytes) => match sender.try_reserve(header(number), bytes) {
                    Ok(Some(mut buffer)) => {
                        buffer.as_mut_slice().copy_from_slice(&content(number, bytes));
                        buffer.finish();
                        composed.push((number, bytes));
                    }
                    Ok(None) => prop_assert!(!composed.is_empty() || !published.is_empty(), "an empty ring has space"),
                    Err(SendError::TooLong { max }) => prop_assert!(bytes > longest && max as usize == longest),
                    Err(error) => prop_assert!(false, "{}", error),
                },
                Step::Abandon(bytes) => {
                    if let Ok(Some(mut buffer)) = sender.try_reserve(header(number), bytes) {
                        buffer.as_mut_slice().fill(0xff);
                    }
                }
                Step::Publish => {
                    sender.publish();
                    published.extend(composed.drain(..));
                }
                Step::Receive => {
                    let message = receiver.try_recv().expect("well formed");
                    let found = message.map(|message| (message.header(), message.as_slice().to_vec()));
                    let expected = published.pop_front().map(|(number, bytes)| (header(number), content(number, bytes)));
                    prop_assert_eq!(found, expected);
                }
                Step::Batch(most) => {
                    let mut batch = receiver.batch();
                    for _ in 0..most {
                        let found = batch.next_message().expect("well formed").map(|part| (part.header, part.bytes.to_vec()));
                        let expected = published.pop_front().map(|(number, bytes)| (header(number), content(number, bytes)));
                        prop_assert_eq!(found, expected);
                    }
                }
            }
        }
        drop(sender);
        published.extend(composed);
        for (number, bytes) in published {
            let message = receiver.recv().expect("sent before the end");
            prop_assert_eq!((message.header(), message.as_slice()), (header(number), &content(number, bytes)[..]));
        }
        prop_assert!(matches!(receiver.recv(), Err(RecvError::Closed)));
    }
}

fn nothing_is_seen_before_it_is_published() {
    let segment = memory(16);
    let mut sender = sender(&segment, 16);
    let mut receiver = receiver(&segment, 16);
    for number in 0..5 {
        sender.reserve(header(number), 3).expect("space").finish();
    }
    assert!(!receiver.is_ready());
    sender.publish();
    let mut batch = receiver.batch();
    for number in 0..5 {
        assert_eq!(
            batch.next_message().expect("well formed").expect("published").header,
            header(number)
        );
    }
    assert!(batch.next_message().expect("well formed").is_none());
}

fn a_batch_keeps_its_lines_until_it_is_dropped() {
    let segment = memory(4);
    let mut sender = sender(&segment, 4);
    let mut receiver = receiver(&segment, 4);
    (0..3).for_each(|number| sender.send(header(number), b"x").expect("space"));
    let mut batch = receiver.batch();
    (0..3).for_each(|_| assert!(batch.next_message().expect("well formed").is_some()));
    assert!(!sender.try_send(header(3), b"x").expect("open"));
    drop(batch);
    assert!(sender.try_send(header(3), b"x").expect("open"));
}

fn open_pair<'a>(lines: u64) -> (mechanism::Sender<'a>, mechanism::Receiver<'a>) {
    let segment = memory(lines);
    let (sender, receiver) = (sender(&segment, lines), receiver(&segment, lines));
    (ends::basic(0, sender), ends::of_basic(0, lines, receiver))
}

fn two_threads_exchange_messages_of_all_lengths() {
    let (sender, receiver) = open_pair(32);
    between_threads(vec![sender], vec![receiver], 100_000, || ());
}

fn two_threads_publish_batches_of_all_sizes() {
    const MESSAGES: usize = 50_000;
    let segment = memory(32);
    let (mut sender, mut receiver) = (sender(&segment, 32), receiver(&segment, 32));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..MESSAGES {
                sender.reserve(header(number), 9).expect("it reads").finish();
                if number % 7 != 3 {
                    sender.publish();
                }
            }
        });
        for number in 0..MESSAGES {
            assert_eq!(receiver.recv().expect("it writes").header(), header(number));
        }
        assert!(matches!(receiver.recv(), Err(RecvError::Closed)));
    });
}

fn waits_end_by_a_close_and_by_a_deadline() {
    closed_ends_end_waits(|| open_pair(4));
    let (mut sender, mut receiver) = open_pair(4);
    deadlines_end_waits_without_loss(&mut sender, &mut receiver);
    let segment = memory(4);
    let mut sender = self::sender(&segment, 4);
    while sender.try_send(header(0), b"x").expect("open") {}
    let reserved = sender.reserve_deadline(header(0), 1, Instant::now()).map(drop);
    assert!(matches!(reserved, Err(SendError::Timeout)));
}

fn sizes_that_cannot_be_are_refused() {
    for lines in [0, 1, 2, 3, 5, 63, 1 << 17, u64::MAX] {
        assert!(matches!(bytes_for(lines), Err(CreateError::Size { .. })), "{lines}");
    }
    let segment = memory(4);
    assert!(matches!(Sender::connect(&segment, AT, 64), Err(CreateError::Segment(_))));
    assert!(matches!(
        Receiver::connect(&segment, Offset(u64::MAX - 7), 4),
        Err(CreateError::Segment(_))
    ));
    assert!(matches!(Receiver::connect(&segment, Offset(4), 4), Err(CreateError::Segment(_))));
    let mut sender = sender(&segment, 4);
    assert!(matches!(sender.reserve(header(0), 57), Err(SendError::TooLong { max: 56 })));
    assert!(matches!(sender.try_send(header(0), &[0; 57]), Err(SendError::TooLong { .. })));
}

fn what_no_sender_writes_is_an_error_and_no_message() {
    let garbage = [
        1,
        !(1 << 63),
        1 << 63,
        1 << 42 | 57,
        1 << 42 | 0xf_ffff,
        2 << 42 | 4,
        2 << 42 | 1,
        7 << 44 | 1 << 42,
    ];
    for word in garbage {
        let segment = memory(4);
        let mut receiver = receiver(&segment, 4);
        let first = segment.at::<AtomicU64>(Offset(AT.0 + 256)).expect("inside");
        first.store(word, Ordering::Relaxed);
        let error = receiver.try_recv().map(drop).expect_err("garbage");
        assert_eq!(error, RecvError::Corrupt);
        let found = receiver.corruption().expect("recorded").to_string();
        assert!(found.contains("position 0"), "{found}");
    }
    let segment = memory(4);
    let mut sender = sender(&segment, 4);
    segment.at::<AtomicU64>(Offset(AT.0 + 128)).expect("inside").store(5, Ordering::Relaxed);
    let error = (0..10).find_map(|_| sender.send(header(0), b"x").err());
    assert!(
        matches!(error, Some(SendError::Corrupt)) && sender.corruption().is_some(),
        "released before it was sent: {error:?}"
    );
}

/// Returns true if the system reports the event as readable.
fn is_readable(event: &Event) -> bool {
    let mut watched = [PollFd::new(event, PollFlags::IN)];
    poll(&mut watched, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).expect("a descriptor") == 1
}

fn each_event_request_is_answered_once() {
    let segment = memory(16);
    let event = Event::new().expect("a descriptor");
    // As a sender in another process would get it.
    let passed = Event::from_fd(event.as_fd().try_clone_to_owned().expect("a descriptor"));
    let mut sender = sender(&segment, 16).with_event(passed);
    let mut receiver = receiver(&segment, 16);
    let mut send = |bytes: usize| sender.try_send(header(0), &vec![0; bytes]).expect("open");

    assert!(send(8) && !is_readable(&event), "no request");
    assert!(receiver.request_event(Notify::Arrival), "something is there already");
    assert!(receiver.try_recv().expect("open").is_some());
    assert!(!receiver.request_event(Notify::Arrival));
    assert!(send(8) && is_readable(&event) && event.clear());
    assert!(send(8) && !is_readable(&event), "one for a request");

    while receiver.try_recv().expect("open").is_some() {}
    assert!(!receiver.request_event(Notify::HalfFull));
    // Lines count: three messages of two, one of one.
    assert!(send(100) && send(100) && send(100) && send(1) && !is_readable(&event));
    assert!(send(1) && is_readable(&event) && event.clear());
    assert!(receiver.request_event(Notify::HalfFull), "it is half full");
    receiver.cancel_event();
    assert!(send(1) && !is_readable(&event));
}

fn an_event_tells_that_the_sender_has_closed() {
    let segment = memory(4);
    let event = Event::new().expect("a descriptor");
    let sender = sender(&segment, 4).with_event(event.clone());
    let mut receiver = receiver(&segment, 4);
    assert!(!receiver.request_event(Notify::Arrival));
    drop(sender);
    assert!(is_readable(&event));
    assert!(matches!(receiver.try_recv(), Err(RecvError::Closed)));
}

fn a_receiver_that_sleeps_on_an_event_misses_nothing() {
    const MESSAGES: usize = 20_000;
    let segment = memory(16);
    let event = Event::new().expect("a descriptor");
    let mut sender = sender(&segment, 16).with_event(event.clone());
    let mut receiver = receiver(&segment, 16);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..MESSAGES {
                sender.send(header(number), &content(number, number % 90)).expect("it reads");
            }
        });
        let mut number = 0;
        while number < MESSAGES {
            if receiver.is_ready() {
                let message = receiver.recv().expect("sent before the end");
                assert_eq!(
                    (message.header(), message.as_slice()),
                    (header(number), &content(number, number % 90)[..])
                );
                number += 1;
            } else if !receiver.request_event(Notify::Arrival) {
                let far = Timespec { tv_sec: TIMEOUT.as_secs() as i64, tv_nsec: 0 };
                let readable = poll(&mut [PollFd::new(&event, PollFlags::IN)], Some(&far));
                assert_eq!(readable, Ok(1), "an event for message {number}");
                event.clear();
            }
        }
    });
}

fn path_of(segment: &Segment) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), segment.as_fd().as_raw_fd())
}

fn open(path: &str) -> Arc<Segment> {
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .expect("the parent's descriptor");
    Arc::new(Segment::from_fd(file.into()).expect("a segment"))
}

fn two_processes_answer_each_other_asleep() {
    const ROUNDS: usize = 2_000;
    let there = memory(8);
    let back = memory(8);
    let argument = format!("{} {}", path_of(&there), path_of(&back));
    let mut child = Child::start("basic::child_echoes", &argument);
    let mut sender = sender(&there, 8);
    let mut receiver = receiver(&back, 8);
    for number in 0..ROUNDS {
        sender.send(header(number), &content(number, number % 120)).expect("it reads");
        let message = receiver.recv().expect("it answers");
        assert_eq!(
            (message.header(), message.as_slice()),
            (header(number), &content(number, number % 120)[..])
        );
    }
    drop(sender);
    assert!(matches!(receiver.recv(), Err(RecvError::Closed)));
    assert!(child.succeeds());
}

/// Child process of `two_processes_answer_each_other_asleep`.
fn child_echoes() {
    let argument = argument();
    let (there, back) = argument.split_once(' ').expect("two paths");
    let mut receiver = receiver(&open(there), 8);
    let mut sender = sender(&open(back), 8);
    loop {
        match receiver.recv() {
            Ok(message) => {
                sender.send(message.header(), message.as_slice()).expect("the parent reads")
            }
            Err(RecvError::Closed) => return,
            Err(error) => panic!("{error}"),
        }
    }
}

fn a_sleeper_learns_of_its_peers_death_after_its_last_message() {
    let segment = memory(8);
    let mut child = Child::start("basic::child_sends_and_sleeps", &path_of(&segment));
    let peer = ProcessHandle::open(child.pid()).expect("it lives");
    let mut receiver = receiver(&segment, 8).watching(peer);
    assert_eq!(receiver.recv().expect("it sends one").as_slice(), b"first");
    let pid = child.pid();
    let last = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            assert_eq!(receiver.recv().expect("it sends another").as_slice(), b"second");
            receiver.recv().map(drop)
        });
        child.kill();
        waiting.join().expect("no panic")
    });
    assert!(matches!(last, Err(RecvError::ProcessExited { pid: gone }) if gone == pid), "{last:?}");
}

/// Child process of `a_sleeper_learns_of_its_peers_death_after_its_last_message`.
fn child_sends_and_sleeps() {
    let path = argument();
    let mut sender = sender(&open(&path), 8);
    // One store publishes both: a receiver of the first also finds the second.
    for (number, bytes) in [&b"first"[..], b"second"].into_iter().enumerate() {
        let mut buffer = sender.reserve(header(number), bytes.len()).expect("space");
        buffer.as_mut_slice().copy_from_slice(bytes);
        buffer.finish();
    }
    sender.publish();
    crate::child::until_input_ends();
}
