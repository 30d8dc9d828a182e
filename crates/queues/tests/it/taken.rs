//! Senders find out when a receiver has taken a message, and receivers limit how often they are woken.

use queues::cache_line::{CacheLine, CacheLineMessage};
use queues::express::{Express, ExpressMessage};
use queues::queue::{Multi, Queue, QueueKind, Receiver, SendError, Sender};
use shm::arena::Arena;
use shm::segment::{Backing, Segment};
use std::sync::Arc;
use std::time::{Duration, Instant};

testing::tests![
    messages_are_taken_in_their_order,
    a_sender_sleeps_until_its_message_is_taken,
    a_message_of_a_queue_without_receivers_is_never_taken,
    receivers_with_an_interval_get_every_message,
];

/// A queue of two messages.
fn queue<K: QueueKind>() -> (Queue<K>, Sender<K>, Receiver<K, Multi>) {
    let segment = Arc::new(Segment::create(1 << 20, Backing::Memory).expect("memory"));
    let arena = Arena::new(segment, 0..1 << 20).expect("inside");
    let queue = Queue::create(&arena, 2, None).expect("memory");
    let (sender, receiver) = (queue.sender(), queue.receiver().expect("shared"));
    (queue, sender, receiver)
}

/// Runs a test with both kinds of messages.
macro_rules! of_both_kinds {
    ($test:ident) => {
        $test::<Express>(ExpressMessage::default());
        $test::<CacheLine>(CacheLineMessage::default());
    };
}

fn messages_are_taken_in_their_order() {
    fn test<K: QueueKind>(message: K::Item) {
        let (_queue, sender, mut receiver) = queue::<K>();
        let now = Some(Instant::now());
        let mut before = None;
        // Many laps, with one message or two in the queue.
        for _ in 0..100 {
            let sent = [(); 2].map(|()| sender.try_send_tracked(&message).expect("there is space"));
            assert!(before.is_none_or(|before| sender.is_taken(before)));
            assert_eq!(sent.map(|one| sender.is_taken(one)), [false, false]);
            assert_eq!(sender.try_send_tracked(&message), Err(SendError::Full));
            receiver.try_recv().expect("it is open").expect("there are two");
            assert_eq!(sent.map(|one| sender.clone().is_taken(one)), [true, false]);
            assert_eq!(sent.map(|one| sender.wait_taken(one, now)), [Ok(true), Ok(false)]);
            receiver.try_recv().expect("it is open").expect("there is one");
            assert_eq!(sender.wait_taken(sent[1], None), Ok(true));
            before = Some(sent[1]);
        }
    }
    of_both_kinds!(test);
}

fn a_sender_sleeps_until_its_message_is_taken() {
    fn test<K: QueueKind>(message: K::Item)
    where
        Sender<K>: Sync,
        Receiver<K, Multi>: Send,
        K::Item: Sync,
    {
        let (_queue, sender, mut receiver) = queue::<K>();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..500 {
                    let sent = sender.try_send_tracked(&message).expect("the last one is taken");
                    assert_eq!(sender.wait_taken(sent, None), Ok(true));
                }
            });
            for _ in 0..500 {
                receiver.recv().expect("it is open");
            }
        });
    }
    of_both_kinds!(test);
}

fn a_message_of_a_queue_without_receivers_is_never_taken() {
    fn test<K: QueueKind>(message: K::Item) {
        let (retired, sender, mut receiver) = queue::<K>();
        let sent = [(); 2].map(|()| sender.try_send_tracked(&message).expect("there is space"));
        receiver.try_recv().expect("it is open").expect("there are two");
        retired.retire();
        let taken = sent.map(|one| sender.wait_taken(one, None));
        assert_eq!(taken, [Ok(true), Err(SendError::Closed)]);
        let (closed, sender, receiver) = queue::<K>();
        let sent = sender.try_send_tracked(&message).expect("there is space");
        closed.close();
        assert_eq!(sender.wait_taken(sent, Some(Instant::now())), Ok(false), "it may be received");
        drop(receiver);
        assert_eq!(sender.wait_taken(sent, None), Err(SendError::Closed));
    }
    of_both_kinds!(test);
}

fn receivers_with_an_interval_get_every_message() {
    fn test<K: QueueKind>(message: K::Item)
    where
        Sender<K>: Sync,
        K::Item: Sync,
    {
        const HOUR: Duration = Duration::from_secs(3600);
        let (queue, sender, mut receiver) = queue::<K>();
        receiver.set_wakeup_interval(HOUR);
        sender.try_send(&message).expect("there is space");
        assert!(receiver.recv().is_ok(), "a message that is there is received at once");
        let soon = Instant::now() + Duration::from_millis(1);
        assert!(matches!(receiver.recv_deadline(soon), Ok(None)), "the deadline comes first");
        assert!(Instant::now() >= soon);
        receiver.set_wakeup_interval(Duration::from_micros(100));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..200 {
                    let sent = sender.send(&message);
                    assert_eq!(sent, Ok(()));
                }
                queue.close();
            });
            let received = (0..).take_while(|_| receiver.clone().recv().is_ok()).count();
            assert_eq!(received, 200);
        });
    }
    of_both_kinds!(test);
}
