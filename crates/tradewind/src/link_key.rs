//! Keys of cached schedules.

use collectives::Tuning;
use engine::signature::Signature;
use models::machine_file::Engine;
use std::num::NonZeroU32;

/// Key of a cached schedule: two calls with equal keys run the same one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LinkKey {
    pub(crate) call: Signature,
    pub(crate) algorithm: &'static str,
    pub(crate) tuning: Tuning,
    pub(crate) ranks_per_node: Option<NonZeroU32>,
    /// The engine between nodes; `None` for the preferred one that accepts the graph.
    pub(crate) engine: Option<Engine>,
    /// Collective, operation and type, and root; or number of a topology.
    pub(crate) arguments: u64,
    /// Sizes of blocks that are not all equal; the same on all ranks, unless the rank registers its part
    /// alone.
    pub(crate) sizes: Vec<u64>,
}
