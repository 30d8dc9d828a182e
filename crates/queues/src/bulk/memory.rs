//! Layout of a link in the segment, as both ends and the owner map it.

use super::error::BulkError;
use crate::fence;
use crate::sync::{AtomicU32, AtomicU64};
use shm::arena::Arena;
use shm::connecting::Connecting;
use shm::liveness::ProcessWatch;
use shm::memory::{Purpose, SegmentMemory};
use shm::object::{CreateError, Label, Object, ObjectHeader};
use shm::part_claims::PartClaims;
use shm::prefetch::populate;
use shm::process_table::{End, EndHolder, Ends};
use shm::published_wait::Wait;
use shm::segment::{Offset, Segment, SegmentError};
use shm::wait::{PeerWaitError, wait_for_peer};
use shm::wakeup::Wakeup;
use std::sync::Arc;
use std::time::Instant;

/// Smallest staging area: two pieces of the smallest size and their headers.
pub(super) const MIN_STAGING: u64 = 4096;

/// Largest staging area.
pub(super) const MAX_STAGING: u64 = 1 << 30;

shm::shared_lines! {
    /// Description of the link; written when it is created and when an end is taken or released.
    pub(super) struct LinkDescription {
        /// Label, with the binary logarithm of the size of the staging area.
        label: Label,
        ends: Ends,
    }

    /// Progress of the sender, in bytes of the stream.
    pub(super) struct SenderProgress {
        pub(super) filled: AtomicU64,
        /// Position at which the sender last aborted a message; everything before belongs to that
        /// message or to older ones.
        pub(super) aborted_at: AtomicU64,
    }

    /// Progress of the receiver, in bytes of the stream.
    pub(super) struct ReceiverProgress {
        pub(super) emptied: AtomicU64,
    }

    /// Wake-up word of one end. The other end loads it with every publication, so it has a line of
    /// its own.
    pub(super) struct WakeupLine {
        word: AtomicU32,
    }

    /// State of the current transfer between private memories, or in place.
    pub(super) struct SharedTransfer {
        /// `number of the transfer << 3 | state`
        pub(super) state: AtomicU64,
        /// Parts of a copy that both ends make.
        pub(super) parts: PartClaims,
        /// Address of the receiver's buffer in its own memory.
        pub(super) target: AtomicU64,
    }

    /// Data for the probe of the direct path to one end; written by that end.
    pub(super) struct ProbeLine {
        /// Address of a word in the end's private memory; 0 before it is published.
        pub(super) address: AtomicU64,
        /// Value of that word. A probe that reads another value has read another process.
        pub(super) token: AtomicU64,
        /// Result of this end's probe of the other: 0 not done, 1 accessible, 2 not accessible.
        pub(super) outcome: AtomicU64,
    }

    /// The whole header; the staging area follows.
    pub(super) struct LinkHeader {
        description: LinkDescription,
        pub(super) sent: SenderProgress,
        pub(super) received: ReceiverProgress,
        sender_wakeup: WakeupLine,
        receiver_wakeup: WakeupLine,
        pub(super) transfer: SharedTransfer,
        sender_probe: ProbeLine,
        receiver_probe: ProbeLine,
    }
}

impl ObjectHeader for LinkHeader {
    const KIND: u32 = u32::from_be_bytes(*b"bulk");
    const NAME: &'static str = "link";

    fn label(&self) -> &Label {
        &self.description.label
    }

    fn ends(&self) -> Option<&Ends> {
        Some(&self.description.ends)
    }
}

/// Bytes prefetched before a copy out of the staging area: the limit of outstanding requests of a
/// core.
const PREFETCH: u64 = 4096;

/// A link mapped by one of its ends, or by its owner.
#[derive(Debug)]
pub(super) struct LinkMemory {
    pub(super) header: Object<LinkHeader>,
    memory: SegmentMemory,
    staging: u64,
}

impl LinkMemory {
    /// Creates a link with a staging area of `staging` bytes, rounded up to a power of two.
    pub(super) fn create(arena: &Arena, staging: u64) -> Result<Self, CreateError> {
        if !(MIN_STAGING..=MAX_STAGING).contains(&staging) {
            return Err(CreateError::Size {
                object: LinkHeader::NAME,
                requested: staging,
                unit: "bytes of staging area",
                limits: "4096 to 1073741824",
            });
        }
        let staging = staging.next_power_of_two();
        Self::map(Object::create(arena, staging, staging.trailing_zeros(), |_| Ok(()))?.0)
    }

    /// Connects `end` of the link at `offset` to this process, for good.
    pub(super) fn connect(
        segment: &Arc<Segment>,
        offset: Offset,
        end: End,
    ) -> Result<Self, CreateError> {
        Connecting::to(segment, offset)?.take(end, |header| {
            let memory = Self::map(header)?;
            populate(segment, offset, memory.footprint());
            Ok(memory)
        })
    }

    fn map(header: Object<LinkHeader>) -> Result<Self, CreateError> {
        // The memory may have been overwritten since its creation, so the size is checked before
        // any range is computed from it.
        let staging = 1_u64.checked_shl(header.parameter()).unwrap_or(0);
        if !(MIN_STAGING..=MAX_STAGING).contains(&staging) {
            return Err(Object::<LinkHeader>::not_found(header.offset()));
        }
        header.segment().bytes_ptr(header.behind_header(0), staging)?;
        // SAFETY: `SegmentMemory` requires a protocol that keeps two calls from accessing the same
        // bytes at the same time. The staging area is accessed through this object only: by the
        // sender between `emptied` and `filled` plus the area's size, by the receiver between
        // `emptied` and `filled`, and each publishes with Release the bytes that it is done with.
        // Data in place stay unmodified by the sender until the receiver has finished the transfer.
        let memory = unsafe { SegmentMemory::new(Arc::clone(header.segment())) };
        fence::register();
        Ok(LinkMemory { header, memory, staging })
    }

    pub(super) fn offset(&self) -> Offset {
        self.header.offset()
    }

    pub(super) fn memory(&self) -> &SegmentMemory {
        &self.memory
    }

    /// Returns the size of the staging area in bytes.
    pub(super) fn staging(&self) -> u64 {
        self.staging
    }

    /// Returns the number of bytes that the link occupies in the segment.
    pub(super) fn footprint(&self) -> u64 {
        size_of::<LinkHeader>() as u64 + self.staging
    }

    /// Returns the wake-up word on which the holder of `end` sleeps.
    #[inline]
    pub(super) fn wakeup(&self, end: End) -> Wakeup<'_> {
        let line = match end {
            End::Sender => &self.header.sender_wakeup,
            End::Receiver => &self.header.receiver_wakeup,
        };
        Wakeup::by_store(&line.word)
    }

    /// Returns the word with the holder of `end`.
    pub(super) fn holder_of(&self, end: End) -> EndHolder<'_> {
        self.header.description.ends.holder(end)
    }

    pub(super) fn probe_line(&self, end: End) -> &ProbeLine {
        match end {
            End::Sender => &self.header.sender_probe,
            End::Receiver => &self.header.receiver_probe,
        }
    }

    /// Closes `end` for good. The release comes last: the owner may free the memory from then on.
    pub(super) fn close(&self, end: End) {
        // The closed bit before the wake-up: a peer that sleeps is woken and finds the bit.
        self.wakeup(end).close();
        self.wakeup(end.other()).notify();
        self.holder_of(end).release();
    }

    /// Waits at `end` until `poll` returns a value; the death of the other end's process ends the
    /// wait.
    pub(super) fn wait<R>(
        &self,
        end: End,
        watch: &mut ProcessWatch,
        deadline: Option<Instant>,
        poll: impl FnMut() -> Option<R>,
    ) -> Result<R, BulkError> {
        let peer = || self.holder_of(end.other()).holder();
        let waited = wait_for_peer(self.wakeup(end), watch, peer, deadline, Wait::Peer, poll);
        waited.map_err(|ended| match ended {
            PeerWaitError::Timeout => BulkError::Timeout { link: self.offset() },
            PeerWaitError::PeerExited(process) => {
                BulkError::ProcessExited { link: self.offset(), pid: process }
            }
        })
    }

    /// Copies bytes into the stream at position `at`, around the end of the staging area if
    /// necessary.
    pub(super) fn stage(&self, at: u64, bytes: &[u8]) -> Result<(), SegmentError> {
        let (first, rest) = bytes.split_at(self.until_wrap(at).min(bytes.len() as u64) as usize);
        self.memory.write(self.in_staging(at), first)?;
        self.memory.write(self.in_staging(0), rest)
    }

    /// Copies bytes out of the stream at position `at`.
    pub(super) fn unstage(&self, at: u64, bytes: &mut [u8]) -> Result<(), SegmentError> {
        let (first, rest) =
            bytes.split_at_mut(self.until_wrap(at).min(bytes.len() as u64) as usize);
        // One prefetch for all lines: the copy alone would request a few at a time.
        self.memory.prefetch(
            self.in_staging(at),
            (first.len() as u64).min(PREFETCH),
            Purpose::Read,
        )?;
        self.memory.read(self.in_staging(at), first)?;
        self.memory.read(self.in_staging(0), rest)
    }

    /// Prefetches the lines at position `at` of the stream, which the sender will write next, for
    /// writing while the receiver is busy.
    pub(super) fn prefetch_ahead(&self, at: u64, bytes: u64) {
        // Only a hint: a range outside the segment has no lines to prefetch.
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
        self.header.behind_header(at & (self.staging - 1))
    }

    /// Frees the memory once both ends are closed or their processes dead. An end that is still
    /// free is withdrawn first; it appears as closed to the process at the other end.
    pub(super) fn retire(&self, arena: &Arena) {
        for end in End::BOTH {
            if self.holder_of(end).withdraw() {
                self.wakeup(end).close();
                self.wakeup(end.other()).notify();
            }
        }
        // Both ends have left the free state by now, so no process takes one between the check for
        // users and the free.
        self.header.retire(arena);
    }
}
