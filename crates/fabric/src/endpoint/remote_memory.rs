//! Reads of the memory of peers.

use super::{Endpoint, Event, Operation, Peer};
use crate::abi;
use crate::error::{Error, status_text};
use crate::memory::{Access, Memory, Registered, Remote};
use crate::open::close;
use crate::provider::is_software;
use shm::readable;
use shm::segment::{Offset, Segment};
use std::ffi::c_void;
use std::sync::Arc;

impl Endpoint {
    /// Registers a range of a segment, for peers that read it or for reads of their memory. It
    /// stays mapped until [`deregister`](Self::deregister), whatever becomes of the caller.
    ///
    /// # Errors
    /// If the endpoint has no remote memory, the range leaves the segment, another process may
    /// shorten the segment, the system has no memory for the range, or the provider refuses.
    pub fn register(
        &mut self,
        segment: &Arc<Segment>,
        (at, length): (Offset, usize),
        access: Access,
    ) -> Result<Memory, Error> {
        let objects = &mut self.objects;
        let refuse = |why: String| objects.error("registration of memory", why);
        // The domain would register it all the same, and the endpoint's functions may be null.
        if !objects.provider.reads {
            return Err(refuse("its endpoint sends messages only".into()));
        }
        if !segment.is_sealed() {
            return Err(refuse("another process may shorten the segment".into()));
        }
        // FI_MR_ALLOCATED requires pages. Without them a signal kills a provider in software.
        readable::populate_segment(segment, at, length as u64)
            .map_err(|error| refuse(error.to_string()))?;
        let start =
            segment.bytes_ptr(at, length as u64).map_err(|error| refuse(error.to_string()))?;
        let key = objects.next_key()?;
        let flags = match access {
            Access::ReadByPeers => abi::FI_REMOTE_READ,
            Access::FilledByReads => abi::FI_READ,
        };
        let memory = start.cast::<c_void>();
        // SAFETY: the segment maps the range, and the entry below keeps it until the registration
        // is closed. Other processes access the bytes at any time, so that no reference to them
        // exists.
        let registration = unsafe { objects.register_range(memory, length, flags, key)? };
        let address = if objects.has_addresses() { start as u64 } else { 0 };
        // SAFETY: the registration is open.
        let remote = Remote { address, key: unsafe { (*registration).key } };
        let remote = (access == Access::ReadByPeers).then_some(remote);
        let range = (Arc::clone(segment), at, length);
        let entry = Registered::new(registration, range, start);
        let number = objects.registered.iter().position(Option::is_none).unwrap_or_else(|| {
            objects.registered.push(None);
            objects.registered.len() - 1
        });
        objects.registered[number] = Some(entry);
        Ok(Memory { endpoint: self.id, number, remote })
    }

    /// Commits the pages of registered memory again where the provider's own processor copies it: a
    /// process that shares the segment may have taken them since, and without them a signal ends
    /// this one. An adapter keeps the pages that it has pinned.
    ///
    /// # Errors
    /// If the system has no memory for them.
    pub fn populate(&self, memory: &Memory) -> Result<(), Error> {
        self.check(memory.endpoint);
        let entry = self.objects.registered[memory.number].as_ref();
        let Some(entry) = entry.filter(|_| is_software(&self.objects.provider.name)) else {
            return Ok(());
        };
        entry
            .populate()
            .map_err(|error| self.objects.error("use of registered memory", error.to_string()))
    }

    /// Ends a registration: reads of peers fail from now on. Memory that the provider keeps stays
    /// mapped until the process ends.
    ///
    /// # Panics
    /// If a read that fills the memory is under way.
    pub fn deregister(&mut self, memory: Memory) {
        self.check(memory.endpoint);
        let Some(entry) = self.objects.registered[memory.number].take() else { return };
        assert_eq!(entry.reads, 0, "reads that fill the memory are under way");
        // SAFETY: the registration is open, and no operation of this endpoint uses it.
        let is_closed = unsafe { close(entry.registration.cast()) };
        if !is_closed {
            std::mem::forget(entry);
        }
    }

    /// Reads bytes of a peer's memory, from byte `at` on, to the same place of registered memory.
    /// `token` comes back with the event.
    ///
    /// # Errors
    /// `None` if the provider is busy, or the reason.
    ///
    /// # Panics
    /// If the bytes leave the registered memory, or it is memory for peers.
    pub fn read(
        &mut self,
        memory: &Memory,
        (at, length): (usize, usize),
        remote: Remote,
        peer: Peer,
        token: u32,
    ) -> Result<(), Option<Error>> {
        self.check(memory.endpoint);
        self.check(peer.endpoint);
        assert!(memory.remote.is_none(), "memory for peers is not filled");
        let Some(number) = self.free_reads.last().copied() else { return Err(None) };
        let Some(entry) = self.objects.registered[memory.number].as_mut() else { return Err(None) };
        let start = entry.part(at, length).cast::<c_void>();
        let operation = &raw mut self.operations[number];
        let endpoint = self.objects.endpoint;
        // SAFETY: the endpoint is open, and has functions for remote memory: without them `register`
        // refuses, so that there is no `Memory` of this endpoint. The memory stays registered, and
        // the context in place, until the completion, because `deregister` refuses before.
        let status = unsafe {
            (*operation).token = token;
            (*operation).bytes = length;
            (*operation).memory = memory.number;
            let descriptor = (*entry.registration).mem_desc;
            let address = remote.address.wrapping_add(at as u64);
            let read = (*(*endpoint).rma).read;
            let context = operation.cast::<c_void>();
            read(endpoint, start, length, descriptor, peer.address, address, remote.key, context)
        };
        match status {
            0 => {
                entry.reads += 1;
                self.free_reads.pop();
                Ok(())
            }
            abi::EAGAIN => Err(None),
            status => Err(Some(self.objects.error("fi_read", status_text(status as i64)))),
        }
    }

    /// Frees a read that has ended.
    pub(super) fn end_read(&mut self, number: usize, outcome: Result<(), String>) -> Event {
        self.free_reads.push(number);
        let Operation { token, bytes, memory, .. } = self.operations[number];
        if let Some(entry) = self.objects.registered[memory].as_mut() {
            entry.reads -= 1;
        }
        Event::Read { token, bytes, outcome }
    }
}
