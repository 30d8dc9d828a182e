//! Shared memory of one job: segments, arenas, futexes, process handles and the broker
pub mod arena;
pub mod completion;
mod free_list;
pub mod futex;
pub mod handle;
pub mod memory;
pub mod segment;
pub mod shared;
pub mod sync;
