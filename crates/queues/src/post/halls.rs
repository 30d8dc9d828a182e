//! The halls of a job that shares memory: this process's own, and those of the processes that it
//! sends to.

use super::PostError;
use crate::event::Event;
use crate::lane::Partner;
use crate::receive_queues::{Class, QueueSender, QueuesConfig, ReceiveQueues, RemoteQueues};
use shm::arena::Arena;
use shm::segment::{Offset, Segment};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Where a hall lies in its process's memory: it is the first thing there.
const PLACE: Offset = Offset(0);

/// This process's hall, one queue a port; and its ways into others.
#[derive(Debug)]
pub(crate) struct Halls {
    own: Mutex<ReceiveQueues>,
    event: Event,
    /// By number, as long as a lane leads there.
    peers: Mutex<HashMap<u32, Weak<Peer>>>,
}

/// A process of the job, and its hall.
#[derive(Debug)]
pub(crate) struct Peer {
    entrance: Arc<RemoteQueues>,
    partner: Partner,
}

impl Peer {
    pub(crate) fn partner(&self) -> &Partner {
        &self.partner
    }
}

impl Halls {
    /// Makes this process's hall in the memory that the post office gave it for that.
    pub(crate) fn create(
        shape: QueuesConfig,
        [memory, event]: [OwnedFd; 2],
    ) -> Result<Halls, PostError> {
        let segment = Arc::new(Segment::from_fd(memory)?);
        let bytes = segment.bytes();
        let arena = Arc::new(
            Arena::new(segment, PLACE.0..bytes)
                .map_err(crate::error::CreateError::from)
                .map_err(crate::receive_queues::QueuesError::from)?,
        );
        let hall = ReceiveQueues::create(&arena, shape)?;
        debug_assert_eq!(hall.offset(), PLACE);
        Ok(Halls { own: Mutex::new(hall), event: Event::from_fd(event), peers: Mutex::default() })
    }

    /// This process's hall. Nobody keeps it for longer than a look.
    pub(crate) fn own(&self) -> MutexGuard<'_, ReceiveQueues> {
        // Whoever panicked while holding it may have left one queue's list half done; the others
        // are as they were.
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What senders notify when this process asks for it.
    pub(crate) fn event(&self) -> &Event {
        &self.event
    }

    /// Opens a destination in the hall of this number; enters it first if this process is not in it
    /// yet.
    pub(crate) fn open(
        &self,
        number: u32,
        (port, class): (u16, Class),
        partner: &Partner,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(Arc<Peer>, QueueSender), PostError> {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        let peer = match peers.get(&number).and_then(Weak::upgrade) {
            Some(peer) => peer,
            None => {
                let peer =
                    Arc::new(Peer { entrance: enter(descriptors)?, partner: partner.clone() });
                peers.retain(|_, peer| peer.strong_count() != 0);
                peers.insert(number, Arc::downgrade(&peer));
                peer
            }
        };
        let destination = peer.entrance.open(port.into(), class)?;
        Ok((peer, destination))
    }
}

fn enter(descriptors: Vec<OwnedFd>) -> Result<Arc<RemoteQueues>, PostError> {
    let [memory, event] = <[OwnedFd; 2]>::try_from(descriptors).map_err(|_| PostError::Answer)?;
    let segment = Arc::new(Segment::from_fd(memory)?);
    let entrance = RemoteQueues::connect(&segment, PLACE)?.with_event(Event::from_fd(event));
    Ok(Arc::new(entrance))
}
