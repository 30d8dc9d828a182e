//! The submission ring of a rank and its agent under loom: every interleaving of the two. The file
//! is included as it is; its `crate::sync` is loom's here.

#[path = "../../src/agent/submission_ring.rs"]
mod ring;

use crate::sync::AtomicU64;
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use ring::SubmissionRing;

testing::tests![the_agent_never_sleeps_on_a_published_entry,];

/// Two entries are published; the agent consumes both and never sleeps although one is there.
fn the_agent_never_sleeps_on_a_published_entry() {
    struct Shared {
        tail: AtomicU64,
        head: AtomicU64,
        epoch: AtomicU64,
        entries: [UnsafeCell<u64>; 2],
        /// Whether the agent has been notified.
        notified: Mutex<bool>,
        wakeup: Condvar,
    }
    // SAFETY: loom's cell fails the model when two threads touch an entry at once.
    unsafe impl Sync for Shared {}

    // Bounded, so that it takes seconds; three preemptions find what more find, in practice.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let shared = Arc::new(Shared {
            tail: AtomicU64::new(0),
            head: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
            entries: [UnsafeCell::new(0), UnsafeCell::new(0)],
            notified: Mutex::new(false),
            wakeup: Condvar::new(),
        });
        fn ring(shared: &Shared) -> SubmissionRing<'_> {
            SubmissionRing { tail: &shared.tail, head: &shared.head, epoch: &shared.epoch }
        }
        let rank = {
            let shared = Arc::clone(&shared);
            loom::thread::spawn(move || {
                let mut notified = 0;
                for place in 0..2 {
                    // SAFETY: the agent reads the entry only after it was published, which loom
                    // checks.
                    shared.entries[place].with_mut(|entry| unsafe { *entry = place as u64 + 7 });
                    if ring(&shared).publish(place as u64 + 1, &mut notified) {
                        *shared.notified.lock().expect("no panic") = true;
                        shared.wakeup.notify_one();
                    }
                }
            })
        };
        let mut consumed = 0;
        let mut epochs = 0;
        while consumed < 2 {
            ring(&shared).disarm();
            while consumed < ring(&shared).published() {
                // SAFETY: it was published and not consumed, which loom checks.
                shared.entries[consumed as usize]
                    .with(|entry| assert_eq!(unsafe { *entry }, consumed + 7));
                consumed += 1;
                ring(&shared).consume(consumed);
            }
            epochs += 1;
            if consumed < 2 && ring(&shared).arm(consumed, epochs) {
                let mut notified = shared.notified.lock().expect("no panic");
                while !*notified {
                    notified = shared.wakeup.wait(notified).expect("no panic");
                }
                *notified = false;
            }
        }
        rank.join().expect("no panic");
        assert_eq!(ring(&shared).consumed(), 2);
    });
}
