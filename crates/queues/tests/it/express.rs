//! Express queues in a segment, with real threads: order, nothing lost or doubled, waiting,
//! closing, and hostile memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use queues::error::CreateError;
use queues::express::ExpressMessage;
use queues::express::{Closing, Express, ExpressQueue, Multi, RecvError, SendError};
use queues::handlers::Handlers;
use queues::id::SourceName;
use queues::queue::{Consumers, Receiver};
use shm::arena::Arena;
use shm::segment::{Backing, Offset, Segment};

testing::tests![
    three_senders_and_a_receiver_lose_and_double_nothing,
    two_senders_and_two_receivers_lose_and_double_nothing,
    the_smallest_queue_loses_and_doubles_nothing,
    batches_keep_the_order_in_both_forms,
    blocking_senders_and_receivers_wait_for_each_other,
    sleepers_are_woken_by_a_message_by_space_and_by_the_end,
    deadlines_end_both_kinds_of_waiting_without_a_loss,
    the_empty_message_runs_no_handler_by_default,
    a_full_queue_that_is_closed_gives_everything_and_then_ends,
    a_retired_queue_refuses_waiting_senders,
    ten_thousand_open_destinations_take_less_than_four_mebibytes,
    a_single_receiver_excludes_others,
    what_is_no_queue_is_not_taken_for_one,
    random_bytes_in_a_queue_neither_panic_nor_hang,
    a_queue_is_a_bounded_list,
    a_queue_with_a_sole_receiver_is_a_bounded_list,
];
testing::tests![slow("minutes: 10^8 messages with 4 threads"): a_hundred_million_messages_with_four_threads];

fn arena() -> Arena {
    let segment = Arc::new(Segment::create(1 << 20, Backing::Memory).expect("memory"));
    Arena::new(segment, 0..1 << 20).expect("a range of the segment")
}

fn queue(capacity: usize) -> ExpressQueue {
    ExpressQueue::create(&arena(), capacity, None).expect("space in the arena")
}

fn message(source: u16, number: u64) -> ExpressMessage {
    ExpressMessage::of_number(SourceName::new(source).expect("14 bits"), 0, number)
        .expect("40 bits")
}

/// How far each of the senders is, as one receiver sees it.
struct Sequence {
    last: Vec<Option<u64>>,
    count: u64,
}

impl Sequence {
    fn new(senders: usize) -> Self {
        Sequence { last: vec![None; senders], count: 0 }
    }

    /// One receiver sees the numbers of each sender grow.
    fn check(&mut self, message: ExpressMessage) {
        let last = &mut self.last[usize::from(message.source().number())];
        assert!(last.is_none_or(|last| message.number() > last), "{message:?} after {last:?}");
        *last = Some(message.number());
        self.count += 1;
    }
}

/// Senders and receivers on threads of their own; every message must come once, in its sender's
/// order.
fn soak(senders: u64, receivers: u64, each: u64, capacity: usize) {
    let queue = queue(capacity);
    // A bit for every message: a second arrival finds it set.
    let seen: Vec<AtomicU64> =
        (0..(senders * each).div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        for source in 0..senders {
            let sender = queue.sender();
            scope.spawn(move || {
                for number in 0..each {
                    while let Err(why) = sender.try_send(&message(source as u16, number)) {
                        assert_eq!(why, SendError::Full);
                        thread::yield_now();
                    }
                }
            });
        }
        let receivers: Vec<_> = (0..receivers)
            .map(|_| {
                let mut receiver = queue.receiver().expect("shared");
                let seen = &seen;
                scope.spawn(move || {
                    let mut sequence = Sequence::new(senders as usize);
                    loop {
                        match receiver.try_recv() {
                            Ok(Some(message)) => {
                                sequence.check(message);
                                let index =
                                    u64::from(message.source().number()) * each + message.number();
                                let bit = 1 << (index % 64);
                                let before =
                                    seen[index as usize / 64].fetch_or(bit, Ordering::Relaxed);
                                assert_eq!(before & bit, 0, "{message:?} came twice");
                            }
                            Ok(None) => thread::yield_now(),
                            Err(why) => {
                                assert_eq!(why, RecvError::Closed);
                                return sequence.count;
                            }
                        }
                    }
                })
            })
            .collect();
        // Everything has come when every bit is set; closing ends the receivers.
        let all = |index: usize, word: &AtomicU64| {
            let bits = (senders * each - index as u64 * 64).min(64);
            word.load(Ordering::Relaxed).count_ones() as u64 == bits
        };
        for (index, word) in seen.iter().enumerate() {
            while !all(index, word) {
                thread::sleep(Duration::from_micros(100));
                assert!(
                    !receivers.iter().any(thread::ScopedJoinHandle::is_finished),
                    "a receiver has failed"
                );
            }
        }
        assert!(matches!(queue.close(), Closing::At(end) if end == senders * each));
        let counts = receivers.into_iter().map(|receiver| receiver.join().expect("no panic"));
        assert_eq!(counts.sum::<u64>(), senders * each, "nothing lost or doubled");
    });
}

fn three_senders_and_a_receiver_lose_and_double_nothing() {
    soak(3, 1, 100_000, 64);
}

fn two_senders_and_two_receivers_lose_and_double_nothing() {
    soak(2, 2, 100_000, 16);
}

fn the_smallest_queue_loses_and_doubles_nothing() {
    soak(2, 2, 20_000, 2);
}

fn a_hundred_million_messages_with_four_threads() {
    soak(2, 2, 50_000_000, 1024);
}

/// One sender and one receiver, with the checks of `soak`, in the form that takes several at a
/// time.
fn in_batches<C: Consumers>(mut receiver: Receiver<Express, C>, queue: &ExpressQueue, count: u64) {
    thread::scope(|scope| {
        let sender = queue.sender();
        scope.spawn(move || {
            (0..count).try_for_each(|number| sender.send(&message(0, number))).expect("open")
        });
        let mut some = [ExpressMessage::default(); 7];
        let mut next = 0;
        while next < count {
            let taken = receiver.try_recv_many(&mut some).expect("open");
            for message in &some[..taken] {
                assert_eq!(message.number(), next);
                next += 1;
            }
            if taken == 0 {
                thread::yield_now();
            }
        }
    });
}

fn batches_keep_the_order_in_both_forms() {
    let queue = queue(32);
    in_batches(queue.receiver().expect("free"), &queue, 50_000);
    in_batches(queue.single_receiver().expect("free"), &queue, 50_000);
}

fn blocking_senders_and_receivers_wait_for_each_other() {
    let queue = queue(2);
    const COUNT: u64 = 2_000;
    thread::scope(|scope| {
        for source in 0..2 {
            let sender = queue.sender();
            scope.spawn(move || {
                (0..COUNT).try_for_each(|number| sender.send(&message(source, number)))
            });
        }
        let mut receiver = queue.receiver().expect("free");
        let mut sequence = Sequence::new(2);
        for _ in 0..2 * COUNT {
            sequence.check(receiver.recv().expect("open"));
        }
        assert_eq!(receiver.try_recv(), Ok(None));
    });
}

fn sleepers_are_woken_by_a_message_by_space_and_by_the_end() {
    let queue = queue(2);
    thread::scope(|scope| {
        // Each side sleeps for sure at some time: the other one waits long enough before every
        // step.
        let mut receiver = queue.receiver().expect("free");
        let receiver = scope.spawn(move || {
            let mut got = Vec::new();
            while let Ok(message) = receiver.recv() {
                got.push(message.number());
                thread::sleep(Duration::from_millis(3));
            }
            got
        });
        let sender = queue.sender();
        for number in 0..8 {
            if number == 4 {
                thread::sleep(Duration::from_millis(20));
            }
            sender.send(&message(0, number)).expect("open");
        }
        thread::sleep(Duration::from_millis(40));
        queue.close();
        assert_eq!(sender.send(&message(0, 9)), Err(SendError::Closed));
        assert_eq!(receiver.join().expect("no panic"), (0..8).collect::<Vec<_>>());
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
    assert_eq!(sender.try_send(&message(1, 2)), Err(SendError::Full));
    assert_eq!(receiver.recv_deadline(soon()), Ok(Some(message(1, 0))));
    assert_eq!(sender.send_deadline(&message(1, 2), soon()), Ok(()));
    assert_eq!(receiver.recv(), Ok(message(1, 1)));
    assert_eq!(receiver.recv(), Ok(message(1, 2)));
}

fn the_empty_message_runs_no_handler_by_default() {
    let queue = queue(2);
    let mut receiver = queue.receiver().expect("free");
    let mut handlers = Handlers::<Vec<(u16, u8)>>::new();
    handlers.set(1, |seen, source, data| seen.push((source.number(), data[0])));
    let mut seen = Vec::new();
    handlers.dispatch(&mut seen, receiver.recv_or_empty());
    assert_eq!(seen, [], "handler 0 does nothing");

    let idle = ExpressMessage::new(SourceName::new(5).expect("14 bits"), 1, [9, 0, 0, 0, 0]);
    receiver.set_empty_message(idle);
    assert_eq!(receiver.clone().recv_or_empty(), idle, "for all receivers");
    handlers.dispatch(&mut seen, receiver.recv_or_empty());
    queue
        .sender()
        .try_send(&ExpressMessage::new(SourceName::new(6).expect("14 bits"), 1, [7, 0, 0, 0, 0]))
        .expect("space");
    handlers.dispatch(&mut seen, receiver.recv_or_empty());
    assert_eq!(seen, [(5, 9), (6, 7)]);
}

fn a_full_queue_that_is_closed_gives_everything_and_then_ends() {
    let queue = queue(4);
    let sender = queue.sender();
    let mut receiver = queue.receiver().expect("free");
    (0..4).for_each(|number| sender.try_send(&message(0, number)).expect("space"));
    assert_eq!(queue.close(), Closing::WhenReceived);
    assert_eq!(sender.try_send(&message(0, 4)), Err(SendError::Full));
    assert_eq!(receiver.try_recv(), Ok(Some(message(0, 0))));
    assert_eq!(sender.try_send(&message(0, 4)), Err(SendError::Closed));
    (1..4).for_each(|number| assert_eq!(receiver.try_recv(), Ok(Some(message(0, number)))));
    assert_eq!(receiver.try_recv(), Err(RecvError::Closed));
    assert_eq!(queue.close(), Closing::At(4));

    // Its memory serves another queue, and the former senders do not reach that one.
    let generation = queue.reopen().expect("closed and empty");
    assert_eq!(sender.try_send(&message(0, 5)), Err(SendError::Closed));
    let sender = queue.sender_of(generation);
    (0..20).for_each(|number| {
        sender.try_send(&message(1, number)).expect("space");
        assert_eq!(receiver.try_recv(), Ok(Some(message(1, number))));
    });
    assert_eq!(queue.reopen(), None, "it is open");
}

fn a_retired_queue_refuses_waiting_senders() {
    let queue = queue(2);
    let sender = queue.sender();
    (0..2).for_each(|number| sender.try_send(&message(0, number)).expect("space"));
    thread::scope(|scope| {
        let waiting = scope.spawn(|| sender.send(&message(0, 2)));
        queue.retire();
        assert_eq!(waiting.join().expect("no panic"), Err(SendError::Closed));
    });
    assert_eq!(sender.try_send(&message(0, 2)), Err(SendError::Closed));
}

fn ten_thousand_open_destinations_take_less_than_four_mebibytes() {
    assert!(10_000 * size_of::<queues::express::ExpressSender>() < 4 << 20);
    assert!(
        size_of::<queues::express::ExpressSender>() <= 256
            && size_of::<queues::cache_line::CacheLineReceiver>() <= 256
    );
}

fn a_single_receiver_excludes_others() {
    let queue = queue(2);
    let sole = queue.single_receiver().expect("free");
    assert!(matches!(queue.receiver(), Err(CreateError::Held { .. })));
    assert!(matches!(queue.single_receiver(), Err(CreateError::Held { .. })));
    drop(sole);
    let shared = queue.receiver().expect("free again");
    assert!(matches!(queue.single_receiver(), Err(CreateError::Held { .. })));
    let another = shared.clone();
    drop(shared);
    assert!(matches!(queue.single_receiver(), Err(CreateError::Held { .. })));
    drop(another);
    let sole = queue.single_receiver().expect("free again");
    std::mem::forget(sole);
    queue.forget_receivers();
    assert!(queue.single_receiver().is_ok(), "the dead are forgotten");
}

fn what_is_no_queue_is_not_taken_for_one() {
    let arena = arena();
    for capacity in [0, 1, 3, usize::MAX] {
        let made = ExpressQueue::create(&arena, capacity, None);
        assert!(
            matches!(made, Err(CreateError::Size { requested, .. }) if requested == capacity as u64)
        );
    }
    assert!(matches!(ExpressQueue::create(&arena, 1 << 20, None), Err(CreateError::Arena(_))));
    let empty = arena.allocate_zeroed(4096, 64).expect("space");
    let attach = |offset| ExpressQueue::connect(arena.segment(), offset);
    assert!(matches!(attach(empty), Err(CreateError::NotFound { .. })));
    assert!(matches!(attach(Offset(u64::MAX - 63)), Err(CreateError::Segment(_))));
    assert!(matches!(attach(Offset(8)), Err(CreateError::Segment(_))));
    let queue = ExpressQueue::create(&arena, 8, None).expect("space");
    assert_eq!(attach(queue.offset()).expect("a queue").capacity(), 8);
    let wide = queues::cache_line::CacheLineQueue::connect(arena.segment(), queue.offset());
    assert!(matches!(wide, Err(CreateError::NotFound { .. })), "of another kind");
}

fn random_bytes_in_a_queue_neither_panic_nor_hang() {
    let queue = queue(8);
    let arena = arena();
    let victim = ExpressQueue::create(&arena, 8, None).expect("space");
    let bytes = ExpressQueue::bytes_for(8).expect("a capacity");
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
        let mut some = [ExpressMessage::default(); 5];
        for number in 0..300 {
            // Whatever they say, they say it.
            let _ = sender.try_send(&message(1, number));
            let _ = sender.send_deadline(&message(1, number), Instant::now());
            let _ =
                (receiver.try_recv(), receiver.recv_or_empty(), receiver.try_recv_many(&mut some));
            let _ = (receiver.is_ready(), receiver.recv_deadline(Instant::now()));
            let _ = (
                victim.generation(),
                ExpressQueue::connect(arena.segment(), victim.offset()).is_ok(),
            );
        }
        let _ = (victim.close(), victim.reopen());
        done.store(true, Ordering::Relaxed);
    });
    // A queue beside it has noticed nothing.
    queue.sender().try_send(&message(1, 1)).expect("space");
    assert_eq!(queue.receiver().expect("free").try_recv(), Ok(Some(message(1, 1))));
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Send(u64),
    Receive,
    ReceiveMany(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..1u64 << 40).prop_map(Step::Send),
        2 => Just(Step::Receive),
        1 => (0..9usize).prop_map(Step::ReceiveMany),
    ];
    prop::collection::vec(step, 0..200)
}

fn behaves_like_a_bounded_list<C: Consumers>(
    queue: &ExpressQueue,
    mut receiver: Receiver<Express, C>,
    steps: &[Step],
) -> Result<(), TestCaseError> {
    let sender = queue.sender();
    let mut list = std::collections::VecDeque::new();
    for &step in steps {
        match step {
            Step::Send(number) => {
                let expected =
                    if list.len() < queue.capacity() { Ok(()) } else { Err(SendError::Full) };
                prop_assert_eq!(sender.try_send(&message(3, number)), expected);
                if expected.is_ok() {
                    list.push_back(message(3, number));
                }
            }
            Step::Receive => prop_assert_eq!(receiver.try_recv(), Ok(list.pop_front())),
            Step::ReceiveMany(count) => {
                let mut some = vec![ExpressMessage::default(); count];
                let taken = receiver.try_recv_many(&mut some).expect("open");
                let expected: Vec<_> = list.drain(..count.min(list.len())).collect();
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
