//! Loom models of processes that connect to an object while its owner frees it.

use crate::announcements::Announcements;
use crate::explore;
use crate::label::Label;
use crate::liveness::{ENDED, ProcessId};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;

testing::tests![
    memory_is_not_reused_under_a_process_that_connects,
    the_entry_of_a_killed_process_is_taken_over,
    without_the_announcement_memory_is_reused_too_early,
];

const OFFSET: u64 = 4096;
const LABEL: u64 = 7;

/// An object, and a table of announcements with two entries.
struct Memory {
    table: [AtomicU64; 4],
    label: Label,
    /// The words by which processes become users of the object, and that its next user overwrites.
    users: UnsafeCell<u64>,
}

impl Memory {
    /// A complete object, and a table of which these processes hold the entries.
    fn new(holders: [u64; 2]) -> Arc<Memory> {
        let [first, second] = holders;
        // Ended processes have announced the object before.
        let offset = |holder| if holder == 0 { 0 } else { OFFSET + 1 };
        let words = [first, second, offset(first), offset(second)];
        let label = Label::default();
        label.publish(LABEL);
        Arc::new(Memory { table: words.map(AtomicU64::new), label, users: UnsafeCell::new(0) })
    }

    fn announcements(&self) -> Announcements<'_> {
        Announcements::in_words(&self.table)
    }

    /// Connects if the object is there. The accesses to the object are atomic in production; here
    /// one that races with the reuse of the memory fails the model.
    fn connect(&self, process: u64) {
        let announced = self.announcements().announce(ProcessId(process), OFFSET);
        let _announced = announced.expect("an entry is free, or of a killed process");
        self.attach();
    }

    fn attach(&self) {
        if self.label.find() == LABEL {
            // SAFETY: reads the value; loom reports a write that is not ordered with it.
            self.users.with(|users| assert_eq!(unsafe { *users }, 0, "the memory is reused"));
        }
    }

    /// Frees the object; returns false if a process connects to it.
    fn free(&self) -> bool {
        self.label.erase();
        let unused = !self.announcements().includes(OFFSET);
        if unused {
            // SAFETY: loom reports an access that is not ordered with it.
            self.users.with_mut(|users| unsafe { *users = 1 });
        }
        unused
    }

    /// Frees the object after all connections, which must be possible then.
    fn free_at_last(&self, is_free: bool) {
        assert!(is_free || self.free(), "no process connects any more");
    }
}

fn memory_is_not_reused_under_a_process_that_connects() {
    explore(3, || {
        let memory = Memory::new([0, 0]);
        let connect = |process: u64| {
            let memory = Arc::clone(&memory);
            thread::spawn(move || memory.connect(process))
        };
        let others = [connect(1), connect(2)];
        let is_free = memory.free();
        others.into_iter().for_each(|other| other.join().expect("it ends"));
        memory.free_at_last(is_free);
    });
}

fn the_entry_of_a_killed_process_is_taken_over() {
    explore(3, || {
        let memory = Memory::new([ENDED, ENDED + 1]);
        let other = {
            let memory = Arc::clone(&memory);
            thread::spawn(move || {
                memory.connect(1);
                // Once more, in an entry whose word another offset may have had.
                memory.connect(1);
            })
        };
        let is_free = memory.free();
        other.join().expect("it ends");
        memory.free_at_last(is_free);
    });
}

/// Omits the announcement on purpose: the model has to find the access to reused memory.
fn without_the_announcement_memory_is_reused_too_early() {
    let outcome = std::panic::catch_unwind(|| {
        explore(3, || {
            let memory = Memory::new([0, 0]);
            let other = {
                let memory = Arc::clone(&memory);
                thread::spawn(move || memory.attach())
            };
            memory.free();
            other.join().expect("it ends");
        });
    });
    outcome.expect_err("the model has to fail");
}
