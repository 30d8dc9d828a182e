//! The machine: its cores, which of them share a cache, its sockets, and the distance of two cores.

mod core;
mod core_list;
mod fingerprint;
mod pair_class;
mod processor;
mod sysfs;
mod topology;
mod unknown;

pub use fingerprint::Fingerprint;
pub use pair_class::PairClass;
pub use topology::Topology;
pub use unknown::Unknown;
