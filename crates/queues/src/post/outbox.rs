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
    /// As [`Port::open_lane`] and [`LaneSender::send`]. A lane that has failed is opened anew by the next message; by the
    /// same one, if the name leads to another process by now.
    pub fn send(&mut self, name: QueueName, handler: u8, bytes: &[u8]) -> Result<(), PostError> {
        self.over_lane(name, |lane| lane.send(handler, bytes))
    }

    /// As [`Self::send`], but waits until `deadline` at most.
    ///
    /// # Errors
    ///
    /// As [`Self::send`], and [`LaneError::TimedOut`].
    pub fn send_by(&mut self, name: QueueName, handler: u8, bytes: &[u8], deadline: Instant) -> Result<(), PostError> {
        self.over_lane(name, |lane| lane.send_by(handler, bytes, deadline))
    }

    /// As [`Self::send`]; `false` if there is no room now.
    ///
    /// # Errors
    ///
    /// As [`Self::send`].
    pub fn try_send(&mut self, name: QueueName, handler: u8, bytes: &[u8]) -> Result<bool, PostError> {
        self.over_lane(name, |lane| lane.try_send(handler, bytes))
    }

    /// Closes the lane to a name, if there is one.
    pub fn close(&mut self, name: QueueName) {
        self.lanes.remove(&name);
    }

    fn over_lane<T>(
        &mut self,
        name: QueueName,
        mut send: impl FnMut(&mut LaneSender) -> Result<T, LaneError>,
    ) -> Result<T, PostError> {
        loop {
            let lane = self.lane(name)?;
            let error = match send(lane) {
                Ok(sent) => return Ok(sent),
                Err(error) => error,
            };
            if !error.is_final() {
                return Err(error.into());
            }
            // A lane that fails has not taken the message. If it is one to a process whose place another has taken, that
            // one is meant.
            let again = lane.is_outdated();
            self.lanes.remove(&name);
            if !again {
                return Err(error.into());
            }
        }
    }
}
