//! Receiving at a port: from everybody who has opened a lane to it, one message each in turn.

use super::{Port, PostError, system};
use crate::basic::{LOOKS, UNCERTAIN};
use crate::lane::{LaneError, LaneReceiver};
use crate::name::SourceName;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;
use shm::sync::spin_loop;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// After so many messages or looks in vain: what does the post office say?
const NEWS: u32 = 256;

/// How long to sleep at most before asking. Another thread may have taken from the socket what the post office said.
const SLICE: Duration = Duration::from_millis(250);

/// What an [`Inbox`] gives.
#[derive(Debug)]
pub enum Delivery<'a> {
    /// A message.
    Message(Received<'a>),
    /// Nothing more will come over one of the lanes. The others go on.
    Lost(LaneError),
}

/// A message, taken out of its lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received<'a> {
    /// Who sent it: the name to which an answer goes.
    pub source: SourceName,
    /// Which handler it is for.
    pub handler: u8,
    /// Its data.
    pub bytes: &'a [u8],
}

/// What was found, without its data.
enum Found {
    Message { source: SourceName, handler: u8 },
    Lost(LaneError),
}

/// The receiving side of a port.
#[derive(Debug)]
pub struct Inbox {
    port: Arc<Port>,
    lanes: Vec<LaneReceiver>,
    /// Whose turn it is.
    turn: usize,
    bytes: Vec<u8>,
    /// Counts down to the next look at the news.
    patience: u32,
    /// The news of lanes that have been seen.
    notices: u64,
}

impl Inbox {
    pub(super) fn new(port: Arc<Port>) -> Inbox {
        Inbox { port, lanes: Vec::new(), turn: 0, bytes: Vec::new(), patience: 1, notices: 0 }
    }

    /// The port.
    pub fn port(&self) -> &Port {
        &self.port
    }

    /// How many lanes lead here.
    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// The next message, or the news that somebody has gone; waits for it.
    ///
    /// # Errors
    ///
    /// [`PostError::Lane`] for a lane that cannot be used, [`PostError::PostGone`] if no lane is left and nobody can open
    /// one, [`PostError::System`].
    pub fn receive(&mut self) -> Result<Delivery<'_>, PostError> {
        loop {
            if let Some(found) = self.find(None)? {
                return Ok(self.deliver(found));
            }
        }
    }

    /// As [`Self::receive`], until `deadline` at most; then `None`.
    ///
    /// # Errors
    ///
    /// As [`Self::receive`].
    pub fn receive_by(&mut self, deadline: Instant) -> Result<Option<Delivery<'_>>, PostError> {
        let found = self.find(Some(deadline))?;
        Ok(found.map(|found| self.deliver(found)))
    }

    /// As [`Self::receive`]; `None` if there is nothing now.
    ///
    /// # Errors
    ///
    /// As [`Self::receive`].
    pub fn try_receive(&mut self) -> Result<Option<Delivery<'_>>, PostError> {
        let found = self.look()?;
        Ok(found.map(|found| self.deliver(found)))
    }

    fn deliver(&self, found: Found) -> Delivery<'_> {
        match found {
            Found::Message { source, handler } => Delivery::Message(Received { source, handler, bytes: &self.bytes }),
            Found::Lost(error) => Delivery::Lost(error),
        }
    }

    /// `None` only when the deadline is over.
    fn find(&mut self, deadline: Option<Instant>) -> Result<Option<Found>, PostError> {
        for _ in 0..LOOKS {
            if let Some(found) = self.look()? {
                return Ok(Some(found));
            }
            spin_loop();
        }
        loop {
            self.take_new_lanes()?;
            if let Some(found) = self.look()? {
                return Ok(Some(found));
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(None);
            }
            if self.lanes.is_empty() && self.port.control().is_lost() {
                return Err(PostError::PostGone);
            }
            self.sleep(deadline)?;
        }
    }

    /// Looks at every lane once, beginning with the one after the last that had something.
    fn look(&mut self) -> Result<Option<Found>, PostError> {
        self.patience -= 1;
        if self.patience == 0 {
            self.patience = NEWS;
            self.take_new_lanes()?;
        }
        let mut looked = 0;
        while looked < self.lanes.len() {
            self.turn = if self.turn + 1 < self.lanes.len() { self.turn + 1 } else { 0 };
            let lane = &mut self.lanes[self.turn];
            match lane.try_receive(&mut self.bytes) {
                Ok(None) => looked += 1,
                Ok(Some(handler)) => return Ok(Some(Found::Message { source: lane.source(), handler })),
                Err(error) => {
                    self.lanes.swap_remove(self.turn);
                    // It goes on elsewhere, and nothing is lost.
                    if !matches!(error, LaneError::Moved { .. }) {
                        return Ok(Some(Found::Lost(error)));
                    }
                }
            }
        }
        Ok(None)
    }

    fn take_new_lanes(&mut self) -> Result<(), PostError> {
        while let Some(lane) = self.port.accept_lane()? {
            self.lanes.push(lane);
        }
        let notices = self.port.control().notices();
        if notices != self.notices {
            self.notices = notices;
            self.lanes.iter_mut().for_each(LaneReceiver::hasten);
        }
        Ok(())
    }

    fn sleep(&mut self, deadline: Option<Instant>) -> Result<(), PostError> {
        self.lanes.iter().for_each(LaneReceiver::announce_sleep);
        // One barrier for all of them.
        let certain = self.lanes.last_mut().is_none_or(|lane| lane.arm());
        if self.lanes.iter_mut().any(LaneReceiver::is_ready) {
            self.lanes.iter().for_each(LaneReceiver::stir);
            return Ok(());
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let slice = if certain { SLICE } else { UNCERTAIN };
        let rung = self.sleep_on_sockets(left.map_or(slice, |left| left.min(slice)));
        for (lane, rung) in self.lanes.iter_mut().zip(rung?) {
            if rung { lane.disarm() } else { lane.stir() }
        }
        Ok(())
    }

    /// Which lanes have been rung.
    fn sleep_on_sockets(&self, limit: Duration) -> Result<Vec<bool>, PostError> {
        let control = self.port.control();
        let sockets = self.lanes.iter().map(|lane| PollFd::from_borrowed_fd(lane.as_fd(), PollFlags::IN));
        let mut watched: Vec<PollFd<'_>> =
            sockets.chain([PollFd::from_borrowed_fd(control.as_fd(), PollFlags::IN)]).collect();
        let watchable = control.watchable(self.lanes.len());
        match poll(&mut watched[..watchable], Timespec::try_from(limit).ok().as_ref()) {
            Ok(_) | Err(Errno::INTR) => {
                Ok(watched[..self.lanes.len()].iter().map(|lane| !lane.revents().is_empty()).collect())
            }
            Err(error) => Err(system("sleep until a message comes")(error)),
        }
    }
}
