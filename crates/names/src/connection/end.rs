//! State that the ends of connections have in common.

use super::error::ConnectionError;
use crate::server_connection::ServerConnection;
use crate::wire::{CloseReason, ConnectionOffer, DroppedEnd, Peer, RING_LINES};
use queues::basic::ring::{Geometry, RingError};
use queues::basic::{geometry, map};
use shm::mapped::MappedSlice;
use shm::segment::{Offset, Segment};
use shm::sync::AtomicU64;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Number of messages after which an end checks the notices of the name server, and of polls
/// without result after which it checks whether the other end is alive.
pub(super) const CHECK_INTERVAL: u16 = 256;

/// Mapped words of a connection's ring.
pub(super) type RingMemory = MappedSlice<AtomicU64>;

/// Registration of one end of a connection at the name server, which is notified of the drop.
#[derive(Debug)]
pub(super) struct ConnectionEnd {
    pub(super) server: Arc<ServerConnection>,
    pub(super) connection: u32,
    /// Which end this is, as the name server is notified of its drop.
    dropped: DroppedEnd,
    /// Calls until the next check of the notices.
    countdown: u16,
    /// The name server has been notified.
    is_closed: bool,
}

impl ConnectionEnd {
    pub(super) fn new(
        server: &Arc<ServerConnection>,
        connection: u32,
        dropped: DroppedEnd,
    ) -> ConnectionEnd {
        let server = Arc::clone(server);
        let countdown = CHECK_INTERVAL;
        ConnectionEnd { server, connection, dropped, countdown, is_closed: false }
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

    /// Returns the name server's reason for closing the connection, as far as received.
    pub(super) fn closing(&self) -> Option<CloseReason> {
        self.server.closing((self.connection, self.dropped))
    }

    /// Returns the name server's reason for closing the connection, or `otherwise` if it gave none.
    pub(super) fn closed(&self, peer: &Peer, otherwise: ConnectionError) -> ConnectionError {
        // The notice of the name server may still be in its socket: it names the reason, where the
        // ring shows only that the other end is closed.
        self.server.receive();
        let closing = self.closing();
        closing.map_or(otherwise, |reason| ConnectionError::of_close(reason, peer.clone()))
    }

    /// Notifies the name server that this end is not used any more. Later calls have no effect.
    pub(super) fn close(&mut self) {
        if !std::mem::replace(&mut self.is_closed, true) {
            self.server.forget_connection(self.connection, self.dropped);
        }
    }
}

impl Drop for ConnectionEnd {
    fn drop(&mut self) {
        // A sender has published all its messages before this, so the receiver finds them before the
        // report of the end.
        self.close();
    }
}

/// The process at the other end of a ring, and the reason why the ring cannot be used any more.
#[derive(Debug)]
pub(super) struct RingPeer {
    pub(super) peer: Peer,
    pub(super) failed: Option<ConnectionError>,
}

impl RingPeer {
    pub(super) fn new(offer: &ConnectionOffer) -> RingPeer {
        RingPeer { peer: offer.peer.clone(), failed: None }
    }

    /// Returns the error of the connection if it has failed.
    pub(super) fn check(&self) -> Result<(), ConnectionError> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Remembers an error after which the connection cannot be used.
    pub(super) fn fail(&mut self, error: ConnectionError) -> ConnectionError {
        if error.is_final() {
            self.failed = Some(error.clone());
        }
        error
    }

    /// Converts an error of the ring.
    pub(super) fn explain(&mut self, end: &ConnectionEnd, error: RingError) -> ConnectionError {
        let peer = self.peer.clone();
        let error = match error {
            RingError::Oversized { bytes, most } => ConnectionError::Oversized { bytes, most },
            RingError::TimedOut => ConnectionError::TimedOut { peer },
            RingError::Corrupt(what) => ConnectionError::Corrupt { peer, what },
            RingError::Closed => {
                let closed = ConnectionError::Closed { peer: peer.clone() };
                let error = end.closed(&peer, closed.clone());
                // The peer closed its end before it ended: the orderly close is the reason. A process
                // on another node has not closed this end.
                if end.closing() == Some(CloseReason::Gone) { closed } else { error }
            }
            RingError::Interrupted => {
                end.closed(&peer, ConnectionError::Gone { peer: peer.clone() })
            }
        };
        self.fail(error)
    }
}

/// Maps the ring of a connection.
pub(super) fn open_ring(
    offer: &ConnectionOffer,
    memory: OwnedFd,
) -> Result<(RingMemory, Geometry), ConnectionError> {
    let unusable = |why: String| ConnectionError::Unusable { peer: offer.peer.clone(), why };
    let geometry = geometry(RING_LINES.into()).map_err(|error| unusable(error.to_string()))?;
    let segment = Segment::from_fd(memory).map_err(|error| unusable(error.to_string()))?;
    // Without the seals the peer could truncate the file, and an access beyond its end would kill
    // this process.
    if !segment.is_sealed() {
        return Err(unusable("its memory is not sealed".to_owned()));
    }
    let segment = Arc::new(segment);
    let memory = map(&segment, Offset(0), geometry).map_err(|error| unusable(error.to_string()))?;
    Ok((memory, geometry))
}

pub(super) fn too_small(offer: &ConnectionOffer) -> ConnectionError {
    ConnectionError::Unusable {
        peer: offer.peer.clone(),
        why: "its memory is too small".to_owned(),
    }
}
