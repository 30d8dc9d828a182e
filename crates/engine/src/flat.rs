//! Flat collectives: collectives that need no linking.
//!
//! Every rank writes its contribution where the other ranks find it, and fetches its result from
//! their contributions. [`pattern`] defines the data, and `role` the part of each rank. The executor
//! runs them in numbered slots.

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
