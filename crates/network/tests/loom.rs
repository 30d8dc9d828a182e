//! The bell between a rank and its agent under loom: every interleaving of the two. The file is
//! included as it is; it uses `crate::sync`, which here is loom's.

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
}

#[path = "../src/agent/bell.rs"]
mod bell;

use bell::Bell;
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use sync::AtomicU64;

/// Two entries are published; the agent takes both, and nothing that was published is slept over.
#[test]
fn no_entry_is_slept_over() {
    struct Shared {
        tail: AtomicU64,
        head: AtomicU64,
        nap: AtomicU64,
        entries: [UnsafeCell<u64>; 2],
        /// The doorbell: whether it has rung.
        rung: Mutex<bool>,
        door: Condvar,
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
            nap: AtomicU64::new(0),
            entries: [UnsafeCell::new(0), UnsafeCell::new(0)],
            rung: Mutex::new(false),
            door: Condvar::new(),
        });
        fn bell(shared: &Shared) -> Bell<'_> {
            Bell { tail: &shared.tail, head: &shared.head, nap: &shared.nap }
        }
        let rank = {
            let shared = Arc::clone(&shared);
            loom::thread::spawn(move || {
                let mut rung_for = 0;
                for place in 0..2 {
                    // SAFETY: the agent reads the entry only after it was published, which loom
                    // checks.
                    shared.entries[place].with_mut(|entry| unsafe { *entry = place as u64 + 7 });
                    if bell(&shared).publish(place as u64 + 1, &mut rung_for) {
                        *shared.rung.lock().expect("no panic") = true;
                        shared.door.notify_one();
                    }
                }
            })
        };
        let (mut taken, mut naps) = (0, 0);
        while taken < 2 {
            bell(&shared).rise();
            while taken < bell(&shared).published() {
                // SAFETY: it was published and not taken, which loom checks.
                shared.entries[taken as usize]
                    .with(|entry| assert_eq!(unsafe { *entry }, taken + 7));
                taken += 1;
                bell(&shared).take(taken);
            }
            naps += 1;
            if taken < 2 && bell(&shared).doze(taken, naps) {
                let mut rung = shared.rung.lock().expect("no panic");
                while !*rung {
                    rung = shared.door.wait(rung).expect("no panic");
                }
                *rung = false;
            }
        }
        rank.join().expect("no panic");
        assert_eq!(bell(&shared).taken(), 2);
    });
}
