//! A buffer that tests share with an interpreter.

use interpreter::ExternalBuffer;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

/// A buffer outside the interpreter that borrows it.
#[derive(Clone, Debug)]
pub(crate) struct SharedBuffer(pub(crate) Arc<Mutex<Vec<u8>>>);

impl SharedBuffer {
    pub(crate) fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().expect("no test panics while it holds the lock")
    }
}

impl ExternalBuffer for SharedBuffer {
    fn length(&self) -> u64 {
        self.bytes().len() as u64
    }

    fn read(&self, range: Range<u64>, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.bytes()[range.start as usize..range.end as usize]);
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        self.bytes()[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
    }
}
