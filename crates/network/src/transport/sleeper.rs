//! A set of descriptors to sleep on.

use crate::carrier::Error;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// Descriptors, each with a number of its owner's.
#[derive(Debug)]
pub(super) struct Sleeper {
    epoll: OwnedFd,
    ready: Vec<(u64, EventFlags)>,
}

impl Sleeper {
    pub(super) fn new() -> Result<Self, Error> {
        let epoll =
            epoll::create(CreateFlags::CLOEXEC).map_err(refused("make a set of descriptors"))?;
        Ok(Sleeper { epoll, ready: Vec::with_capacity(64) })
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
        // It was added before; that it is gone already is as good.
        let _ = epoll::delete(&self.epoll, descriptor);
    }

    /// Sleeps until a descriptor is ready or the time is over; gives the numbers of those that are,
    /// and what for.
    pub(super) fn wait(
        &mut self,
        timeout: Option<Duration>,
    ) -> Result<impl Iterator<Item = (u64, EventFlags)> + use<'_>, Error> {
        // A time too long for the kernel's clock is for ever.
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
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

/// For `map_err`: names what was tried.
pub(super) fn refused<E: Into<std::io::Error>>(what: &'static str) -> impl Fn(E) -> Error {
    move |error| Error::System { what: format!("cannot {what}"), why: error.into().to_string() }
}
