//! Models of the bias of a mutex: its owner and another thread are never inside together.

use crate::bias::Bias;
use crate::explore;
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Mutex};
use loom::thread;

testing::tests![
    an_owner_and_another_thread_take_turns,
    two_other_threads_end_a_bias_once,
    a_bias_that_is_given_back_ends_again,
];

const OWNER: u64 = 1;

/// A mutex with a value that loom protects from two threads at once.
struct Scene {
    bias: Bias,
    mutex: Mutex<()>,
    value: UnsafeCell<u32>,
}

impl Scene {
    fn new(restore_after: u32) -> Arc<Scene> {
        let bias = Bias::new(restore_after);
        assert!(bias.try_claim(OWNER));
        bias.leave();
        Arc::new(Scene { bias, mutex: Mutex::new(()), value: UnsafeCell::new(0) })
    }

    fn add_one(&self) {
        // SAFETY: loom fails the model if another thread is here.
        self.value.with_mut(|value| unsafe { *value += 1 });
    }

    fn lock_and_add(&self, thread: u64) {
        if self.bias.try_enter(thread) {
            self.add_one();
            self.bias.leave();
            return;
        }
        let locked = self.mutex.lock().expect("no panic holds it");
        if self.bias.try_claim(thread) {
            assert_eq!(thread, OWNER, "no other thread gets the bias");
            drop(locked);
            self.add_one();
            self.bias.leave();
            return;
        }
        self.bias.revoke(|| {}, thread::yield_now);
        self.add_one();
        drop(locked);
    }

    /// Runs these threads, each of which locks so often, beside the owner, which locks twice.
    fn run(restore_after: u32, others: u64, times: u32) {
        let scene = Scene::new(restore_after);
        let run = |thread: u64, scene: Arc<Scene>| {
            thread::spawn(move || (0..times).for_each(|_| scene.lock_and_add(thread)))
        };
        let others: Vec<_> =
            (0..others).map(|other| run(OWNER + 1 + other, Arc::clone(&scene))).collect();
        scene.lock_and_add(OWNER);
        scene.lock_and_add(OWNER);
        let count = 2 + times * others.len() as u32;
        others.into_iter().for_each(|other| other.join().expect("the other thread ends"));
        // SAFETY: all other threads have ended.
        scene.value.with(|value| assert_eq!(unsafe { *value }, count));
    }
}

fn an_owner_and_another_thread_take_turns() {
    explore(3, || Scene::run(u32::MAX, 1, 1));
}

fn two_other_threads_end_a_bias_once() {
    explore(2, || Scene::run(u32::MAX, 2, 1));
}

fn a_bias_that_is_given_back_ends_again() {
    explore(3, || Scene::run(1, 1, 2));
    explore(2, || Scene::run(1, 2, 1));
}
