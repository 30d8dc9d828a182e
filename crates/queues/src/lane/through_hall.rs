//! The two ends of a lane whose messages travel through a queue of the receiving process's hall.
//!
//! The hall's queue holds the messages of many senders, so nothing in it tells when a lane ends;
//! the post office does. A sender that drops its end, dies or is turned away has published all that
//! it ever will before the receiver hears so. From then on the receiver counts until everything
//! that was in the hall at that moment has been received; then the lane has ended
//! ([`HallLane::is_drained`]), and the receiver tells the post office.

use super::{LaneError, NEWS, Partner};
use crate::cache_line::{CacheLineHeader, CacheLineMessage, LINE_DATA};
use crate::error::SendError;
use crate::name::{QueueIndex, QueueName, SourceName};
use crate::post::control::Control;
use crate::post::halls::Peer;
use crate::post::{Class, Dropped, LaneOffer};
use crate::receive_queues::{QueueProgress, QueueSender, ReceiveQueues};
use crate::table::{DestinationTable, TableError};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a sender waits for room before it looks whether its name still leads there.
const SLICE: Duration = Duration::from_millis(100);

/// That this process has an end of a lane. Dropping it tells the post office.
#[derive(Debug)]
struct Tie {
    control: Arc<Control>,
    lane: u32,
    dropped: Dropped,
}

impl Drop for Tie {
    fn drop(&mut self) {
        self.control.forget_lane(self.lane, self.dropped, true);
    }
}

/// The sending end, for the messages of one transmit queue to one name. There may be ten thousands
/// of them.
#[derive(Debug)]
pub(crate) struct HallSender {
    destination: QueueSender,
    peer: Arc<Peer>,
    tie: Tie,
    table: Arc<DestinationTable>,
    /// The receive queue for which the lane was opened.
    queue: QueueIndex,
    name: QueueName,
    source: SourceName,
    /// Counts down to the next look at the news.
    patience: u32,
}

impl HallSender {
    pub(crate) fn new(
        control: &Arc<Control>,
        table: &Arc<DestinationTable>,
        (name, queue): (QueueName, QueueIndex),
        offer: &LaneOffer,
        (peer, destination): (Arc<Peer>, QueueSender),
    ) -> HallSender {
        let tie = Tie { control: Arc::clone(control), lane: offer.lane, dropped: Dropped::Sender };
        let table = Arc::clone(table);
        HallSender {
            destination,
            peer,
            tie,
            table,
            queue,
            name,
            source: offer.source,
            patience: NEWS,
        }
    }

    /// Who receives.
    pub(crate) fn partner(&self) -> &Partner {
        self.peer.partner()
    }

    /// Whether the name has come to lead to another queue since the lane was opened.
    pub(crate) fn is_outdated(&self) -> bool {
        self.table.lookup(self.name).is_ok_and(|destination| destination.queue != self.queue)
    }

    /// The last call: the sender goes on by another lane.
    pub(crate) fn go_on(&mut self) {
        self.tie.dropped = Dropped::SenderGoesOn;
    }

    /// Sends a message; `false` if there is no room.
    pub(crate) fn try_send(&mut self, handler: u8, bytes: &[u8]) -> Result<bool, LaneError> {
        let message = self.compose(handler, bytes)?;
        match self.destination.try_send(&message) {
            Ok(()) => Ok(true),
            Err(SendError::Full) => Ok(false),
            Err(why) => Err(self.explain(why)),
        }
    }

    /// Sends a message; waits for room, until `deadline` at most.
    pub(crate) fn send_until(
        &mut self,
        handler: u8,
        bytes: &[u8],
        deadline: Option<Instant>,
    ) -> Result<(), LaneError> {
        let message = self.compose(handler, bytes)?;
        match self.destination.try_send(&message) {
            Ok(()) => Ok(()),
            Err(SendError::Full) => self.wait_to_send(&message, deadline),
            Err(why) => Err(self.explain(why)),
        }
    }

    #[cold]
    fn wait_to_send(
        &mut self,
        message: &CacheLineMessage,
        deadline: Option<Instant>,
    ) -> Result<(), LaneError> {
        loop {
            let slice = Instant::now() + SLICE;
            match self
                .destination
                .send_deadline(message, deadline.map_or(slice, |deadline| deadline.min(slice)))
            {
                Ok(()) => return Ok(()),
                Err(SendError::Full)
                    if deadline.is_some_and(|deadline| Instant::now() >= deadline) =>
                {
                    return Err(LaneError::TimedOut { partner: self.partner().clone() });
                }
                Err(SendError::Full) => self.patience = 1,
                Err(why) => return Err(self.explain(why)),
            }
            self.translate()?;
        }
    }

    fn compose(&mut self, handler: u8, bytes: &[u8]) -> Result<CacheLineMessage, LaneError> {
        self.translate()?;
        let header = CacheLineHeader { source: self.source, handler, tag: 0 };
        CacheLineMessage::new(header, bytes)
            .ok_or(LaneError::Oversized { bytes: bytes.len(), most: LINE_DATA })
    }

    /// Every message is sent to a name: whether that still leads here costs one load.
    fn translate(&mut self) -> Result<(), LaneError> {
        let partner = || self.partner().clone();
        match self.table.lookup(self.name) {
            Ok(destination) if destination.queue == self.queue => {}
            Ok(_) => return Err(LaneError::Moved { partner: partner() }),
            Err(TableError::ProcessGone { .. }) => {
                return Err(LaneError::Gone { partner: partner() });
            }
            Err(_) => return Err(LaneError::Revoked { partner: partner() }),
        }
        self.patience -= 1;
        if self.patience != 0 {
            return Ok(());
        }
        self.patience = NEWS;
        self.tie.control.hear();
        self.closed().map_or(Ok(()), Err)
    }

    /// Why the post office has closed the lane, as far as heard.
    fn closed(&self) -> Option<LaneError> {
        Some(self.tie.control.closing((self.tie.lane, false))?.explain(self.partner().clone()))
    }

    fn explain(&self, why: SendError) -> LaneError {
        let partner = self.partner().clone();
        match why {
            SendError::Gone { .. } => LaneError::Gone { partner },
            SendError::Closed => {
                self.tie.control.hear();
                self.closed().unwrap_or(LaneError::Closed { partner })
            }
            other => LaneError::Unusable { partner, why: other.to_string() },
        }
    }
}

/// The receiving end: what the receiver knows of a sender.
#[derive(Debug)]
pub(crate) struct HallLane {
    tie: Tie,
    partner: Partner,
    class: Class,
    left: Option<Left>,
}

/// A sender that will send no more.
#[derive(Debug)]
struct Left {
    why: LaneError,
    /// Where the miss ring ended then.
    misses: u64,
    /// How many messages may still come before the sender's last: known when the miss ring has been
    /// sorted up to there.
    backlog: Option<u64>,
}

impl HallLane {
    pub(crate) fn new(control: &Arc<Control>, offer: LaneOffer) -> HallLane {
        let tie =
            Tie { control: Arc::clone(control), lane: offer.lane, dropped: Dropped::Receiver };
        HallLane { tie, partner: offer.partner, class: offer.class, left: None }
    }

    /// Its number.
    pub(crate) fn number(&self) -> u32 {
        self.tie.lane
    }

    /// Looks what the post office has said; gives whether the sender will send no more.
    pub(crate) fn look_at_news(&mut self, hall: &ReceiveQueues, queue: usize) -> bool {
        if self.left.is_none()
            && let Some(closing) = self.tie.control.closing((self.tie.lane, true))
        {
            let why = closing.explain(self.partner.clone());
            let QueueProgress { non_resident_end: misses, .. } = hall.progress(queue, self.class);
            self.left = Some(Left { why, misses, backlog: None });
        }
        self.is_leaving()
    }

    /// Whether the sender will send no more.
    pub(crate) fn is_leaving(&self) -> bool {
        self.left.is_some()
    }

    /// A message of this class was received.
    pub(crate) fn count_message(&mut self, class: Class) {
        if let Some(Left { backlog: Some(backlog), .. }) = &mut self.left
            && class == self.class
        {
            *backlog = backlog.saturating_sub(1);
        }
    }

    /// Whether the sender will send no more and everything that it did send has been received.
    ///
    /// What it sent through the miss ring lies before the ring's end of then. Once that is sorted,
    /// all its messages are in the overflow list or in the queue's ring, and come before whatever
    /// enters these later (see "Order" in [`crate::receive_queues`]); so the number of messages there bounds
    /// what comes before its last. A place where nothing lies that was sent needs no counting: an
    /// unpublished line that nothing was published behind is another's.
    pub(crate) fn is_drained(&mut self, hall: &ReceiveQueues, queue: usize) -> bool {
        let Some(left) = &mut self.left else { return false };
        let progress = hall.progress(queue, self.class);
        if left.backlog.is_none() && (progress.sorted >= left.misses || progress.is_sorted) {
            left.backlog = Some(progress.backlog);
        }
        left.backlog.is_some_and(|backlog| backlog == 0 || progress.is_empty)
    }

    /// Why nothing more comes.
    pub(crate) fn into_error(self) -> Option<LaneError> {
        let HallLane { left, .. } = self;
        left.map(|left| left.why)
    }
}
