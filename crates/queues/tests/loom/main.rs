//! Loom models of the protocols in shared memory: every interleaving of a few threads, up to a
//! bound on preemptions, on the source files that run in production.
//!
//! The files use `crate::sync`, `crate::fence` and `crate::futex`, which are models here. A lost wake-up is a deadlock, which loom reports.

mod append;
mod basic;
mod cache_line;
mod channel;
mod express;
mod fence;
mod futex;
mod model;
mod poll;
mod ring_list;
mod sync;
mod tag_on;

#[path = "../../src/consumers.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "the file is a library module; the models use parts of it"
)]
mod consumers;
#[path = "../../src/error.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "the file is a library module; the models use parts of it"
)]
mod error;
#[path = "../../../shm/src/event.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "the file is a library module; the models use parts of it"
)]
mod event;
#[path = "../../src/id.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "the file is a library module; the models use parts of it"
)]
mod id;
#[path = "../../src/message.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "the file is a library module; the models use parts of it"
)]
mod message;
#[path = "../../src/one_poll/bits.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "the file is a library module; the models use parts of it"
)]
mod poll_set;
#[path = "../../src/remote_waits.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "the file is a library module; the models use parts of it"
)]
mod remote_waits;
#[path = "../../src/slot_ring"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "the files are library modules; the models use parts of them"
)]
mod slot_ring {
    pub(crate) mod receive;
    pub(crate) mod ring;
    pub(crate) mod state;

    pub(crate) use receive::{RecvState, VoidPolicy};
    pub(crate) use ring::{Claimed, SlotMemory, SlotRing, SlotWords};
    pub(crate) use state::{MESSAGE_BITS, SenderId};
}
#[path = "../../../shm/src/wakeup.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "the file is a library module; the models use parts of it"
)]
mod wakeup;

fn main() -> std::process::ExitCode {
    testing::run_in_processes()
}
