//! Bulk transfers: a message of any length from the memory of one process to that of another, by
//! the best path there is.
//!
//! | path | when | copies |
//! |---|---|---|
//! | in place | the bytes lie in the segment already | none: the receiver reads them there |
//! | direct | the kernel lets at least one of the two processes reach into the other | one; both processes copy parts of it at the same time, where both may |
//! | staged | always, and up to twice the staging area | two, through a staging area in the segment; one copies in while the other copies out |
//!
//! Whether the direct path exists is found out by a real transfer (containers and security modules
//! forbid it in many ways); if not, [`Sender::direct_path`] says why. A [`Link`] joins one
//! [`Sender`] and one [`Receiver`]; messages keep their order.
//!
//! The one who sends waits until its bytes may be changed again: a staged message may still be in
//! the staging area, a direct one is in the receiver's buffer. Waiting is a short look and then
//! sleep; the death of the other process ends it.
//!
//! ```
//! use queues::dma;
//! use shm::{arena::Arena, segment::{Backing, Segment}};
//! use std::sync::Arc;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let segment = Arc::new(Segment::create(4 << 20, Backing::Memory)?);
//! let arena = Arc::new(Arena::new(segment, 0..4 << 20)?);
//! let (mut sender, mut receiver) = dma::pair(&arena, dma::STAGING)?;
//! let message = vec![7; 1 << 20];
//! std::thread::scope(|scope| {
//!     scope.spawn(|| sender.send(&message));
//!     let mut buffer = vec![0; 1 << 20];
//!     let received = receiver.receive(&mut buffer)?;
//!     assert_eq!((received.bytes, &buffer), (1 << 20, &message));
//!     Ok::<(), dma::DmaError>(())
//! })?;
//! # Ok(())
//! # }
//! ```

mod error;
mod header;
mod layout;
mod process_memory;
mod reach;
mod receiver;
mod sender;
mod turn;

use std::sync::Arc;

use shm::arena::Arena;
use shm::segment::Offset;

pub use error::{DmaError, NoDirectPath, OpenError};
pub use receiver::Receiver;
pub use sender::Sender;

use crate::channel::End;
use layout::{LEAST_STAGING, MOST_STAGING, Place};
use process_memory::Refusal;

/// A good size for a staging area, in bytes: twice a large second-level cache. When the sender
/// comes round to a line, it has left the receiver's cache by then; to take one away from there
/// costs four times as much.
pub const STAGING: u64 = 2 << 20;

/// The way that a message went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    /// It lay in the segment.
    InPlace,
    /// From private memory to private memory.
    Direct,
    /// Through the staging area.
    Staged,
}

/// How messages from private memory are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// Directly if they are longer than the staging area twice over and there is a direct path,
    /// otherwise staged.
    #[default]
    Automatic,
    /// Directly or not at all.
    Direct,
    /// Staged.
    Staged,
}

/// What is known about the direct path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectPath {
    /// Whether this end can touch the other's memory.
    pub here: Result<(), NoDirectPath>,
    /// Whether the other end is known to be able to touch this one's.
    pub there: bool,
}

impl DirectPath {
    /// Whether either end can copy directly.
    pub fn exists(&self) -> bool {
        self.there || self.here.is_ok()
    }
}

/// A message that was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Its length; the first so many bytes of the buffer were written.
    pub bytes: usize,
    /// The way it came.
    pub path: Path,
}

/// A link as its maker sees it: memory whose two ends are opened by others, each once.
///
/// When it is dropped, ends that nobody has opened cannot be opened any more, and the memory goes
/// back to the arena if both ends are closed or their processes dead; otherwise it stays taken.
#[derive(Debug)]
pub struct Link {
    owner: Arc<Owner>,
}

#[derive(Debug)]
struct Owner {
    place: Place,
    arena: Arc<Arena>,
}

impl Link {
    /// Makes a link with a staging area of `staging` bytes, rounded up to a power of two (see
    /// [`STAGING`]).
    ///
    /// # Errors
    /// [`OpenError::Staging`], [`OpenError::Arena`].
    pub fn create(arena: &Arc<Arena>, staging: u64) -> Result<Self, OpenError> {
        let place = Place::create(arena, staging)?;
        Ok(Link { owner: Arc::new(Owner { place, arena: Arc::clone(arena) }) })
    }

    /// Where it lies; the name by which both ends are opened.
    pub fn offset(&self) -> Offset {
        self.owner.place.offset()
    }

    /// Bytes of the segment that it takes.
    pub fn bytes(&self) -> u64 {
        self.owner.place.footprint()
    }
}

/// Makes a link and opens both ends in this process, for two of its threads.
///
/// # Errors
/// [`OpenError::Staging`], [`OpenError::Arena`], [`OpenError::Process`].
pub fn pair(arena: &Arc<Arena>, staging: u64) -> Result<(Sender, Receiver), OpenError> {
    let link = Link::create(arena, staging)?;
    let mut sender = Sender::open(arena.segment(), link.offset())?;
    let mut receiver = Receiver::open(arena.segment(), link.offset())?;
    receiver.owner = Some(Arc::clone(&link.owner));
    sender.owner = Some(link.owner);
    Ok((sender, receiver))
}

impl Drop for Owner {
    fn drop(&mut self) {
        let ends = [End::Sender, End::Receiver];
        for end in ends {
            // Whoever holds the other end finds this one closed.
            if self.place.mark(end).withdraw() {
                self.place.bell(end).close();
                self.place.bell(layout::other(end)).wake();
            }
        }
        if ends.into_iter().all(|end| self.place.mark(end).is_free()) {
            self.place.erase();
            // The place came from this arena and is freed once, so that this cannot fail.
            let _ = self.arena.free(self.place.offset());
        }
    }
}

/// Why a part could not be moved, in words.
fn moving(link: Offset, process: u32, bytes: u64, refusal: Refusal) -> DmaError {
    let failed =
        |moved: u64, reason: String| DmaError::Moving { link, process, moved, bytes, reason };
    match refusal {
        Refusal::NoProcess => DmaError::PeerGone { link, process },
        Refusal::NotMapped { after } => {
            failed(after as u64, "one of them has not mapped the memory there".to_owned())
        }
        Refusal::Forbidden(error) | Refusal::Failed(error) => failed(0, error.to_string()),
    }
}
