//! Parameters that are built in, for jobs between nodes without measurements.
//! [Decisions](crate::decision::rules) on one node are built in as well.
//!
//! They were measured between two network namespaces on one virtual Ethernet, with two ranks on
//! each, by a single pair of ranks. For each engine, start costs, latencies, factors of the gaps,
//! overheads as a constant and a share of the gap, the time of combining and γ were then fitted to
//! recorded times of all collectives, by least absolute logarithms of ratios: there the ranks share
//! cores with each other and with the packets, which a single pair does not see. What is true of
//! other networks, too, is their order: a blocking call costs less than the node service, the kernel
//! starts fast, copies slowly, and combines more slowly still.

use crate::machine::Fingerprint;
use crate::machine_file::Machine;
use crate::prediction::Models;
use std::path::Path;
use std::sync::LazyLock;

const CONTENT: &[u8] = include_bytes!("builtin/virtual-ethernet.json");

/// The models of the built-in parameters.
///
/// ```
/// use models::builtin;
/// use models::machine_file::Engine;
///
/// for engine in [Engine::Direct, Engine::Agent, Engine::Kernel] {
///     assert!(builtin::models().has(engine));
/// }
/// ```
pub fn models() -> &'static Models {
    static MODELS: LazyLock<Models> = LazyLock::new(|| {
        let machine = Machine::from_bytes(Path::new("built-in parameters"), CONTENT);
        // The example above reads the file; without it nothing would be predicted.
        Models::of(&machine.unwrap_or_else(|_| Machine::new(Fingerprint::default())))
    });
    &MODELS
}
