//! Buffers of collectives: borrowed slices, or memory of the segment that moves in and is returned.

use crate::copy_on_write::CopyOnWriteBytes;
use crate::deferred::DeferredBuffers;
use crate::error::{Error, argument};
use bytemuck::Pod;
use engine::InputReaders;
use engine::argument::Argument;
use engine::communicator::Communicator as NodeCommunicator;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// Memory of the job's segment: collectives read and write it in place, without copying it in or
/// out.
///
/// Allocated by [`Communicator::alloc`](crate::Communicator::alloc) for the collectives of all
/// communicators of the job on this node. A collective takes it by value and returns it when it is
/// complete, so that no other code can access it while other ranks do.
///
/// Ranks read the input of a long collective in place when they fetch their results, which may be
/// after this rank has its buffer back. The buffer can be read meanwhile. Its first change copies it,
/// if another rank has yet to read it; its address changes then, and the old memory is free after the
/// last read. Only if this rank's part of the segment has no space for the copy, the change waits for
/// those ranks to read, in a wait or test of any collective, or to leave the job;
/// [`writable_within`](Self::writable_within) does so for a limited time.
///
/// ```
/// # fn main() -> Result<(), tradewind::Error> {
/// tradewind::local(2, |world| {
///     let mut mine = world.alloc::<f64>(1000)?;
///     mine.fill(1.5);
///     let sum = world.alloc::<f64>(1000)?;
///     let (mine, sum) = world.iallreduce(mine, sum, tradewind::Op::Sum)?.wait()?;
///     assert!(mine.iter().all(|value| *value == 1.5) && sum.iter().all(|value| *value == 3.0));
///     Ok(())
/// })
/// # }
/// ```
#[derive(Debug)]
pub struct SharedBuffer<T: Pod> {
    memory: CopyOnWriteBytes,
    count: usize,
    element: PhantomData<fn() -> T>,
}

impl<T: Pod> SharedBuffer<T> {
    pub(crate) fn new(
        group: &NodeCommunicator,
        deferred: &DeferredBuffers,
        count: usize,
    ) -> Result<Self, Error> {
        let bytes = (count as u64).checked_mul(size_of::<T>() as u64).ok_or_else(|| {
            let expected = "a number whose bytes can be counted in 64 bits";
            argument("the number of elements", count.to_string(), expected)
        })?;
        /// Addresses have the alignment of offsets up to the size of a page.
        const PAGE: usize = 4096;
        let alignment = align_of::<T>();
        if alignment > PAGE {
            let found = format!("{alignment} bytes");
            return Err(argument("the alignment of an element", found, "a page at most"));
        }
        let memory = CopyOnWriteBytes::new(group, deferred, (bytes, alignment as u64))?;
        Ok(SharedBuffer { memory, count, element: PhantomData })
    }

    /// Returns `true` if the communicator's ranks on this node find the memory at its offset.
    pub(crate) fn is_shared_with(&self, group: &NodeCommunicator) -> bool {
        let segment = group.member().node().segment();
        self.memory.memory().is_some_and(|memory| memory.lies_in(segment))
    }

    pub(crate) fn place(&self) -> Argument<'static> {
        match self.memory.memory() {
            Some(memory) => Argument::segment(memory.offset(), memory.bytes()),
            None => Argument::output(0),
        }
    }

    /// Prepares a change by other ranks.
    pub(crate) fn make_writable(&mut self) {
        self.memory.make_writable();
    }

    /// Returns the elements for changes, as `&mut buffer[..]` does, but waits at most `limit` for
    /// ranks that have yet to read them where there is no space for a copy.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(2, |world| {
    ///     let mut mine = world.alloc::<f64>(1000)?;
    ///     mine.writable_within(Duration::from_secs(1))?.fill(1.5);
    ///     assert!(mine.iter().all(|value| *value == 1.5));
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Timeout`, which names the ranks that have not read the elements; they are unchanged.
    pub fn writable_within(&mut self, limit: Duration) -> Result<&mut [T], Error> {
        self.memory.make_writable_within(limit)?;
        Ok(&mut **self)
    }

    fn with_readers(mut self, readers: Option<InputReaders>) -> Self {
        if let Some(readers) = readers {
            self.memory.add_readers(readers);
        }
        self
    }
}

impl<T: Pod> Deref for SharedBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        if size_of::<T>() == 0 {
            &[]
        } else {
            &bytemuck::cast_slice(self.memory.as_slice())[..self.count]
        }
    }
}

impl<T: Pod> DerefMut for SharedBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        if size_of::<T>() == 0 {
            &mut []
        } else {
            &mut bytemuck::cast_slice_mut(self.memory.as_mut_slice())[..self.count]
        }
    }
}

/// Placeholder for a buffer that shares the bytes of the other one, like `MPI_IN_PLACE`.
///
/// | collective | given as | what it means |
/// |---|---|---|
/// | allreduce, scan, exscan, alltoall, alltoallv | input | the input lies in the output, which it is replaced in |
/// | reduce | input, at the root | as above |
/// | reduce_scatter, reduce_scatter_block | input | the output is as long as an input and holds it; the result replaces its beginning |
/// | allgather, allgatherv | input | the rank's own block already lies where it belongs in the output |
/// | gather, gatherv | input, at the root | as above |
/// | scatter, scatterv | output, at the root | the root's own block stays where it lies in the input |
///
/// The library makes all necessary copies.
///
/// ```
/// use tradewind::{InPlace, Op};
/// # fn main() -> Result<(), tradewind::Error> {
/// tradewind::local(3, |world| {
///     let mut values = [world.rank(), 10];
///     world.allreduce(InPlace, &mut values, Op::Sum)?;
///     assert_eq!(values, [3, 30]);
///     Ok(())
/// })
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct InPlace;

mod sealed {
    pub trait Sealed {}
}

/// An input of a collective: a slice, [`InPlace`], or a [`SharedBuffer`] by value.
pub trait Input<'a, T: Pod>: sealed::Sealed {
    /// The buffer that a complete collective returns, if any.
    type Back: Send + 'static;

    /// The engine's argument; `None` if the bytes lie in the output.
    #[doc(hidden)]
    fn argument(&self) -> Option<Argument<'_>>;

    /// Contents of the buffer.
    #[doc(hidden)]
    fn bytes(&self) -> &[u8];

    /// Returns `true` unless this is memory of a segment that these ranks do not use.
    #[doc(hidden)]
    #[inline]
    fn suits(&self, _group: &NodeCommunicator) -> bool {
        true
    }

    /// Turns the input into the buffer that is returned. The function returns the ranks that read
    /// memory of the segment in place.
    #[doc(hidden)]
    fn into_back(self, readers: impl FnOnce() -> Option<InputReaders>) -> Self::Back;
}

/// An output of a collective: a slice, or a [`SharedBuffer`] by value; [`InPlace`] at the root of a
/// scatter.
pub trait Output<'a, T: Pod>: sealed::Sealed {
    /// The buffer that a complete collective returns, if any.
    type Back: Send + 'static;

    /// The engine's argument; `None` if the bytes stay in the input.
    #[doc(hidden)]
    fn argument(&self) -> Option<Argument<'static>>;

    /// Number of bytes.
    #[doc(hidden)]
    #[inline]
    fn length(&self) -> u64 {
        self.argument().map_or(0, |argument| argument.length)
    }

    /// Contents of the buffer before the collective.
    #[doc(hidden)]
    fn bytes(&mut self) -> &mut [u8];

    /// Returns `true` unless this is memory of a segment that these ranks do not use.
    #[doc(hidden)]
    #[inline]
    fn suits(&self, _group: &NodeCommunicator) -> bool {
        true
    }

    /// Prepares changes of the buffer by other ranks.
    #[doc(hidden)]
    #[inline]
    fn make_writable(&mut self) {}

    /// The private memory that the result is fetched into, and the buffer that is returned. The
    /// function returns the ranks that read memory of the segment in place.
    #[doc(hidden)]
    fn into_parts(
        self,
        readers: impl FnOnce() -> Option<InputReaders>,
    ) -> (&'a mut [u8], Self::Back);

    /// Bytes of the buffer that is returned.
    #[doc(hidden)]
    fn bytes_of_back(back: &mut Self::Back) -> &mut [u8];
}

impl<T> sealed::Sealed for &[T] {}
impl<T> sealed::Sealed for &mut [T] {}
impl<T> sealed::Sealed for &Vec<T> {}
impl<T> sealed::Sealed for &mut Vec<T> {}
impl<T, const N: usize> sealed::Sealed for &[T; N] {}
impl<T, const N: usize> sealed::Sealed for &mut [T; N] {}
impl<T: Pod> sealed::Sealed for SharedBuffer<T> {}
impl<T: Pod> sealed::Sealed for &SharedBuffer<T> {}
impl sealed::Sealed for InPlace {}

macro_rules! private_inputs {
    ($($type:ty $(, $count:ident)?;)+) => {
        $(
            impl<'a, T: Pod $(, const $count: usize)?> Input<'a, T> for &'a $type {
                type Back = ();

                #[inline]
                fn argument(&self) -> Option<Argument<'_>> {
                    Some(Argument::input(bytemuck::cast_slice::<T, u8>(&**self)))
                }

                #[inline]
                fn bytes(&self) -> &[u8] {
                    bytemuck::cast_slice::<T, u8>(&**self)
                }

                #[inline]
                fn into_back(self, _readers: impl FnOnce() -> Option<InputReaders>) {}
            }
        )+
    };
}

private_inputs! {
    [T];
    Vec<T>;
    [T; N], N;
    SharedBuffer<T>;
}

macro_rules! private_outputs {
    ($($type:ty $(, $count:ident)?;)+) => {
        $(
            impl<'a, T: Pod $(, const $count: usize)?> Output<'a, T> for &'a mut $type {
                type Back = ();

                #[inline]
                fn argument(&self) -> Option<Argument<'static>> {
                    Some(Argument::output(size_of_val::<[T]>(&**self) as u64))
                }

                #[inline]
                fn bytes(&mut self) -> &mut [u8] {
                    bytemuck::cast_slice_mut::<T, u8>(&mut **self)
                }

                #[inline]
                fn into_parts(
                    self,
                    _readers: impl FnOnce() -> Option<InputReaders>,
                ) -> (&'a mut [u8], ()) {
                    (bytemuck::cast_slice_mut::<T, u8>(self), ())
                }

                fn bytes_of_back((): &mut ()) -> &mut [u8] {
                    &mut []
                }
            }
        )+
    };
}

private_outputs! {
    [T];
    Vec<T>;
    [T; N], N;
}

impl<'a, T: Pod> Input<'a, T> for SharedBuffer<T> {
    type Back = SharedBuffer<T>;

    #[inline]
    fn argument(&self) -> Option<Argument<'_>> {
        Some(self.place())
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        self.memory.as_slice()
    }

    #[inline]
    fn suits(&self, group: &NodeCommunicator) -> bool {
        self.is_shared_with(group)
    }

    #[inline]
    fn into_back(self, readers: impl FnOnce() -> Option<InputReaders>) -> SharedBuffer<T> {
        self.with_readers(readers())
    }
}

impl<'a, T: Pod> Output<'a, T> for SharedBuffer<T> {
    type Back = SharedBuffer<T>;

    #[inline]
    fn argument(&self) -> Option<Argument<'static>> {
        Some(self.place())
    }

    #[inline]
    fn bytes(&mut self) -> &mut [u8] {
        self.memory.as_mut_slice()
    }

    #[inline]
    fn suits(&self, group: &NodeCommunicator) -> bool {
        self.is_shared_with(group)
    }

    #[inline]
    fn make_writable(&mut self) {
        SharedBuffer::make_writable(self);
    }

    #[inline]
    fn into_parts(
        self,
        readers: impl FnOnce() -> Option<InputReaders>,
    ) -> (&'a mut [u8], SharedBuffer<T>) {
        (&mut [], self.with_readers(readers()))
    }

    fn bytes_of_back(back: &mut SharedBuffer<T>) -> &mut [u8] {
        back.memory.as_mut_slice()
    }
}

impl<'a, T: Pod> Input<'a, T> for InPlace {
    type Back = ();

    #[inline]
    fn argument(&self) -> Option<Argument<'_>> {
        None
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        &[]
    }

    #[inline]
    fn into_back(self, _readers: impl FnOnce() -> Option<InputReaders>) {}
}

impl<'a, T: Pod> Output<'a, T> for InPlace {
    type Back = ();

    #[inline]
    fn argument(&self) -> Option<Argument<'static>> {
        None
    }

    #[inline]
    fn bytes(&mut self) -> &mut [u8] {
        &mut []
    }

    #[inline]
    fn into_parts(self, _readers: impl FnOnce() -> Option<InputReaders>) -> (&'a mut [u8], ()) {
        (&mut [], ())
    }

    fn bytes_of_back((): &mut ()) -> &mut [u8] {
        &mut []
    }
}
