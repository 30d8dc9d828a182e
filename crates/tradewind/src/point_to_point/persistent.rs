//! Sends and receives that are prepared once and started many times.

use super::pattern::{Source, Tag};
use super::request::{RecvRequest, SendRequest};
use crate::communicator::Communicator;
use crate::error::{Error, Result};
use bytemuck::{Pod, cast_slice, cast_slice_mut};
use queues::matching::Pattern;
use std::marker::PhantomData;

/// A prepared send of a fixed number of elements; the buffer may differ between starts.
#[derive(Clone, Debug)]
pub struct PersistentSend<T> {
    communicator: Communicator,
    count: usize,
    to: u32,
    tag: u32,
    element: PhantomData<fn() -> T>,
}

/// A prepared receive into a fixed number of elements; the buffer may differ between starts.
#[derive(Clone, Debug)]
pub struct PersistentRecv<T> {
    communicator: Communicator,
    count: usize,
    pattern: Pattern,
    element: PhantomData<fn() -> T>,
}

/// # Persistent messages
impl Communicator {
    /// Prepares sends of `count` elements to rank `to`.
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(2, |world| {
    ///     let other = 1 - world.rank();
    ///     let send = world.send_init::<u64>(1, other, 0)?;
    ///     let receive = world.recv_init::<u64>(1, other, 0)?;
    ///     for step in 0..10 {
    ///         let mut theirs = [0];
    ///         let request = receive.start(&mut theirs)?;
    ///         send.start(&[step])?.wait()?;
    ///         request.wait()?;
    ///         assert_eq!(theirs, [step]);
    ///     }
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if there is no such rank.
    pub fn send_init<T: Pod>(&self, count: usize, to: u32, tag: u32) -> Result<PersistentSend<T>> {
        let to = self.receiver(to, &[])?;
        Ok(PersistentSend { communicator: self.clone(), count, to, tag, element: PhantomData })
    }

    /// Prepares receives into `count` elements.
    ///
    /// # Errors
    /// Fails if there is no such rank.
    pub fn recv_init<T: Pod>(
        &self,
        count: usize,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<PersistentRecv<T>> {
        let pattern = self.pattern(source.into(), tag.into())?;
        Ok(PersistentRecv { communicator: self.clone(), count, pattern, element: PhantomData })
    }
}

impl<T: Pod> PersistentSend<T> {
    /// Starts a send.
    ///
    /// # Errors
    /// Fails if the length of the buffer is not the prepared one, or if the segment is full.
    pub fn start<'a>(&'a self, data: &'a [T]) -> Result<SendRequest<'a>> {
        check_length::<T>(0, self.count, data.len())?;
        SendRequest::start(&self.communicator, cast_slice(data), self.to, self.tag, false)
    }
}

impl<T: Pod> PersistentRecv<T> {
    /// Posts a receive.
    ///
    /// # Errors
    /// Fails if the length of the buffer is not the prepared one, or if the segment is full.
    pub fn start<'a>(&'a self, buffer: &'a mut [T]) -> Result<RecvRequest<'a>> {
        check_length::<T>(0, self.count, buffer.len())?;
        RecvRequest::post(&self.communicator, cast_slice_mut(buffer), self.pattern)
    }
}

fn check_length<T>(buffer: usize, expected: usize, found: usize) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    let bytes = |count: usize| (count as u64).saturating_mul(size_of::<T>() as u64);
    Err(Error::BufferLength { buffer, expected: bytes(expected), found: bytes(found) })
}
