//! Sends.

use super::pattern::{Source, Status, Tag};
use super::request::{RecvRequest, SendRequest};
use crate::communicator::Communicator;
use crate::error::{Result, argument};
use bytemuck::{Pod, cast_slice};
use queues::matching::{EAGER_BYTES, MAX_BYTES};

/// # Messages between two ranks
///
/// MPI's point-to-point messages, on one node and between nodes. A receive names a rank or
/// [`Source::Any`], and a tag or [`Tag::Any`]; messages from one rank that a receive accepts arrive
/// in the order in which they were sent. All methods may be called from any thread, and messages of
/// different communicators never match.
///
/// A message of up to some kibibytes, between nodes of up to some mebibytes, is on its way when a
/// send returns, whatever its receiver does, while the ring between the two ranks and the receiver
/// have space. A longer message, or one without space, stays in its sender's buffer until it is
/// matched: [`send`](Self::send) waits for that, and so does the wait for an
/// [`isend`](Self::isend).
impl Communicator {
    /// Sends a message to rank `to`, and waits until `data` may be changed.
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(2, |world| {
    ///     if world.rank() == 0 {
    ///         world.send(&[1.5, 2.5], 1, 7)
    ///     } else {
    ///         let mut values = [0.0; 4];
    ///         let status = world.recv(&mut values, 0, 7)?;
    ///         assert_eq!(status.count::<f64>(), Some(2));
    ///         assert_eq!(values, [1.5, 2.5, 0.0, 0.0]);
    ///         Ok(())
    ///     }
    /// })
    /// # }
    /// ```
    ///
    /// A tag to send with is a number; only receives accept any:
    ///
    /// ```compile_fail,E0308
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(2, |world| world.send(&[1], 0, tradewind::Tag::Any))
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if there is no such rank, if it has exited while the send waits, or if the segment is
    /// full.
    #[inline]
    pub fn send<T: Pod>(&self, data: &[T], to: u32, tag: u32) -> Result<()> {
        let bytes = cast_slice(data);
        let place = self.receiver(to, bytes)?;
        let endpoint = self.endpoint()?;
        let exited = || self.exited(Some(place));
        endpoint
            .send(place, self.envelope(tag, bytes.len()), bytes, exited)
            .map_err(|error| self.match_error(error, Some(place), None))
    }

    /// Sends a message as [`send`](Self::send) does, and waits until a receive has matched it.
    ///
    /// # Errors
    /// The errors of [`send`](Self::send).
    pub fn ssend<T: Pod>(&self, data: &[T], to: u32, tag: u32) -> Result<()> {
        let bytes = cast_slice(data);
        let place = self.receiver(to, bytes)?;
        let endpoint = self.endpoint()?;
        let exited = || self.exited(Some(place));
        endpoint
            .send_when_matched(place, self.envelope(tag, bytes.len()), bytes, exited)
            .map_err(|error| self.match_error(error, Some(place), None))
    }

    /// Sends a message if its receiver has space for it now. Returns `false` if the receiver is
    /// full: it has a mebibyte (on another node four) of this rank's messages that no receive has
    /// taken, or less with many ranks. Also `false` while there is no space for the message on its
    /// way: on one node 512 lines of 64 bytes, which the receiver empties in its calls, and between
    /// nodes at most four mebibytes, which the system or the node service takes.
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(2, |world| {
    ///     if world.rank() == 0 {
    ///         let mut sent = 0_u64;
    ///         while world.try_send(&[sent], 1, 0)? {
    ///             sent += 1;
    ///         }
    ///         // The receiver takes nothing, so it is full at last.
    ///         return world.send(&[sent], 1, 1);
    ///     }
    ///     let mut sent = [0_u64];
    ///     world.recv(&mut sent, 0, 1)?;
    ///     for expected in 0..sent[0] {
    ///         let mut number = [0_u64];
    ///         world.recv(&mut number, 0, 0)?;
    ///         assert_eq!(number[0], expected);
    ///     }
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if there is no such rank, if the message is longer than such a message may be, or if
    /// the segment is full.
    pub fn try_send<T: Pod>(&self, data: &[T], to: u32, tag: u32) -> Result<bool> {
        let bytes = cast_slice::<T, u8>(data);
        let place = self.receiver(to, bytes)?;
        if bytes.len() > EAGER_BYTES {
            let most = format!("at most {EAGER_BYTES} bytes for try_send: use isend");
            return Err(argument("the length of a message", bytes.len().to_string(), most));
        }
        self.endpoint()?
            .try_send(place, self.envelope(tag, bytes.len()), bytes)
            .map_err(|error| self.match_error(error, Some(place), None))
    }

    /// Starts to send a message to rank `to`. `data` stays borrowed until the request is complete
    /// or dropped.
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(2, |world| {
    ///     let other = 1 - world.rank();
    ///     let mine = vec![world.rank(); 1 << 20];
    ///     let mut theirs = vec![0; 1 << 20];
    ///     let receive = world.irecv(&mut theirs, other, 0)?;
    ///     let send = world.isend(&mine, other, 0)?;
    ///     // … compute …
    ///     receive.wait()?;
    ///     send.wait()?;
    ///     assert!(theirs.iter().all(|element| *element == other));
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if there is no such rank, or if the segment is full.
    #[inline]
    pub fn isend<'a, T: Pod>(
        &'a self,
        data: &'a [T],
        to: u32,
        tag: u32,
    ) -> Result<SendRequest<'a>> {
        let bytes = cast_slice(data);
        let place = self.receiver(to, bytes)?;
        SendRequest::start(self, bytes, place, tag, false)
    }

    /// Starts a send that is complete when a receive has matched its message.
    ///
    /// # Errors
    /// The errors of [`isend`](Self::isend).
    pub fn issend<'a, T: Pod>(
        &'a self,
        data: &'a [T],
        to: u32,
        tag: u32,
    ) -> Result<SendRequest<'a>> {
        let bytes = cast_slice(data);
        let place = self.receiver(to, bytes)?;
        SendRequest::start(self, bytes, place, tag, true)
    }

    /// Sends one message and receives another one, without a deadlock whatever the order of the
    /// ranks.
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(3, |world| {
    ///     let (rank, size) = (world.rank(), world.size());
    ///     let mut left = [0];
    ///     world.sendrecv(&[rank], (rank + 1) % size, 0, &mut left, (rank + size - 1) % size, 0)?;
    ///     assert_eq!(left[0], (rank + size - 1) % size);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`send`](Self::send) and [`recv`](Self::recv).
    pub fn sendrecv<S: Pod, R: Pod>(
        &self,
        data: &[S],
        to: u32,
        tag: u32,
        buffer: &mut [R],
        source: impl Into<Source>,
        receive_tag: impl Into<Tag>,
    ) -> Result<Status> {
        let receive: RecvRequest<'_> = self.irecv(buffer, source, receive_tag)?;
        self.send(data, to, tag)?;
        receive.wait()
    }

    /// The place of a receiver.
    #[inline]
    pub(super) fn receiver(&self, to: u32, bytes: &[u8]) -> Result<u32> {
        if bytes.len() as u64 > MAX_BYTES {
            let most = format!("at most {MAX_BYTES}");
            return Err(argument("the length of a message", bytes.len().to_string(), most));
        }
        self.place("the receiver of a message", to)
    }
}
