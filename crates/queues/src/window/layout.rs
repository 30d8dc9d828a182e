//! How a window lies in a segment: what others find at its offset.

use std::sync::Arc;

use shm::mapped::{Mapped, MappedSlice};
use shm::segment::{Offset, Segment};

use super::error::WindowError;
use crate::fence;
use crate::peer::Name;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::users::{Entry, MOST_USERS, NotEntered, Users};
use crate::wakeup::Wakeup;

/// Those who wait for a word share a bell with those who wait for every sixteenth other word.
const BELLS: usize = 16;

shm::shared_lines! {
    /// What the window is; written when it is exposed.
    pub(crate) struct Label {
        /// [`MAGIC`]; stored last.
        magic: AtomicU64,
        bytes: AtomicU64,
        owner: AtomicU64,
    }

    /// What the owner waits for when it was promised notifications.
    pub(crate) struct Notifications {
        count: AtomicU64,
        bell: AtomicU32,
    }

    /// What those sleep on who wait for a word; every command that changes one loads its bell, so
    /// nothing else is written here.
    pub(crate) struct Bells {
        words: [AtomicU32; BELLS],
    }

    /// All of it; the bytes of the window follow.
    pub(crate) struct Head {
        label: Label,
        notifications: Notifications,
        bells: Bells,
        users: Users,
    }
}

/// "window" in ASCII and a version.
const MAGIC: u64 = 0x7769_6e64_6f77_0001;

/// A window as anybody sees it.
#[derive(Debug)]
pub(crate) struct Layout {
    head: Mapped<Head>,
    words: MappedSlice<AtomicU64>,
    offset: Offset,
    owner: Name,
    bytes: u64,
}

/// Bytes of the segment that a window of `bytes` bytes takes.
pub(crate) fn footprint(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(8)?.checked_add(size_of::<Head>() as u64)
}

impl Layout {
    /// Writes the label of a window of `bytes` bytes at `offset`, in zeroed memory, for this
    /// process.
    pub(crate) fn create(
        segment: &Arc<Segment>,
        offset: Offset,
        bytes: u64,
    ) -> Result<Self, WindowError> {
        let head = Mapped::<Head>::new(segment, offset)?;
        // Relaxed: the magic number publishes them.
        head.label.bytes.store(bytes, Ordering::Relaxed);
        head.label.owner.store(Name::own()?.0, Ordering::Relaxed);
        // Release: pairs with the Acquire in `open`.
        head.label.magic.store(MAGIC, Ordering::Release);
        Layout::open(segment, offset)
    }

    /// Finds the window at `offset`.
    pub(crate) fn open(segment: &Arc<Segment>, offset: Offset) -> Result<Self, WindowError> {
        let head = Mapped::<Head>::new(segment, offset)?;
        // Acquire: pairs with the Release in `create`.
        if head.label.magic.load(Ordering::Acquire) != MAGIC {
            return Err(WindowError::NoWindow { offset });
        }
        // Relaxed: the magic number published them. Anything may stand there by now; the range is
        // checked.
        let bytes = head.label.bytes.load(Ordering::Relaxed);
        let owner = Name(head.label.owner.load(Ordering::Relaxed));
        let first =
            offset.plus(size_of::<Head>() as u64).ok_or(WindowError::NoWindow { offset })?;
        let words = MappedSlice::new(segment, first, bytes.div_ceil(8) as usize)?;
        fence::register();
        Ok(Layout { head, words, offset, owner, bytes })
    }

    pub(crate) fn offset(&self) -> Offset {
        self.offset
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn owner(&self) -> Name {
        self.owner
    }

    #[inline(always)]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        &self.words
    }

    /// What those sleep on who wait for the word with this number.
    #[inline(always)]
    pub(crate) fn bell_of(&self, word: u64) -> Wakeup<'_> {
        Wakeup(&self.head.bells.words[word as usize % BELLS])
    }

    /// Wakes whoever waits for one of `count` words from `first` on. To be called after they were
    /// changed.
    #[inline(always)]
    pub(crate) fn wake(&self, first: u64, count: u64) {
        for word in first..first + count.min(BELLS as u64) {
            self.bell_of(word).wake();
        }
    }

    /// Wakes everybody who waits for a word of the window.
    pub(crate) fn wake_all(&self) {
        self.wake(0, BELLS as u64);
    }

    /// How many notifications there were so far.
    pub(crate) fn notifications(&self) -> u64 {
        // Acquire: pairs with the Release in `notify`; what came before the notification is
        // visible.
        self.head.notifications.count.load(Ordering::Acquire)
    }

    pub(crate) fn notification_bell(&self) -> Wakeup<'_> {
        Wakeup(&self.head.notifications.bell)
    }

    pub(crate) fn notify(&self) {
        // Release: pairs with the Acquire in `notifications`. AcqRel, so that notifications of
        // several form one chain.
        self.head.notifications.count.fetch_add(1, Ordering::AcqRel);
        self.notification_bell().wake();
    }

    /// Who uses it.
    #[inline(always)]
    pub(crate) fn users(&self) -> &Users {
        &self.head.users
    }

    pub(crate) fn withdraw(&self) {
        self.users().turn_away();
        self.wake_all();
    }

    /// Enters this process as a user of the window.
    pub(crate) fn enter(&self) -> Result<Entry, WindowError> {
        let offset = self.offset;
        self.users().enter().map_err(|reason| match reason {
            NotEntered::Withdrawn => WindowError::Withdrawn { offset, owner: self.owner.pid() },
            NotEntered::TooMany => WindowError::TooManyHandles { offset, most: MOST_USERS },
            NotEntered::Nameless(error) => error.into(),
        })
    }

    /// Makes sure that nobody finds a window here any more.
    pub(crate) fn erase(&self) {
        // Relaxed: the arena's next user orders its own stores.
        self.head.label.magic.store(0, Ordering::Relaxed);
    }
}
