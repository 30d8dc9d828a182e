//! How a link lies in a segment: what its two ends find at its offset.

use std::sync::Arc;

use shm::arena::Arena;
use shm::mapped::Mapped;
use shm::memory::{Purpose, SegmentMemory};
use shm::prefetch::populate;
use shm::segment::{Offset, Segment, SegmentError};

use super::error::{DmaError, OpenError};
use crate::channel::End;
use crate::ends::{Mark, NotTaken};
use crate::fence;
use crate::patience::{self, Ended};
use crate::peer::Watch;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::wakeup::Wakeup;
use std::time::Instant;

/// The smallest staging area: two pieces of the smallest size and their headers.
pub(super) const LEAST_STAGING: u64 = 4096;

/// The largest staging area.
pub(super) const MOST_STAGING: u64 = 1 << 30;

shm::shared_lines! {
    /// What the link is; written when it is made and when an end is opened or left.
    pub(super) struct Label {
        /// [`MAGIC`]; stored last.
        magic: AtomicU64,
        staging: AtomicU64,
        sender: AtomicU64,
        receiver: AtomicU64,
    }

    /// How far the sender is, in bytes of the stream since the link was opened.
    pub(super) struct Filled {
        pub(super) filled: AtomicU64,
        /// Where the sender has given a message up in the middle; everything before is of that
        /// message or older.
        pub(super) cut: AtomicU64,
    }

    /// How far the receiver is.
    pub(super) struct Emptied {
        pub(super) emptied: AtomicU64,
    }

    /// What one end sleeps on; the other end loads it, so nothing else is written here.
    pub(super) struct Bell {
        word: AtomicU32,
    }

    /// The transfer between private memories, or in place, that both ends work on.
    pub(super) struct Turn {
        /// `number of the transfer << 3 | state`
        pub(super) state: AtomicU64,
        /// The first part that nobody has claimed.
        pub(super) next: AtomicU64,
        /// How many parts are done, and whether one could not be copied.
        pub(super) done: AtomicU64,
        /// The address of the receiver's buffer in its own memory.
        pub(super) target: AtomicU64,
    }

    /// Where an end can be reached, and whether it reaches the other; written by that end.
    pub(super) struct Reach {
        /// The address of a word in the end's private memory; 0 before it is known …
        pub(super) address: AtomicU64,
        /// … and what stands there, so that whoever reads it knows whose memory it reads.
        pub(super) token: AtomicU64,
        /// 0: not tried; 1: this end may touch the other's memory; 2: it may not.
        pub(super) verdict: AtomicU64,
    }

    /// All of it; the staging area follows.
    pub(super) struct Head {
        label: Label,
        pub(super) filled: Filled,
        pub(super) emptied: Emptied,
        sender_bell: Bell,
        receiver_bell: Bell,
        pub(super) turn: Turn,
        sender_reach: Reach,
        receiver_reach: Reach,
    }
}

/// "bulk" in ASCII and a version.
const MAGIC: u64 = 0x6275_6c6b_0000_0001;

/// How much is asked for before it is copied out, in bytes. More than a processor can ask for at a
/// time is of no use.
const PREFETCH: u64 = 4096;

/// A link as one end of it, or its owner, sees it.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) head: Mapped<Head>,
    memory: SegmentMemory,
    offset: Offset,
    staging: u64,
}

impl Place {
    /// Makes a link with a staging area of `staging` bytes, rounded up to a power of two.
    pub(super) fn create(arena: &Arena, staging: u64) -> Result<Self, OpenError> {
        if !(LEAST_STAGING..=MOST_STAGING).contains(&staging) {
            return Err(OpenError::Staging { bytes: staging });
        }
        let staging = staging.next_power_of_two();
        let offset = arena.allocate_zeroed(size_of::<Head>() as u64 + staging, 64)?;
        let head = Mapped::<Head>::new(arena.segment(), offset)?;
        // Relaxed: the magic number publishes it.
        head.label.staging.store(staging, Ordering::Relaxed);
        // Release: pairs with the Acquire in `open`.
        head.label.magic.store(MAGIC, Ordering::Release);
        Place::open(arena.segment(), offset)
    }

    /// Finds the link at `offset`.
    pub(super) fn open(segment: &Arc<Segment>, offset: Offset) -> Result<Self, OpenError> {
        let head = Mapped::<Head>::new(segment, offset)?;
        // Acquire: pairs with the Release in `create`.
        if head.label.magic.load(Ordering::Acquire) != MAGIC {
            return Err(OpenError::NoLink { offset });
        }
        // Relaxed: the magic number published it. Anything may stand there by now, so it is
        // checked.
        let staging = head.label.staging.load(Ordering::Relaxed);
        if !staging.is_power_of_two() || !(LEAST_STAGING..=MOST_STAGING).contains(&staging) {
            return Err(OpenError::NoLink { offset });
        }
        segment.bytes_ptr(offset, size_of::<Head>() as u64 + staging)?;
        // SAFETY: `SegmentMemory` asks for a protocol that keeps two calls from touching the same bytes at
        // the same time. The staging area is touched through here only: by the sender between
        // `emptied` and `filled` plus the area's size, by the receiver between `emptied` and
        // `filled`, and each publishes with Release what it is done with. Data in place are lent by
        // the sender until the receiver has said that it is done.
        let memory = unsafe { SegmentMemory::new(Arc::clone(segment)) };
        fence::register();
        Ok(Place { head, memory, offset, staging })
    }

    pub(super) fn offset(&self) -> Offset {
        self.offset
    }

    pub(super) fn memory(&self) -> &SegmentMemory {
        &self.memory
    }

    /// Bytes of the staging area.
    pub(super) fn staging(&self) -> u64 {
        self.staging
    }

    /// Bytes of the segment that the link takes.
    pub(super) fn footprint(&self) -> u64 {
        size_of::<Head>() as u64 + self.staging
    }

    /// What the holder of `end` sleeps on.
    #[inline]
    pub(super) fn bell(&self, end: End) -> Wakeup<'_> {
        let bell = match end {
            End::Sender => &self.head.sender_bell,
            End::Receiver => &self.head.receiver_bell,
        };
        Wakeup(&bell.word)
    }

    /// Who holds `end`.
    pub(super) fn mark(&self, end: End) -> Mark<'_> {
        match end {
            End::Sender => Mark(&self.head.label.sender),
            End::Receiver => Mark(&self.head.label.receiver),
        }
    }

    pub(super) fn reach(&self, end: End) -> &Reach {
        match end {
            End::Sender => &self.head.sender_reach,
            End::Receiver => &self.head.receiver_reach,
        }
    }

    /// Takes `end` for this process, for good.
    pub(super) fn take(&self, end: End) -> Result<(), OpenError> {
        populate(self.memory.segment(), self.offset, self.footprint());
        self.mark(end).take().map_err(|reason| match reason {
            NotTaken::Held(process) => {
                OpenError::AlreadyOpened { offset: self.offset, end, process }
            }
            NotTaken::Nameless(error) => error.into(),
        })
    }

    /// Closes `end` for good: the last that its holder does.
    pub(super) fn close(&self, end: End) {
        self.bell(end).close();
        self.bell(other(end)).wake();
        self.mark(end).leave();
    }

    /// The holder of `end` waits until `look` gives something; the other end's death ends the wait.
    pub(super) fn wait<R>(
        &self,
        end: End,
        watch: &mut Watch,
        deadline: Option<Instant>,
        look: impl FnMut() -> Option<R>,
    ) -> Result<R, DmaError> {
        let (bell, peer) = (self.bell(end), || self.mark(other(end)).holder());
        patience::wait(bell, watch, peer, deadline, look).map_err(|ended| match ended {
            Ended::Deadline => DmaError::DeadlinePassed { link: self.offset },
            Ended::PeerGone(process) => DmaError::PeerGone { link: self.offset, process },
        })
    }

    /// Copies bytes to the position `at` of the stream, around the end of the staging area if need
    /// be.
    pub(super) fn stage(&self, at: u64, bytes: &[u8]) -> Result<(), SegmentError> {
        let (first, rest) = bytes.split_at(self.until_wrap(at).min(bytes.len() as u64) as usize);
        self.memory.write(self.in_staging(at), first)?;
        self.memory.write(self.in_staging(0), rest)
    }

    /// Copies bytes from the position `at` of the stream.
    pub(super) fn unstage(&self, at: u64, bytes: &mut [u8]) -> Result<(), SegmentError> {
        let (first, rest) =
            bytes.split_at_mut(self.until_wrap(at).min(bytes.len() as u64) as usize);
        // All at once: the copy would ask for a few lines at a time.
        self.memory.prefetch(
            self.in_staging(at),
            (first.len() as u64).min(PREFETCH),
            Purpose::Read,
        )?;
        self.memory.read(self.in_staging(at), first)?;
        self.memory.read(self.in_staging(0), rest)
    }

    /// Asks for the lines at the position `at` of the stream, which the sender will write next,
    /// while the receiver is busy.
    pub(super) fn claim_ahead(&self, at: u64, bytes: u64) {
        // Only a hint: outside the segment there is nothing to ask for.
        let _ = self.memory.prefetch(
            self.in_staging(at),
            bytes.min(self.until_wrap(at)),
            Purpose::Write,
        );
    }

    fn until_wrap(&self, at: u64) -> u64 {
        self.staging - (at & (self.staging - 1))
    }

    fn in_staging(&self, at: u64) -> Offset {
        Offset(self.offset.0 + size_of::<Head>() as u64 + (at & (self.staging - 1)))
    }

    /// Makes sure that nobody finds a link here any more.
    pub(super) fn erase(&self) {
        // Relaxed: the arena's next user orders its own stores.
        self.head.label.magic.store(0, Ordering::Relaxed);
    }
}

/// The other end.
pub(super) fn other(end: End) -> End {
    match end {
        End::Sender => End::Receiver,
        End::Receiver => End::Sender,
    }
}
