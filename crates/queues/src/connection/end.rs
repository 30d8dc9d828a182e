//! State that both ends of a connection with a ring have in common.

use super::error::ConnectionError;
use crate::basic::ring::{Geometry, RingError};
use crate::basic::{geometry, map};
use crate::names::{ConnectionOffer, DroppedEnd, Peer, ServerConnection, TransportOffer};
use shm::mapped::MappedSlice;
use shm::segment::{Offset, Segment};
use shm::sync::AtomicU64;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Number of messages after which an end checks the notices of the name server, and of polls
/// without result after which it checks whether the other end is alive.
pub(super) const CHECK_INTERVAL: u32 = 256;

/// Mapped words of a connection's ring.
pub(super) type RingMemory = MappedSlice<AtomicU64>;

/// One end of a connection with a ring. Dropping it notifies the name server.
#[derive(Debug)]
pub(super) struct ConnectionEnd {
    pub(super) server: Arc<ServerConnection>,
    pub(super) connection: u32,
    /// Which end this is, as the name server is notified of its drop.
    dropped: DroppedEnd,
    pub(super) peer: Peer,
    /// Reason why the connection cannot be used any more.
    pub(super) failed: Option<ConnectionError>,
    /// Calls until the next check of the notices.
    countdown: u32,
    /// False if the name server needs no notification of the drop.
    pub(super) notifies_drop: bool,
}

impl ConnectionEnd {
    pub(super) fn new(
        server: &Arc<ServerConnection>,
        offer: &ConnectionOffer,
        dropped: DroppedEnd,
    ) -> ConnectionEnd {
        ConnectionEnd {
            server: Arc::clone(server),
            connection: offer.connection,
            dropped,
            peer: offer.peer.clone(),
            failed: None,
            countdown: CHECK_INTERVAL,
            notifies_drop: true,
        }
    }

    /// Counts a call. Returns true if a check of the notices is due.
    pub(super) fn is_check_due(&mut self) -> bool {
        self.countdown = self.countdown.saturating_sub(1);
        let now = self.countdown == 0;
        if now {
            self.countdown = CHECK_INTERVAL;
        }
        now
    }

    /// Makes the next call check the notices.
    pub(super) fn check_soon(&mut self) {
        self.countdown = 1;
    }

    pub(super) fn fail(&mut self, error: ConnectionError) -> ConnectionError {
        self.failed = Some(error.clone());
        error
    }

    /// Closes the end. The error is the name server's reason for closing the connection, or
    /// `otherwise` if there is none.
    fn closed(&mut self, otherwise: impl FnOnce(Peer) -> ConnectionError) -> ConnectionError {
        let peer = self.peer.clone();
        self.server.receive();
        let error = match self.server.closing((self.connection, self.dropped.is_receiver())) {
            Some(reason) => ConnectionError::of_close(reason, peer),
            None => otherwise(peer),
        };
        self.fail(error)
    }

    /// Converts an error of the ring.
    pub(super) fn explain(&mut self, error: RingError) -> ConnectionError {
        let peer = self.peer.clone();
        match error {
            RingError::Oversized { bytes, most } => ConnectionError::Oversized { bytes, most },
            RingError::TimedOut => ConnectionError::TimedOut { peer },
            RingError::Corrupt(what) => self.fail(ConnectionError::Corrupt { peer, what }),
            RingError::Closed => match self.closed(|peer| ConnectionError::Closed { peer }) {
                // The peer closed its end before it ended: the orderly close is the reason.
                ConnectionError::Gone { peer } => self.fail(ConnectionError::Closed { peer }),
                error => error,
            },
            RingError::Interrupted => self.closed(|peer| ConnectionError::Gone { peer }),
        }
    }
}

impl Drop for ConnectionEnd {
    fn drop(&mut self) {
        self.server.forget_connection(self.connection, self.dropped, self.notifies_drop);
    }
}

/// Maps the ring of a connection.
pub(super) fn open_ring(
    offer: &ConnectionOffer,
    memory: OwnedFd,
) -> Result<(Arc<Segment>, RingMemory, Geometry), ConnectionError> {
    let unusable = |why: String| ConnectionError::Unusable { peer: offer.peer.clone(), why };
    let TransportOffer::Ring { lines } = offer.transport else {
        return Err(unusable("it has no ring".to_owned()));
    };
    let geometry = geometry(lines.into()).map_err(|error| unusable(error.to_string()))?;
    let segment = Segment::from_fd(memory).map_err(|error| unusable(error.to_string()))?;
    // Without the seals the peer could truncate the file, and an access beyond its end would kill
    // this process.
    if !segment.is_sealed() {
        return Err(unusable("its memory is not sealed".to_owned()));
    }
    let segment = Arc::new(segment);
    let memory = map(&segment, Offset(0), geometry).map_err(|error| unusable(error.to_string()))?;
    Ok((segment, memory, geometry))
}

pub(super) fn too_small(offer: &ConnectionOffer) -> ConnectionError {
    ConnectionError::Unusable {
        peer: offer.peer.clone(),
        why: "its memory is too small".to_owned(),
    }
}
