//! Private memory that a caller lends to code without a lifetime, for as long as a call lasts.
//!
//! An engine keeps the buffers of its runs in tables that outlive every borrow. [`lend`] turns
//! borrowed buffers into [`LentBytes`], which such a table can hold, and revokes them before it
//! returns: a copy from or to a buffer that has been revoked copies nothing. [`lend_instead`] does
//! the same with the bytes that a run owns: a caller's buffer takes their place during a call.

use std::ops::Range;
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

/// Memory of some other owner until it is revoked, or bytes of its own.
#[derive(Clone, Debug)]
pub struct LentBytes {
    memory: Arc<Mutex<Memory>>,
    length: usize,
}

#[derive(Debug)]
struct Memory {
    lent: Option<Lent>,
    /// Used while nothing is lent.
    own: Option<Vec<u8>>,
    /// True if the own bytes have been written since they were [renewed](LentBytes::renew).
    is_written: bool,
}

/// Memory that is lent, of the length of its [`LentBytes`].
#[derive(Clone, Copy, Debug)]
enum Lent {
    Read(NonNull<u8>),
    Write(NonNull<u8>),
}

// SAFETY: the pointers are used under the lock of `LentBytes` only, for copies. What they point to
// is borrowed by the caller of `lend` or `lend_instead` until the loan ends, and bytes may be
// accessed from every thread.
unsafe impl Send for Lent {}

impl Lent {
    fn of(loan: &mut Loan<'_>) -> (Lent, usize) {
        match loan {
            Loan::Read(bytes) => (Lent::Read(NonNull::from(&**bytes).cast()), bytes.len()),
            Loan::Write(bytes) => (Lent::Write(NonNull::from(&mut **bytes).cast()), bytes.len()),
        }
    }
}

impl Memory {
    /// The bytes, which are `length`; `None` if they have been revoked.
    fn bytes(&self, length: usize) -> Option<&[u8]> {
        match self.lent {
            Some(Lent::Read(start) | Lent::Write(start)) => {
                // SAFETY: the loan has not ended, so its caller still borrows the memory, with this
                // length. The lock excludes a writer among the holders of these bytes, and the
                // borrow excludes all others.
                Some(unsafe { std::slice::from_raw_parts(start.as_ptr(), length) })
            }
            None => self.own.as_deref(),
        }
    }

    /// The bytes for writing; `None` if they have been revoked, or may only be read.
    fn bytes_mut(&mut self, length: usize) -> Option<&mut [u8]> {
        match self.lent {
            Some(Lent::Write(start)) => {
                // SAFETY: the loan has not ended, so its caller still borrows the memory
                // exclusively, with this length. The lock excludes the other holders of these
                // bytes.
                Some(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), length) })
            }
            Some(Lent::Read(_)) => None,
            None => {
                self.is_written = true;
                self.own.as_deref_mut()
            }
        }
    }
}

impl LentBytes {
    /// Bytes of its own, which are never revoked.
    pub fn owned(bytes: Vec<u8>) -> Self {
        let length = bytes.len();
        LentBytes::new(None, Some(bytes), length)
    }

    fn new(lent: Option<Lent>, own: Option<Vec<u8>>, length: usize) -> Self {
        let memory = Memory { lent, own, is_written: false };
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
        self.lock().bytes(self.length).map(read)
    }

    /// Calls `write` with the bytes; `None` if they have been revoked, or may only be read.
    pub fn with_mut<R>(&self, write: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        self.lock().bytes_mut(self.length).map(write)
    }

    /// Declares the contents of its own bytes meaningless, so a later loan copies none of them.
    pub fn renew(&self) {
        self.lock().is_written = false;
    }

    /// Copies ranges of memory that is lent [instead](lend_instead) of its own bytes to these, and
    /// ends the loan.
    pub fn keep(&self, ranges: &[Range<usize>]) {
        let mut memory = self.lock();
        let Memory { lent, own, is_written } = &mut *memory;
        let (Some(Lent::Read(start) | Lent::Write(start)), Some(own)) = (lent.take(), own) else {
            return;
        };
        // SAFETY: as in `Memory::bytes`; the loan is taken under the lock, and this call uses it
        // last. Its caller borrows the memory until `lend_instead` returns, which takes the lock
        // before that.
        let bytes = unsafe { std::slice::from_raw_parts(start.as_ptr(), self.length) };
        for range in ranges {
            own[range.clone()].copy_from_slice(&bytes[range.clone()]);
        }
        *is_written = true;
    }

    fn end_loan(&self) {
        self.lock().lent = None;
    }
}

/// Ends loans when it is dropped, also while the thread panics.
struct EndOfLoans(Vec<LentBytes>);

impl Drop for EndOfLoans {
    fn drop(&mut self) {
        self.0.iter().for_each(LentBytes::end_loan);
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
    let lent = buffers.into_iter().map(|mut buffer| {
        let (lent, length) = Lent::of(&mut buffer);
        LentBytes::new(Some(lent), None, length)
    });
    // The buffers stay borrowed until this function returns, because the loans have their lifetime.
    // The guard revokes them before, on every way out.
    let loans = EndOfLoans(lent.collect());
    body(loans.0.clone())
}

/// A buffer to be lent instead of bytes of the same length that a [`LentBytes`] owns.
#[derive(Debug)]
pub struct Substitute<'a> {
    /// The bytes that the buffer replaces.
    pub bytes: LentBytes,
    /// The buffer.
    pub loan: Loan<'a>,
    /// Ranges that are copied from the own bytes to a buffer for writing, if they have been written.
    pub results: &'a [Range<usize>],
}

/// Lends buffers instead of the bytes that others own, until `body` returns or they are
/// [kept](LentBytes::keep). The own bytes then have the contents from before.
///
/// ```
/// use shm::loan::{LentBytes, Loan, Substitute, lend_instead};
///
/// let mut word = *b"trade";
/// let bytes = LentBytes::owned(vec![0; 5]);
/// let loan = Loan::Write(&mut word);
/// lend_instead(vec![Substitute { bytes: bytes.clone(), loan, results: &[] }], || {
///     bytes.with_mut(|bytes| bytes.make_ascii_uppercase());
///     bytes.keep(&[1..3]);
/// });
/// assert_eq!(&word, b"TRADE");
/// assert_eq!(bytes.with(<[u8]>::to_vec), Some(b"\0RA\0\0".to_vec()));
/// ```
///
/// # Panics
/// If a buffer has another length than the bytes.
pub fn lend_instead<R>(substitutes: Vec<Substitute<'_>>, body: impl FnOnce() -> R) -> R {
    // As in `lend`: the substitutes have the lifetime of their buffers, and the guard, which lists
    // a buffer before it is lent, ends all loans on every way out.
    let mut loans = EndOfLoans(Vec::with_capacity(substitutes.len()));
    for Substitute { bytes, mut loan, results } in substitutes {
        loans.0.push(bytes.clone());
        let mut memory = bytes.lock();
        if let (Loan::Write(buffer), Some(own), true) = (&mut loan, &memory.own, memory.is_written)
        {
            for range in results {
                buffer[range.clone()].copy_from_slice(&own[range.clone()]);
            }
        }
        let (lent, length) = Lent::of(&mut loan);
        assert_eq!(length, bytes.length, "a buffer of the length of what it replaces");
        memory.lent = Some(lent);
    }
    let result = body();
    drop(loans);
    result
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
    fn a_buffer_stands_for_owned_bytes_until_the_call_returns_or_panics() {
        fn instead<'a>(bytes: &LentBytes, loan: Loan<'a>) -> Vec<Substitute<'a>> {
            vec![Substitute { bytes: bytes.clone(), loan, results: &[1..2, 2..3] }]
        }
        let bytes = LentBytes::owned(vec![1, 2, 3, 4]);
        let add = |bytes: &mut [u8]| bytes.iter_mut().for_each(|byte| *byte += 1);
        let mut buffer = [9; 4];
        lend_instead(instead(&bytes, Loan::Write(&mut buffer)), || bytes.with_mut(add));
        assert_eq!(buffer, [10; 4], "the own bytes were not written before");
        assert_eq!(bytes.with(<[u8]>::to_vec), Some(vec![1, 2, 3, 4]));
        bytes.with_mut(add);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            lend_instead(instead(&bytes, Loan::Write(&mut buffer)), || {
                bytes.with_mut(add);
                panic!("on purpose");
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(buffer, [11, 4, 5, 11], "the written results, and one more");
        assert_eq!(bytes.with(<[u8]>::to_vec), Some(vec![2, 3, 4, 5]));
        lend_instead(instead(&bytes, Loan::Read(&buffer)), || {
            assert!(bytes.with_mut(add).is_none(), "it may only be read");
            bytes.keep(&[0..1, 3..4]);
            bytes.with_mut(add);
        });
        assert_eq!(
            (buffer, bytes.with(<[u8]>::to_vec)),
            ([11, 4, 5, 11], Some(vec![12, 4, 5, 12]))
        );
        bytes.renew();
        lend_instead(instead(&bytes, Loan::Write(&mut buffer)), || ());
        assert_eq!(buffer, [11, 4, 5, 11], "what the bytes had is meaningless");
    }

    #[test]
    fn owned_bytes_stay() {
        let bytes = LentBytes::owned(vec![7]);
        bytes.with_mut(|bytes| bytes[0] += 1);
        assert_eq!(bytes.with(<[u8]>::to_vec), Some(vec![8]));
        assert!(LentBytes::owned(Vec::new()).is_empty());
    }
}
