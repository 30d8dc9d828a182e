//! Common behaviour of Express and CacheLine queues, in a segment with real threads: order, nothing
//! lost or doubled, waiting, closing, and hostile memory.

use super::names::{CacheLineMessage, ExpressMessage, SourceName};
use crate::ends;
use proptest::prelude::*;
use queues::cache_line::CacheLine;
use queues::error::{CreateError, RecvError, SendError};
use queues::express::Express;
use queues::handlers::Handlers;
use queues::queue::{Closing, Consumers, Multi, Queue, QueueKind, Receiver, Sender};
use shm::arena::Arena;
use shm::segment::{Backing, Offset, Segment};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testing::mechanism::{self, between_threads, deadlines_end_waits_without_loss};

testing::tests![slow("minutes: 10^8 messages with 4 threads"): a_hundred_million_messages_with_four_threads];

/// Registers functions as tests of both kinds.
macro_rules! tests_of_both_kinds {
    ($($test:ident),+ $(,)?) => {
        mod express {
            testing::tests![$($test),+];
            $(fn $test() { super::$test::<queues::express::Express>() })+
        }
        mod cache_line {
            testing::tests![$($test),+];
            $(fn $test() { super::$test::<queues::cache_line::CacheLine>() })+
        }
    };
}

tests_of_both_kinds![
    threads_lose_and_double_nothing,
    batches_keep_the_order_with_both_forms_of_receivers,
    sleepers_are_woken_by_a_message_by_space_and_by_the_end,
    deadlines_end_both_kinds_of_waiting_without_a_loss,
    an_empty_queue_gives_its_empty_message,
    a_full_queue_that_is_closed_gives_everything_and_then_ends,
    a_retired_queue_refuses_waiting_senders,
    a_single_receiver_excludes_others,
    what_is_no_queue_is_not_taken_for_one,
    random_bytes_in_a_queue_neither_panic_nor_hang,
    a_queue_is_a_bounded_list,
];
testing::tests![
    ten_thousand_open_destinations_take_less_than_four_mebibytes,
    handlers_run_for_messages_and_the_default_one_does_nothing,
];

/// Kind of messages, in which each is a rank and a number.
trait Kind: QueueKind {
    /// The other kind.
    type Other: QueueKind;
    /// Answers of a full queue of four to its close, and to a sender then.
    const CLOSED_WHEN_FULL: (Closing, SendError);

    fn message(from: u16, number: u64) -> Self::Item;
    fn read(item: &Self::Item) -> (u32, u64);
    /// Source, handler and data.
    fn parts(item: &Self::Item) -> (u16, u8, Vec<u8>);
    /// Ends for the suite.
    fn ends<'a>(from: u32, sender: Sender<Self>) -> mechanism::Sender<'a>;
    fn receiver<'a>(receiver: Receiver<Self, Multi>) -> mechanism::Receiver<'a>;
    /// Calls that only this kind has, on a queue that is overwritten meanwhile.
    fn misuse(_queue: &Queue<Self>, _sender: &Sender<Self>) {}
}

impl Kind for Express {
    type Other = CacheLine;
    const CLOSED_WHEN_FULL: (Closing, SendError) = (Closing::WhenReceived, SendError::Full);

    fn message(from: u16, number: u64) -> ExpressMessage {
        let source = SourceName::new(from).expect("14 bits");
        ExpressMessage::of_number(source, 0, number).expect("40 bits")
    }

    fn read(item: &ExpressMessage) -> (u32, u64) {
        (item.source().number().into(), item.number())
    }

    fn parts(item: &ExpressMessage) -> (u16, u8, Vec<u8>) {
        (item.source().number(), item.handler(), item.data().to_vec())
    }

    fn ends<'a>(from: u32, sender: Sender<Self>) -> mechanism::Sender<'a> {
        ends::express(from, sender)
    }

    fn receiver<'a>(receiver: Receiver<Self, Multi>) -> mechanism::Receiver<'a> {
        ends::of_express(receiver)
    }
}

impl Kind for CacheLine {
    type Other = Express;
    const CLOSED_WHEN_FULL: (Closing, SendError) = (Closing::At(4), SendError::Closed);

    fn message(from: u16, number: u64) -> CacheLineMessage {
        ends::line(from.into(), number)
    }

    fn read(item: &CacheLineMessage) -> (u32, u64) {
        ends::of_line(item)
    }

    fn parts(item: &CacheLineMessage) -> (u16, u8, Vec<u8>) {
        (item.header().source.number(), item.header().handler, item.data().to_vec())
    }

    fn ends<'a>(from: u32, sender: Sender<Self>) -> mechanism::Sender<'a> {
        ends::cache_line(from, sender)
    }

    fn receiver<'a>(receiver: Receiver<Self, Multi>) -> mechanism::Receiver<'a> {
        ends::of_cache_line(receiver)
    }

    fn misuse(queue: &Queue<Self>, sender: &Sender<Self>) {
        let header = Self::message(1, 1).header();
        let _ = sender.claim(header).map(|claim| claim.publish(5).is_ok());
        let _ = sender.claim(header).is_ok();
        queue.recover();
    }
}

fn arena() -> Arena {
    let segment = Arc::new(Segment::create(1 << 20, Backing::Memory).expect("memory"));
    Arena::new(segment, 0..1 << 20).expect("a range of the segment")
}

fn queue<K: Kind>(capacity: usize) -> Queue<K> {
    Queue::create(&arena(), capacity, None).expect("space in the arena")
}

/// Takes the next message.
fn taken<K: Kind, C: Consumers>(
    receiver: &mut Receiver<K, C>,
) -> Result<Option<(u32, u64)>, RecvError> {
    receiver.try_recv().map(|item| item.as_ref().map(K::read))
}

/// Senders and receivers on threads of their own, in a queue that is closed at the end.
fn soak<K: Kind>(senders: u32, receivers: u32, each: u64, capacity: usize) {
    let queue = queue::<K>(capacity);
    between_threads(
        (0..senders).map(|from| K::ends(from, queue.sender())).collect(),
        (0..receivers).map(|_| K::receiver(queue.receiver().expect("shared"))).collect(),
        each,
        || _ = queue.close(),
    );
}

fn threads_lose_and_double_nothing<K: Kind>() {
    soak::<K>(3, 1, 60_000, 64);
    soak::<K>(2, 2, 60_000, 16);
    // The smallest queue.
    soak::<K>(2, 2, 10_000, 2);
}

fn a_hundred_million_messages_with_four_threads() {
    soak::<Express>(2, 2, 50_000_000, 1024);
    soak::<CacheLine>(2, 2, 50_000_000, 1024);
}

fn in_batches<K: Kind, C: Consumers>(mut receiver: Receiver<K, C>, queue: &Queue<K>) {
    const COUNT: u64 = 30_000;
    thread::scope(|scope| {
        let mut sender = K::ends(0, queue.sender());
        scope.spawn(move || {
            let wait = mechanism::Wait::Forever;
            (0..COUNT).for_each(|number| assert_eq!(sender(number, wait), Ok(true)));
        });
        let mut some = [K::message(9, 9); 7];
        let mut next = 0;
        while next < COUNT {
            let taken = receiver.try_recv_many(&mut some).expect("open");
            for message in &some[..taken] {
                assert_eq!(K::read(message), (0, next));
                next += 1;
            }
            if taken == 0 {
                thread::yield_now();
            }
        }
    });
}

fn batches_keep_the_order_with_both_forms_of_receivers<K: Kind>() {
    let queue = queue::<K>(32);
    in_batches(queue.receiver().expect("free"), &queue);
    in_batches(queue.single_receiver().expect("free"), &queue);
}

fn sleepers_are_woken_by_a_message_by_space_and_by_the_end<K: Kind>() {
    let queue = queue::<K>(2);
    thread::scope(|scope| {
        // Each side sleeps for sure at some time: the other one waits long enough before every
        // step.
        let mut receiver = K::receiver(queue.receiver().expect("free"));
        let receiver = scope.spawn(move || {
            let mut got = Vec::new();
            while let Ok(message) = receiver(mechanism::Wait::Forever) {
                got.push(message.expect("it waits").1);
                thread::sleep(Duration::from_millis(3));
            }
            got
        });
        let mut sender = K::ends(0, queue.sender());
        for number in 0..8 {
            if number == 4 {
                thread::sleep(Duration::from_millis(20));
            }
            assert_eq!(sender(number, mechanism::Wait::Forever), Ok(true));
        }
        thread::sleep(Duration::from_millis(40));
        queue.close();
        assert_eq!(sender(9, mechanism::Wait::Forever), Err(mechanism::End::Closed));
        assert_eq!(receiver.join().expect("no panic"), (0..8).collect::<Vec<_>>());
    });
}

fn deadlines_end_both_kinds_of_waiting_without_a_loss<K: Kind>() {
    let queue = queue::<K>(2);
    let mut receiver = K::receiver(queue.receiver().expect("free"));
    deadlines_end_waits_without_loss(&mut K::ends(0, queue.sender()), &mut receiver);
}

fn an_empty_queue_gives_its_empty_message<K: Kind>() {
    let queue = queue::<K>(2);
    let mut receiver = queue.receiver().expect("free");
    assert_eq!(K::parts(&receiver.recv_or_empty()), (0, 0, vec![0; 5]));
    let idle = ExpressMessage::new(SourceName::new(5).expect("14 bits"), 1, *b"idle.");
    receiver.set_empty_message(idle);
    let idle = (5, 1, b"idle.".to_vec());
    let mut another = queue.receiver().expect("shared");
    assert_eq!(K::parts(&another.recv_or_empty()), idle, "for all receivers");
    queue.sender().try_send(&K::message(6, 7)).expect("space");
    assert_eq!(K::read(&receiver.recv_or_empty()), (6, 7));
    assert_eq!(K::parts(&receiver.recv_or_empty()), idle);
}

fn handlers_run_for_messages_and_the_default_one_does_nothing() {
    let queue = queue::<Express>(2);
    let mut receiver = queue.receiver().expect("free");
    let mut handlers = Handlers::<Vec<(u16, u8)>>::new();
    handlers.set(1, |seen, source, data| seen.push((source.number(), data[0])));
    let mut seen = Vec::new();
    handlers.dispatch(&mut seen, receiver.recv_or_empty());
    assert_eq!(seen, [], "handler 0 does nothing");
    let message = |from: u16, byte| {
        ExpressMessage::new(SourceName::new(from).expect("14 bits"), 1, [byte, 0, 0, 0, 0])
    };
    receiver.set_empty_message(message(5, 9));
    handlers.dispatch(&mut seen, receiver.recv_or_empty());
    queue.sender().try_send(&message(6, 7)).expect("space");
    handlers.dispatch(&mut seen, receiver.recv_or_empty());
    assert_eq!(seen, [(5, 9), (6, 7)]);
}

fn a_full_queue_that_is_closed_gives_everything_and_then_ends<K: Kind>() {
    let queue = queue::<K>(4);
    let sender = queue.sender();
    let mut receiver = queue.receiver().expect("free");
    (0..4).for_each(|number| sender.try_send(&K::message(0, number)).expect("space"));
    let closed = (queue.close(), sender.try_send(&K::message(0, 4)).expect_err("it is full"));
    assert_eq!(closed, K::CLOSED_WHEN_FULL);
    assert_eq!(queue.reopen(), None, "it is not empty");
    assert_eq!(taken(&mut receiver), Ok(Some((0, 0))));
    assert_eq!(sender.try_send(&K::message(0, 4)), Err(SendError::Closed));
    (1..4).for_each(|number| assert_eq!(taken(&mut receiver), Ok(Some((0, number)))));
    assert_eq!(taken(&mut receiver), Err(RecvError::Closed));
    assert_eq!(receiver.recv().err(), Some(RecvError::Closed));
    assert_eq!(queue.close(), Closing::At(4));

    // Its memory serves another queue, and the former senders do not reach that one.
    let generation = queue.reopen().expect("closed and empty");
    assert_eq!(sender.try_send(&K::message(0, 5)), Err(SendError::Closed));
    let sender = queue.sender_of(generation);
    for number in 0..20 {
        sender.try_send(&K::message(1, number)).expect("space");
        assert_eq!(taken(&mut receiver), Ok(Some((1, number))));
    }
    assert_eq!(queue.reopen(), None, "it is open");
}

fn a_retired_queue_refuses_waiting_senders<K: Kind>() {
    let queue = queue::<K>(2);
    let sender = queue.sender();
    (0..2).for_each(|number| sender.try_send(&K::message(0, number)).expect("space"));
    let mut waiting = K::ends(0, queue.sender());
    thread::scope(|scope| {
        let waiting = scope.spawn(move || waiting(2, mechanism::Wait::Forever));
        queue.retire();
        assert_eq!(waiting.join().expect("no panic"), Err(mechanism::End::Closed));
    });
    assert_eq!(sender.try_send(&K::message(0, 2)), Err(SendError::Closed));
}

fn ten_thousand_open_destinations_take_less_than_four_mebibytes() {
    assert!(10_000 * size_of::<Sender<Express>>() < 4 << 20);
    assert!(size_of::<Sender<Express>>() <= 256);
    assert!(size_of::<Receiver<CacheLine, Multi>>() <= 256);
}

fn a_single_receiver_excludes_others<K: Kind>() {
    let queue = queue::<K>(2);
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

fn what_is_no_queue_is_not_taken_for_one<K: Kind>() {
    let arena = arena();
    for capacity in [0, 1, 3, usize::MAX] {
        let made = Queue::<K>::create(&arena, capacity, None).err();
        let is_size = |error| matches!(error, CreateError::Size { requested, .. } if requested == capacity as u64);
        assert!(made.is_some_and(is_size), "{capacity}");
    }
    assert!(matches!(Queue::<K>::create(&arena, 1 << 20, None), Err(CreateError::Arena(_))));
    let empty = arena.allocate_zeroed(4096, 64).expect("space");
    let connect = |offset| Queue::<K>::connect(arena.segment(), offset);
    assert!(matches!(connect(empty), Err(CreateError::NotFound { .. })));
    assert!(matches!(connect(Offset(u64::MAX - 63)), Err(CreateError::Segment(_))));
    assert!(matches!(connect(Offset(8)), Err(CreateError::Segment(_))));
    let queue = Queue::<K>::create(&arena, 8, None).expect("space");
    assert_eq!(connect(queue.offset()).expect("a queue").capacity(), 8);
    let other = Queue::<K::Other>::connect(arena.segment(), queue.offset());
    assert!(matches!(other, Err(CreateError::NotFound { .. })), "of another kind");
}

fn random_bytes_in_a_queue_neither_panic_nor_hang<K: Kind>() {
    let arena = arena();
    let beside = Queue::<K>::create(&arena, 8, None).expect("space");
    let victim = Queue::<K>::create(&arena, 8, None).expect("space");
    let bytes = Queue::<K>::bytes_for(8).expect("a capacity");
    let words = arena.segment().slice_at::<AtomicU64>(victim.offset(), bytes as usize / 8);
    let words = words.expect("its memory");
    let store = |index: usize, noise| words[index].store(noise, Ordering::Relaxed);
    let mut receiver = victim.receiver().expect("free");
    testing::mutate::while_overwritten(words.len(), store, || {
        let sender = victim.sender();
        let mut some = [K::message(9, 9); 5];
        for number in 0..300 {
            // Any result is acceptable.
            let message = K::message(1, number);
            let _ = sender.try_send(&message);
            let _ = sender.send_deadline(&message, Instant::now());
            K::misuse(&victim, &sender);
            let _ = (receiver.try_recv().is_ok(), receiver.try_recv_many(&mut some));
            let _ = (receiver.recv_or_empty(), receiver.is_ready());
            let _ = receiver.recv_deadline(Instant::now()).is_ok();
            let connected = Queue::<K>::connect(arena.segment(), victim.offset());
            let _ = (victim.generation(), connected.is_ok());
        }
        let _ = (victim.close(), victim.reopen());
    });
    beside.sender().try_send(&K::message(1, 1)).expect("space");
    let found = taken(&mut beside.receiver().expect("free"));
    assert_eq!(found, Ok(Some((1, 1))), "a queue beside it has noticed nothing");
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

fn behaves_like_a_bounded_list<K: Kind, C: Consumers>(
    queue: &Queue<K>,
    mut receiver: Receiver<K, C>,
    steps: &[Step],
) -> Result<(), TestCaseError> {
    let sender = queue.sender();
    let mut list = VecDeque::new();
    for &step in steps {
        match step {
            Step::Send(number) => {
                let has_space = list.len() < queue.capacity();
                let expected = if has_space { Ok(()) } else { Err(SendError::Full) };
                prop_assert_eq!(sender.try_send(&K::message(3, number)), expected);
                list.extend(has_space.then_some((3, number)));
            }
            Step::Receive => prop_assert_eq!(taken(&mut receiver), Ok(list.pop_front())),
            Step::ReceiveMany(count) => {
                let mut some = vec![K::message(9, 9); count];
                let taken = receiver.try_recv_many(&mut some).expect("open");
                let expected: Vec<_> = list.drain(..count.min(list.len())).collect();
                let found: Vec<_> = some[..taken].iter().map(K::read).collect();
                prop_assert_eq!(found, expected);
            }
        }
        prop_assert_eq!(receiver.is_ready(), !list.is_empty());
    }
    Ok(())
}

fn a_queue_is_a_bounded_list<K: Kind>() {
    proptest!(|(steps in steps(), shift in 1..5u32)| {
        let shared = queue::<K>(1 << shift);
        behaves_like_a_bounded_list(&shared, shared.receiver().expect("free"), &steps)?;
        let sole = queue::<K>(1 << shift);
        behaves_like_a_bounded_list(&sole, sole.single_receiver().expect("free"), &steps)?;
    });
}
