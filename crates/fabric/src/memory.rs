//! Memory of segments that peers read, and that reads of their memory fill.

use crate::abi;
use crate::error::{Error, status_text};
use crate::open::Objects;
use shm::readable;
use shm::segment::{Offset, Segment};
use std::ffi::c_void;
use std::sync::Arc;

/// Registered memory. It belongs to the endpoint that has registered it.
#[derive(Debug)]
pub struct Memory {
    pub(crate) endpoint: u64,
    pub(crate) number: usize,
    remote: Remote,
}

impl Memory {
    /// Returns the memory as a peer names it.
    pub fn remote(&self) -> Remote {
        self.remote
    }
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
    _segment: Arc<Segment>,
    start: *mut u8,
    length: usize,
    /// Reads under way that fill it.
    pub(crate) reads: usize,
}

impl Registered {
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

/// Registers a range of a segment for both directions.
///
/// # Errors
/// If the range leaves the segment, the system has no memory for it, the segment may become
/// shorter, or the provider refuses.
pub(crate) fn register(
    objects: &mut Objects,
    endpoint: u64,
    segment: &Arc<Segment>,
    at: Offset,
    length: usize,
) -> Result<Memory, Error> {
    let refuse = |why: String| objects.error("registration of memory", why);
    if !segment.is_sealed() {
        return Err(refuse("another process may shorten the segment".into()));
    }
    // FI_MR_ALLOCATED asks for pages. A provider in software would be killed where there are none.
    readable::populate_segment(segment, at, length as u64)
        .map_err(|error| refuse(error.to_string()))?;
    let start = segment.bytes_ptr(at, length as u64).map_err(|error| refuse(error.to_string()))?;
    let key = objects.next_key();
    let access = abi::FI_READ | abi::FI_REMOTE_READ;
    // SAFETY: the segment maps the range, and the entry below keeps it until the registration is
    // closed. Other processes access the bytes at any time, so that no reference to them exists.
    let registration =
        unsafe { objects.register_range(start.cast::<c_void>(), length, access, key)? };
    let address = if objects.has_addresses() { start as u64 } else { 0 };
    // SAFETY: the registration is open.
    let remote = Remote { address, key: unsafe { (*registration).key } };
    let segment = Arc::clone(segment);
    let entry = Registered { registration, _segment: segment, start, length, reads: 0 };
    let number = objects.registered.iter().position(Option::is_none).unwrap_or_else(|| {
        objects.registered.push(None);
        objects.registered.len() - 1
    });
    objects.registered[number] = Some(entry);
    Ok(Memory { endpoint, number, remote })
}

/// Ends a registration. Memory that the provider keeps stays mapped until the process ends.
pub(crate) fn deregister(objects: &mut Objects, number: usize) {
    let Some(entry) = objects.registered[number].take() else { return };
    assert_eq!(entry.reads, 0, "reads that fill the memory are under way");
    // SAFETY: the registration is open, and no operation of this endpoint uses it.
    let status = unsafe {
        let fid = entry.registration.cast::<abi::Fid>();
        ((*(*fid).ops).close)(fid)
    };
    if status != 0 {
        log::warn!("libfabric keeps memory registered: {}", status_text(status.into()));
        std::mem::forget(entry);
    }
}
