//! Flat collectives: collectives that need no linking.
//!
//! Every rank writes its contribution where the other ranks find it, and fetches its result from
//! their contributions. [`pattern`] defines the data, and `role` the part of each rank. The executor
//! runs them in numbered slots.
//!
//! A rank arrives by one plain store to its own cell; an atomic addition to a shared counter would
//! stall. The pattern determines the contributions that a rank reads, and so the ranks that it waits
//! for: the root of a gather waits for all, a rank of a scan for those below it, and ranks that only
//! contribute wait for none. Contributions stay staged until every rank has read them. The rank with
//! the result of a user-defined operation computes it.

pub(crate) mod arrivals;
mod blocks;
pub(crate) mod chunks;
pub(crate) mod executor;
mod fetch;
pub mod pattern;
pub(crate) mod result_binding;
pub(crate) mod role;
mod signatures;
pub(crate) mod variable_blocks;

pub use pattern::{FlatCollective, Pattern, folded_by_all, kept_in_cells};
pub use variable_blocks::{Edge, EdgeKey, VariableBlocks};
