//! The owner's side of a window.

use super::memory::WindowMemory;
use super::remote::RemoteWindow;
use shm::arena::Arena;
use shm::event::Event;
use shm::liveness::{ProcessId, ProcessWatch};
use shm::object::CreateError;
use shm::published_wait::Wait;
use shm::segment::Offset;
use shm::wait::wait_for_peer;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Instant;

/// A window of this process. Dropping it withdraws it: later commands of other processes fail. Its
/// memory returns to the arena once no living process is connected, so that a late command cannot
/// modify memory of another purpose.
#[derive(Debug)]
pub struct Window {
    memory: WindowMemory,
    local: RemoteWindow,
    arena: Arc<Arena>,
    /// Disconnects the node service when it is dropped.
    served: Option<Box<dyn Served>>,
}

/// Connection of the node service with a window, which it serves to ranks of other nodes. Ends when
/// it is dropped.
pub trait Served: Send + Sync + Debug {}

impl Window {
    /// Creates a window of `bytes` zeroed bytes in the arena.
    ///
    /// # Errors
    /// [`CreateError::Arena`], [`CreateError::Process`].
    pub fn create(arena: &Arc<Arena>, bytes: u64) -> Result<Self, CreateError> {
        let memory = WindowMemory::create(arena, bytes)?;
        let local = RemoteWindow::of_owner(memory.clone());
        Ok(Window { memory, local, arena: Arc::clone(arena), served: None })
    }

    /// Sets the connection of the node service that serves the window to other nodes, and its
    /// event.
    #[must_use]
    pub fn served_by(mut self, service: &Event, served: Box<dyn Served>) -> Self {
        self.memory.set_service(service.clone());
        self.local = RemoteWindow::of_owner(self.memory.clone());
        self.served = Some(served);
        self
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
        self.memory.notifications()
    }

    /// Waits until there were `count` notifications since the window was created, or until the
    /// deadline, and returns their number: spins briefly, then sleeps.
    ///
    /// The death of a process does not end the wait, because any process may notify. Set a deadline
    /// if the notifying process may die.
    pub fn wait_for_notifications(&self, count: u64, deadline: Option<Instant>) -> u64 {
        let memory = &self.memory;
        let poll = || Some(memory.notifications()).filter(|&there| there >= count);
        let waited = wait_for_peer(
            memory.notification_wakeup(),
            &mut ProcessWatch::default(),
            || ProcessId::NONE,
            deadline,
            Wait::Peer,
            poll,
        );
        waited.unwrap_or_else(|_| memory.notifications())
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.served = None;
        self.memory.retire(&self.arena);
    }
}
