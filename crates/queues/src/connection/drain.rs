//! The receiving end of a connection through receive queues.
//!
//! A receive queue holds the messages of many senders, so nothing in it marks the end of a
//! connection; the name server reports it. A sender that drops its end, dies or loses its right has
//! published all its messages before the receiver gets that report. From then on the receiver
//! counts until everything that was in the receive queues at that moment has been received. Then
//! the connection has ended ([`DrainState::is_drained`]), and the receiver notifies the name
//! server.

use super::end::ConnectionEnd;
use super::error::ConnectionError;
use crate::names::{ConnectionOffer, DroppedEnd, Peer, ServerConnection};
use crate::receive_queues::{Class, QueueProgress, ReceiveQueues};
use std::sync::Arc;

/// State of one sender at the receiver.
#[derive(Debug)]
pub(crate) struct DrainState {
    end: ConnectionEnd,
    peer: Peer,
    class: Class,
    draining: Option<Draining>,
}

/// A sender that sends no more.
#[derive(Debug)]
struct Draining {
    why: ConnectionError,
    /// Tail of the non-resident queue at the moment of the report.
    non_resident_end: u64,
    /// Upper bound of the messages up to the sender's last one; known when the non-resident queue
    /// has been sorted up to `non_resident_end`.
    backlog: Option<u64>,
}

impl DrainState {
    pub(crate) fn new(server: &Arc<ServerConnection>, offer: ConnectionOffer) -> DrainState {
        let end = ConnectionEnd::new(server, offer.connection, DroppedEnd::Receiver);
        DrainState { end, peer: offer.peer, class: offer.class, draining: None }
    }

    /// Returns the number of the connection.
    pub(crate) fn number(&self) -> u32 {
        self.end.connection
    }

    /// Checks for a report of the name server. Returns true if the sender sends no more.
    pub(crate) fn check_notices(&mut self, queues: &ReceiveQueues, queue: usize) -> bool {
        // The name server reports the end after the sender stopped, so all messages of the sender
        // are published before this point and lie before the tail that is read here.
        if self.draining.is_none()
            && let Some(why) = self.end.close_error(&self.peer)
        {
            let QueueProgress { non_resident_end, .. } = queues.progress(queue, self.class);
            self.draining = Some(Draining { why, non_resident_end, backlog: None });
        }
        self.is_draining()
    }

    /// Returns true if the sender sends no more.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.is_some()
    }

    /// Counts a received message of this class.
    pub(crate) fn count_message(&mut self, class: Class) {
        if let Some(Draining { backlog: Some(backlog), .. }) = &mut self.draining
            && class == self.class
        {
            // Messages of other senders are counted too. They may precede the last message of this
            // one, and nothing in the queue distinguishes them.
            *backlog = backlog.saturating_sub(1);
        }
    }

    /// Returns true if the sender sends no more and all its messages have been received.
    ///
    /// Its messages in the non-resident queue lie before the tail at the moment of the report. Once
    /// the queue is sorted up to there, all its messages are in the overflow list or in the queue's
    /// ring, and come before all later messages (see "Order" in [`crate::receive_queues`]). So the
    /// number of messages there bounds what comes before its last one. An empty queue needs no
    /// count: a claimed slot that is not published belongs to another sender, because this one has
    /// published all its messages.
    pub(crate) fn is_drained(&mut self, queues: &ReceiveQueues, queue: usize) -> bool {
        let Some(draining) = &mut self.draining else { return false };
        let progress = queues.progress(queue, self.class);
        if draining.backlog.is_none()
            && (progress.sorted >= draining.non_resident_end || progress.is_sorted)
        {
            draining.backlog = Some(progress.backlog);
        }
        draining.backlog.is_some_and(|backlog| backlog == 0 || progress.is_empty)
    }

    /// Returns the reason for the end of the connection.
    pub(crate) fn into_error(self) -> Option<ConnectionError> {
        let DrainState { draining, .. } = self;
        draining.map(|draining| draining.why)
    }
}
