//! Two ends in one process.

use super::ends::{End, Receiver, Sender, Wait};
use std::thread;
use std::time::Duration;

/// A time after which a call gives up.
const SOON: Wait = Wait::For(Duration::from_millis(3));

/// Sends `each` numbers by every sender on a thread of its own, some without waiting, and receives
/// them on a thread for every receiver. `close` is called when all were sent.
///
/// # Panics
///
/// Panics if a number is lost, comes twice, or overtakes another one of its sender at one receiver.
pub fn between_threads(
    senders: Vec<Sender<'_>>,
    receivers: Vec<Receiver<'_>>,
    each: u64,
    close: impl FnOnce(),
) {
    let sending = senders.len();
    let received = thread::scope(|scope| {
        let receivers: Vec<_> = receivers
            .into_iter()
            .map(|mut receiver| {
                scope.spawn(move || {
                    let mut received = vec![Vec::new(); sending];
                    for turn in 0.. {
                        let wait = if turn % 3 == 0 { Wait::Forever } else { Wait::No };
                        match receiver(wait) {
                            Ok(Some((from, number))) => received[from as usize].push(number),
                            Ok(None) => thread::yield_now(),
                            Err(end) => {
                                assert_eq!(end, End::Closed);
                                break;
                            }
                        }
                    }
                    received
                })
            })
            .collect();
        let senders: Vec<_> = senders
            .into_iter()
            .map(|mut sender| {
                scope.spawn(move || {
                    for number in 0..each {
                        while number % 2 == 0 && !sender(number, Wait::No).expect("open") {
                            thread::yield_now();
                        }
                        let waits = number % 2 == 1;
                        assert!(!waits || sender(number, Wait::Forever).expect("open"));
                    }
                })
            })
            .collect();
        senders.into_iter().for_each(|sender| sender.join().expect("no panic"));
        close();
        let join = |receiver: thread::ScopedJoinHandle<'_, _>| receiver.join().expect("no panic");
        receivers.into_iter().map(join).collect::<Vec<Vec<Vec<u64>>>>()
    });
    for from in 0..sending {
        let mut all = Vec::new();
        for receiver in &received {
            assert!(receiver[from].is_sorted_by(|one, next| one < next), "the order of {from}");
            all.extend_from_slice(&receiver[from]);
        }
        all.sort_unstable();
        assert!(all.into_iter().eq(0..each), "nothing of sender {from} is lost or doubled");
    }
}

/// Fills a connection of sender 0, and lets calls give up on both ends.
///
/// # Panics
///
/// Panics if a call that gave up has sent or received something.
pub fn deadlines_end_waits_without_loss(sender: &mut Sender<'_>, receiver: &mut Receiver<'_>) {
    assert_eq!(receiver(SOON), Ok(None));
    let mut sent = 0;
    while sender(sent, SOON) == Ok(true) {
        sent += 1;
    }
    assert_eq!((sender(sent, SOON), sender(sent, Wait::No)), (Ok(false), Ok(false)));
    for number in 0..sent {
        assert_eq!(receiver(SOON), Ok(Some((0, number))), "what is there needs no time");
    }
    assert_eq!((receiver(SOON), receiver(Wait::No)), (Ok(None), Ok(None)));
    assert_eq!(sender(sent, SOON), Ok(true));
    assert_eq!(receiver(Wait::Forever), Ok(Some((0, sent))));
}

/// Drops one end while the other one waits: first the receiver of a full connection, then the sender
/// of an empty one.
///
/// # Panics
///
/// Panics if the wait ends otherwise than by the close.
pub fn closed_ends_end_waits<'a>(open: impl Fn() -> (Sender<'a>, Receiver<'a>)) {
    let (mut sender, receiver) = open();
    let mut sent = 0;
    while sender(sent, Wait::No) == Ok(true) {
        sent += 1;
    }
    thread::scope(|scope| {
        let waiting = scope.spawn(move || sender(sent, Wait::Forever));
        drop(receiver);
        assert_eq!(waiting.join().expect("no panic"), Err(End::Closed));
    });
    let (sender, mut receiver) = open();
    thread::scope(|scope| {
        let waiting = scope.spawn(move || receiver(Wait::Forever));
        drop(sender);
        assert_eq!(waiting.join().expect("no panic"), Err(End::Closed));
    });
    let (mut sender, receiver) = open();
    drop(receiver);
    let end = (0..100).find_map(|number| sender(number, Wait::Forever).err());
    assert_eq!(end, Some(End::Closed), "although there is space");
}
