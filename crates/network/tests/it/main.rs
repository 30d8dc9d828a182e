//! Integration tests of the crate `network`.

mod alone;
mod authentication;
mod background;
mod collectives;
mod conformance;
mod connecting;
mod descriptor_shortage;
mod emulated_adapters;
mod fabric;
mod failures;
mod forwarding;
mod frames;
mod hostile;
mod job_nodes;
mod jobs;
mod long_messages;
mod lost_ranks;
mod messages;
mod namespaces;
mod own_regions;
mod remote_memory;
mod resident_memory;
mod sparse;
mod streams;
mod submission_ring;

/// The atomics of the sources that `submission_ring` includes.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
}

fn main() -> std::process::ExitCode {
    testing::run_on_threads(2)
}
