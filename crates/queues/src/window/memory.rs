//! Layout of a window in the segment.

use std::sync::Arc;

use shm::mapped::{Mapped, MappedSlice};
use shm::segment::{Offset, Segment};
use shm::wakeup::Wakeup;

use super::error::WindowError;
use crate::fence;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use shm::liveness::ProcessId;
use shm::process_table::{AttachError, Entry, MAX_PROCESSES, ProcessTable};

/// Number of wake-up words. Waits for one word of the window share a wake-up word with waits for
/// every sixteenth other word.
const WAKEUPS: usize = 16;

shm::shared_lines! {
    /// Description of the window; written when it is created.
    pub(super) struct WindowLabel {
        /// [`MAGIC`]; stored last.
        magic: AtomicU64,
        bytes: AtomicU64,
        owner: AtomicU64,
    }

    /// Count of notifications, on which the owner waits.
    pub(super) struct Notifications {
        count: AtomicU64,
        wakeup: AtomicU32,
    }

    /// Wake-up words of waits for a word of the window. Every command that changes a word loads
    /// its wake-up word, so this line holds nothing else.
    pub(super) struct WakeupWords {
        words: [AtomicU32; WAKEUPS],
    }

    /// The whole header; the bytes of the window follow.
    pub(super) struct WindowHeader {
        label: WindowLabel,
        notifications: Notifications,
        wakeups: WakeupWords,
        processes: ProcessTable,
    }
}

/// "window" in ASCII and a version.
const MAGIC: u64 = 0x7769_6e64_6f77_0001;

/// A mapped window.
#[derive(Debug)]
pub(super) struct WindowMemory {
    header: Mapped<WindowHeader>,
    words: MappedSlice<AtomicU64>,
    offset: Offset,
    owner: ProcessId,
    bytes: u64,
}

/// Returns the number of bytes that a window of `bytes` bytes occupies in the segment.
pub(super) fn footprint(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(8)?.checked_add(size_of::<WindowHeader>() as u64)
}

impl WindowMemory {
    /// Labels zeroed memory at `offset` as a window of `bytes` bytes, owned by this process.
    pub(super) fn create(
        segment: &Arc<Segment>,
        offset: Offset,
        bytes: u64,
    ) -> Result<Self, WindowError> {
        let header = Mapped::<WindowHeader>::new(segment, offset)?;
        // Relaxed: the magic number publishes them.
        header.label.bytes.store(bytes, Ordering::Relaxed);
        header.label.owner.store(ProcessId::own()?.0, Ordering::Relaxed);
        // Release: pairs with the Acquire in `open`.
        header.label.magic.store(MAGIC, Ordering::Release);
        WindowMemory::open(segment, offset)
    }

    /// Maps the window at `offset`.
    pub(super) fn open(segment: &Arc<Segment>, offset: Offset) -> Result<Self, WindowError> {
        let header = Mapped::<WindowHeader>::new(segment, offset)?;
        // Acquire: pairs with the Release in `create`.
        if header.label.magic.load(Ordering::Acquire) != MAGIC {
            return Err(WindowError::NoWindow { offset });
        }
        // Relaxed: the magic number published them. The memory may have been overwritten since;
        // `MappedSlice::new` checks the range, and every command checks against `bytes`.
        let bytes = header.label.bytes.load(Ordering::Relaxed);
        let owner = ProcessId(header.label.owner.load(Ordering::Relaxed));
        let first = offset
            .plus(size_of::<WindowHeader>() as u64)
            .ok_or(WindowError::NoWindow { offset })?;
        let words = MappedSlice::new(segment, first, bytes.div_ceil(8) as usize)?;
        fence::register();
        Ok(WindowMemory { header, words, offset, owner, bytes })
    }

    pub(super) fn offset(&self) -> Offset {
        self.offset
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn owner(&self) -> ProcessId {
        self.owner
    }

    #[inline(always)]
    pub(super) fn words(&self) -> &[AtomicU64] {
        &self.words
    }

    /// Returns the wake-up word of waits for the word with this number.
    #[inline(always)]
    pub(super) fn wakeup_of(&self, word: u64) -> Wakeup<'_> {
        Wakeup::by_store(&self.header.wakeups.words[word as usize % WAKEUPS])
    }

    /// Wakes waits for `count` words from `first` on. Call it after they were changed.
    #[inline(always)]
    pub(super) fn wake(&self, first: u64, count: u64) {
        for word in first..first + count.min(WAKEUPS as u64) {
            self.wakeup_of(word).notify();
        }
    }

    /// Wakes all waits for a word of the window.
    pub(super) fn wake_all(&self) {
        self.wake(0, WAKEUPS as u64);
    }

    /// Returns the number of notifications so far.
    pub(super) fn notifications(&self) -> u64 {
        // Acquire: pairs with the Release in `notify`; everything before the notification is
        // visible.
        self.header.notifications.count.load(Ordering::Acquire)
    }

    pub(super) fn notification_wakeup(&self) -> Wakeup<'_> {
        Wakeup::by_store(&self.header.notifications.wakeup)
    }

    pub(super) fn notify(&self) {
        // Release: pairs with the Acquire in `notifications`. AcqRel, so that notifications of
        // several processes form one chain: the owner that sees count n sees all n of them.
        self.header.notifications.count.fetch_add(1, Ordering::AcqRel);
        self.notification_wakeup().notify();
    }

    /// Returns the table of connected processes.
    #[inline(always)]
    pub(super) fn processes(&self) -> &ProcessTable {
        &self.header.processes
    }

    pub(super) fn withdraw(&self) {
        self.processes().close();
        self.wake_all();
    }

    /// Attaches this process to the window.
    pub(super) fn attach(&self) -> Result<Entry, WindowError> {
        let offset = self.offset;
        self.processes().attach().map_err(|reason| match reason {
            AttachError::Closed => WindowError::Withdrawn { offset, owner: self.owner.pid() },
            AttachError::TooMany => WindowError::TooManyHandles { offset, most: MAX_PROCESSES },
            AttachError::Unidentified(error) => error.into(),
        })
    }

    /// Erases the label, so that later connects fail.
    pub(super) fn erase(&self) {
        // Relaxed: the arena's next user orders its own stores.
        self.header.label.magic.store(0, Ordering::Relaxed);
    }
}
