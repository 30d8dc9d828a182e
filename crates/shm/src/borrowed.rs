//! Private memory of a caller that code without a lifetime uses in place during one call.
//!
//! An engine keeps the buffers of its runs in tables that outlive every borrow. [`with_borrowed`]
//! turns borrowed buffers into [`BorrowedBytes`], which such a table can hold, and revokes them
//! before it returns: a copy from or to a buffer that has been revoked copies nothing.
//! [`with_substitutes`] does the same with the bytes that a run owns: a caller's buffer takes their
//! place during a call.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A buffer of a caller, borrowed for one call.
#[derive(Debug)]
pub enum CallerBuffer<'a> {
    /// Memory that is only read.
    Read(&'a [u8]),
    /// Memory that is read and written.
    Write(&'a mut [u8]),
}

/// Memory of some other owner until it is revoked, or bytes of its own.
#[derive(Clone, Debug)]
pub struct BorrowedBytes {
    memory: Arc<Mutex<Memory>>,
    length: usize,
}

#[derive(Debug)]
struct Memory {
    borrowed: Option<Borrowed>,
    /// Used while nothing is borrowed.
    own: Option<Vec<u8>>,
    /// True if the own bytes have been written since they were [renewed](BorrowedBytes::renew).
    is_written: bool,
}

/// Memory of a caller, of the length of its [`BorrowedBytes`].
#[derive(Clone, Copy, Debug)]
enum Borrowed {
    Read(NonNull<u8>),
    Write(NonNull<u8>),
}

// SAFETY: the pointers are used under the lock of `BorrowedBytes` only, for copies. What they point
// to is borrowed by the caller of `with_borrowed` or `with_substitutes` until it is revoked, and
// bytes may be accessed from every thread.
unsafe impl Send for Borrowed {}

impl Borrowed {
    fn of(buffer: &mut CallerBuffer<'_>) -> (Borrowed, usize) {
        match buffer {
            CallerBuffer::Read(bytes) => {
                (Borrowed::Read(NonNull::from(&**bytes).cast()), bytes.len())
            }
            CallerBuffer::Write(bytes) => {
                (Borrowed::Write(NonNull::from(&mut **bytes).cast()), bytes.len())
            }
        }
    }
}

impl Memory {
    /// The bytes, which are `length`; `None` if they have been revoked.
    fn bytes(&self, length: usize) -> Option<&[u8]> {
        match self.borrowed {
            Some(Borrowed::Read(start) | Borrowed::Write(start)) => {
                // SAFETY: the memory is not revoked, so the caller still borrows it, with this
                // length. The lock excludes a writer among the holders of these bytes, and the
                // borrow excludes all others.
                Some(unsafe { std::slice::from_raw_parts(start.as_ptr(), length) })
            }
            None => self.own.as_deref(),
        }
    }

    /// The bytes for writing; `None` if they have been revoked, or may only be read.
    fn bytes_mut(&mut self, length: usize) -> Option<&mut [u8]> {
        match self.borrowed {
            Some(Borrowed::Write(start)) => {
                // SAFETY: the memory is not revoked, so the caller still borrows it exclusively,
                // with this length. The lock excludes the other holders of these bytes.
                Some(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), length) })
            }
            Some(Borrowed::Read(_)) => None,
            None => {
                self.is_written = true;
                self.own.as_deref_mut()
            }
        }
    }
}

impl BorrowedBytes {
    /// Bytes of its own, which are never revoked.
    pub fn owned(bytes: Vec<u8>) -> Self {
        let length = bytes.len();
        BorrowedBytes::new(None, Some(bytes), length)
    }

    fn new(borrowed: Option<Borrowed>, own: Option<Vec<u8>>, length: usize) -> Self {
        let memory = Memory { borrowed, own, is_written: false };
        BorrowedBytes { memory: Arc::new(Mutex::new(memory)), length }
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

    /// Declares the contents of its own bytes meaningless: no later substitute receives a copy.
    pub fn renew(&self) {
        self.lock().is_written = false;
    }

    /// Copies ranges of a [substitute](with_substitutes) of its own bytes to these, and revokes the
    /// substitute.
    pub fn keep(&self, ranges: &[Range<usize>]) {
        let mut memory = self.lock();
        let Memory { borrowed, own, is_written } = &mut *memory;
        let (Some(Borrowed::Read(start) | Borrowed::Write(start)), Some(own)) =
            (borrowed.take(), own)
        else {
            return;
        };
        // SAFETY: as in `Memory::bytes`; the pointer is taken under the lock, and this call uses it
        // last. The caller borrows the memory until `with_substitutes` returns, which takes the
        // lock before that.
        let bytes = unsafe { std::slice::from_raw_parts(start.as_ptr(), self.length) };
        for range in ranges {
            own[range.clone()].copy_from_slice(&bytes[range.clone()]);
        }
        *is_written = true;
    }

    fn revoke(&self) {
        self.lock().borrowed = None;
    }
}

/// Revokes borrowed memory when it is dropped, also while the thread panics.
struct RevokeOnDrop(Vec<BorrowedBytes>);

impl Drop for RevokeOnDrop {
    fn drop(&mut self) {
        self.0.iter().for_each(BorrowedBytes::revoke);
    }
}

/// Calls `body` with borrowed buffers, in their order, and revokes them when it returns.
///
/// ```
/// use shm::borrowed::{CallerBuffer, with_borrowed};
///
/// let mut word = *b"trade";
/// let kept = with_borrowed(vec![CallerBuffer::Write(&mut word)], |borrowed| {
///     borrowed[0].with_mut(|bytes| bytes.make_ascii_uppercase());
///     borrowed
/// });
/// assert_eq!(&word, b"TRADE");
/// assert_eq!(kept[0].with(<[u8]>::to_vec), None, "the buffer is revoked");
/// ```
pub fn with_borrowed<R>(
    buffers: Vec<CallerBuffer<'_>>,
    body: impl FnOnce(Vec<BorrowedBytes>) -> R,
) -> R {
    let borrowed = buffers.into_iter().map(|mut buffer| {
        let (borrowed, length) = Borrowed::of(&mut buffer);
        BorrowedBytes::new(Some(borrowed), None, length)
    });
    // The buffers stay borrowed until this function returns, because the parameter has their
    // lifetime. The guard revokes them before, on every way out.
    let guard = RevokeOnDrop(borrowed.collect());
    body(guard.0.clone())
}

/// A buffer that takes the place of bytes of the same length that a [`BorrowedBytes`] owns.
#[derive(Debug)]
pub struct Substitute<'a> {
    /// The bytes that the buffer replaces.
    pub bytes: BorrowedBytes,
    /// The buffer.
    pub buffer: CallerBuffer<'a>,
    /// Ranges that are copied from the own bytes to a buffer for writing, if they have been written
    /// since they were [renewed](BorrowedBytes::renew).
    pub results: &'a [Range<usize>],
}

/// Puts buffers in the place of owned bytes, until `body` returns or they are
/// [kept](BorrowedBytes::keep). The own bytes then have the contents from before.
///
/// ```
/// use shm::borrowed::{BorrowedBytes, CallerBuffer, Substitute, with_substitutes};
///
/// let mut word = *b"trade";
/// let bytes = BorrowedBytes::owned(vec![0; 5]);
/// let buffer = CallerBuffer::Write(&mut word);
/// with_substitutes(vec![Substitute { bytes: bytes.clone(), buffer, results: &[] }], || {
///     bytes.with_mut(|bytes| bytes.make_ascii_uppercase());
///     bytes.keep(&[1..3]);
/// });
/// assert_eq!(&word, b"TRADE");
/// assert_eq!(bytes.with(<[u8]>::to_vec), Some(b"\0RA\0\0".to_vec()));
/// ```
///
/// # Panics
/// If a buffer has another length than the bytes.
pub fn with_substitutes<R>(substitutes: Vec<Substitute<'_>>, body: impl FnOnce() -> R) -> R {
    // As in `with_borrowed`: the substitutes have the lifetime of their buffers, and the guard,
    // which lists a buffer before it is used, revokes all of them on every way out.
    let mut guard = RevokeOnDrop(Vec::with_capacity(substitutes.len()));
    for Substitute { bytes, mut buffer, results } in substitutes {
        guard.0.push(bytes.clone());
        let mut memory = bytes.lock();
        if let (CallerBuffer::Write(buffer), Some(own), true) =
            (&mut buffer, &memory.own, memory.is_written)
        {
            for range in results {
                buffer[range.clone()].copy_from_slice(&own[range.clone()]);
            }
        }
        let (borrowed, length) = Borrowed::of(&mut buffer);
        assert_eq!(length, bytes.length, "a buffer of the length of what it replaces");
        memory.borrowed = Some(borrowed);
    }
    let result = body();
    drop(guard);
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_borrowed_buffer_is_revoked_when_the_call_returns_or_panics() {
        let input = [1, 2, 3];
        let mut output = [0; 3];
        let mut kept = Vec::new();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            with_borrowed(
                vec![CallerBuffer::Read(&input), CallerBuffer::Write(&mut output)],
                |borrowed| {
                    let copy = borrowed[0].with(<[u8]>::to_vec).expect("it is borrowed");
                    assert!(borrowed[0].with_mut(|_| ()).is_none(), "it may only be read");
                    borrowed[1]
                        .with_mut(|bytes| bytes.copy_from_slice(&copy))
                        .expect("it is borrowed");
                    kept = borrowed;
                    panic!("on purpose");
                },
            )
        }));
        assert!(panicked.is_err());
        assert_eq!(output, input);
        assert!(kept.iter().all(|borrowed| borrowed.with(|_| ()).is_none() && borrowed.len() == 3));
    }

    #[test]
    fn a_buffer_stands_for_owned_bytes_until_the_call_returns_or_panics() {
        fn instead<'a>(bytes: &BorrowedBytes, buffer: CallerBuffer<'a>) -> Vec<Substitute<'a>> {
            vec![Substitute { bytes: bytes.clone(), buffer, results: &[1..2, 2..3] }]
        }
        let bytes = BorrowedBytes::owned(vec![1, 2, 3, 4]);
        let add = |bytes: &mut [u8]| bytes.iter_mut().for_each(|byte| *byte += 1);
        let mut buffer = [9; 4];
        with_substitutes(instead(&bytes, CallerBuffer::Write(&mut buffer)), || bytes.with_mut(add));
        assert_eq!(buffer, [10; 4], "the own bytes were not written before");
        assert_eq!(bytes.with(<[u8]>::to_vec), Some(vec![1, 2, 3, 4]));
        bytes.with_mut(add);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            with_substitutes(instead(&bytes, CallerBuffer::Write(&mut buffer)), || {
                bytes.with_mut(add);
                panic!("on purpose");
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(buffer, [11, 4, 5, 11], "the written results, and one more");
        assert_eq!(bytes.with(<[u8]>::to_vec), Some(vec![2, 3, 4, 5]));
        with_substitutes(instead(&bytes, CallerBuffer::Read(&buffer)), || {
            assert!(bytes.with_mut(add).is_none(), "it may only be read");
            bytes.keep(&[0..1, 3..4]);
            bytes.with_mut(add);
        });
        assert_eq!(
            (buffer, bytes.with(<[u8]>::to_vec)),
            ([11, 4, 5, 11], Some(vec![12, 4, 5, 12]))
        );
        bytes.renew();
        with_substitutes(instead(&bytes, CallerBuffer::Write(&mut buffer)), || ());
        assert_eq!(buffer, [11, 4, 5, 11], "what the bytes had is meaningless");
    }

    #[test]
    fn owned_bytes_stay() {
        let bytes = BorrowedBytes::owned(vec![7]);
        bytes.with_mut(|bytes| bytes[0] += 1);
        assert_eq!(bytes.with(<[u8]>::to_vec), Some(vec![8]));
        assert!(BorrowedBytes::owned(Vec::new()).is_empty());
    }
}
