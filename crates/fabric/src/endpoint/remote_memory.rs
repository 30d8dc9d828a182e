//! Reads of the memory of peers.

use super::{Endpoint, Event, Operation, Peer};
use crate::abi;
use crate::error::{Error, status_text};
use crate::memory::{self, Memory, Remote};
use shm::segment::{Offset, Segment};
use std::ffi::c_void;
use std::sync::Arc;

impl Endpoint {
    /// Registers a range of a segment, for peers that read it and for reads of their memory. It
    /// stays mapped until [`deregister`](Self::deregister), whatever becomes of the caller.
    ///
    /// # Errors
    /// If the range leaves the segment, another process may shorten the segment, the system has no
    /// memory for the range, or the provider refuses.
    pub fn register(
        &mut self,
        segment: &Arc<Segment>,
        at: Offset,
        length: usize,
    ) -> Result<Memory, Error> {
        memory::register(&mut self.objects, self.id, segment, at, length)
    }

    /// Ends a registration: reads of peers fail from now on.
    ///
    /// # Panics
    /// If a read that fills the memory is under way.
    pub fn deregister(&mut self, memory: Memory) {
        self.check(memory.endpoint);
        memory::deregister(&mut self.objects, memory.number);
    }

    /// Returns true if a read can begin.
    pub fn can_read(&self) -> bool {
        !self.free_reads.is_empty()
    }

    /// Reads bytes of a peer's memory, from byte `at` on, to the same place of registered memory.
    /// `token` comes back with the event.
    ///
    /// # Errors
    /// `None` if the provider is busy, or the reason.
    ///
    /// # Panics
    /// If the bytes leave the registered memory.
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
        let Some(number) = self.free_reads.last().copied() else { return Err(None) };
        let Some(entry) = self.objects.registered[memory.number].as_mut() else { return Err(None) };
        let start = entry.part(at, length).cast::<c_void>();
        let operation = &raw mut self.operations[number];
        let endpoint = self.objects.endpoint;
        // SAFETY: the endpoint is open, and has functions for remote memory where memory could be
        // registered. The memory stays registered, and the context in place, until the completion,
        // because `deregister` refuses before.
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
