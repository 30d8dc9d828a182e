//! Layout of the maps: `bpf/layout.h` in Rust. Assertions compare the sizes.

use bytemuck::{Pod, Zeroable};
use std::mem::offset_of;

/// Bytes of a rank's arena: schedules, runs and buffers. A power of two.
pub(crate) const ARENA_BYTES: usize = 4 << 20;
/// Longest payload of one piece of a message.
pub(crate) const PIECE_BYTES: usize = 8192;
/// Number of bytes that the program may access from a masked offset on.
pub(crate) const SLACK_BYTES: usize = 2 * PIECE_BYTES;
/// Largest number of ranks of a job on one node.
pub(crate) const LOCAL_RANKS: usize = 64;
/// Largest number of ranks of a job.
pub(crate) const RANKS: usize = 4096;
/// Bytes of a ring that wakes a rank.
pub(crate) const WAKEUP_BYTES: usize = 4096;

const RUN_BUCKETS: usize = 256;
const UNEXPECTED_BUCKETS: usize = 64;
pub(crate) const MESSAGE_HEADER_BYTES: usize = 48;
/// Bytes of a slot before the message: its state and its link.
pub(crate) const SLOT_HEAD_BYTES: usize = 8;
/// Slots for unexpected messages: number, and capacity in bytes.
pub(crate) const SMALL_SLOTS: usize = 2048;
pub(crate) const SMALL_BYTES: usize = 256;
pub(crate) const MIDDLE_SLOTS: usize = 1024;
pub(crate) const MIDDLE_BYTES: usize = 1536;
pub(crate) const LARGE_SLOTS: usize = 256;
const SLOTS_BYTES: usize = SMALL_SLOTS * (SLOT_HEAD_BYTES + MESSAGE_HEADER_BYTES + SMALL_BYTES)
    + MIDDLE_SLOTS * (SLOT_HEAD_BYTES + MESSAGE_HEADER_BYTES + MIDDLE_BYTES)
    + LARGE_SLOTS * large_slot_bytes();

/// Returns the bytes of a slot for the longest pieces, with padding for a store beyond their end.
pub(crate) const fn large_slot_bytes() -> usize {
    SLOT_HEAD_BYTES + MESSAGE_HEADER_BYTES + PIECE_BYTES + 64
}

/// States of a slot.
pub(crate) const SLOT_FREE: u32 = 0;
pub(crate) const SLOT_FILLING: u32 = 1;
pub(crate) const SLOT_WAITING: u32 = 2;
pub(crate) const SLOT_HANDED_OVER: u32 = 4;

/// `struct rank_head`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(crate) struct RankHead {
    pub submitted: u32,
    pub sleeping: u32,
    pub waiting_first: u32,
    pub next_small: u32,
    pub active_first: u32,
    pub active_last: u32,
    pub stalled_first: u32,
    pub completed: u32,
    pub dropped: u64,
    pub refused: u64,
    pub next_middle: u32,
    pub next_large: u32,
    pub freed: u32,
    pub submitted_before: u32,
    pub port: u32,
    pub doorbell_seen: u32,
    pub reserved: [u32; 14],
}

/// Offset of the slots in a rank's memory: small, middle, large.
pub(crate) const SLOTS: usize =
    size_of::<RankHead>() + 4 * RUN_BUCKETS + 2 * 4 * UNEXPECTED_BUCKETS;
/// Offset of the arena.
pub(crate) const ARENA: usize = SLOTS + SLOTS_BYTES;
/// Bytes of a rank's memory.
pub(crate) const RANK_BYTES: usize = ARENA + ARENA_BYTES + SLACK_BYTES;

/// Offset of the stack of submitted runs.
pub(crate) const SUBMITTED: usize = offset_of!(RankHead, submitted);
/// Offset of the flag of a sleeping rank.
pub(crate) const SLEEPING: usize = offset_of!(RankHead, sleeping);
/// Offset of the stack of slots in state [`SLOT_WAITING`], and of the link in a slot.
pub(crate) const WAITING_FIRST: usize = offset_of!(RankHead, waiting_first);
pub(crate) const SLOT_NEXT: usize = 4;
/// Offset of the runs that were taken from the stack and not started when the budget was spent.
pub(crate) const SUBMITTED_BEFORE: usize = offset_of!(RankHead, submitted_before);
/// Offset of the count of messages that found no slot.
pub(crate) const REFUSED: usize = offset_of!(RankHead, refused);
/// Offset of the flag that slots were freed.
pub(crate) const FREED: usize = offset_of!(RankHead, freed);

/// Offset of the list of runs with ready operations.
pub(crate) const ACTIVE: usize = offset_of!(RankHead, active_first);
/// Offsets of the port of the doorbell, and of the flag that the program received it.
pub(crate) const PORT: usize = offset_of!(RankHead, port);
pub(crate) const DOORBELL_SEEN: usize = offset_of!(RankHead, doorbell_seen);

/// State of a run, its first word: it is not complete.
pub(crate) const RUN_UNDER_WAY: u32 = 0;
/// All operations are executed. Any other number: the run ended with a fault.
pub(crate) const RUN_COMPLETE: u32 = 1;

pub(crate) const FAULT_DIVISION: u32 = 1;
pub(crate) const FAULT_SIZES: u32 = 2;
pub(crate) const FAULT_SIGNATURES: u32 = 3;

/// `struct run`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(crate) struct Run {
    pub state: u32,
    pub next: u32,
    pub sequence: u64,
    pub communicator: u32,
    pub signature: u32,
    pub member: u32,
    pub members: u32,
    pub member_count: u32,
    pub operation_count: u32,
    pub operations: u32,
    pub blocks: u32,
    pub edges: u32,
    pub memories: u32,
    pub buffer_count: u32,
    pub progress: u32,
    pub receives: u32,
    pub receive_mask: u32,
    pub times: u32,
    pub remaining: u32,
    pub ready_first: u32,
    pub ready_last: u32,
    pub next_active: u32,
    pub is_active: u32,
    pub posted_first: u32,
    pub taking_first: u32,
    pub left_first: u32,
    pub left_last: u32,
    pub fault: u32,
    pub fault_vertex: u32,
    pub fault_source: u32,
    pub fault_tag: u32,
    pub fault_ordinal: u32,
    pub stalled_first: u32,
    pub next_stalled: u32,
    pub reserved: u32,
    pub fault_element: u64,
    pub fault_sent: u64,
    pub fault_expected: u64,
}

/// `struct progress`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(crate) struct Progress {
    pub counter: u32,
    pub next: u32,
    pub phase: u32,
    pub slots: u32,
    pub moved: u32,
    pub source: u32,
    pub tag: u32,
    pub ordinal: u32,
}

/// Phases of an operation: started, and executed.
pub(crate) const PHASE_RUNNING: u32 = 2;
pub(crate) const PHASE_COMPLETE: u32 = 3;

/// `struct named_receive`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub(crate) struct NamedReceive {
    pub source: u32,
    pub tag: u32,
    pub ordinal: u32,
    pub operation: u32,
}

/// Returns the first index of the search for a receive: `receive_hash` of the program.
pub(crate) fn receive_hash(source: u32, tag: u32, ordinal: u32) -> u32 {
    let hash = source.wrapping_mul(0x9e37_79b1)
        ^ tag.wrapping_mul(0x85eb_ca77)
        ^ ordinal.wrapping_mul(0xc2b2_ae3d);
    hash ^ hash >> 16
}

/// `struct location`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub(crate) struct RankLocation {
    /// Number of the node.
    pub node: u32,
    /// Index of the rank among those of its node.
    pub slot: u32,
}

/// `struct job`, without the locations that follow.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(crate) struct Job {
    pub node: u32,
    pub ranks: u32,
    pub piece_bytes: u32,
    pub local_rank: [u32; LOCAL_RANKS],
}

/// Bytes of `struct job`.
pub(crate) const JOB_BYTES: usize = size_of::<Job>() + RANKS * size_of::<RankLocation>();

const _: () =
    assert!(size_of::<RankHead>() == 128 && size_of::<Run>() == 168 && size_of::<Progress>() == 32);
