//! Receiving at a port: from everybody who has opened a lane to it, one message each in turn. All
//! who send through the process's hall count as one there.

use super::hall_queue::{HallQueue, Seen};
use super::{Class, Port, PostError, system};
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

/// How long to sleep at most before asking. Another thread may have taken from the socket what the
/// post office said.
const SLICE: Duration = Duration::from_millis(250);

/// What an [`Inbox`] gives.
#[derive(Debug)]
pub enum Delivery<'a> {
    /// A message.
    Message(Received<'a>),
    /// Nothing more will come over one of the lanes. The others go on.
    Lost(LaneError),
}

/// A message, taken out of its lane or of the hall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received<'a> {
    /// Who sent it: the name to which an answer goes.
    pub source: SourceName,
    /// Which handler it is for.
    pub handler: u8,
    /// Whether it was sent or is a reply.
    pub class: Class,
    /// Its data.
    pub bytes: &'a [u8],
}

/// What was found, without its data.
pub(super) enum Found {
    Message { source: SourceName, handler: u8, class: Class },
    Lost(LaneError),
}

/// A lane that has come, as an inbox sees it.
pub(super) enum Arrived {
    Ring {
        receiver: LaneReceiver,
        /// The lane whose messages come first, or 0.
        after: u32,
    },
    Hall(crate::lane::HallLane),
}

/// The receiving side of a port.
#[derive(Debug)]
pub struct Inbox {
    port: Arc<Port>,
    lanes: Vec<LaneReceiver>,
    /// Lanes that go on where a lane through the hall ends, which has not ended yet.
    heirs: Vec<(u32, LaneReceiver)>,
    /// If the process has a hall.
    queue: Option<HallQueue>,
    /// The queue gave something last, so that it is the lanes' turn.
    is_lanes_turn: bool,
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
        let queue = port.hall_queue();
        let (lanes, heirs, bytes) = Default::default();
        Inbox {
            port,
            lanes,
            heirs,
            queue,
            is_lanes_turn: false,
            turn: 0,
            bytes,
            patience: 1,
            notices: 0,
        }
    }

    /// The port.
    pub fn port(&self) -> &Port {
        &self.port
    }

    /// How many lanes lead here, each from a port under a name: somebody sends or may send over
    /// each of them. A process whose ports have been moved to another can leave when there are
    /// none.
    pub fn lanes(&self) -> usize {
        let through_hall = self.queue.as_ref().map_or(0, HallQueue::lanes);
        self.lanes.len() + self.heirs.len() + through_hall + self.port.arrivals()
    }

    /// The next message, or the news that somebody has gone; waits for it.
    ///
    /// # Errors
    ///
    /// [`PostError::Lane`] for a lane that cannot be used, [`PostError::PostGone`] if no lane is
    /// left and nobody can open one, [`PostError::Receive`], [`PostError::System`].
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
            Found::Message { source, handler, class } => {
                Delivery::Message(Received { source, handler, class, bytes: &self.bytes })
            }
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
            if self.lanes() == 0 && self.port.control().is_lost() {
                return Err(PostError::PostGone);
            }
            self.sleep(deadline)?;
        }
    }

    /// Looks at the hall's queue and at every lane once.
    fn look(&mut self) -> Result<Option<Found>, PostError> {
        self.patience -= 1;
        if self.patience == 0 {
            self.patience = NEWS;
            self.take_new_lanes()?;
        }
        if self.is_lanes_turn {
            self.is_lanes_turn = false;
            if let Some(found) = self.look_at_lanes() {
                return Ok(Some(found));
            }
        }
        if let Some(found) = self.look_at_queue()? {
            self.is_lanes_turn = true;
            return Ok(Some(found));
        }
        Ok(self.look_at_lanes())
    }

    fn look_at_queue(&mut self) -> Result<Option<Found>, PostError> {
        let Some(queue) = &mut self.queue else { return Ok(None) };
        loop {
            let (number, ended) = match queue.look(&mut self.bytes)? {
                None => return Ok(None),
                Some(Seen::Found(found)) => return Ok(Some(found)),
                Some(Seen::Ended(number, ended)) => (number, ended),
            };
            for (_, mut lane) in self.heirs.extract_if(.., |(before, _)| *before == number) {
                // It may have been called to move while it waited.
                lane.hasten();
                self.lanes.push(lane);
            }
            if !matches!(ended, Found::Lost(LaneError::Moved { .. })) {
                return Ok(Some(ended));
            }
        }
    }

    /// Looks at every lane once, beginning with the one after the last that had something.
    fn look_at_lanes(&mut self) -> Option<Found> {
        let mut looked = 0;
        while looked < self.lanes.len() {
            self.turn = if self.turn + 1 < self.lanes.len() { self.turn + 1 } else { 0 };
            let lane = &mut self.lanes[self.turn];
            match lane.try_receive(&mut self.bytes) {
                Ok(None) => looked += 1,
                Ok(Some(handler)) => {
                    return Some(Found::Message {
                        source: lane.source(),
                        handler,
                        class: lane.class(),
                    });
                }
                Err(error) => {
                    self.lanes.swap_remove(self.turn);
                    // It goes on elsewhere, and nothing is lost.
                    if !matches!(error, LaneError::Moved { .. }) {
                        return Some(Found::Lost(error));
                    }
                }
            }
        }
        None
    }

    fn take_new_lanes(&mut self) -> Result<(), PostError> {
        loop {
            // Before the lanes: another thread may hear at any moment that one has come and that it
            // is closed. News that is counted here is of lanes that are taken below, if they were
            // not taken before.
            let notices = self.port.control().notices();
            self.take_arrivals()?;
            if notices != self.notices {
                self.notices = notices;
                self.lanes.iter_mut().for_each(LaneReceiver::hasten);
                if let Some(queue) = &mut self.queue {
                    queue.look_at_news();
                }
            }
            if self.port.control().notices() == notices {
                return Ok(());
            }
        }
    }

    fn take_arrivals(&mut self) -> Result<(), PostError> {
        while let Some(arrived) = self.port.accept_arrival()? {
            match (arrived, &mut self.queue) {
                (Arrived::Ring { receiver, after }, Some(queue)) if queue.has(after) => {
                    self.heirs.push((after, receiver));
                }
                (Arrived::Ring { receiver, .. }, _) => self.lanes.push(receiver),
                (Arrived::Hall(lane), Some(queue)) => queue.add(lane),
                // Dropped, so that the sender learns that nobody receives there.
                (Arrived::Hall(_), None) => {}
            }
        }
        Ok(())
    }

    fn sleep(&mut self, deadline: Option<Instant>) -> Result<(), PostError> {
        if let Some(queue) = &mut self.queue
            && queue.announce_sleep()?
        {
            // Perhaps a line that others wait behind: its sender may need this processor.
            std::thread::yield_now();
            return Ok(());
        }
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
        let sockets = self.lanes.iter().map(AsFd::as_fd);
        let hall = self.queue.as_ref().and_then(HallQueue::descriptor);
        let all = sockets.chain(hall).chain([control.as_fd()]);
        let mut watched: Vec<PollFd<'_>> =
            all.map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN)).collect();
        let watchable = control.watchable(watched.len() - 1);
        match poll(&mut watched[..watchable], Timespec::try_from(limit).ok().as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(watched[..self.lanes.len()]
                .iter()
                .map(|lane| !lane.revents().is_empty())
                .collect()),
            Err(error) => Err(system("sleep until a message comes")(error)),
        }
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.port.stop_receiving();
    }
}
