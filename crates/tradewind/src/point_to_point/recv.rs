//! Receives.

use super::pattern::{Source, Status, Tag};
use super::request::RecvRequest;
use crate::communicator::Communicator;
use crate::error::Result;
use bytemuck::{Pod, cast_slice_mut};

/// # Receiving
impl Communicator {
    /// Receives a message into the beginning of `buffer`; it may be shorter than the buffer.
    ///
    /// ```
    /// use tradewind::{Source, Tag};
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(3, |world| {
    ///     if world.rank() > 0 {
    ///         return world.send(&[world.rank()], 0, 40 + world.rank());
    ///     }
    ///     for _ in 1..world.size() {
    ///         let mut rank = [0];
    ///         let status = world.recv(&mut rank, Source::Any, Tag::Any)?;
    ///         assert_eq!((status.source(), status.tag()), (rank[0], 40 + rank[0]));
    ///     }
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Truncated` if the message is longer than the buffer. `RankFailed` if the source has exited
    /// and has sent no such message; of receives from any source, the first after a failure of a
    /// rank reports it, and all do once no other rank is left. Fails if there is no such rank.
    #[inline]
    pub fn recv<T: Pod>(
        &self,
        buffer: &mut [T],
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Status> {
        let endpoint = self.endpoint()?;
        let pattern = self.pattern(source.into(), tag.into())?;
        endpoint
            .recv(pattern, cast_slice_mut(buffer), |awaited| self.exited(awaited))
            .map_err(|error| self.match_error(error, pattern.source, None))
            .and_then(|head| Status::new(self, head))
    }

    /// Posts a receive into the beginning of `buffer`. Only [`test`](RecvRequest::test) and
    /// [`wait`](RecvRequest::wait) write to it.
    ///
    /// # Errors
    /// Fails if there is no such rank, or if the segment is full.
    #[inline]
    pub fn irecv<'a, T: Pod>(
        &'a self,
        buffer: &'a mut [T],
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<RecvRequest<'a>> {
        let pattern = self.pattern(source.into(), tag.into())?;
        RecvRequest::post(self, cast_slice_mut(buffer), pattern)
    }
}
