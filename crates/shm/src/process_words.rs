//! Words in shared memory that each name a process, and that processes take and leave.

use crate::liveness::{ProcessId, ProcessWatch};
use crate::sync::{AtomicU64, Ordering};

/// Words of a table, borrowed from shared memory. Zeroed memory is an empty table.
#[derive(Debug, Clone, Copy)]
pub struct ProcessWords<'a>(pub &'a [AtomicU64]);

impl ProcessWords<'_> {
    /// Returns the process in the word with this index; [`ProcessId::NONE`] if it is free or does
    /// not exist.
    pub fn process(self, index: usize) -> ProcessId {
        // SeqCst: see `ProcessTable::attach_numbered`. It includes the Acquire that pairs with the
        // Release in `enter` and `leave`.
        self.0.get(index).map_or(ProcessId::NONE, |word| ProcessId(word.load(Ordering::SeqCst)))
    }

    /// Returns the index of a word that holds the process.
    pub fn find(self, process: ProcessId) -> Option<usize> {
        (0..self.0.len()).find(|&index| self.process(index) == process)
    }

    /// Enters the process into a free word; returns its index. If there is none, calls `recover`,
    /// which undoes what ended processes left in the object, and takes over the word of one of
    /// them. `None` if all words belong to living processes.
    pub fn enter(self, process: ProcessId, recover: impl FnOnce()) -> Option<usize> {
        let mut indices = 0..self.0.len();
        let free = indices.find(|&index| self.take(index, ProcessId::NONE, process));
        free.or_else(|| {
            let held = (0..self.0.len()).map(|index| (index, self.process(index)));
            // Only words of processes that had ended before `recover` began are taken over. What a
            // process leaves that ends later would otherwise pass for that of its successor.
            let ended: Vec<_> =
                held.filter(|&(_, held)| ProcessWatch::default().has_ended(held)).collect();
            recover();
            let mut ended = ended.into_iter();
            // The exchange in `take` fails if another process has taken the word over since.
            ended.find(|&(index, held)| self.take(index, held, process)).map(|(index, _)| index)
        })
    }

    fn take(self, index: usize, from: ProcessId, process: ProcessId) -> bool {
        // SeqCst: see `ProcessTable::attach_numbered`.
        self.0[index]
            .compare_exchange(from.0, process.0, Ordering::SeqCst, Ordering::Relaxed)
            .is_ok()
    }

    /// Frees a word. Its process must not touch the object afterwards.
    pub fn leave(self, index: usize) {
        // Release: pairs with the load in `process`, so that all accesses of this process come
        // before the owner's reuse of the memory.
        self.0[index].store(ProcessId::NONE.0, Ordering::Release);
    }

    /// Returns true if a living process is entered.
    pub fn has_living(self) -> bool {
        (0..self.0.len()).map(|index| self.process(index)).any(|process| {
            process != ProcessId::NONE && !ProcessWatch::default().has_ended(process)
        })
    }
}
