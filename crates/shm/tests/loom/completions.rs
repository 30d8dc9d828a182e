//! Models of the completion word.

use crate::completion::Completion;
use crate::explore;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

testing::tests![
    two_adders_wake_two_sleepers,
    two_adders_wake_sleepers_of_different_thresholds,
    only_the_adder_at_the_threshold_needs_to_wake,
    setting_wakes_and_publishes,
];

/// The word and the data published through it. Loom's cells report any unordered access.
struct Scene {
    done: Completion,
    values: [UnsafeCell<u32>; 2],
}

fn scene() -> Arc<Scene> {
    Arc::new(Scene { done: Completion::new(), values: [UnsafeCell::new(0), UnsafeCell::new(0)] })
}

impl Scene {
    fn write(&self, index: usize) {
        // SAFETY: the property under test; loom panics if this access races.
        self.values[index].with_mut(|value| unsafe { *value = 1 });
    }

    fn read(&self, index: usize) -> u32 {
        // SAFETY: as in `write`.
        self.values[index].with(|value| unsafe { *value })
    }
}

fn sleeper(
    scene: &Arc<Scene>,
    threshold: u32,
    visible: &'static [usize],
) -> thread::JoinHandle<()> {
    let scene = scene.clone();
    thread::spawn(move || {
        scene.done.wait(threshold);
        assert!(visible.iter().all(|&index| scene.read(index) == 1));
    })
}

fn two_adders_wake_two_sleepers() {
    explore(2, || {
        let scene = scene();
        let sleepers = [sleeper(&scene, 2, &[0, 1]), sleeper(&scene, 2, &[0, 1])];
        let adder = {
            let scene = scene.clone();
            thread::spawn(move || {
                scene.write(0);
                scene.done.add(1);
            })
        };
        scene.write(1);
        scene.done.add(1);
        adder.join().expect("no panic");
        sleepers.into_iter().for_each(|sleeper| sleeper.join().expect("no panic"));
    });
}

fn two_adders_wake_sleepers_of_different_thresholds() {
    explore(2, || {
        let scene = scene();
        let sleepers = [sleeper(&scene, 1, &[]), sleeper(&scene, 2, &[0, 1])];
        let adder = {
            let scene = scene.clone();
            thread::spawn(move || {
                scene.write(0);
                scene.done.add(1);
            })
        };
        scene.write(1);
        scene.done.add(1);
        adder.join().expect("no panic");
        sleepers.into_iter().for_each(|sleeper| sleeper.join().expect("no panic"));
    });
}

fn only_the_adder_at_the_threshold_needs_to_wake() {
    explore(2, || {
        let scene = scene();
        let sleepers = [sleeper(&scene, 2, &[0, 1]), sleeper(&scene, 2, &[0, 1])];
        let adder = {
            let scene = scene.clone();
            thread::spawn(move || {
                scene.write(0);
                scene.done.add_threshold(1, 2).crossed
            })
        };
        scene.write(1);
        let crossed = scene.done.add_threshold(1, 2).crossed;
        if crossed {
            // The adder that crosses the threshold may read what every adder before it wrote.
            assert_eq!(scene.read(0), 1);
        }
        assert!(crossed != adder.join().expect("no panic"), "exactly one crosses");
        sleepers.into_iter().for_each(|sleeper| sleeper.join().expect("no panic"));
    });
}

fn setting_wakes_and_publishes() {
    explore(3, || {
        let scene = scene();
        let sleepers = [sleeper(&scene, 1, &[0]), sleeper(&scene, 2, &[0, 1])];
        scene.write(0);
        scene.done.set(1);
        scene.write(1);
        scene.done.set(2);
        sleepers.into_iter().for_each(|sleeper| sleeper.join().expect("no panic"));
    });
}
