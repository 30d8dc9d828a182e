//! Sending from a port: to any name, over lanes that are opened when they are needed.

use super::{Port, PostError};
use crate::lane::{LaneError, LaneSender};
use crate::name::QueueName;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// The sending side of a port.
#[derive(Debug)]
pub struct Outbox {
    port: Arc<Port>,
    lanes: HashMap<QueueName, LaneSender>,
}

impl Outbox {
    pub(super) fn new(port: Arc<Port>) -> Outbox {
        Outbox { port, lanes: HashMap::new() }
    }

    /// The port.
    pub fn port(&self) -> &Port {
        &self.port
    }

    /// The lane to a name, opened if there is none.
    ///
    /// # Errors
    ///
    /// As [`Port::open_lane`].
    pub fn lane(&mut self, name: QueueName) -> Result<&mut LaneSender, PostError> {
        match self.lanes.entry(name) {
            std::collections::hash_map::Entry::Occupied(lane) => Ok(lane.into_mut()),
            std::collections::hash_map::Entry::Vacant(place) => Ok(place.insert(self.port.open_lane(name)?)),
        }
    }

    /// Sends a message to one of the receiver's handlers; waits for room.
    ///
    /// # Errors
    ///
    /// As [`Port::open_lane`] and [`LaneSender::send`]. A lane that has failed is opened anew by the next message.
    pub fn send(&mut self, name: QueueName, handler: u8, bytes: &[u8]) -> Result<(), PostError> {
        let sent = self.lane(name)?.send(handler, bytes);
        self.conclude(name, sent)
    }

    /// As [`Self::send`], but waits until `deadline` at most.
    ///
    /// # Errors
    ///
    /// As [`Self::send`], and [`LaneError::TimedOut`].
    pub fn send_by(&mut self, name: QueueName, handler: u8, bytes: &[u8], deadline: Instant) -> Result<(), PostError> {
        let sent = self.lane(name)?.send_by(handler, bytes, deadline);
        self.conclude(name, sent)
    }

    /// As [`Self::send`]; `false` if there is no room now.
    ///
    /// # Errors
    ///
    /// As [`Self::send`].
    pub fn try_send(&mut self, name: QueueName, handler: u8, bytes: &[u8]) -> Result<bool, PostError> {
        let sent = self.lane(name)?.try_send(handler, bytes);
        self.conclude(name, sent)
    }

    /// Closes the lane to a name, if there is one.
    pub fn close(&mut self, name: QueueName) {
        self.lanes.remove(&name);
    }

    fn conclude<T>(&mut self, name: QueueName, sent: Result<T, LaneError>) -> Result<T, PostError> {
        if matches!(sent, Err(ref error) if error.is_final()) {
            self.lanes.remove(&name);
        }
        Ok(sent?)
    }
}
