//! Limits of the schedules that the program executes, and the errors of schedules beyond them.

use crate::memory::layout::{
    LARGE_SLOTS, MIDDLE_BYTES, MIDDLE_SLOTS, PIECE_BYTES, SMALL_BYTES, SMALL_SLOTS,
};
use crate::rank::prepared_schedule::{LIMIT_BYTES, Sizes};
use goal::schedule::{Kind, OperationRecord, Schedule, ScheduleView};
use network::error::Error;

/// Operations of a schedule: fewer than the program executes in one activation.
const LIMIT_OPERATIONS: u32 = 8192;
/// Bytes in the slots of a rank.
const SLOT_BYTES: u64 =
    (SMALL_SLOTS * SMALL_BYTES + MIDDLE_SLOTS * MIDDLE_BYTES + LARGE_SLOTS * PIECE_BYTES) as u64;
/// Edges of an operation: as many as the program follows.
const LIMIT_EDGES: u32 = 1 << 16;
/// Bytes of the pieces of a message at the smallest MTU that the loader accepts.
const SHORTEST_PIECE: u64 = 1280;

/// Way out for schedules that are too large for this engine.
pub(super) const OTHER_ENGINE: &str = "use the agent engine for it";

/// Returns true if all messages of a run fit into half of the slots before their receives are
/// posted.
///
/// When slots run out, senders are held back, and the message that a receive waits for could queue
/// behind messages of later receives. The slots that the pieces of a message need depend on the
/// MTU, so the run has to fit with short and with long packets.
fn fits_slots(view: &ScheduleView<'_>) -> bool {
    let receives = || {
        view.operations()
            .iter()
            .filter(|record| record.kind() == Kind::Receive)
            .map(|record| record.bytes)
    };
    let short = receives().filter(|bytes| *bytes <= SMALL_BYTES as u64).count();
    let longer = || receives().filter(|bytes| *bytes > SMALL_BYTES as u64);
    let in_short_packets: u64 = longer().map(|bytes| bytes.div_ceil(SHORTEST_PIECE)).sum();
    // The last piece of a message may be a short one, so long packets fill middle slots, too.
    let long = longer().filter(|bytes| *bytes > MIDDLE_BYTES as u64);
    let in_long_packets: u64 = long.map(|bytes| bytes.div_ceil(PIECE_BYTES as u64)).sum();
    short <= SMALL_SLOTS / 2
        && in_short_packets <= MIDDLE_SLOTS as u64 / 2
        && in_long_packets <= LARGE_SLOTS as u64 / 2
}

/// Returns the reason why the program cannot execute a schedule, if there is one.
pub(super) fn refusal(schedule: &Schedule) -> Option<Error> {
    let view = schedule.view();
    let sizes = Sizes::of(&view);
    let unknown = |record: &OperationRecord| match record.kind() {
        Kind::Join => Some("a join, which needs memory that all ranks share"),
        Kind::Calc if record.bytes != 0 => {
            Some("a computation without a result, which only takes time")
        }
        Kind::Local if record.arithmetic().is_none_or(|(_, of)| !of.is_basic()) => Some(
            "arithmetic on types of more than 64 bits, of 16-bit floating-point or complex \
                  numbers, or of values with an index",
        ),
        _ => None,
    };
    if let Some(what) = view.operations().iter().find_map(unknown) {
        let why = format!("{what}: use the agent engine for it");
        return Some(Error::Operation(format!("the kernel engine does not execute {why}")));
    }
    let edges =
        view.operations().iter().map(|record| record.edge_count.max(record.start_edge_count)).max();
    let edges = u64::from(edges.unwrap_or(0));
    let operations = u64::from(view.header().operation_count);
    let bytes = sizes.prepared.saturating_add(sizes.frame);
    let limits = [
        ("an operation with its successors", edges, u64::from(LIMIT_EDGES)),
        ("a schedule's number of operations", operations, u64::from(LIMIT_OPERATIONS)),
        ("a schedule with one run of it, in bytes,", bytes, LIMIT_BYTES),
    ];
    let large = limits.into_iter().find(|(_, needed, limit)| needed > limit);
    if let Some((what, needed, limit)) = large {
        return Some(too_large(what, needed, limit, OTHER_ENGINE));
    }
    let bytes = view
        .operations()
        .iter()
        .filter(|record| record.kind() == Kind::Receive)
        .map(|record| record.bytes)
        .sum();
    (!fits_slots(&view)).then(|| {
        too_large(
            "the messages that a run may receive before their receives are posted, in bytes,",
            bytes,
            SLOT_BYTES / 2,
            OTHER_ENGINE,
        )
    })
}

pub(super) fn system_error(what: &'static str) -> impl FnOnce(std::io::Error) -> Error {
    move |source| Error::System {
        what: format!("{what} in the kernel"),
        why: format!("{source}; TRADEWIND_INTERNODE=agent does without the kernel engine"),
    }
}

pub(super) fn too_large(what: &str, needed: u64, limit: u64, way_out: &'static str) -> Error {
    Error::TooLarge { backend: "kernel", what: what.to_owned(), needed, limit, way_out }
}
