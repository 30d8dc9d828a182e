//! Connection of an end of a channel with its peer on another node.

use crate::remote_waits::{ASLEEP, FIRST_POLLS, RemoteWaits, poll_beside};
use shm::event::Event;
use shm::liveness::{PeerExit, ProcessWatch, RankLiveness};
use shm::process_table::EndHolder;
use shm::published_wait::Wait;
use shm::segment::Offset;
use shm::wait::{PeerWaitError, SpinPolicy, wait_for_peer_by};
use shm::wakeup::Wakeup;
use std::sync::Arc;
use std::time::Instant;

/// The peer of an end on another node, and the node service, which holds the other end of the ring
/// on this node.
#[derive(Clone, Debug)]
pub struct OtherNode {
    /// Event of the node service. It cannot sleep on a word.
    pub service: Event,
    /// The node service's marks of waiting threads.
    pub waits: Arc<dyn RemoteWaits>,
    /// Returns the peer if it has failed.
    pub peer: Arc<dyn RankLiveness>,
}

/// Wakes the node service for the channel at an offset, if the peer is on another node.
#[inline(always)]
pub(super) fn notify(other: Option<&OtherNode>, channel: Offset) {
    if let Some(other) = other {
        // The mark before the event: a node service that this wakes finds the channel.
        other.waits.mark(channel);
        other.service.notify();
    }
}

/// Returns the failure of a peer on another node, or of the node service. Called when the ring has
/// ended: the node service ends it behind the last value. A peer that has left in order has closed
/// the channel, which is no failure.
#[cold]
pub(super) fn failed(other: Option<&OtherNode>) -> Option<PeerExit> {
    let exit = other.and_then(|other| other.peer.exited());
    exit.filter(|exit| !matches!(exit, PeerExit::Left(_)))
}

/// Waits for the process at the other end of the ring, or polls beside the node service first.
pub(super) fn wait<R>(
    other: Option<&OtherNode>,
    wakeup: Wakeup<'_>,
    watch: &mut ProcessWatch,
    peer: EndHolder<'_>,
    deadline: Option<Instant>,
    subject: Wait,
    mut poll: impl FnMut() -> Option<R>,
) -> Result<R, PeerWaitError> {
    let holder = || peer.holder();
    let Some(OtherNode { waits, .. }) = other else {
        let policy = SpinPolicy::CHANNEL;
        return wait_for_peer_by(policy, wakeup, watch, holder, deadline, subject, poll);
    };
    if let Some(found) = (0..FIRST_POLLS).find_map(|_| poll()) {
        return Ok(found);
    }
    waits.begin();
    let found = match poll_beside(&**waits, deadline, &mut poll) {
        Some(found) => Ok(found),
        None => wait_for_peer_by(ASLEEP, wakeup, watch, holder, deadline, subject, poll),
    };
    waits.end();
    found
}
