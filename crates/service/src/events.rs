//! Events on which a service or launcher sleeps, in one epoll set.

use crate::error::{ServiceError, system};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Something has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// A connection is pending at the listener.
    Door,
    /// The connection of this number is readable or closed.
    Guest(u32),
    /// The process that joined as this rank has ended.
    Attached(u32),
    /// The child that was started as this rank has ended.
    Child(u32),
    /// A signal has come.
    Signal,
    /// The state of the connections with other nodes has changed.
    Reach,
}

impl Event {
    fn encode(self) -> u64 {
        let (kind, number) = match self {
            Event::Door => (0, 0),
            Event::Guest(number) => (1, number),
            Event::Attached(rank) => (2, rank),
            Event::Child(rank) => (3, rank),
            Event::Signal => (4, 0),
            Event::Reach => (5, 0),
        };
        kind << 32 | u64::from(number)
    }

    fn decode(word: u64) -> Event {
        let number = word as u32;
        match word >> 32 {
            0 => Event::Door,
            1 => Event::Guest(number),
            2 => Event::Attached(number),
            3 => Event::Child(number),
            4 => Event::Signal,
            _ => Event::Reach,
        }
    }
}

/// Descriptors to sleep on, each with what its readiness means.
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

    /// From now on the descriptor's readiness for reading means `event`, until it is closed or
    /// removed.
    pub(crate) fn add(&self, descriptor: impl AsFd, event: Event) -> Result<(), ServiceError> {
        epoll::add(&self.epoll, descriptor, EventData::new_u64(event.encode()), EventFlags::IN)
            .map_err(system("watch a descriptor"))
    }

    /// Forgets a descriptor.
    pub(crate) fn remove(&self, descriptor: impl AsFd) {
        // It was added before; that it is gone already is as good.
        let _ = epoll::delete(&self.epoll, descriptor);
    }

    /// Sleeps until an event occurs or the deadline passes. Connections sort before exits, so the
    /// last message of a process is handled before its exit.
    pub(crate) fn wait(&self, deadline: Option<Instant>) -> Result<Vec<Event>, ServiceError> {
        let mut ready = Vec::with_capacity(64);
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        // A whole nanosecond more, so that a deadline that woke us is over.
        let left = left
            .and_then(|left| Timespec::try_from(left.saturating_add(Duration::from_nanos(1))).ok());
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut ready), left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(system("sleep until something happens")(error)),
        }
        let mut events: Vec<Event> =
            ready.into_iter().map(|event| Event::decode(event.data.u64())).collect();
        events.sort_unstable();
        Ok(events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_survives_the_kernel() {
        for event in [
            Event::Door,
            Event::Guest(u32::MAX),
            Event::Attached(7),
            Event::Child(0),
            Event::Signal,
            Event::Reach,
        ] {
            assert_eq!(Event::decode(event.encode()), event);
        }
    }
}
