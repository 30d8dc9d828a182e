//! Layout of a window in the segment.

use crate::fence;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use shm::arena::Arena;
use shm::connecting::Connecting;
use shm::event::Event;
use shm::liveness::ProcessId;
use shm::mapped::MappedSlice;
use shm::object::{CreateError, Label, Object, ObjectHeader};
use shm::process_table::{Entry, ProcessTable};
use shm::segment::{Offset, Segment};
use shm::wakeup::Wakeup;
use std::sync::Arc;

/// Number of wake-up words. Waits for one word of the window share a wake-up word with waits for
/// every sixteenth other word.
pub(super) const WAKEUPS: usize = 16;

shm::shared_lines! {
    /// Description of the window; written when it is created.
    pub(super) struct WindowDescription {
        label: Label,
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
        description: WindowDescription,
        notifications: Notifications,
        wakeups: WakeupWords,
        processes: ProcessTable,
    }
}

impl ObjectHeader for WindowHeader {
    const KIND: u32 = u32::from_be_bytes(*b"wind");
    const NAME: &'static str = "window";

    fn label(&self) -> &Label {
        &self.description.label
    }

    fn owner(&self) -> Option<&AtomicU64> {
        Some(&self.description.owner)
    }

    fn processes(&self) -> Option<&ProcessTable> {
        Some(&self.processes)
    }
}

/// A mapped window.
#[derive(Clone, Debug)]
pub(super) struct WindowMemory {
    object: Object<WindowHeader>,
    words: MappedSlice<AtomicU64>,
    owner: ProcessId,
    bytes: u64,
    /// Event of the node service, which waits for words on behalf of ranks of other nodes.
    service: Option<Event>,
}

impl WindowMemory {
    /// Creates a window of `bytes` zeroed bytes.
    pub(super) fn create(arena: &Arena, bytes: u64) -> Result<Self, CreateError> {
        let trailing = bytes.checked_next_multiple_of(8).unwrap_or(u64::MAX);
        let prepare = |object: &Object<WindowHeader>| {
            // Relaxed: the label publishes it.
            object.description.bytes.store(bytes, Ordering::Relaxed);
            Ok(())
        };
        Self::map(Object::create(arena, trailing, 0, prepare)?.0)
    }

    /// Connects this process to the window at `offset`. The entry keeps the memory allocated until
    /// the process detaches, also if the owner withdraws the window.
    pub(super) fn connect(
        segment: &Arc<Segment>,
        offset: Offset,
    ) -> Result<(Self, Entry), CreateError> {
        Connecting::to(segment, offset)?.attach(Self::map)
    }

    fn map(object: Object<WindowHeader>) -> Result<Self, CreateError> {
        // Relaxed: the label published it. The memory may have been overwritten since; the mapping
        // checks the range, and every command checks against `bytes`.
        let bytes = object.description.bytes.load(Ordering::Relaxed);
        let words = object.trailing(0, bytes.div_ceil(8) as usize)?;
        let owner = object.owner();
        fence::register();
        Ok(WindowMemory { object, words, owner, bytes, service: None })
    }

    /// Returns the object in the segment.
    pub(super) fn object(&self) -> &Object<WindowHeader> {
        &self.object
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
        Wakeup::by_store(&self.object.wakeups.words[word as usize % WAKEUPS])
    }

    /// Sets the event of the node service.
    pub(super) fn set_service(&mut self, service: Event) {
        self.service = Some(service);
    }

    /// Wakes waits for the word with this number. Call it after it was changed.
    #[inline(always)]
    pub(super) fn wake_one(&self, word: u64) {
        self.wakeup_of(word).notify_also(|| self.service.iter().for_each(Event::notify));
    }

    /// Wakes waits for `count` words from `first` on. Call it after they were changed.
    #[inline(always)]
    pub(super) fn wake(&self, first: u64, count: u64) {
        for word in first..first + count.min(WAKEUPS as u64) {
            self.wake_one(word);
        }
    }

    /// Returns the number of notifications so far.
    pub(super) fn notifications(&self) -> u64 {
        // Acquire: pairs with the Release in `notify`; everything before the notification is
        // visible.
        self.object.notifications.count.load(Ordering::Acquire)
    }

    pub(super) fn notification_wakeup(&self) -> Wakeup<'_> {
        Wakeup::by_store(&self.object.notifications.wakeup)
    }

    pub(super) fn notify(&self) {
        // Release: pairs with the Acquire in `notifications`. AcqRel, so that notifications of
        // several processes form one chain: the owner that sees count n sees all n of them.
        self.object.notifications.count.fetch_add(1, Ordering::AcqRel);
        self.notification_wakeup().notify();
    }

    /// Returns the table of connected processes.
    #[inline(always)]
    pub(super) fn processes(&self) -> &ProcessTable {
        &self.object.processes
    }

    /// Withdraws the window. The memory is freed once no living process is connected.
    pub(super) fn retire(&self, arena: &Arena) {
        // The closed table precedes the wake-ups, so a wait that is woken finds the window withdrawn.
        self.processes().close();
        self.wake(0, WAKEUPS as u64);
        self.object.retire(arena);
    }
}
