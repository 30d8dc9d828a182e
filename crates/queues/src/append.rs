//! Append buffers: records that many append and one reads.
//!
//! The owner of a [`Receiver`] takes the records out, in the order in which they were appended; each
//! appender's records keep their order. An [`Sender`] works by itself, the owner's processor
//! takes no part. A record is in the buffer as a whole or not at all: an appender that is killed in
//! the middle leaves nothing behind but one cell that cannot be used any more, and one that is
//! stopped in the middle holds nobody up (see `append/ring.rs`).
//!
//! ```
//! use queues::append::{Receiver, Sender};
//! use shm::{arena::Arena, segment::{Backing, Segment}};
//! use std::sync::Arc;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let segment = Arc::new(Segment::create(1 << 20, Backing::Memory)?);
//! let arena = Arc::new(Arena::new(Arc::clone(&segment), 0..1 << 20)?);
//! let mut receiver = Receiver::create(&arena, 64, 100)?;
//! let sender = Sender::connect(&segment, receiver.offset())?;
//! std::thread::scope(|scope| {
//!     for thread in 0..2 {
//!         let sender = &sender;
//!         scope.spawn(move || (0..100_u8).try_for_each(|number| sender.send(&[thread, number])));
//!     }
//!     let (mut record, mut next) = (Vec::new(), [0, 0]);
//!     for _ in 0..200 {
//!         receiver.recv(&mut record);
//!         let [thread, number] = record[..] else { panic!("two bytes") };
//!         assert_eq!(number, next[thread as usize], "in the order of its appender");
//!         next[thread as usize] += 1;
//!     }
//! });
//! # Ok(())
//! # }
//! ```

mod error;
mod layout;
mod ring;

use std::sync::Arc;
use std::time::{Duration, Instant};

use shm::arena::Arena;
use shm::segment::{Offset, Segment};

pub use error::{AppendError, OpenError};

use crate::liveness::{ProcessId, ProcessWatch};
use crate::patience::{self, Ended};
use crate::process_table::Entry;
use crate::sync::{AtomicU64, Ordering, spin_loop};
use layout::Layout;
use ring::{IsFull, Look};

/// How often the owner looks at an unfinished record that others wait behind, before it passes it:
/// some ten microseconds.
const LOOKS_AT_A_HELD_RECORD: u32 = 400;

/// An append buffer as its owner sees it. Dropping it withdraws it; its memory goes back to the
/// arena if no living process holds a handle.
#[derive(Debug)]
pub struct Receiver {
    layout: Layout,
    arena: Arc<Arena>,
    head: u64,
}

impl Receiver {
    /// Makes an empty buffer for `records` records of up to `record_bytes` bytes each. A record
    /// takes 16 bytes beside its own, and whole cache lines.
    ///
    /// # Errors
    /// [`OpenError::Size`], [`OpenError::Arena`], [`OpenError::Process`].
    pub fn create(arena: &Arc<Arena>, records: u64, record_bytes: u64) -> Result<Self, OpenError> {
        let footprint = layout::footprint(records, record_bytes)?;
        let offset = arena.allocate_zeroed(footprint, 64)?;
        match Layout::create(arena.segment(), offset, records, record_bytes) {
            Ok(layout) => Ok(Receiver { layout, arena: Arc::clone(arena), head: 0 }),
            Err(error) => {
                // It came from this arena just now.
                let _ = arena.free(offset);
                Err(error)
            }
        }
    }

    /// Where it lies; the name by which others open it.
    pub fn offset(&self) -> Offset {
        self.layout.offset()
    }

    /// Puts the oldest record into `record`, in place of what was there; gives whether there was
    /// one.
    pub fn try_recv(&mut self, record: &mut Vec<u8>) -> bool {
        take(&self.layout, &mut self.head, record)
    }

    /// As [`Receiver::try_recv`], but waits for a record: a short look, then sleep. Nobody's death
    /// ends the wait, because another appender may come.
    pub fn recv(&mut self, record: &mut Vec<u8>) {
        // Without a deadline it ends with a record.
        while !self.recv_before(record, None) {}
    }

    /// Receives like [`Receiver::recv`], waiting for at most `timeout`; returns whether there was a
    /// record.
    pub fn recv_timeout(&mut self, record: &mut Vec<u8>, timeout: Duration) -> bool {
        self.recv_before(record, Instant::now().checked_add(timeout))
    }

    /// Receives like [`Receiver::recv`], waiting until `deadline` at the latest; returns whether
    /// there was a record.
    pub fn recv_deadline(&mut self, record: &mut Vec<u8>, deadline: Instant) -> bool {
        self.recv_before(record, Some(deadline))
    }

    fn recv_before(&mut self, record: &mut Vec<u8>, deadline: Option<Instant>) -> bool {
        let (layout, head) = (&self.layout, &mut self.head);
        let look = || take(layout, head, record).then_some(());
        patience::wait(
            layout.owner_bell(),
            &mut ProcessWatch::default(),
            || ProcessId::NONE,
            deadline,
            look,
        )
        .is_ok()
    }
}

/// Takes a record out, past one that does not get finished.
fn take(layout: &Layout, head: &mut u64, record: &mut Vec<u8>) -> bool {
    let most = layout.record_bytes();
    let mut looks = 0;
    loop {
        // A length that no appender has written is cut.
        match layout
            .ring()
            .look(head, |length, words| copy_out(words, length.min(most) as usize, record))
        {
            Look::Read => {
                layout.appenders_bell().wake();
                return true;
            }
            Look::Nothing => return false,
            Look::Held if looks < LOOKS_AT_A_HELD_RECORD => {
                looks += 1;
                spin_loop();
            }
            Look::Held => layout.ring().give_up(*head),
        }
    }
}

fn copy_out(words: &[AtomicU64], length: usize, record: &mut Vec<u8>) {
    record.clear();
    for word in &words[..length.div_ceil(8)] {
        // Relaxed: the stamp made them visible.
        record.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
    }
    record.truncate(length);
}

fn copy_in(words: &[AtomicU64], record: &[u8]) {
    let (whole, rest) = record.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let bytes = whole.iter().chain((!rest.is_empty()).then_some(&last));
    for (word, bytes) in words.iter().zip(bytes) {
        // Relaxed: the stamp publishes them.
        word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.layout.withdraw();
        if !self.layout.processes().has_living() {
            self.layout.erase();
            // The place came from this arena and is freed once, so that this cannot fail.
            let _ = self.arena.free(self.layout.offset());
        }
    }
}

/// A handle to append to a buffer, of the same process or another one. Any number of threads may
/// use it at once.
#[derive(Debug)]
pub struct Sender {
    layout: Layout,
    entry: Entry,
}

impl Sender {
    /// Opens the buffer at `offset` of the segment.
    ///
    /// # Errors
    /// [`OpenError::NoBuffer`], [`OpenError::Withdrawn`], [`OpenError::TooManyHandles`],
    /// [`OpenError::Segment`], [`OpenError::Process`].
    pub fn connect(segment: &Arc<Segment>, offset: Offset) -> Result<Self, OpenError> {
        let layout = Layout::open(segment, offset)?;
        let entry = layout.enter()?;
        Ok(Sender { layout, entry })
    }

    /// The most bytes that a record can have.
    pub fn record_bytes(&self) -> u64 {
        self.layout.record_bytes()
    }

    /// Appends a record if there is room. When this returns, the owner can take it.
    ///
    /// # Errors
    /// [`AppendError::Full`], [`AppendError::TooLong`], [`AppendError::Withdrawn`].
    pub fn try_send(&self, record: &[u8]) -> Result<(), AppendError> {
        let (buffer, most) = (self.layout.offset(), self.record_bytes());
        if record.len() as u64 > most {
            return Err(AppendError::TooLong { buffer, bytes: record.len(), most });
        }
        if self.layout.processes().is_closed() {
            return Err(AppendError::Withdrawn { buffer, owner: self.layout.owner().pid() });
        }
        match self.layout.ring().append(record.len() as u64, |words| copy_in(words, record)) {
            Ok(()) => {
                self.layout.owner_bell().wake();
                Ok(())
            }
            Err(IsFull) => Err(AppendError::Full { buffer }),
        }
    }

    /// As [`Sender::try_send`], but waits for room: a short look, then sleep.
    ///
    /// # Errors
    /// [`AppendError::TooLong`], [`AppendError::Withdrawn`], [`AppendError::OwnerGone`].
    pub fn send(&self, record: &[u8]) -> Result<(), AppendError> {
        self.send_before(record, None)
    }

    /// Appends like [`Sender::send`], waiting for at most `timeout`.
    ///
    /// # Errors
    /// [`AppendError::DeadlinePassed`] and those of [`Sender::send`].
    pub fn send_timeout(&self, record: &[u8], timeout: Duration) -> Result<(), AppendError> {
        self.send_before(record, Instant::now().checked_add(timeout))
    }

    /// Appends like [`Sender::send`], waiting until `deadline` at the latest.
    ///
    /// # Errors
    /// [`AppendError::DeadlinePassed`] and those of [`Sender::send`].
    pub fn send_deadline(&self, record: &[u8], deadline: Instant) -> Result<(), AppendError> {
        self.send_before(record, Some(deadline))
    }

    fn send_before(&self, record: &[u8], deadline: Option<Instant>) -> Result<(), AppendError> {
        let (layout, buffer) = (&self.layout, self.layout.offset());
        let look = || match self.try_send(record) {
            Err(AppendError::Full { .. }) => None,
            other => Some(other),
        };
        let owner = || layout.owner();
        match patience::wait(
            layout.appenders_bell(),
            &mut ProcessWatch::default(),
            owner,
            deadline,
            look,
        ) {
            Ok(outcome) => outcome,
            Err(Ended::Deadline) => Err(AppendError::DeadlinePassed { buffer }),
            Err(Ended::PeerGone(owner)) => Err(AppendError::OwnerGone { buffer, owner }),
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.layout.processes().detach(&self.entry);
    }
}
