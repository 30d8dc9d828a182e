//! Tables of handles.

use crate::host::Handle;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A table of values by handle.
pub(crate) type HandleMap<T> = HashMap<Handle, T, BuildHasherDefault<HandleHasher>>;

/// Spreads handles, which are addresses or small numbers, over a table.
#[derive(Default)]
pub(crate) struct HandleHasher(u64);

impl Hasher for HandleHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_isize(isize::from(*byte)));
    }

    fn write_isize(&mut self, value: isize) {
        // Fibonacci hashing (Knuth, The Art of Computer Programming 3, section 6.4). The rotation
        // moves the well-mixed upper bits to where the table looks.
        let mixed = (self.0 ^ value as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed.rotate_left(32);
    }
}
