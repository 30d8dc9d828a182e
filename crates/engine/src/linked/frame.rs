//! Layout of a linked program's block in the segment, which follows from the linked schedules.
//!
//! | part of the block | records | bytes each |
//! |---|---|---|
//! | released count | 1 | 64 |
//! | [header](crate::linked::block) | 1 | 64 |
//! | run states | ranks | 8 × slots, in whole lines |
//! | slots | | |
//! | · join counts | joins, a slot | 64 |
//! | · frames | ranks, a slot | see [`FrameLayout`] |

use crate::linked::matcher::matcher_bytes;
use goal::limits;
use goal::link::{Delivery, Linked, LinkedRank};
use goal::schedule::Kind;

/// Offset of the block's header.
pub(crate) const HEADER_AT: u64 = 64;
/// Offset of the run states.
const STATES_AT: u64 = HEADER_AT + 64;
/// Bytes of a message that fit beside the counter of its receive.
const COUNTER_PAYLOAD: u64 = 56;
/// Largest number of slots: one for each started run of a program.
const SLOT_LIMIT: u64 = 16;
/// Largest total of the frames and long buffers of all slots. With more, each run would find its
/// memory evicted from the caches.
const SLOT_BYTES: u64 = 4 << 20;
/// Bytes of the lines at the start of a frame: the completion word and the owner's queue.
const FRAME_HEAD: u64 = 128;

/// Offset of parts that no memory can hold: the allocation of their block is refused.
const END_OF_MEMORY: u64 = u64::MAX - 63;

/// Layout of one rank's frame in a slot. All offsets count from the start of the frame.
#[derive(Clone, Debug, Default)]
pub(crate) struct FrameLayout {
    /// Offsets of the long user buffers, published at the start of a run.
    pub(crate) bindings: u64,
    /// Lines with the counters, each with space for a short message.
    pub(crate) counters: u64,
    /// Queue of the tasks that only the owner executes.
    pub(crate) owner_queue: u64,
    /// Number of entries of the queue.
    pub(crate) owner_queue_entries: u32,
    pub(crate) matcher: u64,
    pub(crate) scratchpad: u64,
    /// Bytes of the frame.
    pub(crate) bytes: u64,
    /// Copy of each user buffer; `None` for long ones, which are bound when a run starts.
    pub(crate) staging: Vec<Option<u64>>,
    /// By operation: memory for the message of an eager receive that does not fit beside its
    /// counter. Unused for other operations.
    mailboxes: Vec<u64>,
    /// By wildcard send: memory for its message; `None` if the message stays at the sender.
    pub(crate) wildcard_mailboxes: Vec<Option<u64>>,
}

impl FrameLayout {
    fn new(rank: &LinkedRank, needs_owner: bool) -> Self {
        let view = rank.schedule.view();
        let mut end = FRAME_HEAD;
        let mut reserve = |bytes: u64| {
            // Each part begins at a line: different processes write to different parts at the same
            // time.
            let at = end;
            end = at.saturating_add(bytes).checked_next_multiple_of(64).unwrap_or(END_OF_MEMORY);
            at
        };
        let bindings = reserve(8 * view.buffers().len() as u64);
        let counters = reserve(64 * u64::from(rank.counters));
        // An operation can be deferred twice: to execute it and to complete it.
        let owner_queue_entries =
            if needs_owner { (2 * rank.counters).next_power_of_two() } else { 0 };
        let owner_queue = reserve(8 * u64::from(owner_queue_entries));
        let events = (rank.wildcards.len() + rank.wildcard_sends.len()) as u64;
        let matcher = reserve(if events > 0 { matcher_bytes(events) } else { 0 });
        let operations = view.operations().iter().zip(&rank.links);
        let mailboxes = operations
            .map(|(record, link)| {
                let is_long = record.bytes > COUNTER_PAYLOAD;
                let eager = record.kind() == Kind::Receive && link.delivery == Delivery::Eager;
                if eager && is_long { reserve(record.bytes) } else { 0 }
            })
            .collect();
        let wildcard_mailboxes =
            rank.wildcard_sends.iter().map(|send| send.eager.then(|| reserve(send.bytes)));
        let wildcard_mailboxes = wildcard_mailboxes.collect();
        let scratchpad = reserve(view.header().scratchpad_bytes);
        let staging = view
            .buffers()
            .iter()
            .map(|buffer| (buffer.length <= limits::STAGED).then(|| reserve(buffer.length)))
            .collect();
        let bytes = reserve(0);
        FrameLayout {
            bindings,
            counters,
            owner_queue,
            owner_queue_entries,
            matcher,
            scratchpad,
            bytes,
            staging,
            mailboxes,
            wildcard_mailboxes,
        }
    }

    /// Returns the memory for the message of `bytes` bytes that an eager receive waits for.
    #[inline]
    pub(crate) fn mailbox(&self, receive: u32, bytes: u64) -> u64 {
        if bytes <= COUNTER_PAYLOAD {
            self.counters + 64 * u64::from(receive) + 8
        } else {
            self.mailboxes[receive as usize]
        }
    }
}

/// Layout of a program's block.
#[derive(Debug)]
pub(crate) struct ProgramLayout {
    /// The frame of each rank.
    pub(crate) frames: Vec<FrameLayout>,
    /// Number of slots: a power of two.
    pub(crate) slots: u64,
    joins: u64,
}

impl ProgramLayout {
    pub(crate) fn new(linked: &Linked) -> Self {
        let frames: Vec<FrameLayout> =
            linked.ranks.iter().map(|rank| FrameLayout::new(rank, linked.needs_owner)).collect();
        let ranks = linked.ranks.iter().zip(&frames);
        let total = sum(ranks.map(|(rank, frame)| frame.bytes.saturating_add(long_bytes(rank))));
        let slots = 1 << (SLOT_BYTES / total.max(1)).clamp(2, SLOT_LIMIT).ilog2();
        ProgramLayout { frames, slots, joins: 64 * linked.joins.len() as u64 }
    }

    /// Returns the bytes of the block.
    pub(crate) fn bytes(&self) -> u64 {
        self.states_at(self.frames.len() as u64)
            .saturating_add(self.slot_bytes().saturating_mul(self.slots))
    }

    /// Returns the offset of a rank's run states.
    pub(crate) fn states_at(&self, rank: u64) -> u64 {
        STATES_AT + rank * self.states_bytes()
    }

    /// Returns the offset of a slot, which begins with the join counts.
    pub(crate) fn slot_at(&self, slot: u64) -> u64 {
        self.states_at(self.frames.len() as u64) + slot * self.slot_bytes()
    }

    /// Returns the offset of a slot's first frame.
    pub(crate) fn frames_at(&self, slot: u64) -> u64 {
        self.slot_at(slot) + self.joins
    }

    fn slot_bytes(&self) -> u64 {
        self.joins.saturating_add(sum(self.frames.iter().map(|frame| frame.bytes)))
    }

    /// Returns the bytes of a rank's run states. Only the rank writes them, so they have lines of
    /// their own.
    fn states_bytes(&self) -> u64 {
        (8 * self.slots).next_multiple_of(64)
    }
}

/// Returns the total length of the user buffers that are not staged in the frame. Private ones
/// take memory of the arena for each slot.
fn long_bytes(rank: &LinkedRank) -> u64 {
    let view = rank.schedule.view();
    let long = view.buffers().iter().filter(|buffer| buffer.length > limits::STAGED);
    sum(long.map(|buffer| buffer.length))
}

/// The sum; `u64::MAX` if it is larger.
fn sum(bytes: impl Iterator<Item = u64>) -> u64 {
    bytes.fold(0, u64::saturating_add)
}
