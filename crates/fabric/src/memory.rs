//! Memory of segments that peers read, and that reads of their memory fill.

use crate::abi;
use shm::readable;
use shm::segment::{Offset, Segment};
use std::sync::Arc;

/// Registered memory. It belongs to the endpoint that has registered it.
#[derive(Debug)]
pub struct Memory {
    pub(crate) endpoint: u64,
    pub(crate) number: usize,
    pub(crate) remote: Option<Remote>,
}

impl Memory {
    /// Returns the memory as a peer names it; `None` if peers may not read it.
    pub fn remote(&self) -> Option<Remote> {
        self.remote
    }
}

/// The only access that a registration permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Peers read the memory.
    ReadByPeers,
    /// Reads of peers' memory fill it.
    FilledByReads,
}

/// Memory of a peer, in its own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Address of the first byte.
    pub address: u64,
    /// Key of the registration.
    pub key: u64,
}

/// A range of a segment that is registered.
#[derive(Debug)]
pub(crate) struct Registered {
    pub(crate) registration: *mut abi::Registration,
    /// Keeps the range mapped.
    segment: Arc<Segment>,
    at: Offset,
    start: *mut u8,
    length: usize,
    /// Reads under way that fill it.
    pub(crate) reads: usize,
}

impl Registered {
    /// Takes an open registration of these bytes of the segment.
    pub(crate) fn new(
        registration: *mut abi::Registration,
        (segment, at, length): (Arc<Segment>, Offset, usize),
        start: *mut u8,
    ) -> Registered {
        Registered { registration, segment, at, start, length, reads: 0 }
    }

    /// Commits all pages of the range.
    pub(crate) fn populate(&self) -> std::io::Result<()> {
        readable::populate_segment(&self.segment, self.at, self.length as u64)
    }

    /// Returns the start of a part.
    ///
    /// # Panics
    /// If the part leaves the range.
    pub(crate) fn part(&self, at: usize, length: usize) -> *mut u8 {
        let is_inside = at.checked_add(length).is_some_and(|end| end <= self.length);
        assert!(is_inside, "{length} bytes from {at} on of {} registered ones", self.length);
        self.start.wrapping_add(at)
    }
}
