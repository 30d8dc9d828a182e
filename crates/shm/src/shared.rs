//! Types that may lie in shared memory: [`Shared`], and [`SharedBytes`] for payloads inside them.

use crate::completion::Completion;
use crate::part_claims::PartClaims;
use crate::sync::{
    AtomicI8, AtomicI16, AtomicI32, AtomicI64, AtomicIsize, AtomicU8, AtomicU16, AtomicU32,
    AtomicU64, AtomicUsize,
};
use core::cell::UnsafeCell;

/// Type that several processes may reference at the same time.
///
/// [`Segment::at`](crate::segment::Segment::at) returns `&T` for such types only.
///
/// # Safety
///
/// Implementations guarantee that
/// - every bit pattern is a valid value (no `bool`, no `enum`, no reference: a peer may have
///   written any bits);
/// - through `&T` bytes change only by atomic operations or inside an [`UnsafeCell`] with `unsafe`
///   access;
/// - the layout is fixed (`#[repr(C)]` or `#[repr(transparent)]`), because both sides must agree on
///   it;
/// - no field holds an address, because each process maps the segment elsewhere;
/// - the type needs no `Drop`, because no process could be responsible for running it.
///
/// # Examples
///
/// ```
/// use shm::shared::{Shared, SharedBytes};
/// use shm::sync::AtomicU32;
///
/// #[repr(C, align(64))]
/// struct Node {
///     arrivals: AtomicU32,
///     flags: AtomicU32,
///     payload: SharedBytes<56>,
/// }
/// // SAFETY: `repr(C)`, every field is `Shared`, no padding is ever read.
/// unsafe impl Shared for Node {}
/// assert_eq!(size_of::<Node>(), 64);
/// ```
pub unsafe trait Shared: Sync + Sized + 'static {}

macro_rules! atomics_are_shared {
    ($($atomic:ty),+ $(,)?) => {
        $(
            // SAFETY: an integer atomic accepts every bit pattern, changes atomically only, and
            // has the layout of its integer.
            unsafe impl Shared for $atomic {}
        )+
    };
}

atomics_are_shared!(
    AtomicI8,
    AtomicI16,
    AtomicI32,
    AtomicI64,
    AtomicIsize,
    AtomicU8,
    AtomicU16,
    AtomicU32,
    AtomicU64,
    AtomicUsize,
);

// SAFETY: a transparent wrapper of an `AtomicU32`; its methods accept any value.
unsafe impl Shared for Completion {}

// SAFETY: `repr(C)`, two atomics, no padding; its methods accept any values.
unsafe impl Shared for PartClaims {}

// SAFETY: an array adds no bytes of its own to those of its elements.
unsafe impl<T: Shared, const N: usize> Shared for [T; N] {}

/// Declares structures of [`Shared`] fields that fill whole cache lines, and implements [`Shared`]
/// for them.
///
/// ```
/// use shm::sync::AtomicU32;
/// shm::shared_lines! {
///     /// Counts arrivals.
///     struct Arrivals {
///         /// Number of arrivals.
///         arrivals: AtomicU32,
///     }
/// }
/// assert_eq!(size_of::<Arrivals>(), 64);
/// ```
#[macro_export]
macro_rules! shared_lines {
    ($($(#[$meta:meta])* $visibility:vis struct $name:ident {
        $($(#[$field_meta:meta])* $field_visibility:vis $field:ident : $type:ty),+ $(,)?
    })+) => {
        $(
            $(#[$meta])*
            #[derive(Debug)]
            #[repr(C, align(64))]
            $visibility struct $name { $($(#[$field_meta])* $field_visibility $field: $type),+ }

            // SAFETY: the layout is `repr(C)`; every field is itself `Shared`, which the function
            // below makes the compiler check; padding is never read, and there is no `Drop`.
            unsafe impl $crate::shared::Shared for $name {}

            const _: () = {
                const fn is_shared<T: $crate::shared::Shared>() {}
                $(is_shared::<$type>();)+
            };
        )+
    };
}

/// `N` plain bytes inside a shared structure, accessible by raw pointer only.
///
/// An atomic beside the bytes (an arrival counter, a sequence number) must grant exclusive access
/// to their readers and writers; the type itself orders nothing.
#[derive(Debug)]
#[repr(transparent)]
pub struct SharedBytes<const N: usize>(UnsafeCell<[u8; N]>);

// SAFETY: the safe methods only return an address; every access through it is the caller's
// `unsafe` obligation.
unsafe impl<const N: usize> Sync for SharedBytes<N> {}

// SAFETY: bytes accept every bit pattern and change only through the `UnsafeCell`.
unsafe impl<const N: usize> Shared for SharedBytes<N> {}

impl<const N: usize> SharedBytes<N> {
    /// Returns the address of the first byte, valid for `N` bytes as long as the structure itself.
    ///
    /// ```
    /// let bytes = shm::shared::SharedBytes::<8>::default();
    /// // SAFETY: no other reference to these bytes exists.
    /// unsafe { bytes.as_mut_ptr().write(7) };
    /// // SAFETY: as above.
    /// assert_eq!(unsafe { bytes.as_mut_ptr().read() }, 7);
    /// ```
    #[inline]
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.0.get().cast()
    }
}

impl<const N: usize> Default for SharedBytes<N> {
    fn default() -> Self {
        SharedBytes(UnsafeCell::new([0; N]))
    }
}
