//! Events on which a service or launcher sleeps, in one epoll set.

use crate::error::{ServiceError, system};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NodeEvent {
    /// A connection is pending at the listener.
    Listener,
    /// The pending connection with this number is readable or closed.
    Pending(u32),
    /// The process that joined as this rank has ended.
    Exited(u32),
    /// The child that was started as this rank has ended.
    Child(u32),
    /// A signal has arrived.
    Signal,
    /// The state of the connections with other nodes has changed.
    Internode,
    /// The launcher of a job on several nodes has sent an order.
    Order,
    /// The process that has started the service waits for it no longer.
    Starter,
}

impl NodeEvent {
    fn encode(self) -> u64 {
        let (kind, number) = match self {
            NodeEvent::Listener => (0, 0),
            NodeEvent::Pending(number) => (1, number),
            NodeEvent::Exited(rank) => (2, rank),
            NodeEvent::Child(rank) => (3, rank),
            NodeEvent::Signal => (4, 0),
            NodeEvent::Internode => (5, 0),
            NodeEvent::Order => (6, 0),
            NodeEvent::Starter => (7, 0),
        };
        kind << 32 | u64::from(number)
    }

    fn decode(word: u64) -> NodeEvent {
        let number = word as u32;
        match word >> 32 {
            0 => NodeEvent::Listener,
            1 => NodeEvent::Pending(number),
            2 => NodeEvent::Exited(number),
            3 => NodeEvent::Child(number),
            4 => NodeEvent::Signal,
            5 => NodeEvent::Internode,
            6 => NodeEvent::Order,
            _ => NodeEvent::Starter,
        }
    }
}

/// Descriptors on which to sleep, each with its event.
#[derive(Debug)]
pub(crate) struct Events {
    epoll: OwnedFd,
}

impl Events {
    pub(crate) fn new() -> Result<Self, ServiceError> {
        Ok(Events {
            epoll: epoll::create(CreateFlags::CLOEXEC)
                .map_err(system("make a set of descriptors"))?,
        })
    }

    /// Adds a descriptor: it causes `event` whenever it is readable, until it is closed or removed.
    pub(crate) fn add(&self, descriptor: impl AsFd, event: NodeEvent) -> Result<(), ServiceError> {
        epoll::add(&self.epoll, descriptor, EventData::new_u64(event.encode()), EventFlags::IN)
            .map_err(system("watch a descriptor"))
    }

    /// Adds a pipe that this process writes to: the end of its last reader causes `event`.
    pub(crate) fn add_written(
        &self,
        pipe: impl AsFd,
        event: NodeEvent,
    ) -> Result<(), ServiceError> {
        // The system reports errors, as the lack of a reader is, without a request for them.
        epoll::add(&self.epoll, pipe, EventData::new_u64(event.encode()), EventFlags::empty())
            .map_err(system("watch a descriptor"))
    }

    /// Removes a descriptor.
    pub(crate) fn remove(&self, descriptor: impl AsFd) {
        // Fails only if the descriptor is not in the set.
        let _ = epoll::delete(&self.epoll, descriptor);
    }

    /// Sleeps until an event occurs or the deadline passes. Connections sort before exits, so the
    /// last message of a process is handled before its exit.
    pub(crate) fn wait(&self, deadline: Option<Instant>) -> Result<Vec<NodeEvent>, ServiceError> {
        let mut ready = Vec::with_capacity(64);
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        // One nanosecond more, so that the deadline has passed when it ends the sleep.
        let left = left
            .and_then(|left| Timespec::try_from(left.saturating_add(Duration::from_nanos(1))).ok());
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut ready), left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(system("sleep until something happens")(error)),
        }
        let mut events: Vec<NodeEvent> =
            ready.into_iter().map(|event| NodeEvent::decode(event.data.u64())).collect();
        events.sort_unstable();
        Ok(events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_decoded_as_they_were_encoded() {
        for event in [
            NodeEvent::Listener,
            NodeEvent::Pending(u32::MAX),
            NodeEvent::Exited(7),
            NodeEvent::Child(0),
            NodeEvent::Signal,
            NodeEvent::Internode,
            NodeEvent::Order,
            NodeEvent::Starter,
        ] {
            assert_eq!(NodeEvent::decode(event.encode()), event);
        }
    }
}
