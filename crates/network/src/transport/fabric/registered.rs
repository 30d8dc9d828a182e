//! Registered memory of the ranks' regions.
//!
//! A registration stays when its message has gone, because the next run of a persistent request has
//! its buffers in the same place, and registering costs an adapter as much as a copy of the memory.
//! Regions are never shortened, and keep their pages unless their rank punches holes into its own
//! memory. An adapter has pinned the pages that it uses, so that such a rank spoils its own messages
//! only. For a provider in software each use populates the range again.

use crate::transport::payloads::SegmentRange;
use ::fabric::{Access, Endpoint, Memory};
use shm::segment::{Offset, Segment};
use std::sync::Arc;

/// Most unused registrations, and the most bytes of them.
const MOST_UNUSED: usize = 64;
const MOST_UNUSED_BYTES: u64 = 256 << 20;

/// Registered ranges, by number.
#[derive(Debug, Default)]
pub(super) struct RegisteredMemory {
    entries: Vec<Option<Entry>>,
    /// Counts uses, to find the oldest.
    clock: u64,
    /// Length of the shortest range that was refused although nothing else was registered. Such
    /// ranges end no registration of others.
    refused: Option<u64>,
    has_warned: bool,
}

#[derive(Debug)]
struct Entry {
    segment: Arc<Segment>,
    at: Offset,
    bytes: u64,
    access: Access,
    memory: Memory,
    users: usize,
    used: u64,
    /// True if a node that is lost may still read the memory.
    is_revoked: bool,
}

impl RegisteredMemory {
    /// Registers a range for an access, or finds it. Returns its number; `None` if it cannot be
    /// registered.
    pub(super) fn take(
        &mut self,
        endpoint: &mut Endpoint,
        range: &SegmentRange,
        access: Access,
    ) -> Option<usize> {
        self.clock += 1;
        let is_it = |entry: &Entry| {
            Arc::ptr_eq(&entry.segment, &range.segment)
                && (entry.at, entry.bytes) == (range.at, range.bytes)
                && entry.access == access
                && !entry.is_revoked
        };
        let found = self.entries.iter().position(|entry| entry.as_ref().is_some_and(is_it));
        let number = match found {
            Some(number) => number,
            None => self.register(endpoint, range, access)?,
        };
        let entry = self.entries[number].as_mut()?;
        if found.is_some() && endpoint.populate(&entry.memory).is_err() {
            return None;
        }
        entry.users += 1;
        entry.used = self.clock;
        Some(number)
    }

    fn register(
        &mut self,
        endpoint: &mut Endpoint,
        range: &SegmentRange,
        access: Access,
    ) -> Option<usize> {
        let SegmentRange { segment, at, bytes } = range.clone();
        if self.refused.is_some_and(|refused| bytes >= refused) {
            return None;
        }
        self.release_ended(endpoint);
        let memory = loop {
            let error = match endpoint.register(&segment, (at, bytes as usize), access) {
                Ok(memory) => break memory,
                Err(error) => error,
            };
            // The system limits the memory that is registered. One at a time: the others are worth
            // a copy each.
            if !(matches!(error, ::fabric::Error::NoMemory { .. }) && self.release_oldest(endpoint))
            {
                self.refuse(bytes, &error);
                return None;
            }
        };
        let entry = Entry {
            segment,
            at,
            bytes,
            access,
            memory,
            users: 0,
            used: self.clock,
            is_revoked: false,
        };
        let free = self.entries.iter().position(Option::is_none);
        let number = free.unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() - 1
        });
        self.entries[number] = Some(entry);
        Some(number)
    }

    /// Notes that a range cannot be registered. Logs the first failure: others have the same reason
    /// as a rule.
    fn refuse(&mut self, bytes: u64, error: &::fabric::Error) {
        let is_alone = self.entries.iter().all(Option::is_none);
        if is_alone && matches!(error, ::fabric::Error::NoMemory { .. }) {
            self.refused = Some(bytes);
        }
        if !std::mem::replace(&mut self.has_warned, true) {
            log::warn!("a long message is not read from the sender's memory: {error}");
        }
    }

    /// The memory of a number.
    pub(super) fn memory(&self, number: usize) -> Option<&Memory> {
        Some(&self.entries.get(number)?.as_ref()?.memory)
    }

    /// Notes that a message does not use the memory any more.
    pub(super) fn release(&mut self, endpoint: &mut Endpoint, number: usize) {
        let Some(entry) = self.entries[number].as_mut() else { return };
        entry.users -= 1;
        if entry.users == 0 && entry.is_revoked {
            self.deregister(endpoint, number);
        }
        while self.has_too_many() && self.release_oldest(endpoint) {}
    }

    /// Notes the same about a message to a node that is lost and may still read the memory. The
    /// registration ends before the ranks' runs do: the other messages from there come first.
    pub(super) fn revoke(&mut self, endpoint: &mut Endpoint, number: usize) {
        if let Some(entry) = self.entries[number].as_mut() {
            entry.is_revoked = true;
        }
        self.release(endpoint, number);
    }

    fn has_too_many(&self) -> bool {
        let unused = || self.entries.iter().flatten().filter(|entry| entry.users == 0);
        unused().count() > MOST_UNUSED
            || unused().map(|entry| entry.bytes).sum::<u64>() > MOST_UNUSED_BYTES
    }

    /// Ends the registration that has not been used for the longest time; false if all are in use.
    fn release_oldest(&mut self, endpoint: &mut Endpoint) -> bool {
        let unused = self.entries.iter().enumerate().filter_map(|(number, entry)| {
            let entry = entry.as_ref().filter(|entry| entry.users == 0)?;
            Some((entry.used, number))
        });
        let Some((_, number)) = unused.min() else { return false };
        self.deregister(endpoint, number);
        true
    }

    /// Ends the registrations of regions that have no other reference: their ranks have exited.
    pub(super) fn release_ended(&mut self, endpoint: &mut Endpoint) {
        for number in 0..self.entries.len() {
            let Some(entry) = &self.entries[number] else { continue };
            let of_segment = self.entries.iter().flatten();
            let own = of_segment.filter(|other| Arc::ptr_eq(&other.segment, &entry.segment));
            // Each registration holds two references: its entry here, and the endpoint's.
            if entry.users == 0 && Arc::strong_count(&entry.segment) <= 2 * own.count() {
                self.deregister(endpoint, number);
            }
        }
    }

    fn deregister(&mut self, endpoint: &mut Endpoint, number: usize) {
        if let Some(entry) = self.entries[number].take() {
            endpoint.deregister(entry.memory);
        }
    }
}
