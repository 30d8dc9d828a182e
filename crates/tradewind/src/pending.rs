//! A collective that was started and not yet fetched, wherever its ranks are.

use crate::error::Result;
use crate::spanning::Flight;
use engine::call::Call;
use std::time::Duration;

/// A started collective. Dropping it is sound: the collective goes on, its result is not fetched.
#[derive(Debug)]
#[must_use = "the result is there only after test or wait"]
pub(crate) enum Pending {
    /// Among ranks of one node.
    Node(engine::pending::Pending),
    /// Between nodes.
    Nodes(Flight),
}

impl Pending {
    /// What was called.
    pub(crate) fn call(&self) -> Call {
        match self {
            Pending::Node(pending) => pending.call(),
            Pending::Nodes(flight) => flight.call(),
        }
    }

    /// How many ranks it is called by.
    pub(crate) fn ranks(&self) -> u32 {
        match self {
            Pending::Node(pending) => pending.group().size(),
            Pending::Nodes(flight) => flight.ranks(),
        }
    }

    /// Whether all ranks meet, so that there is no schedule.
    pub(crate) fn is_meeting(&self) -> bool {
        match self {
            Pending::Node(pending) => pending.is_meeting(),
            Pending::Nodes(_) => false,
        }
    }

    /// The engine between nodes that runs it, if one does.
    pub(crate) fn carrier(&self) -> Option<&'static str> {
        match self {
            Pending::Node(_) => None,
            Pending::Nodes(flight) => Some(flight.carrier()),
        }
    }

    /// Whether it is complete, without doing anything for it: one load.
    #[inline]
    pub(crate) fn is_complete(&self) -> bool {
        match self {
            Pending::Node(pending) => pending.is_complete(),
            Pending::Nodes(flight) => flight.is_complete(),
        }
    }

    /// Whether it is complete, after doing what only this rank can do for it.
    #[inline]
    pub(crate) fn test(&self) -> Result<bool> {
        match self {
            Pending::Node(pending) => Ok(pending.test()?),
            Pending::Nodes(flight) => flight.test(),
        }
    }

    /// Waits until it is complete.
    #[inline]
    pub(crate) fn wait(&self, limit: Option<Duration>) -> Result<()> {
        match self {
            Pending::Node(pending) => Ok(pending.wait(limit)?),
            Pending::Nodes(flight) => flight.wait(limit),
        }
    }

    /// Fetches the results of a complete collective, by buffer; empty slices where none is wanted.
    #[inline]
    pub(crate) fn collect(&mut self, outputs: &mut [&mut [u8]]) -> Result<()> {
        match self {
            Pending::Node(pending) => Ok(pending.collect(outputs)?),
            Pending::Nodes(flight) => flight.fetch(outputs),
        }
    }
}
