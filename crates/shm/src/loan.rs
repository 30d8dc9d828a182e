//! Private memory that a caller lends to code without a lifetime, for as long as a call lasts.
//!
//! An engine keeps the buffers of its runs in tables that outlive every borrow. [`lend`] turns
//! borrowed buffers into [`LentBytes`], which such a table can hold, and revokes them before it
//! returns: a copy from or to a buffer that has been revoked copies nothing.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A buffer to be lent.
#[derive(Debug)]
pub enum Loan<'a> {
    /// Memory that is only read.
    Read(&'a [u8]),
    /// Memory that is read and written.
    Write(&'a mut [u8]),
}

/// Memory of some other owner, until it is revoked.
#[derive(Clone, Debug)]
pub struct LentBytes {
    memory: Arc<Mutex<Memory>>,
    length: usize,
}

#[derive(Debug)]
enum Memory {
    Read(NonNull<u8>),
    Write(NonNull<u8>),
    Owned(Vec<u8>),
    Revoked,
}

// SAFETY: the pointers are used under the lock of `LentBytes` only, for copies. What they point to
// is borrowed by the caller of `lend` until the memory is revoked, and bytes may be accessed from
// every thread.
unsafe impl Send for Memory {}

impl LentBytes {
    /// Bytes of its own, which nobody revokes.
    pub fn owned(bytes: Vec<u8>) -> Self {
        let length = bytes.len();
        LentBytes { memory: Arc::new(Mutex::new(Memory::Owned(bytes))), length }
    }

    fn of(memory: Memory, length: usize) -> Self {
        LentBytes { memory: Arc::new(Mutex::new(memory)), length }
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns true if there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Calls `read` with the bytes; `None` if they have been revoked.
    pub fn with<R>(&self, read: impl FnOnce(&[u8]) -> R) -> Option<R> {
        match &*self.lock() {
            Memory::Read(start) | Memory::Write(start) => {
                // SAFETY: the memory has not been revoked, so `lend` still borrows it, with this
                // length. The lock excludes a writer among the holders of this buffer, and the
                // borrow excludes all others.
                let bytes = unsafe { std::slice::from_raw_parts(start.as_ptr(), self.length) };
                Some(read(bytes))
            }
            Memory::Owned(bytes) => Some(read(bytes)),
            Memory::Revoked => None,
        }
    }

    /// Calls `write` with the bytes; `None` if they have been revoked, or may only be read.
    pub fn with_mut<R>(&self, write: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        match &mut *self.lock() {
            Memory::Write(start) => {
                // SAFETY: the memory has not been revoked, so `lend` still borrows it exclusively,
                // with this length. The lock excludes the other holders of this buffer.
                let bytes = unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), self.length) };
                Some(write(bytes))
            }
            Memory::Owned(bytes) => Some(write(bytes)),
            Memory::Read(_) | Memory::Revoked => None,
        }
    }
}

/// Revokes its buffers when it is dropped, also while the thread panics.
struct Revocation(Vec<LentBytes>);

impl Drop for Revocation {
    fn drop(&mut self) {
        for bytes in &self.0 {
            *bytes.lock() = Memory::Revoked;
        }
    }
}

/// Lends buffers to `body`, in their order, until it returns.
///
/// ```
/// use shm::loan::{Loan, lend};
///
/// let mut word = *b"trade";
/// let kept = lend(vec![Loan::Write(&mut word)], |lent| {
///     lent[0].with_mut(|bytes| bytes.make_ascii_uppercase());
///     lent
/// });
/// assert_eq!(&word, b"TRADE");
/// assert_eq!(kept[0].with(<[u8]>::to_vec), None, "the loan is over");
/// ```
pub fn lend<R>(buffers: Vec<Loan<'_>>, body: impl FnOnce(Vec<LentBytes>) -> R) -> R {
    let lent = buffers.into_iter().map(|buffer| match buffer {
        Loan::Read(bytes) => LentBytes::of(Memory::Read(NonNull::from(bytes).cast()), bytes.len()),
        Loan::Write(bytes) => {
            let length = bytes.len();
            LentBytes::of(Memory::Write(NonNull::from(bytes).cast()), length)
        }
    });
    // The buffers stay borrowed until this function returns, because the loans have their lifetime.
    // The guard revokes them before, on every way out.
    let revocation = Revocation(lent.collect());
    body(revocation.0.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_loan_ends_when_the_call_returns_or_panics() {
        let input = [1, 2, 3];
        let mut output = [0; 3];
        let mut kept = Vec::new();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            lend(vec![Loan::Read(&input), Loan::Write(&mut output)], |lent| {
                let copy = lent[0].with(<[u8]>::to_vec).expect("it is lent");
                assert!(lent[0].with_mut(|_| ()).is_none(), "it may only be read");
                lent[1].with_mut(|bytes| bytes.copy_from_slice(&copy)).expect("it is lent");
                kept = lent;
                panic!("on purpose");
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(output, input);
        assert!(kept.iter().all(|lent| lent.with(|_| ()).is_none() && lent.len() == 3));
    }

    #[test]
    fn owned_bytes_stay() {
        let bytes = LentBytes::owned(vec![7]);
        bytes.with_mut(|bytes| bytes[0] += 1);
        assert_eq!(bytes.with(<[u8]>::to_vec), Some(vec![8]));
        assert!(LentBytes::owned(Vec::new()).is_empty());
    }
}
