//! Records in the slots of a ring: a record is in its slot as a whole or not at all.

use crate::basic::words::{load_bytes, store_bytes};
use crate::consumers::Single;
use crate::error::{RecvError, SendError};
use crate::slot_ring::{MESSAGE_BITS, RecvState, SlotMemory, SlotRing};
use crate::sync::Ordering;

/// Words of a slot besides the record: state and header.
const EXTRA_WORDS: u64 = 2;

/// Returns the words of a slot: whole cache lines, so that two senders never write to the same one.
pub(crate) fn slot_words(record_bytes: u64) -> u64 {
    (record_bytes.div_ceil(8) + EXTRA_WORDS).next_multiple_of(8)
}

/// Appends a record, which fits into a slot.
pub(crate) fn send<'a, M: SlotMemory<'a>>(
    ring: &SlotRing<'a, M>,
    record: &[u8],
) -> Result<(), SendError> {
    let sent = ring.try_send_with(0, |ring, claimed| {
        // The header comes first: it identifies the claimant if this process is killed while it
        // copies. Its length is below 2⁴⁴.
        ring.put_header(claimed, record.len() as u64);
        store_bytes(ring.slot(claimed.position).data, record);
    });
    sent.map(|_| ())
}

/// Receives the oldest record into `record`; returns whether there was one. Only one receiver calls
/// this.
pub(crate) fn receive<'a, M: SlotMemory<'a>>(
    ring: &SlotRing<'a, M>,
    state: &mut RecvState,
    max_bytes: u64,
    record: &mut Vec<u8>,
) -> Result<bool, RecvError> {
    let received = ring.try_recv_with::<Single, ()>(state, |slot| {
        // Relaxed: the Acquire load of the state made header and record visible. A corrupt length is
        // limited to the longest record.
        let length = slot.header.load(Ordering::Relaxed) & MESSAGE_BITS;
        record.resize(length.min(max_bytes) as usize, 0);
        load_bytes(slot.data, record);
    });
    received.map(|received| received.is_some())
}
