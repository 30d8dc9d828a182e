//! What happens when all ranks of a communicator meet: the join of the graph language, by itself.
//!
//! A [`Meeting`] says how contributions are combined, alike on every rank. How its bytes travel follows from their number
//! alone, so that every rank comes to the same answer without asking.

use crate::call::Call;
use goal::arithmetic::{Arithmetic, DataType};
use goal::schedule::{JoinKind, ScheduleView};

/// Up to this many bytes of all contributions together every rank reduces by itself: that costs less than waiting for
/// one rank's result to travel back.
const OWNER_REDUCES: u64 = 8192;

/// A collective that is one join of all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meeting {
    /// How contributions are combined.
    pub kind: JoinKind,
    /// The operation and type of a reduction.
    pub arithmetic: Option<(Arithmetic, DataType)>,
    /// The contributor of a broadcast.
    pub root: u32,
    /// Bytes a rank contributes (in a broadcast, the root).
    pub bytes: u64,
    /// What the ranks called, for telling them apart.
    pub call: Call,
}

/// Where a meeting's contributions lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Travel {
    /// In the rank's own line of the slot.
    Inline,
    /// In the slot's cells.
    Cell,
    /// In the ranks' arenas; the cells say where.
    Arena,
}

/// Who computes a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Each rank its own, when it takes it.
    Owner,
    /// Whoever finds a chunk unclaimed: the last rank to arrive and those that wait.
    Claimed,
}

impl Meeting {
    /// The meeting that a schedule is, if it is nothing else: a single join over whole user buffers.
    pub fn of_schedule(schedule: &ScheduleView<'_>, call: Call) -> Option<Meeting> {
        let [record] = schedule.operations() else { return None };
        let kind = JoinKind::from_u8(record.join_mode).filter(|_| record.kind() == goal::schedule::Kind::Join)?;
        Some(Meeting { kind, arithmetic: record.arithmetic(), root: record.peer, bytes: record.bytes, call })
    }

    /// Bytes of a rank's result among `ranks`.
    pub(crate) fn result_bytes(&self, ranks: u32) -> u64 {
        match self.kind {
            JoinKind::Barrier => 0,
            JoinKind::Reduce | JoinKind::Exchange | JoinKind::Broadcast => self.bytes,
            JoinKind::Gather => self.bytes.saturating_mul(u64::from(ranks)),
        }
    }

    #[inline]
    pub(crate) fn travel(&self, inline_bytes: u64, cell_bytes: u64) -> Travel {
        if self.bytes <= inline_bytes {
            Travel::Inline
        } else if self.bytes <= cell_bytes {
            Travel::Cell
        } else {
            Travel::Arena
        }
    }

    #[inline]
    pub(crate) fn work(&self, ranks: u32, travel: Travel) -> Work {
        let heavy = self.kind == JoinKind::Reduce && self.bytes.saturating_mul(u64::from(ranks)) > OWNER_REDUCES;
        if heavy || travel == Travel::Arena { Work::Claimed } else { Work::Owner }
    }

    /// Whether `rank` puts bytes on the table.
    pub(crate) fn contributes(&self, rank: u32) -> bool {
        match self.kind {
            JoinKind::Barrier => false,
            JoinKind::Broadcast => rank == self.root,
            _ => self.bytes > 0,
        }
    }

    /// Whether anybody waits for `rank`: nobody does for those that only listen to a small broadcast.
    #[inline]
    pub(crate) fn is_awaited(&self, rank: u32, travel: Travel) -> bool {
        self.kind != JoinKind::Broadcast || travel == Travel::Arena || rank == self.root
    }
}
