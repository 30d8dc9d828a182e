//! CacheLine queues in a segment, with real threads: order, nothing lost or doubled, slow and dead
//! senders, and hostile memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use queues::cache_line::{
    CacheLine, CacheLineHeader, CacheLineMessage, CacheLineQueue, CacheLineReceiver, Closing,
    LINE_DATA, Multi, RecvError, SendError,
};
use queues::express::ExpressMessage;
use queues::id::SourceName;
use queues::queue::{Consumers, Receiver};
use shm::arena::Arena;
use shm::segment::{Backing, Segment};

testing::tests![
    two_senders_and_two_receivers_lose_and_double_nothing,
    two_senders_and_a_receiver_lose_and_double_nothing,
    the_smallest_queue_loses_and_doubles_nothing,
    batches_keep_the_order_with_a_sole_receiver,
    blocking_senders_and_receivers_wait_for_each_other,
    deadlines_end_both_kinds_of_waiting_without_a_loss,
    every_length_up_to_a_line_is_carried_and_no_longer_one,
    a_slow_claim_blocks_no_thread_and_is_sent_again,
    a_slow_message_returns_to_its_sender_when_the_queue_is_full,
    a_dropped_claim_sends_nothing_and_leaves_nothing,
    an_empty_queue_gives_its_empty_message,
    a_full_queue_that_is_closed_gives_everything_and_then_ends,
    random_bytes_in_a_queue_neither_panic_nor_hang,
    a_queue_is_a_bounded_list,
    a_queue_with_a_sole_receiver_is_a_bounded_list,
];
testing::tests![slow("minutes: 10^8 messages with 4 threads"): a_hundred_million_messages_with_four_threads];

fn arena() -> Arena {
    let segment = Arc::new(Segment::create(1 << 20, Backing::Memory).expect("memory"));
    Arena::new(segment, 0..1 << 20).expect("a range of the segment")
}

fn queue(capacity: usize) -> CacheLineQueue {
    CacheLineQueue::create(&arena(), capacity, None).expect("space in the arena")
}

fn source(number: u16) -> SourceName {
    SourceName::new(number).expect("14 bits")
}

fn header(from: u16) -> CacheLineHeader {
    CacheLineHeader { source: source(from), handler: 3, tag: 0xbeef }
}

/// A message whose every word and length depends on its number.
fn message(from: u16, number: u64) -> CacheLineMessage {
    let mut bytes = [0; LINE_DATA];
    for (index, word) in bytes.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&number.rotate_left(8 * index as u32).to_le_bytes());
    }
    CacheLineMessage::new(header(from), &bytes[..8 + (number % 41) as usize])
        .expect("at most 48 bytes")
}

fn number(got: &CacheLineMessage) -> u64 {
    let number = got.data().first_chunk().map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes));
    assert_eq!(*got, message(got.header().source.number(), number), "whole and of one piece");
    number
}

/// Takes the next message, past lines that hold it up.
fn receive_through<C: Consumers>(receiver: &mut CacheLineReceiver<C>) -> Option<CacheLineMessage> {
    loop {
        match receiver.try_recv().expect("open") {
            None if receiver.is_ready() => {}
            other => return other,
        }
    }
}

/// Senders and receivers on threads of their own; every message must come once, in its sender's
/// order.
fn soak(senders: u64, receivers: u64, each: u64, capacity: usize) {
    let queue = queue(capacity);
    let seen: Vec<AtomicU64> =
        (0..(senders * each).div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
    let count = senders * each;
    let mark = |from: u64, number: u64| {
        let index = from * each + number;
        let before = seen[index as usize / 64].fetch_or(1 << (index % 64), Ordering::Relaxed);
        assert_eq!(before >> (index % 64) & 1, 0, "{number} of {from} came twice");
    };
    thread::scope(|scope| {
        let senders: Vec<_> = (0..senders)
            .map(|from| {
                let sender = queue.sender();
                scope.spawn(move || {
                    for number in 0..each {
                        while let Err(why) = sender.try_send(&message(from as u16, number)) {
                            assert_eq!(why, SendError::Full);
                            thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        let receivers: Vec<_> = (0..receivers)
            .map(|_| {
                let mut receiver = queue.receiver().expect("shared");
                let mark = &mark;
                let mut last = vec![None; senders.len()];
                scope.spawn(move || {
                    let mut count = 0;
                    loop {
                        match receiver.try_recv() {
                            Ok(Some(got)) => {
                                let from = got.header().source.number();
                                let number = number(&got);
                                let last = &mut last[usize::from(from)];
                                assert!(
                                    last.is_none_or(|last| number > last),
                                    "{number} after {last:?}"
                                );
                                *last = Some(number);
                                mark(u64::from(from), number);
                                count += 1;
                            }
                            Ok(None) => thread::yield_now(),
                            Err(why) => {
                                assert_eq!(why, RecvError::Closed);
                                return count;
                            }
                        }
                    }
                })
            })
            .collect();
        senders.into_iter().for_each(|sender| sender.join().expect("no panic"));
        // Everything was sent; what the closed queue still holds is received.
        queue.close();
        let received: u64 =
            receivers.into_iter().map(|receiver| receiver.join().expect("no panic")).sum();
        let marked: u64 =
            seen.iter().map(|word| u64::from(word.load(Ordering::Relaxed).count_ones())).sum();
        assert_eq!((received, marked), (count, count), "nothing lost or doubled");
    });
}

fn two_senders_and_two_receivers_lose_and_double_nothing() {
    soak(2, 2, 60_000, 16);
}

fn two_senders_and_a_receiver_lose_and_double_nothing() {
    soak(2, 1, 60_000, 64);
}

fn the_smallest_queue_loses_and_doubles_nothing() {
    soak(2, 2, 10_000, 2);
}

fn a_hundred_million_messages_with_four_threads() {
    soak(2, 2, 50_000_000, 1024);
}

fn batches_keep_the_order_with_a_sole_receiver() {
    let queue = queue(32);
    let mut receiver = queue.single_receiver().expect("free");
    const COUNT: u64 = 30_000;
    thread::scope(|scope| {
        let sender = queue.sender();
        scope.spawn(move || {
            (0..COUNT).try_for_each(|number| sender.send(&message(0, number))).expect("open")
        });
        let mut some = [CacheLineMessage::default(); 5];
        let mut next = 0;
        while next < COUNT {
            let taken = receiver.try_recv_many(&mut some).expect("open");
            for got in &some[..taken] {
                assert_eq!(number(got), next);
                next += 1;
            }
            if taken == 0 {
                thread::yield_now();
            }
        }
    });
}

fn blocking_senders_and_receivers_wait_for_each_other() {
    let queue = queue(2);
    const COUNT: u64 = 1_000;
    thread::scope(|scope| {
        for from in 0..2 {
            let sender = queue.sender();
            scope.spawn(move || {
                (0..COUNT).try_for_each(|number| sender.send(&message(from, number))).expect("open")
            });
        }
        let mut receiver = queue.receiver().expect("free");
        let mut next = [0; 2];
        for _ in 0..2 * COUNT {
            let got = receiver.recv().expect("open");
            let next = &mut next[usize::from(got.header().source.number())];
            assert_eq!(number(&got), *next);
            *next += 1;
        }
        assert_eq!(receiver.try_recv(), Ok(None));
    });
}

fn deadlines_end_both_kinds_of_waiting_without_a_loss() {
    let queue = queue(2);
    let sender = queue.sender();
    let mut receiver = queue.receiver().expect("free");
    let soon = || Instant::now() + Duration::from_millis(5);
    assert_eq!(receiver.recv_deadline(soon()), Ok(None));
    assert_eq!(sender.send_deadline(&message(1, 0), soon()), Ok(()));
    assert_eq!(sender.send_deadline(&message(1, 1), soon()), Ok(()));
    assert_eq!(sender.send_deadline(&message(1, 2), soon()), Err(SendError::Timeout));
    assert_eq!(receiver.recv_deadline(soon()), Ok(Some(message(1, 0))));
    assert_eq!(sender.send_deadline(&message(1, 2), soon()), Ok(()));
    assert_eq!(receiver.recv(), Ok(message(1, 1)));
    assert_eq!(receiver.recv(), Ok(message(1, 2)));
}

fn every_length_up_to_a_line_is_carried_and_no_longer_one() {
    let queue = queue(4);
    let sender = queue.sender();
    let mut receiver = queue.receiver().expect("free");
    let bytes: Vec<u8> = (1..=LINE_DATA as u8).collect();
    for length in 0..=LINE_DATA {
        let sent = CacheLineMessage::new(header(7), &bytes[..length]).expect("at most 48 bytes");
        sender.try_send(&sent).expect("space");
        let mut claim = sender.claim(header(8)).expect("space");
        claim.write(0, &bytes[..length / 2]).write(length / 2, &bytes[length / 2..length]);
        claim.publish(length).expect("in time");
        for from in [7, 8] {
            let got = receiver.try_recv().expect("open").expect("a message");
            assert_eq!((got.header(), got.data()), (header(from), &bytes[..length]));
        }
    }
    assert!(CacheLineMessage::new(header(7), &[0; LINE_DATA + 1]).is_none());
    let mut claim = sender.claim(header(7)).expect("space");
    claim.write(LINE_DATA - 1, &[1, 2, 3]).write(usize::MAX, &[4]).write_word(6, 5);
    claim.publish(usize::MAX).expect("in time");
    let got = receiver.try_recv().expect("open").expect("a message");
    assert_eq!(
        (got.data().len(), got.data()[LINE_DATA - 1]),
        (LINE_DATA, 1),
        "what does not fit is cut off"
    );
}

fn a_slow_claim_blocks_no_thread_and_is_sent_again() {
    let queue = queue(4);
    let sender = queue.sender();
    let mut receiver = queue.receiver().expect("free");
    let mut claim = sender.claim(header(1)).expect("space");
    claim.write(0, message(1, 40).data());
    // Others pass, lap after lap.
    for number in 0..20 {
        assert_eq!(sender.try_send(&message(2, number)), Ok(()));
        assert_eq!(receive_through(&mut receiver), Some(message(2, number)));
    }
    claim.write_word(
        5,
        u64::from_le_bytes(message(1, 40).data()[40..48].try_into().expect("8 bytes")),
    );
    claim.publish(LINE_DATA).expect("there is space");
    assert_eq!(receive_through(&mut receiver), Some(message(1, 40)));
    // And all lines are there again.
    (0..4).for_each(|number| assert_eq!(sender.try_send(&message(2, number)), Ok(())));
    assert_eq!(sender.try_send(&message(2, 4)), Err(SendError::Full));
}

fn a_slow_message_returns_to_its_sender_when_the_queue_is_full() {
    let queue = queue(2);
    let sender = queue.sender();
    let mut receiver = queue.receiver().expect("free");
    let mut claim = sender.claim(header(1)).expect("space");
    claim.write(0, message(1, 40).data());
    sender.try_send(&message(2, 0)).expect("the other line");
    assert_eq!(receive_through(&mut receiver), Some(message(2, 0)));
    sender.try_send(&message(2, 1)).expect("the other line again");
    let refused = claim.publish(LINE_DATA).expect_err("both lines are in use");
    assert_eq!((refused.reason, refused.message), (SendError::Full, message(1, 40)));
    assert_eq!(receive_through(&mut receiver), Some(message(2, 1)));
    sender.try_send(&refused.message).expect("space");
    assert_eq!(receive_through(&mut receiver), Some(message(1, 40)));

    let claim = sender.claim(header(1)).expect("space");
    queue.close();
    while receiver.try_recv() != Err(RecvError::Closed) {}
    assert_eq!(claim.publish(0).expect_err("closed").reason, SendError::Closed);
}

fn a_dropped_claim_sends_nothing_and_leaves_nothing() {
    let queue = queue(2);
    let sender = queue.sender();
    let mut receiver = queue.receiver().expect("free");
    for number in 0..10 {
        drop(sender.claim(header(1)).expect("space"));
        sender.try_send(&message(2, number)).expect("space");
        assert_eq!(receiver.try_recv(), Ok(Some(message(2, number))));
    }
}

fn an_empty_queue_gives_its_empty_message() {
    let queue = queue(2);
    let mut receiver = queue.receiver().expect("free");
    assert_eq!(receiver.recv_or_empty().header(), CacheLineHeader::default());
    receiver.set_empty_message(ExpressMessage::new(source(5), 9, *b"idle."));
    let got = receiver.clone().recv_or_empty();
    assert_eq!(
        (got.header().source, got.header().handler, got.data()),
        (source(5), 9, &b"idle."[..])
    );
}

fn a_full_queue_that_is_closed_gives_everything_and_then_ends() {
    let queue = queue(4);
    let sender = queue.sender();
    let mut receiver = queue.receiver().expect("free");
    (0..4).for_each(|number| sender.try_send(&message(0, number)).expect("space"));
    assert_eq!(queue.close(), Closing::At(4));
    assert_eq!(sender.try_send(&message(0, 4)), Err(SendError::Closed));
    assert_eq!(queue.reopen(), None, "it is not empty");
    (0..4).for_each(|number| assert_eq!(receiver.try_recv(), Ok(Some(message(0, number)))));
    assert_eq!(receiver.try_recv(), Err(RecvError::Closed));
    assert_eq!(receiver.recv(), Err(RecvError::Closed));

    // Its memory serves another queue, and the former senders do not reach that one.
    let generation = queue.reopen().expect("closed and empty");
    assert_eq!(sender.try_send(&message(0, 5)), Err(SendError::Closed));
    let sender = queue.sender_of(generation);
    for number in 0..20 {
        sender.try_send(&message(1, number)).expect("space");
        assert_eq!(receiver.try_recv(), Ok(Some(message(1, number))));
    }
}

fn random_bytes_in_a_queue_neither_panic_nor_hang() {
    let arena = arena();
    let victim = CacheLineQueue::create(&arena, 8, None).expect("space");
    let bytes = CacheLineQueue::bytes_for(8).expect("a capacity");
    let words = arena
        .segment()
        .slice_at::<AtomicU64>(victim.offset(), bytes as usize / 8)
        .expect("its memory");
    let mut receiver = victim.receiver().expect("free");
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // A generator after Marsaglia's xorshift: any bits will do.
            let mut state = 0x9e37_79b9_7f4a_7c15_u64;
            while !done.load(Ordering::Relaxed) {
                for word in words {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    word.store(
                        if state.is_multiple_of(3) { state >> (state % 64) } else { state },
                        Ordering::Relaxed,
                    );
                }
                thread::yield_now();
            }
        });
        let sender = victim.sender();
        let mut some = [CacheLineMessage::default(); 5];
        for number in 0..300 {
            // Whatever they say, they say it.
            let _ = sender.try_send(&message(1, number));
            let _ = sender.claim(header(1)).map(|claim| claim.publish(5).is_ok());
            let _ = sender.claim(header(1)).is_ok();
            let _ = sender.send_deadline(&message(1, number), Instant::now());
            let _ = receiver.try_recv().map(|got| got.map(|got| got.data().len()));
            let _ =
                (receiver.recv_or_empty(), receiver.try_recv_many(&mut some), receiver.is_ready());
            let _ = (receiver.recv_deadline(Instant::now()), victim.recover());
        }
        let _ = (victim.close(), victim.reopen());
        done.store(true, Ordering::Relaxed);
    });
}

#[derive(Debug, Clone)]
enum Step {
    Send(Vec<u8>),
    Receive,
    ReceiveMany(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => prop::collection::vec(any::<u8>(), 0..=LINE_DATA).prop_map(Step::Send),
        2 => Just(Step::Receive),
        1 => (0..9usize).prop_map(Step::ReceiveMany),
    ];
    prop::collection::vec(step, 0..200)
}

fn behaves_like_a_bounded_list<C: Consumers>(
    queue: &CacheLineQueue,
    mut receiver: Receiver<CacheLine, C>,
    steps: &[Step],
) -> Result<(), TestCaseError> {
    let sender = queue.sender();
    let mut list = std::collections::VecDeque::new();
    for step in steps {
        match step {
            Step::Send(bytes) => {
                let sent = CacheLineMessage::new(header(3), bytes).expect("at most 48 bytes");
                let expected =
                    if list.len() < queue.capacity() { Ok(()) } else { Err(SendError::Full) };
                prop_assert_eq!(sender.try_send(&sent), expected);
                if expected.is_ok() {
                    list.push_back(sent);
                }
            }
            Step::Receive => prop_assert_eq!(receiver.try_recv(), Ok(list.pop_front())),
            Step::ReceiveMany(count) => {
                let mut some = vec![CacheLineMessage::default(); *count];
                let taken = receiver.try_recv_many(&mut some).expect("open");
                let expected: Vec<_> = list.drain(..count.min(&list.len()).to_owned()).collect();
                prop_assert_eq!(&some[..taken], &expected[..]);
            }
        }
        prop_assert_eq!(receiver.is_ready(), !list.is_empty());
    }
    Ok(())
}

proptest! {
    fn a_queue_is_a_bounded_list(steps in steps(), shift in 1..5u32) {
        let queue = queue(1 << shift);
        behaves_like_a_bounded_list::<Multi>(&queue, queue.receiver().expect("free"), &steps)?;
    }

    fn a_queue_with_a_sole_receiver_is_a_bounded_list(steps in steps(), shift in 1..5u32) {
        let queue = queue(1 << shift);
        behaves_like_a_bounded_list(&queue, queue.single_receiver().expect("free"), &steps)?;
    }
}
