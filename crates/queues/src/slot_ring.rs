//! Ring of slots that many senders fill and many receivers empty: the protocol under cache-line
//! messages, Tag-On headers, the rings of receive queues, and append buffers.
//!
//! A slot holds one message of any length up to the slot's. A kind of messages supplies the memory
//! of its slots ([`SlotMemory`]), and writes and copies its messages.

use std::cell::Cell;

mod receive;
mod ring;
mod state;

pub(crate) use receive::{RecvState, VoidPolicy};
pub(crate) use ring::{Claimed, POSITION, SlotMemory, SlotRing, SlotWords};
pub(crate) use state::{MAX_SENDERS, MESSAGE_BITS, SenderId};

/// Number of refused messages of a thread per recovery, which scans all slots and checks processes.
const REFUSALS: u32 = 64;

/// Counts a message of this thread that a full ring refused; returns true if recovery is due.
#[cold]
pub(crate) fn is_recovery_due() -> bool {
    thread_local! {
        static COUNT: Cell<u32> = const { Cell::new(0) };
    }
    COUNT.replace(COUNT.get().wrapping_add(1)).is_multiple_of(REFUSALS)
}
