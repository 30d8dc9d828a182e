//! Lock-free protocols on words of shared memory.
//!
//! These modules import [`crate::sync`] only. The tests under loom include the same files and
//! explore every interleaving of a few threads.

pub(crate) mod arrival;
pub(crate) mod chunk_claims;
pub(crate) mod combiner;
pub(crate) mod dependency_counter;
pub(crate) mod link_table;
pub(crate) mod owner_queue;
pub(crate) mod run_state;
