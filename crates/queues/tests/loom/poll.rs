//! Wake-up words, requests for an event and poll sets under loom: every interleaving of a few
//! threads, on the very source files that run. A lost wake-up shows as a deadlock, which loom reports.

use crate::consumers::Multi;
use crate::event::{EventRequest, Notify};
use crate::express::ring::WordRing;
use crate::id::SourceName;
use crate::message::ExpressMessage;
use crate::model::model;
use crate::poll_set::{Bits, Members, Poller, QUEUES_PER_LINE};
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};
use crate::wakeup::Wakeup;
use loom::sync::Arc;
use loom::thread;

testing::tests![
    a_sleeper_is_woken_for_each_of_two_messages,
    two_sleepers_get_a_message_each,
    a_sender_that_stops_before_it_rings_or_while_it_rings_does_not_silence_others,
    a_sleeper_that_died_does_not_silence_the_word_for_others,
    arming_an_event_sees_the_message_or_gets_the_event,
    a_poller_is_woken_by_two_senders_to_one_queue,
    a_poller_is_woken_by_senders_to_two_queues,
    a_poller_is_woken_by_senders_to_queues_under_a_summary,
    a_bit_that_was_left_standing_loses_no_message,
    a_sender_that_stops_before_it_sets_its_bit_does_not_hide_others,
    two_pollers_get_a_message_each,
    the_lowest_queue_comes_first_and_unwanted_ones_wait,
];

fn word() -> AtomicU64 {
    AtomicU64::new(0)
}

/// Zeroed memory of a ring of two words.
struct Ring {
    slots: [AtomicU64; 2],
    control: [AtomicU64; 3],
    generation_word: AtomicU32,
}

impl Ring {
    fn new() -> Ring {
        Ring {
            slots: [word(), word()],
            control: [word(), word(), word()],
            generation_word: AtomicU32::new(0),
        }
    }

    fn words(&self) -> WordRing<'_> {
        let [tail, free_until, head] = &self.control;
        WordRing {
            slots: &self.slots,
            tail,
            free_until,
            head,
            generation_word: &self.generation_word,
        }
    }

    fn send(&self, number: u64) {
        let message = ExpressMessage::of_number(SourceName::default(), 0, number).expect("40 bits");
        assert!(self.words().try_send(message, 0, &AtomicU64::new(0)).is_ok(), "space");
    }

    fn receive(&self) -> Option<u64> {
        self.words()
            .try_recv::<Multi>()
            .expect("neither closed nor broken")
            .map(ExpressMessage::number)
    }
}

/// A queue with a wake-up word.
struct WakingQueue {
    ring: Ring,
    wakeup: AtomicU32,
}

impl WakingQueue {
    fn new() -> Arc<WakingQueue> {
        Arc::new(WakingQueue { ring: Ring::new(), wakeup: AtomicU32::new(0) })
    }

    fn send(&self, number: u64) {
        self.ring.send(number);
        Wakeup::by_exchange(&self.wakeup).notify();
    }

    fn receive(&self) -> u64 {
        loop {
            let wakeup = Wakeup::by_exchange(&self.wakeup);
            let armed = wakeup.arm();
            let found = self.ring.receive();
            if found.is_none() {
                wakeup.sleep(armed, None);
            }
            wakeup.disarm(armed);
            if let Some(number) = found {
                return number;
            }
        }
    }
}

fn spawn<T: 'static, R: 'static>(
    shared: &Arc<T>,
    run: impl FnOnce(&T) -> R + 'static,
) -> thread::JoinHandle<R> {
    let shared = Arc::clone(shared);
    thread::spawn(move || run(&shared))
}

fn a_sleeper_is_woken_for_each_of_two_messages() {
    model(3, || {
        let queue = WakingQueue::new();
        let senders = [1, 2].map(|number| spawn(&queue, move |queue| queue.send(number)));
        assert_eq!(queue.receive() + queue.receive(), 3);
        senders.into_iter().for_each(|sender| sender.join().expect("no panic"));
    });
}

fn two_sleepers_get_a_message_each() {
    model(3, || {
        let queue = WakingQueue::new();
        let sleepers = [0, 1].map(|_| spawn(&queue, WakingQueue::receive));
        queue.send(1);
        queue.send(2);
        let got = sleepers.map(|sleeper| sleeper.join().expect("no panic"));
        assert_eq!(got.iter().sum::<u64>(), 3);
    });
}

fn a_sender_that_stops_before_it_rings_or_while_it_rings_does_not_silence_others() {
    for gets_to_the_kernel in [false, true] {
        model(3, move || {
            let queue = WakingQueue::new();
            let stopped = spawn(&queue, move |queue| {
                if gets_to_the_kernel {
                    crate::futex::STOPS.with(|stops| stops.set(true));
                    let _ =
                        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| queue.send(1)));
                } else {
                    queue.ring.send(1);
                }
            });
            let other = spawn(&queue, |queue| queue.send(2));
            let mut got = queue.receive();
            if got == 1 {
                got = queue.receive();
            }
            assert_eq!(got, 2);
            stopped.join().expect("no panic");
            other.join().expect("no panic");
        });
    }
}

fn a_sleeper_that_died_does_not_silence_the_word_for_others() {
    model(3, || {
        let queue = WakingQueue::new();
        // It entered and never leaves.
        let _ = Wakeup::by_exchange(&queue.wakeup).arm();
        let senders = [1, 2].map(|number| spawn(&queue, move |queue| queue.send(number)));
        assert_eq!(queue.receive() + queue.receive(), 3);
        senders.into_iter().for_each(|sender| sender.join().expect("no panic"));
    });
}

fn arming_an_event_sees_the_message_or_gets_the_event() {
    for when in [Notify::Arrival, Notify::HalfFull] {
        model(3, move || {
            let queue = Arc::new((Ring::new(), AtomicU32::new(0), AtomicU32::new(0)));
            let senders = [1, 2].map(|number| {
                spawn(&queue, move |(ring, request, event)| {
                    ring.send(number);
                    crate::fence::after_exchange();
                    EventRequest(request).serve(
                        || ring.words().holds(1),
                        || {
                            event.fetch_add(1, Ordering::AcqRel);
                        },
                    );
                })
            });
            let (ring, request, event) = &*queue;
            let mut taken = 0;
            for _ in 0..2 {
                let before = event.load(Ordering::Acquire);
                EventRequest(request).request(when);
                fence(Ordering::SeqCst);
                if ring.words().is_ready() {
                    taken += u32::from(ring.receive().is_some());
                } else if taken == 2 {
                    break;
                } else {
                    // Nothing was there, so the next message writes.
                    while event.load(Ordering::Acquire) == before {
                        thread::yield_now();
                    }
                    taken += u32::from(ring.receive().is_some());
                }
            }
            senders.into_iter().for_each(|sender| sender.join().expect("no panic"));
        });
    }
}

/// Queues in a poll set, with the set's wake-up word.
struct Polled {
    rings: Vec<(usize, Ring)>,
    words: Vec<AtomicU64>,
    summary: Vec<AtomicU64>,
    wakeup: AtomicU32,
}

impl Polled {
    /// Queues of these indices; with a summary if one of them needs a second line.
    fn new(indices: &[usize]) -> Arc<Polled> {
        let lines = indices.iter().max().map_or(1, |index| index / QUEUES_PER_LINE + 1);
        Arc::new(Polled {
            rings: indices.iter().map(|&index| (index, Ring::new())).collect(),
            words: (0..8 * lines).map(|_| word()).collect(),
            summary: if lines > 1 { (0..8).map(|_| word()).collect() } else { Vec::new() },
            wakeup: AtomicU32::new(0),
        })
    }

    fn bits(&self) -> Bits<'_> {
        Bits { words: &self.words, summary: &self.summary }
    }

    fn send(&self, queue: usize, number: u64) {
        self.rings[queue].1.send(number);
        self.bits().announce(self.rings[queue].0);
        Wakeup::by_exchange(&self.wakeup).notify();
    }

    fn receive(&self, poller: &mut Poller) -> u64 {
        let mut members = Queues(self);
        loop {
            if let Some((index, (queue, number))) = poller.poll(self.bits(), None, &mut members) {
                assert_eq!(index, self.rings[queue].0);
                return number;
            }
            let wakeup = Wakeup::by_exchange(&self.wakeup);
            let armed = wakeup.arm();
            if !poller.is_any_ready(self.bits(), None, &mut members) {
                wakeup.sleep(armed, None);
            }
            wakeup.disarm(armed);
        }
    }
}

struct Queues<'a>(&'a Polled);

impl Queues<'_> {
    fn place(&self, index: usize) -> Option<usize> {
        self.0.rings.iter().position(|ring| ring.0 == index)
    }
}

impl Members for Queues<'_> {
    type Item = (usize, u64);

    fn take(&mut self, index: usize) -> Option<(usize, u64)> {
        let place = self.place(index)?;
        Some((place, self.0.rings[place].1.receive()?))
    }

    fn is_ready(&mut self, index: usize) -> bool {
        self.place(index).is_some_and(|place| self.0.rings[place].1.words().is_ready())
    }
}

fn a_poller_sleeps_for_two_senders(indices: &'static [usize], preemptions: usize) {
    model(preemptions, move || {
        let set = Polled::new(indices);
        let last = indices.len() - 1;
        let senders = [(0, 1), (last, 2)]
            .map(|(queue, number)| spawn(&set, move |set| set.send(queue, number)));
        let mut poller = Poller::default();
        assert_eq!(set.receive(&mut poller) + set.receive(&mut poller), 3);
        senders.into_iter().for_each(|sender| sender.join().expect("no panic"));
        assert!(poller.poll(set.bits(), None, &mut Queues(&set)).is_none());
    });
}

fn a_poller_is_woken_by_two_senders_to_one_queue() {
    a_poller_sleeps_for_two_senders(&[5], 2);
}

fn a_poller_is_woken_by_senders_to_two_queues() {
    a_poller_sleeps_for_two_senders(&[5, 70], 2);
}

fn a_poller_is_woken_by_senders_to_queues_under_a_summary() {
    a_poller_sleeps_for_two_senders(&[511, 513], 2);
}

fn a_bit_that_was_left_standing_loses_no_message() {
    model(3, || {
        let set = Polled::new(&[5, 70]);
        let mut poller = Poller::default();
        set.send(0, 1);
        assert_eq!(set.receive(&mut poller), 1);
        // The bit of the first queue stands, and its sender will not set it.
        let senders = [spawn(&set, |set| set.send(0, 2)), spawn(&set, |set| set.send(1, 4))];
        assert_eq!(set.receive(&mut poller) + set.receive(&mut poller), 6);
        senders.into_iter().for_each(|sender| sender.join().expect("no panic"));
    });
}

fn a_sender_that_stops_before_it_sets_its_bit_does_not_hide_others() {
    model(3, || {
        let set = Polled::new(&[5]);
        let stopped = spawn(&set, |set| set.rings[0].1.send(1));
        let other = spawn(&set, |set| set.send(0, 2));
        let mut poller = Poller::default();
        let mut got = set.receive(&mut poller);
        if got == 1 {
            got = set.receive(&mut poller);
        }
        assert_eq!(got, 2);
        stopped.join().expect("no panic");
        other.join().expect("no panic");
    });
}

fn two_pollers_get_a_message_each() {
    model(2, || {
        let set = Polled::new(&[5, 70]);
        let pollers = [0, 1].map(|_| spawn(&set, |set| set.receive(&mut Poller::default())));
        set.send(1, 1);
        set.send(0, 2);
        let got = pollers.map(|poller| poller.join().expect("no panic"));
        assert_eq!(got.iter().sum::<u64>(), 3);
    });
}

fn the_lowest_queue_comes_first_and_unwanted_ones_wait() {
    loom::model(|| {
        let set = Polled::new(&[3, 64, 511]);
        (0..3).for_each(|queue| set.send(queue, queue as u64));
        let mut poller = Poller::default();
        let mut members = Queues(&set);
        let mut wanted = [0; 8];
        wanted[1] = 1;
        let mut poll = |wanted: Option<&[u64]>| {
            poller.poll(set.bits(), wanted, &mut members).map(|(index, _)| index)
        };
        assert_eq!(poll(Some(&wanted)), Some(64));
        assert_eq!(poll(Some(&wanted)), None);
        assert_eq!([poll(None), poll(None), poll(None)], [Some(3), Some(511), None]);
    });
}
