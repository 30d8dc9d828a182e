//! The owner's side of a window.

use std::sync::Arc;
use std::time::Instant;

use shm::arena::Arena;
use shm::segment::Offset;

use super::error::WindowError;
use super::memory::{self, WindowMemory};
use super::remote::RemoteWindow;
use shm::liveness::{ProcessId, ProcessWatch};
use shm::wait::wait_for_peer;

/// A window of this process. Dropping it withdraws it: later commands of other processes fail. Its
/// memory returns to the arena if no living process is connected; otherwise it stays allocated, so
/// that a late command cannot modify memory of another purpose.
#[derive(Debug)]
pub struct Window {
    local: RemoteWindow,
    arena: Arc<Arena>,
}

impl Window {
    /// Creates a window of `bytes` zeroed bytes in the arena.
    ///
    /// # Errors
    /// [`WindowError::Arena`], [`WindowError::Process`].
    pub fn create(arena: &Arc<Arena>, bytes: u64) -> Result<Self, WindowError> {
        let footprint = memory::footprint(bytes).unwrap_or(u64::MAX);
        let offset = arena.allocate_zeroed(footprint, 64)?;
        match WindowMemory::create(arena.segment(), offset, bytes) {
            Ok(memory) => {
                Ok(Window { local: RemoteWindow::of_owner(memory), arena: Arc::clone(arena) })
            }
            Err(error) => {
                // Cannot fail: this function has just allocated it from this arena.
                let _ = arena.free(offset);
                Err(error)
            }
        }
    }

    /// Returns the offset of the window in the segment, to which other processes connect.
    pub fn offset(&self) -> Offset {
        self.local.offset()
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> u64 {
        self.local.bytes()
    }

    /// Returns the window as other processes see it, for the owner's own commands.
    pub fn local(&self) -> &RemoteWindow {
        &self.local
    }

    /// Returns the number of notifications since the window was created.
    pub fn notifications(&self) -> u64 {
        self.local.memory().notifications()
    }

    /// Waits until there were `count` notifications since the window was created, or until the
    /// deadline, and returns their number: spins briefly, then sleeps.
    ///
    /// The death of a process does not end the wait, because any process may notify. Set a deadline
    /// if the notifying process may die.
    pub fn wait_for_notifications(&self, count: u64, deadline: Option<Instant>) -> u64 {
        let memory = self.local.memory();
        let poll = || Some(memory.notifications()).filter(|&there| there >= count);
        let waited = wait_for_peer(
            memory.notification_wakeup(),
            &mut ProcessWatch::default(),
            || ProcessId::NONE,
            deadline,
            poll,
        );
        waited.unwrap_or_else(|_| memory.notifications())
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let memory = self.local.memory();
        memory.withdraw();
        // The table is closed now, so no process can attach between this check and the free.
        if !memory.processes().has_living() {
            memory.erase();
            // Cannot fail: the memory came from this arena and is freed once.
            let _ = self.arena.free(memory.offset());
        }
    }
}
