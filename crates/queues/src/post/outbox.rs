//! Sending from a port: to any name, over lanes that are opened when they are needed.

use super::registration::PATIENCE;
use super::{Class, Port, PostError, Refusal};
use crate::cache_line::LINE_DATA;
use crate::lane::{HallSender, LaneError, LaneSender};
use crate::name::{QueueName, SourceName};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long even who cannot wait waits for the post office when a lane has to be opened: otherwise
/// whoever is often in a hurry would never get one.
const HURRY: Duration = Duration::from_millis(250);

/// The sending side of a port.
#[derive(Debug)]
pub struct Outbox {
    port: Arc<Port>,
    ways: HashMap<(QueueName, Class), Way>,
}

/// A lane to a name. There may be ten thousands of them, most of them through halls.
#[derive(Debug)]
pub(super) enum Way {
    Lane(Box<LaneSender>),
    Hall(HallSender),
}

/// How long a sender waits.
#[derive(Debug, Clone, Copy)]
enum Patience {
    None,
    Until(Option<Instant>),
}

impl Patience {
    /// Until when to wait for a lane.
    fn for_a_way(self) -> Instant {
        let now = Instant::now();
        let (soonest, latest) = (now + HURRY, now + PATIENCE);
        match self {
            Patience::None => soonest,
            Patience::Until(deadline) => {
                deadline.map_or(latest, |deadline| deadline.clamp(soonest, latest))
            }
        }
    }
}

impl Way {
    /// Sends a message; `false` if there is no room and no patience.
    fn send(&mut self, handler: u8, bytes: &[u8], patience: Patience) -> Result<bool, LaneError> {
        match (self, patience) {
            (Way::Lane(lane), Patience::None) => lane.try_send(handler, bytes),
            (Way::Lane(lane), Patience::Until(None)) => lane.send(handler, bytes).map(|()| true),
            (Way::Lane(lane), Patience::Until(Some(deadline))) => {
                lane.send_by(handler, bytes, deadline).map(|()| true)
            }
            (Way::Hall(lane), Patience::None) => lane.try_send(handler, bytes),
            (Way::Hall(lane), Patience::Until(deadline)) => {
                lane.send_until(handler, bytes, deadline).map(|()| true)
            }
        }
    }

    /// Whether the name has come to lead somewhere else.
    fn is_outdated(&self) -> bool {
        match self {
            Way::Lane(lane) => lane.is_outdated(),
            Way::Hall(lane) => lane.is_outdated(),
        }
    }

    /// Drops it; the next message takes another.
    fn go_on(mut self) {
        if let Way::Hall(lane) = &mut self {
            lane.go_on();
        }
    }
}

impl Outbox {
    pub(super) fn new(port: Arc<Port>) -> Outbox {
        Outbox { port, ways: HashMap::new() }
    }

    /// The port.
    pub fn port(&self) -> &Port {
        &self.port
    }

    /// Sends a message of up to [`MAX_MESSAGE_BYTES`](super::MAX_MESSAGE_BYTES) (4,088) bytes to
    /// one of the receiver's handlers; waits for room. There is none either as long as what this
    /// port has sent to the name is not received where the name led before.
    ///
    /// # Errors
    ///
    /// [`PostError::Table`] for a name that leads nowhere, [`PostError::Refused`],
    /// [`PostError::PostGone`], [`PostError::NoAnswer`], [`PostError::Lane`], in which
    /// [`LaneError::Oversized`] is a message that is too long. A lane that has failed is opened
    /// anew by the next message; by the same one, if the name leads to another process by now.
    pub fn send(&mut self, name: QueueName, handler: u8, bytes: &[u8]) -> Result<(), PostError> {
        self.deliver((name, Class::Request), handler, bytes, Patience::Until(None)).map(drop)
    }

    /// As [`Self::send`], but waits until `deadline` at most; if a lane has to be opened first, a
    /// quarter of a second for the post office in any case.
    ///
    /// # Errors
    ///
    /// As [`Self::send`], and [`LaneError::TimedOut`]; [`PostError::NoAnswer`] if it was the post
    /// office that was late.
    pub fn send_by(
        &mut self,
        name: QueueName,
        handler: u8,
        bytes: &[u8],
        deadline: Instant,
    ) -> Result<(), PostError> {
        self.deliver((name, Class::Request), handler, bytes, Patience::Until(Some(deadline)))
            .map(drop)
    }

    /// As [`Self::send`]; `false` if there is no room now, or if a lane has to be opened and the
    /// post office does not answer within a quarter of a second.
    ///
    /// # Errors
    ///
    /// As [`Self::send`].
    pub fn try_send(
        &mut self,
        name: QueueName,
        handler: u8,
        bytes: &[u8],
    ) -> Result<bool, PostError> {
        self.deliver((name, Class::Request), handler, bytes, Patience::None)
    }

    /// As [`Self::send`], to whom a message came from, as a reply: no number of requests on the way
    /// there holds it up.
    ///
    /// # Errors
    ///
    /// As [`Self::send`].
    pub fn reply(&mut self, to: SourceName, handler: u8, bytes: &[u8]) -> Result<(), PostError> {
        self.deliver((to.into(), Class::Reply), handler, bytes, Patience::Until(None)).map(drop)
    }

    /// As [`Self::reply`], but waits as [`Self::send_by`].
    ///
    /// # Errors
    ///
    /// As [`Self::send_by`].
    pub fn reply_by(
        &mut self,
        to: SourceName,
        handler: u8,
        bytes: &[u8],
        deadline: Instant,
    ) -> Result<(), PostError> {
        self.deliver((to.into(), Class::Reply), handler, bytes, Patience::Until(Some(deadline)))
            .map(drop)
    }

    /// As [`Self::reply`]; `false` as for [`Self::try_send`].
    ///
    /// # Errors
    ///
    /// As [`Self::send`].
    pub fn try_reply(
        &mut self,
        to: SourceName,
        handler: u8,
        bytes: &[u8],
    ) -> Result<bool, PostError> {
        self.deliver((to.into(), Class::Reply), handler, bytes, Patience::None)
    }

    /// Closes the lanes to a name, if there are any. What is sent to it later may overtake what was
    /// sent before.
    pub fn close(&mut self, name: QueueName) {
        self.ways.remove(&(name, Class::Request));
        self.ways.remove(&(name, Class::Reply));
    }

    /// A way that can take a message of so many bytes.
    fn way(
        &mut self,
        (name, class): (QueueName, Class),
        bytes: usize,
        patience: Patience,
    ) -> Result<&mut Way, PostError> {
        let alone = bytes > LINE_DATA;
        let is_outdated = |way: &Way| matches!(way, Way::Hall(_)) && way.is_outdated();
        if alone && self.ways.get(&(name, class)).is_some_and(is_outdated) {
            // What was sent has to be received there before anything goes elsewhere.
            self.ways.remove(&(name, class)).into_iter().for_each(Way::go_on);
        }
        match self.ways.entry((name, class)) {
            Entry::Occupied(mut way) if alone && matches!(way.get(), Way::Hall(_)) => {
                // The receiver takes what was sent through its hall before what comes over the new
                // lane.
                let new = self.port.open_way((name, class), alone, patience.for_a_way())?;
                way.insert(new).go_on();
                Ok(way.into_mut())
            }
            Entry::Occupied(way) => Ok(way.into_mut()),
            Entry::Vacant(place) => {
                Ok(place.insert(self.port.open_way((name, class), alone, patience.for_a_way())?))
            }
        }
    }

    fn deliver(
        &mut self,
        to: (QueueName, Class),
        handler: u8,
        bytes: &[u8],
        patience: Patience,
    ) -> Result<bool, PostError> {
        loop {
            let error = match self.way(to, bytes.len(), patience) {
                Ok(way) => match way.send(handler, bytes, patience) {
                    Ok(sent) => return Ok(sent),
                    Err(error) => error,
                },
                Err(error @ PostError::Refused { refusal: Refusal::Moving, .. }) => {
                    match patience {
                        Patience::None => return Ok(false),
                        Patience::Until(Some(deadline)) if Instant::now() >= deadline => {
                            return Err(error);
                        }
                        Patience::Until(deadline) => {
                            self.port.control().wait_for_news(deadline)?;
                            continue;
                        }
                    }
                }
                Err(PostError::NoAnswer { .. }) if matches!(patience, Patience::None) => {
                    return Ok(false);
                }
                Err(error) => return Err(error),
            };
            if !error.is_final() {
                return Err(error.into());
            }
            // A lane that fails has not taken the message. If it is one to a process whose place
            // another has taken, that one is meant.
            match self.ways.remove(&to) {
                Some(way) if matches!(error, LaneError::Moved { .. }) || way.is_outdated() => {
                    way.go_on()
                }
                _ => return Err(error.into()),
            }
        }
    }
}
