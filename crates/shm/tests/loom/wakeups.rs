//! Models of the wake-up word, for both kinds of change.

use crate::futex::STOPS;
use crate::sync::{AtomicU32, Ordering};
use crate::wakeup::Wakeup;
use crate::{assert_deadlock, explore};
use Change::{ByExchange, ByStore};
use loom::thread;
use std::sync::Arc;

testing::tests![
    one_notifier_wakes_a_sleeper_for_each_change,
    two_notifiers_wake_a_sleeper,
    two_sleepers_are_woken,
    a_notifier_that_is_killed_leaves_the_sleepers_to_the_next_one,
    a_sleeper_that_is_killed_does_not_silence_the_word_for_others,
    a_notifier_sees_the_closed_end_and_still_wakes_its_sleepers,
    without_the_check_a_wakeup_by_exchange_is_lost,
    without_the_check_a_wakeup_by_store_is_lost,
];

/// Operation by which notifiers make their change.
#[derive(Clone, Copy)]
enum Change {
    ByExchange,
    ByStore,
}

const BOTH: [Change; 2] = [ByExchange, ByStore];

/// A count and the wake-up word of the threads that wait for it. Not in loom's `Arc`, which aborts
/// when a model fails that is meant to fail.
struct Scene {
    count: AtomicU32,
    word: AtomicU32,
    change: Change,
}

impl Scene {
    fn new(change: Change) -> Arc<Scene> {
        Arc::new(Scene { count: AtomicU32::new(0), word: AtomicU32::new(0), change })
    }

    fn wakeup(&self) -> Wakeup<'_> {
        match self.change {
            ByExchange => Wakeup::by_exchange(&self.word),
            ByStore => Wakeup::by_store(&self.word),
        }
    }

    /// Makes the change: adds the value by an exchange, or stores it.
    fn publish(&self, value: u32) {
        match self.change {
            ByExchange => _ = self.count.fetch_add(value, Ordering::SeqCst),
            ByStore => self.count.store(value, Ordering::Release),
        }
    }

    fn send(&self, value: u32) -> bool {
        self.publish(value);
        self.wakeup().notify()
    }

    /// Sleeps until the count is at least `least`, without a limit.
    fn wait(&self, least: u32) {
        loop {
            let armed = self.wakeup().arm();
            let reached = self.count.load(Ordering::Acquire) >= least;
            if !reached {
                self.wakeup().sleep(armed, None);
            }
            self.wakeup().disarm(armed);
            if reached {
                return;
            }
        }
    }
}

fn spawn(scene: &Arc<Scene>, run: impl FnOnce(&Scene) + 'static) -> thread::JoinHandle<()> {
    let scene = Arc::clone(scene);
    thread::spawn(move || run(&scene))
}

fn one_notifier_wakes_a_sleeper_for_each_change() {
    for change in BOTH {
        explore(3, move || {
            let scene = Scene::new(change);
            let notifier = spawn(&scene, |scene| {
                scene.send(1);
                scene.send(2);
            });
            scene.wait(1);
            scene.wait(2);
            notifier.join().expect("no panic");
        });
    }
}

fn two_notifiers_wake_a_sleeper() {
    explore(3, || {
        let scene = Scene::new(ByExchange);
        let notifiers = [0, 1].map(|_| spawn(&scene, |scene| _ = scene.send(1)));
        scene.wait(1);
        scene.wait(2);
        notifiers.into_iter().for_each(|notifier| notifier.join().expect("no panic"));
    });
}

fn two_sleepers_are_woken() {
    for change in BOTH {
        explore(2, move || {
            let scene = Scene::new(change);
            let sleepers = [1, 2].map(|least| spawn(&scene, move |scene| scene.wait(least)));
            scene.send(1);
            scene.send(2);
            sleepers.into_iter().for_each(|sleeper| sleeper.join().expect("no panic"));
        });
    }
}

/// The notifier ends between its change and the load of the word, or in the system call. Another
/// one wakes the sleeper in its place.
fn a_notifier_that_is_killed_leaves_the_sleepers_to_the_next_one() {
    for reaches_the_kernel in [false, true] {
        explore(3, move || {
            let scene = Scene::new(ByExchange);
            let killed = spawn(&scene, move |scene| {
                if reaches_the_kernel {
                    STOPS.with(|stops| stops.set(true));
                    let send = std::panic::AssertUnwindSafe(|| scene.send(1));
                    let _ = std::panic::catch_unwind(send);
                } else {
                    scene.publish(1);
                }
            });
            let other = spawn(&scene, |scene| _ = scene.send(16));
            scene.wait(16);
            killed.join().expect("no panic");
            other.join().expect("no panic");
        });
    }
}

fn a_sleeper_that_is_killed_does_not_silence_the_word_for_others() {
    for change in BOTH {
        explore(3, move || {
            let scene = Scene::new(change);
            // It armed and never disarms.
            let _killed = scene.wakeup().arm();
            let notifier = spawn(&scene, |scene| {
                scene.send(1);
                scene.send(2);
            });
            scene.wait(1);
            scene.wait(2);
            notifier.join().expect("no panic");
        });
    }
}

fn a_notifier_sees_the_closed_end_and_still_wakes_its_sleepers() {
    for change in BOTH {
        explore(3, move || {
            let scene = Scene::new(change);
            let closer = spawn(&scene, |scene| {
                scene.wait(1);
                scene.wakeup().close();
            });
            scene.send(1);
            closer.join().expect("no panic");
            assert!(scene.wakeup().is_closed());
            assert!(scene.send(1), "the load of the word reports it");
        });
    }
}

/// Omits the check after the registration on purpose: the model has to find the lost wake-up.
fn without_the_check_a_wakeup_is_lost(change: Change) {
    explore(3, move || {
        let scene = Scene::new(change);
        let notifier = spawn(&scene, |scene| _ = scene.send(1));
        while scene.count.load(Ordering::Acquire) == 0 {
            let armed = scene.wakeup().arm();
            scene.wakeup().sleep(armed, None);
            scene.wakeup().disarm(armed);
        }
        notifier.join().expect("no panic");
    });
}

fn without_the_check_a_wakeup_by_exchange_is_lost() {
    assert_deadlock(|| without_the_check_a_wakeup_is_lost(ByExchange));
}

fn without_the_check_a_wakeup_by_store_is_lost() {
    assert_deadlock(|| without_the_check_a_wakeup_is_lost(ByStore));
}
