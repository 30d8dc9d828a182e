//! The part of a dropped communicator or schedule that other ranks still need: runs of this rank
//! that are queued, incomplete or not consumed, and memory that other ranks have not read.
//! It holds no reference to the membership, so the rank can leave the job meanwhile.

use crate::communicator::placement::{BlockSearch, PlacedSchedule, UnplacedSchedule};
use crate::context::{Context, PendingLinks};
use crate::error::{Error, Outcome};
use crate::flat::executor::FlatExecutor;
use crate::memory::{MemoryHolder, Pending};
use crate::node::Node;
use crate::node::membership::{Member, OwnerWork, Remnant};
use crate::wait::OwnTasks;
use crate::window::InflightWindow;
use shm::segment::Offset;
use shm::sync::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

/// A dropped communicator or schedule that the [`Member`] keeps. It holds no reference to the
/// member, so a rank can leave the job while other ranks still need it. They find its exit.
#[derive(Debug)]
pub(super) struct DroppedRuns {
    left: Mutex<Left>,
    /// No rank waits for tasks of this one in the runs.
    is_idle: AtomicBool,
    node: Arc<Node>,
    /// The ranks in the job, by rank in the communicator.
    members: Vec<u32>,
}

/// The rest of a communicator or schedule.
#[derive(Debug)]
pub(super) enum Left {
    Communicator(DroppedCommunicator),
    Unplaced(Box<UnplacedSchedule>),
    Placed(PlacedSchedule),
    Nothing,
}

/// The rest of a communicator.
#[derive(Debug)]
pub(super) struct DroppedCommunicator {
    pub(super) window: InflightWindow<FlatExecutor>,
    /// The entries for their blocks lie in the state.
    pub(super) pending_links: Arc<PendingLinks>,
    /// The state to be released. `None` for the state of the job.
    pub(super) state_at: Option<Offset>,
    pub(super) is_owner: bool,
}

impl Left {
    /// Executes this rank's tasks. Returns whether there were any.
    fn advance(&mut self, member: &Member) -> Outcome<bool> {
        if let Left::Unplaced(_) = self {
            // After an error nothing is left: the link has ended.
            *self = std::mem::replace(self, Left::Nothing).search(member)?;
        }
        match self {
            Left::Communicator(dropped) => dropped.window.advance_own(),
            Left::Placed(placed) => placed.window.advance_own(),
            Left::Unplaced(_) | Left::Nothing => Ok(false),
        }
    }

    /// Places a schedule if its block is found.
    fn search(self, member: &Member) -> Result<Self, Error> {
        let Left::Unplaced(mut unplaced) = self else { return Ok(self) };
        Ok(match unplaced.find_block(member)? {
            BlockSearch::Found(block) => Left::Placed(unplaced.place(member, block)?),
            _ => Left::Unplaced(unplaced),
        })
    }

    /// Returns whether other ranks need something, after moving the runs on as far as this rank can.
    fn is_needed(&self) -> bool {
        match self {
            Left::Communicator(DroppedCommunicator { window, pending_links, .. }) => {
                window.is_needed() || !pending_links.is_empty()
            }
            Left::Placed(placed) => placed.window.is_needed(),
            Left::Unplaced(_) => true,
            Left::Nothing => false,
        }
    }

    /// Returns whether no rank waits for tasks of this one, which only its own calls execute. What
    /// is left then is to consume results and to free memory.
    fn is_idle(&self) -> bool {
        match self {
            Left::Communicator(dropped) => !dropped.window.has_queue(),
            Left::Placed(placed) => placed.is_idle(),
            Left::Unplaced(_) => false,
            Left::Nothing => true,
        }
    }

    /// Releases the shared memory, after which this rank does not access it.
    fn release(&mut self, member: &Member, users: u32) {
        match std::mem::replace(self, Left::Nothing) {
            Left::Communicator(DroppedCommunicator { state_at: Some(at), is_owner, .. }) => {
                member.release_shared(at, users, is_owner);
            }
            Left::Placed(PlacedSchedule { block, .. }) => {
                member.release_shared(block.at, users, block.is_own);
            }
            Left::Communicator(_) | Left::Unplaced(_) | Left::Nothing => {}
        }
    }
}

impl DroppedRuns {
    /// Leaves the rest of a communicator, or of a schedule on it, to the member.
    pub(super) fn leave(context: &Context, left: Left) {
        let member = &context.member;
        member.keep(Arc::new(DroppedRuns {
            left: Mutex::new(left),
            is_idle: AtomicBool::new(false),
            node: Arc::clone(member.node()),
            members: context.members.clone(),
        }));
    }

    /// Locks the rest, unless another thread of this rank works on it or the caller does: a search
    /// for a block reclaims memory.
    fn try_left(&self) -> Option<MutexGuard<'_, Left>> {
        match self.left.try_lock() {
            Ok(left) => Some(left),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn try_end_locked(&self, left: &mut Left, member: &Member) -> bool {
        let is_needed = left.is_needed();
        if !is_needed {
            left.release(member, self.members.len() as u32);
        }
        // Relaxed: a hint. A stale value costs a poll.
        self.is_idle.store(left.is_idle(), Ordering::Relaxed);
        !is_needed
    }
}

impl Remnant for DroppedRuns {
    fn try_end(&self, member: &Member) -> bool {
        self.try_left().is_some_and(|mut left| self.try_end_locked(&mut left, member))
    }
}

impl OwnerWork for DroppedRuns {
    fn progress_own(&self, member: &Member) -> Outcome<OwnTasks> {
        let Some(mut left) = self.try_left() else { return Ok(OwnTasks::None) };
        // An error belongs to a request that was dropped, and not to the call that makes progress.
        let did_any = left.advance(member).unwrap_or(false);
        self.try_end_locked(&mut left, member);
        // A free slot wakes nothing.
        let expected = if self.is_idle() { OwnTasks::None } else { OwnTasks::Expected };
        Ok(OwnTasks::from(did_any) | expected)
    }

    fn is_idle(&self) -> bool {
        self.is_idle.load(Ordering::Relaxed)
    }

    fn has_queue(&self) -> bool {
        // Their requests have been dropped.
        false
    }
}

impl MemoryHolder for DroppedRuns {
    fn reclaim(&self) -> Pending {
        let is_blocked = |rank: u32| {
            self.members.get(rank as usize).is_some_and(|member| self.node.is_blocked(*member))
        };
        let Some(left) = self.try_left() else { return Pending::Awaited };
        match &*left {
            Left::Communicator(dropped) => dropped.window.reclaim(is_blocked),
            Left::Unplaced(unplaced) => unplaced.pending(is_blocked),
            Left::Placed(placed) => placed.window.reclaim(is_blocked),
            Left::Nothing => Pending::Nothing,
        }
    }
}
