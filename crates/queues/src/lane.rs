//! Lanes: messages between two processes that need not trust each other, one direction each.
//!
//! A lane is a [Basic](crate::basic) ring in memory of its own, which only the two processes have
//! mapped, and a socket between them over which the one wakes the other; the [post
//! office](crate::post) makes both. The kernel tells each end over the socket when the other's
//! process has ended. Between processes of one job that shares memory, messages of a line need
//! neither: they travel through a queue of the receiver's [hall](crate::receive_queues), and a lane is only
//! what the post office and the two ends know of it.
//!
//! Either end may write anything to the ring at any time. So the receiving end takes every message
//! out before it looks at it and checks every word it believes; what no honest sender writes is a
//! [`LaneError::Corrupt`] that names the sender, and the lane is closed. The sending end checks the
//! one word it reads. Neither ever waits for the other but in the blocking forms, and those have
//! deadlines.

use crate::basic::ring::{Geometry, RingError};
use crate::basic::{Corruption, geometry, map};
use crate::post::control::Control;
use crate::post::{Carrier, Closing, Dropped, LaneOffer};
use shm::mapped::MappedSlice;
use shm::segment::{Offset, Segment};
use shm::sync::AtomicU64;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

mod bell;
mod receiver;
mod sender;
mod through_hall;

pub use receiver::LaneReceiver;
pub use sender::LaneSender;
pub(crate) use through_hall::{HallLane, HallSender};

/// After so many messages an end looks what the post office says, and after so many looks in vain
/// whether the other end is still there.
const NEWS: u32 = 256;

type Memory = MappedSlice<AtomicU64>;

/// The process at the other end of a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partner {
    /// Its job's name.
    pub job: String,
    /// Which process of the job it is.
    pub process: u32,
    /// Its number in the system.
    pub pid: u32,
}

impl fmt::Display for Partner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "process {} of job {} (pid {})", self.process, self.job, self.pid)
    }
}

/// Why a lane cannot be used, now or any more. But for the first two, it is closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaneError {
    /// More than a message of a lane holds.
    #[error("a message of {bytes} bytes is too long for a lane: at most {most}")]
    Oversized {
        /// Its bytes.
        bytes: usize,
        /// The longest.
        most: usize,
    },
    /// The deadline is over.
    #[error("the deadline was over before {partner} did its part")]
    TimedOut {
        /// Who is at the other end.
        partner: Partner,
    },
    /// The other end has been dropped in an orderly way.
    #[error("{partner} has closed its end of the lane")]
    Closed {
        /// Who is at the other end.
        partner: Partner,
    },
    /// The process at the other end has ended.
    #[error("{partner} has gone")]
    Gone {
        /// Who was at the other end.
        partner: Partner,
    },
    /// The right to send here has been taken away.
    #[error("the right to exchange messages with {partner} has been revoked")]
    Revoked {
        /// Who is at the other end.
        partner: Partner,
    },
    /// The receive queue has been restricted to other sources.
    #[error("the receive queue does not accept messages between here and {partner}")]
    Refused {
        /// Who is at the other end.
        partner: Partner,
    },
    /// The receiving end has gone to another process, as the post office wanted; or the sender goes
    /// on by another lane.
    #[error("messages between here and {partner} take another way from now on")]
    Moved {
        /// Who is at the other end.
        partner: Partner,
    },
    /// The other end has written what none writes.
    #[error("{partner} has spoilt the lane: {what}")]
    Corrupt {
        /// Who is at the other end.
        partner: Partner,
        /// What was found.
        what: Corruption,
    },
    /// The lane's memory cannot be had.
    #[error("the lane to {partner} cannot be used: {why}")]
    Unusable {
        /// Who is at the other end.
        partner: Partner,
        /// The reason.
        why: String,
    },
}

impl LaneError {
    /// Whether the lane is closed for good.
    pub fn is_final(&self) -> bool {
        !matches!(self, LaneError::Oversized { .. } | LaneError::TimedOut { .. })
    }
}

/// What an end of a lane came with.
#[derive(Debug)]
pub(crate) struct LaneParts {
    pub(crate) offer: LaneOffer,
    pub(crate) memory: OwnedFd,
    pub(crate) socket: OwnedFd,
}

/// What both ends have in common.
#[derive(Debug)]
struct End {
    control: Arc<Control>,
    lane: u32,
    /// Which end it is.
    dropped: Dropped,
    partner: Partner,
    /// Why the lane cannot be used any more.
    failed: Option<LaneError>,
    /// Counts down to the next look at the news.
    patience: u32,
    /// Whether the post office is to learn that this end has been dropped.
    announces: bool,
}

impl End {
    fn new(control: &Arc<Control>, offer: &LaneOffer, dropped: Dropped) -> End {
        let (control, partner) = (Arc::clone(control), offer.partner.clone());
        End {
            control,
            lane: offer.lane,
            dropped,
            partner,
            failed: None,
            patience: NEWS,
            announces: true,
        }
    }

    /// Whether it is time to look what has happened.
    fn is_time(&mut self) -> bool {
        self.patience = self.patience.saturating_sub(1);
        let now = self.patience == 0;
        if now {
            self.patience = NEWS;
        }
        now
    }

    fn fail(&mut self, error: LaneError) -> LaneError {
        self.failed = Some(error.clone());
        error
    }

    /// Why the post office has closed the lane; if it has not, why `otherwise`.
    fn closed(&mut self, otherwise: impl FnOnce(Partner) -> LaneError) -> LaneError {
        let partner = self.partner.clone();
        self.control.hear();
        let error = match self.control.closing((self.lane, self.dropped.is_receiver())) {
            Some(closing) => closing.explain(partner),
            None => otherwise(partner),
        };
        self.fail(error)
    }

    fn explain(&mut self, error: RingError) -> LaneError {
        let partner = self.partner.clone();
        match error {
            RingError::Oversized { bytes, most } => LaneError::Oversized { bytes, most },
            RingError::TimedOut => LaneError::TimedOut { partner },
            RingError::Corrupt(what) => self.fail(LaneError::Corrupt { partner, what }),
            RingError::Closed => match self.closed(|partner| LaneError::Closed { partner }) {
                // It closed its end before it ended.
                LaneError::Gone { partner } => self.fail(LaneError::Closed { partner }),
                error => error,
            },
            RingError::Interrupted => self.closed(|partner| LaneError::Gone { partner }),
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.control.forget_lane(self.lane, self.dropped, self.announces);
    }
}

impl Closing {
    fn explain(self, partner: Partner) -> LaneError {
        match self {
            Closing::Revoked => LaneError::Revoked { partner },
            Closing::Refused => LaneError::Refused { partner },
            Closing::Gone => LaneError::Gone { partner },
            Closing::Left => LaneError::Closed { partner },
            Closing::Replaced => LaneError::Moved { partner },
        }
    }
}

/// The memory of a lane, mapped.
fn open_ring(
    offer: &LaneOffer,
    memory: OwnedFd,
) -> Result<(Arc<Segment>, Memory, Geometry), LaneError> {
    let unusable = |why: String| LaneError::Unusable { partner: offer.partner.clone(), why };
    let Carrier::Ring { lines } = offer.carrier else {
        return Err(unusable("it has no ring".to_owned()));
    };
    let geometry = geometry(lines.into()).map_err(|error| unusable(error.to_string()))?;
    let segment = Segment::from_fd(memory).map_err(|error| unusable(error.to_string()))?;
    // Not sealed, it could be shortened under this process's feet, which kills.
    if !segment.is_sealed() {
        return Err(unusable("its memory is not sealed".to_owned()));
    }
    let segment = Arc::new(segment);
    let memory = map(&segment, Offset(0), geometry).map_err(|error| unusable(error.to_string()))?;
    Ok((segment, memory, geometry))
}

fn too_small(offer: &LaneOffer) -> LaneError {
    LaneError::Unusable {
        partner: offer.partner.clone(),
        why: "its memory is too small".to_owned(),
    }
}
