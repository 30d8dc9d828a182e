//! What may be handed to a collective: borrowed slices, or memory of the segment that moves in and comes back.

use crate::error::Error;
use bytemuck::Pod;
use engine::group::Group;
use engine::lane::Argument;
use shm::owned::OwnedBytes;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// Memory of the job's segment: collectives read and write it in place, without copying it in or out.
///
/// Made by [`Communicator::alloc`](crate::Communicator::alloc). A collective takes it by value and gives it back when it
/// is complete, so that nobody can touch it while others work on it.
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
    memory: OwnedBytes,
    count: usize,
    element: PhantomData<fn() -> T>,
}

impl<T: Pod> SharedBuffer<T> {
    pub(crate) fn new(group: &Group, count: usize) -> Result<Self, Error> {
        let bytes = (count as u64).checked_mul(size_of::<T>() as u64).ok_or(engine::Error::Argument {
            what: "the number of elements",
            found: count.to_string(),
            expected: "a number whose bytes can be counted in 64 bits".into(),
        })?;
        Ok(SharedBuffer { memory: group.allocate(bytes)?, count, element: PhantomData })
    }

    pub(crate) fn argument(&self) -> Argument<'static> {
        Argument::segment(self.memory.offset(), self.memory.bytes())
    }
}

impl<T: Pod> Deref for SharedBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        if size_of::<T>() == 0 { &[] } else { &bytemuck::cast_slice(self.memory.as_slice())[..self.count] }
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

mod sealed {
    pub trait Sealed {}
}

/// What a collective can read: `&[T]`, or a [`SharedBuffer`] by value.
pub trait Input<'a, T: Pod>: sealed::Sealed {
    /// What comes back when the collective is complete: nothing, or the buffer.
    type Back: Send + 'static;

    /// Splits into what the engine is told and what comes back.
    #[doc(hidden)]
    fn into_parts(self) -> (Argument<'a>, Self::Back);
}

/// What a collective can write: `&mut [T]`, or a [`SharedBuffer`] by value.
pub trait Output<'a, T: Pod>: sealed::Sealed {
    /// What comes back when the collective is complete: nothing, or the buffer.
    type Back: Send + 'static;

    /// Splits into what the engine is told, the private memory the result is fetched into, and what comes back.
    #[doc(hidden)]
    fn into_parts(self) -> (Argument<'static>, &'a mut [u8], Self::Back);
}

impl<T> sealed::Sealed for &[T] {}
impl<T> sealed::Sealed for &mut [T] {}
impl<T> sealed::Sealed for &Vec<T> {}
impl<T> sealed::Sealed for &mut Vec<T> {}
impl<T, const N: usize> sealed::Sealed for &[T; N] {}
impl<T, const N: usize> sealed::Sealed for &mut [T; N] {}
impl<T: Pod> sealed::Sealed for SharedBuffer<T> {}

impl<'a, T: Pod> Input<'a, T> for &'a [T] {
    type Back = ();

    #[inline]
    fn into_parts(self) -> (Argument<'a>, ()) {
        (Argument::input(bytemuck::cast_slice(self)), ())
    }
}

impl<'a, T: Pod> Input<'a, T> for &'a Vec<T> {
    type Back = ();

    #[inline]
    fn into_parts(self) -> (Argument<'a>, ()) {
        Input::<T>::into_parts(self.as_slice())
    }
}

impl<'a, T: Pod, const N: usize> Input<'a, T> for &'a [T; N] {
    type Back = ();

    #[inline]
    fn into_parts(self) -> (Argument<'a>, ()) {
        Input::<T>::into_parts(self.as_slice())
    }
}

impl<'a, T: Pod> Input<'a, T> for SharedBuffer<T> {
    type Back = SharedBuffer<T>;

    #[inline]
    fn into_parts(self) -> (Argument<'a>, SharedBuffer<T>) {
        (self.argument(), self)
    }
}

impl<'a, T: Pod> Output<'a, T> for &'a mut [T] {
    type Back = ();

    #[inline]
    fn into_parts(self) -> (Argument<'static>, &'a mut [u8], ()) {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(self);
        (Argument::output(bytes.len() as u64), bytes, ())
    }
}

impl<'a, T: Pod> Output<'a, T> for &'a mut Vec<T> {
    type Back = ();

    #[inline]
    fn into_parts(self) -> (Argument<'static>, &'a mut [u8], ()) {
        Output::<T>::into_parts(self.as_mut_slice())
    }
}

impl<'a, T: Pod, const N: usize> Output<'a, T> for &'a mut [T; N] {
    type Back = ();

    #[inline]
    fn into_parts(self) -> (Argument<'static>, &'a mut [u8], ()) {
        Output::<T>::into_parts(self.as_mut_slice())
    }
}

impl<'a, T: Pod> Output<'a, T> for SharedBuffer<T> {
    type Back = SharedBuffer<T>;

    #[inline]
    fn into_parts(self) -> (Argument<'static>, &'a mut [u8], SharedBuffer<T>) {
        (self.argument(), &mut [], self)
    }
}
