//! Probe of the direct path: one real transfer determines whether an end can access the private
//! memory of the other.

use super::error::DirectAccessError;
use super::memory::LinkMemory;
use super::path::DirectPath;
use crate::sync::Ordering;
use shm::process_memory::{AccessFailure, Guard, GuardValue, read_guarded};
use shm::process_table::End;

/// Access of one end to the other's memory, and the word that the other probes.
#[derive(Debug)]
pub(super) struct DirectAccess {
    end: End,
    /// Read by the other end, in this memory, to verify that it reads the intended process.
    _guard: Guard,
    probed: Option<Result<u32, DirectAccessError>>,
}

impl DirectAccess {
    /// Publishes the address and value of this end's guard. Requires that this process has taken
    /// the end.
    pub(super) fn new(memory: &LinkMemory, end: End) -> Self {
        let guard = Guard::new();
        let GuardValue { address, generation } = guard.published();
        let published = memory.probe_line(end);
        // Relaxed: the address publishes it.
        published.token.store(generation, Ordering::Relaxed);
        // Release: pairs with the Acquire in `probe`.
        published.address.store(address, Ordering::Release);
        DirectAccess { end, _guard: guard, probed: None }
    }

    /// Returns the number of the process at the other end if its memory is accessible. Probes once,
    /// as soon as the other end is connected.
    pub(super) fn peer(&mut self, memory: &LinkMemory) -> Result<u32, DirectAccessError> {
        if let Some(probed) = &self.probed {
            return probed.clone();
        }
        let result = self.probe(memory);
        if !matches!(result, Err(DirectAccessError::Unknown)) {
            // Release: pairs with the Acquire in `peer_can_access`. It publishes no other data.
            memory
                .probe_line(self.end)
                .outcome
                .store(if result.is_ok() { 1 } else { 2 }, Ordering::Release);
            self.probed = Some(result.clone());
        }
        result
    }

    fn probe(&self, memory: &LinkMemory) -> Result<u32, DirectAccessError> {
        let process = memory.holder_of(self.end.other()).holder().pid();
        let published = memory.probe_line(self.end.other());
        // Acquire: pairs with the Release in `new`. Relaxed: the address published the token.
        let address = published.address.load(Ordering::Acquire);
        let generation = published.token.load(Ordering::Relaxed);
        if process == 0 || address == 0 {
            return Err(DirectAccessError::Unknown);
        }
        match read_guarded(process, 0, &mut [], GuardValue { address, generation }) {
            Ok(true) => Ok(process),
            // The process number refers to another process here, with other memory.
            Ok(false) | Err(AccessFailure::NoProcess | AccessFailure::NotMapped { .. }) => {
                Err(DirectAccessError::OtherNamespace { process })
            }
            Err(AccessFailure::Forbidden(error) | AccessFailure::Failed(error)) => {
                Err(DirectAccessError::Forbidden { process, reason: error.to_string() })
            }
        }
    }

    /// Returns true if the other end has reported that it can access this one's memory.
    pub(super) fn peer_can_access(&self, memory: &LinkMemory) -> bool {
        // Acquire: pairs with the Release in `peer`.
        memory.probe_line(self.end.other()).outcome.load(Ordering::Acquire) == 1
    }

    /// Returns the state of the direct path in both directions.
    pub(super) fn direct_path(&mut self, memory: &LinkMemory) -> DirectPath {
        let here = self.peer(memory).map(|_| ());
        DirectPath { here, there: self.peer_can_access(memory) }
    }
}
