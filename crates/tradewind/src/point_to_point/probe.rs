//! Probes.

use super::message::Message;
use super::pattern::{Source, Status, Tag};
use crate::communicator::Communicator;
use crate::error::Result;

/// # Probing
impl Communicator {
    /// Waits for a message that a receive with this source and tag would take, and describes it.
    /// With several threads another one may take it first: see [`mprobe`](Self::mprobe).
    ///
    /// # Errors
    /// Those of [`recv`](Self::recv), except `Truncated`.
    pub fn probe(&self, source: impl Into<Source>, tag: impl Into<Tag>) -> Result<Status> {
        let endpoint = self.endpoint()?;
        let pattern = self.pattern(source.into(), tag.into())?;
        endpoint
            .probe(&pattern, || self.exited(pattern.source))
            .map_err(|error| self.match_error(error, pattern.source, None))
            .and_then(|head| Status::new(self, head))
    }

    /// Describes the message that a receive with this source and tag would take now. Never waits.
    ///
    /// # Errors
    /// Fails if there is no such rank, or if the segment is full.
    pub fn iprobe(&self, source: impl Into<Source>, tag: impl Into<Tag>) -> Result<Option<Status>> {
        let endpoint = self.endpoint()?;
        let pattern = self.pattern(source.into(), tag.into())?;
        let found = endpoint.probe_now(&pattern);
        let found = found.map_err(|error| self.match_error(error, pattern.source, None))?;
        found.map(|head| Status::new(self, head)).transpose()
    }

    /// Waits for a message and takes it: no other receive matches it any more.
    ///
    /// ```
    /// use tradewind::{Source, Tag};
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(2, |world| {
    ///     if world.rank() == 1 {
    ///         return world.send(b"of any length", 0, 3);
    ///     }
    ///     let message = world.mprobe(Source::Any, Tag::Any)?;
    ///     assert_eq!(message.status().tag(), 3);
    ///     assert_eq!(message.recv_vec::<u8>()?, b"of any length");
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`probe`](Self::probe).
    pub fn mprobe(&self, source: impl Into<Source>, tag: impl Into<Tag>) -> Result<Message<'_>> {
        let endpoint = self.endpoint()?;
        let pattern = self.pattern(source.into(), tag.into())?;
        endpoint
            .take(&pattern, || self.exited(pattern.source))
            .map_err(|error| self.match_error(error, pattern.source, None))
            .and_then(|taken| Message::new(self, taken))
    }

    /// Takes the message that a receive with this source and tag would take now. Never waits.
    ///
    /// # Errors
    /// Those of [`iprobe`](Self::iprobe).
    pub fn improbe(
        &self,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Option<Message<'_>>> {
        let endpoint = self.endpoint()?;
        let pattern = self.pattern(source.into(), tag.into())?;
        let taken = endpoint.take_now(&pattern);
        let taken = taken.map_err(|error| self.match_error(error, pattern.source, None))?;
        taken.map(|taken| Message::new(self, taken)).transpose()
    }
}
