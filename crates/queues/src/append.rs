//! Append buffers: records from many senders to one receiver.
//!
//! The owner of the [`Receiver`] takes records out in the order in which they were appended; the
//! records of each [`Sender`] keep their order. Appending needs no action of the owner's processor.
//! A record is in the buffer as a whole or not at all: a sender that is killed while it appends
//! leaves at most one cell that cannot be used any more, and a sender that is stopped blocks no
//! other thread (see `append/ring.rs`).
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
//!         assert_eq!(number, next[thread as usize], "in the order of its sender");
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
use shm::object::CreateError;
use shm::segment::{Offset, Segment};

pub use error::AppendError;

use crate::sync::{AtomicU64, Ordering, spin_loop};
use layout::Layout;
use ring::{IsFull, Polled};
use shm::liveness::{ProcessId, ProcessWatch};
use shm::process_table::Entry;
use shm::wait::{PeerWaitError, wait_for_peer};

/// Number of polls of an unfinished record that blocks others, before its cell is voided: some ten
/// microseconds.
const POLLS_OF_A_BLOCKED_RECORD: u32 = 400;

/// Receiving end of an append buffer, which owns it. Dropping it withdraws the buffer; its memory
/// returns to the arena if no living process holds a sender.
#[derive(Debug)]
pub struct Receiver {
    layout: Layout,
    arena: Arc<Arena>,
    head: u64,
}

impl Receiver {
    /// Creates an empty buffer for `records` records of up to `record_bytes` bytes each. A record
    /// occupies 16 bytes besides its own, rounded up to whole cache lines.
    ///
    /// # Errors
    /// [`CreateError::Size`], [`CreateError::Arena`], [`CreateError::Process`].
    pub fn create(
        arena: &Arc<Arena>,
        records: u64,
        record_bytes: u64,
    ) -> Result<Self, CreateError> {
        let layout = Layout::create(arena, records, record_bytes)?;
        Ok(Receiver { layout, arena: Arc::clone(arena), head: 0 })
    }

    /// Returns the offset of the buffer, to which senders connect.
    pub fn offset(&self) -> Offset {
        self.layout.offset()
    }

    /// Receives the oldest record into `record`, replacing its contents; returns whether there was
    /// one.
    pub fn try_recv(&mut self, record: &mut Vec<u8>) -> bool {
        receive(&self.layout, &mut self.head, record)
    }

    /// Receives like [`Receiver::try_recv`], waiting for a record. The end of a sender does not end
    /// the wait, because another one may connect.
    pub fn recv(&mut self, record: &mut Vec<u8>) {
        // Without a deadline and without a peer to watch, the wait ends only with a record.
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
        let layout = &self.layout;
        let head = &mut self.head;
        let poll = || receive(layout, head, record).then_some(());
        wait_for_peer(
            layout.owner_wakeup(),
            &mut ProcessWatch::default(),
            || ProcessId::NONE,
            deadline,
            poll,
        )
        .is_ok()
    }
}

/// Receives a record, skipping an unfinished one.
fn receive(layout: &Layout, head: &mut u64, record: &mut Vec<u8>) -> bool {
    let most = layout.record_bytes();
    let mut polls = 0;
    loop {
        // A corrupt length is limited to the longest record.
        match layout
            .ring()
            .poll(head, |length, words| copy_out(words, length.min(most) as usize, record))
        {
            Polled::Read => {
                layout.senders_wakeup().notify();
                return true;
            }
            Polled::Nothing => return false,
            Polled::Blocked if polls < POLLS_OF_A_BLOCKED_RECORD => {
                polls += 1;
                spin_loop();
            }
            // The sender is stopped or dead, and finished records wait behind its cell. If it publishes
            // at this moment, the exchange in `void` fails and the next poll reads the record;
            // otherwise the next poll skips the void, and the sender appends its record again.
            Polled::Blocked => layout.ring().void(*head),
        }
    }
}

fn copy_out(words: &[AtomicU64], length: usize, record: &mut Vec<u8>) {
    record.clear();
    for word in &words[..length.div_ceil(8)] {
        // Relaxed: the Acquire load of the state made them visible.
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
        // Relaxed: the state publishes them.
        word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // A living sender keeps the memory, which then stays allocated; its next send finds the
        // buffer withdrawn.
        if self.layout.withdraw() {
            self.layout.object().free(&self.arena);
        }
    }
}

/// Sender of records to a buffer of any process. Any number of threads may use it at once.
#[derive(Debug)]
pub struct Sender {
    layout: Layout,
    entry: Entry,
}

impl Sender {
    /// Connects to the buffer at `offset`.
    ///
    /// # Errors
    /// [`CreateError::NotFound`], [`CreateError::Closed`], [`CreateError::TooMany`],
    /// [`CreateError::Segment`], [`CreateError::Process`].
    pub fn connect(segment: &Arc<Segment>, offset: Offset) -> Result<Self, CreateError> {
        let layout = Layout::connect(segment, offset)?;
        let entry = layout.object().attach(|| {})?;
        Ok(Sender { layout, entry })
    }

    /// Returns the maximum size of a record in bytes.
    pub fn record_bytes(&self) -> u64 {
        self.layout.record_bytes()
    }

    /// Appends a record if there is free space. The record is available to the receiver on return.
    ///
    /// # Errors
    /// [`AppendError::Full`], [`AppendError::TooLong`], [`AppendError::Withdrawn`].
    pub fn try_send(&self, record: &[u8]) -> Result<(), AppendError> {
        let buffer = self.layout.offset();
        let most = self.record_bytes();
        if record.len() as u64 > most {
            return Err(AppendError::TooLong { buffer, bytes: record.len(), most });
        }
        // A receiver that withdraws after this check leaves the memory allocated, because this handle
        // is attached: the append is then harmless, and its record is lost with the buffer.
        if self.layout.processes().is_closed() {
            return Err(AppendError::Withdrawn { buffer, owner: self.layout.owner().pid() });
        }
        match self.layout.ring().append(record.len() as u64, |words| copy_in(words, record)) {
            Ok(()) => {
                self.layout.owner_wakeup().notify();
                Ok(())
            }
            Err(IsFull) => Err(AppendError::Full { buffer }),
        }
    }

    /// Appends like [`Sender::try_send`], waiting for free space.
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
        let layout = &self.layout;
        let buffer = layout.offset();
        let poll = || match self.try_send(record) {
            Err(AppendError::Full { .. }) => None,
            other => Some(other),
        };
        let owner = || layout.owner();
        match wait_for_peer(
            layout.senders_wakeup(),
            &mut ProcessWatch::default(),
            owner,
            deadline,
            poll,
        ) {
            Ok(outcome) => outcome,
            Err(PeerWaitError::Timeout) => Err(AppendError::DeadlinePassed { buffer }),
            Err(PeerWaitError::PeerExited(owner)) => Err(AppendError::OwnerGone { buffer, owner }),
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.layout.processes().detach(&self.entry);
    }
}
