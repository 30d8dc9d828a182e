//! A message that a probe has taken.

use super::pattern::Status;
use crate::communicator::Communicator;
use crate::error::{Result, argument};
use bytemuck::{Pod, cast_slice_mut};
use queues::matching::TakenMessage;

/// A message that a matched probe has taken ([`Communicator::mprobe`]). Dropping it discards the
/// message.
#[derive(Debug)]
#[must_use = "a dropped message is discarded"]
pub struct Message<'a> {
    communicator: &'a Communicator,
    status: Status,
    /// `None` once it is received.
    taken: Option<TakenMessage>,
}

impl<'a> Message<'a> {
    pub(super) fn new(communicator: &'a Communicator, taken: TakenMessage) -> Result<Self> {
        match Status::new(communicator, taken.head()) {
            Ok(status) => Ok(Message { communicator, status, taken: Some(taken) }),
            Err(error) => {
                communicator.discard(&taken);
                Err(error)
            }
        }
    }

    /// Describes the message.
    pub fn status(&self) -> Status {
        self.status
    }

    /// Receives the message into the beginning of `buffer`.
    ///
    /// # Errors
    /// Those of [`Communicator::recv`].
    pub fn recv<T: Pod>(mut self, buffer: &mut [T]) -> Result<Status> {
        let sender = Some(self.communicator.place("the sender", self.status.source())?);
        let Some(taken) = self.taken.take() else { return Ok(self.status) };
        self.communicator
            .endpoint()?
            .recv_taken(taken, cast_slice_mut(buffer), |awaited| self.communicator.exited(awaited))
            .map_err(|error| self.communicator.match_error(error, sender, None))
            .and_then(|head| Status::new(self.communicator, head))
    }

    /// Receives the message into a vector of its length.
    ///
    /// # Errors
    /// Those of [`Communicator::recv`]; fails if the message is not a whole number of elements.
    pub fn recv_vec<T: Pod>(self) -> Result<Vec<T>> {
        let count = self.status.count::<T>().ok_or_else(|| {
            let expected = format!("a multiple of the element's {}", size_of::<T>());
            argument("the length of a message", self.status.bytes().to_string(), expected)
        })?;
        let mut values = vec![T::zeroed(); count];
        self.recv(&mut values)?;
        Ok(values)
    }
}

impl Drop for Message<'_> {
    fn drop(&mut self) {
        if let Some(taken) = self.taken.take() {
            self.communicator.discard(&taken);
        }
    }
}

impl Communicator {
    fn discard(&self, taken: &TakenMessage) {
        if let Ok(endpoint) = self.endpoint()
            && let Err(error) = endpoint.discard(taken)
        {
            log::warn!("a dropped message may keep its sender waiting: {error}");
        }
    }
}
