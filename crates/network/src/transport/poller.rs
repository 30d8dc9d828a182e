//! A set of descriptors to wait for.

use crate::error::{Error, refused};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Descriptors, each with a number that its owner chooses.
#[derive(Debug)]
pub(super) struct Poller {
    epoll: OwnedFd,
    ready: Vec<(u64, EventFlags)>,
}

impl Poller {
    pub(super) fn new() -> Result<Self, Error> {
        let epoll =
            epoll::create(CreateFlags::CLOEXEC).map_err(refused("make a set of descriptors"))?;
        Ok(Poller { epoll, ready: Vec::with_capacity(64) })
    }

    pub(super) fn add(
        &self,
        descriptor: impl AsFd,
        number: u64,
        flags: EventFlags,
    ) -> Result<(), Error> {
        epoll::add(&self.epoll, descriptor, EventData::new_u64(number), flags)
            .map_err(refused("watch a descriptor"))
    }

    pub(super) fn change(
        &self,
        descriptor: impl AsFd,
        number: u64,
        flags: EventFlags,
    ) -> Result<(), Error> {
        epoll::modify(&self.epoll, descriptor, EventData::new_u64(number), flags)
            .map_err(refused("watch a descriptor"))
    }

    pub(super) fn remove(&self, descriptor: impl AsFd) {
        // It fails only if the descriptor is not in the set, which is the aim.
        let _ = epoll::delete(&self.epoll, descriptor);
    }

    /// Sleeps until a descriptor is ready or the time is over. Returns the numbers of those that
    /// are, with their events.
    pub(super) fn wait(
        &mut self,
        timeout: Option<Duration>,
    ) -> Result<impl Iterator<Item = (u64, EventFlags)> + use<'_>, Error> {
        // A time that does not fit the kernel's type means no limit.
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        // The system reports the rest of more than 64 in the next call; none is lost.
        let mut space = [const { MaybeUninit::<epoll::Event>::uninit() }; 64];
        match epoll::wait(&self.epoll, &mut space[..], timeout.as_ref()) {
            Ok((ready, _)) => {
                self.ready.extend(ready.iter().map(|event| (event.data.u64(), event.flags)))
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(refused("sleep until something arrives")(error)),
        }
        Ok(self.ready.drain(..))
    }
}

impl AsFd for Poller {
    /// Returns a descriptor that is readable while one of the set is ready.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
