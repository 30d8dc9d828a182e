//! The receive queues within a job with shared memory: those of this process, and those of the
//! processes to which it sends.

use crate::error::CreateError;
use crate::event::Event;
use crate::names::Peer;
use crate::receive_queues::{Class, QueueSender, QueuesConfig, ReceiveQueues, RemoteQueues};
use shm::arena::Arena;
use shm::segment::{Offset, Segment};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Offset of the receive queues in their segment, of which they are the first allocation.
const OFFSET: Offset = Offset(0);

/// The receive queues of this process, one queue per port, and its handles to those of peers.
#[derive(Debug)]
pub(crate) struct JobQueues {
    own: Mutex<ReceiveQueues>,
    event: Event,
    /// By number of the process at the name server, as long as a connection uses them.
    peers: Mutex<HashMap<u32, Weak<PeerQueues>>>,
}

/// The receive queues of a peer.
#[derive(Debug)]
pub(crate) struct PeerQueues {
    remote: Arc<RemoteQueues>,
    peer: Peer,
}

impl PeerQueues {
    pub(super) fn peer(&self) -> &Peer {
        &self.peer
    }
}

impl JobQueues {
    /// Creates this process's receive queues in the segment from the name server.
    pub(crate) fn create(
        config: QueuesConfig,
        [memory, event]: [OwnedFd; 2],
    ) -> Result<JobQueues, CreateError> {
        let segment = Arc::new(Segment::from_fd(memory).map_err(CreateError::from)?);
        let bytes = segment.bytes();
        let arena = Arc::new(Arena::new(segment, OFFSET.0..bytes).map_err(CreateError::from)?);
        let own = ReceiveQueues::create(&arena, config)?;
        debug_assert_eq!(own.offset(), OFFSET);
        let event = Event::from_fd(event);
        Ok(JobQueues { own: Mutex::new(own), event, peers: Mutex::default() })
    }

    /// Returns this process's receive queues. The lock is held for one poll at a time.
    pub(crate) fn own(&self) -> MutexGuard<'_, ReceiveQueues> {
        // A panic under the lock can leave the list of one queue incomplete; the others are intact.
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the event that senders notify at this process's request.
    pub(crate) fn event(&self) -> &Event {
        &self.event
    }

    /// Opens a sender to the receive queues of the process with this number. Connects to them first
    /// if this process has not yet. Returns `None` if it cannot: they have the largest number of
    /// senders, or their owner has just ended.
    pub(crate) fn open(
        &self,
        number: u32,
        (port, class): (u16, Class),
        peer: &Peer,
        descriptors: Vec<OwnedFd>,
    ) -> Option<(Arc<PeerQueues>, QueueSender)> {
        // The lock is held while this process attaches: two threads that open connections to one peer
        // attach once.
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        let peer = match peers.get(&number).and_then(Weak::upgrade) {
            Some(peer) => peer,
            None => {
                let remote = connect(descriptors)?;
                let peer = Arc::new(PeerQueues { remote, peer: peer.clone() });
                // Entries that no connection uses any more.
                peers.retain(|_, peer| peer.strong_count() != 0);
                peers.insert(number, Arc::downgrade(&peer));
                peer
            }
        };
        let destination = peer.remote.open(port.into(), class).ok()?;
        Some((peer, destination))
    }
}

fn connect(descriptors: Vec<OwnedFd>) -> Option<Arc<RemoteQueues>> {
    let [memory, event] = <[OwnedFd; 2]>::try_from(descriptors).ok()?;
    let segment = Arc::new(Segment::from_fd(memory).ok()?);
    let remote = RemoteQueues::connect(&segment, OFFSET).ok()?;
    Some(Arc::new(remote.with_event(Event::from_fd(event))))
}
