//! Parameters that are built in, for jobs between nodes without measurements.
//! [Decisions](crate::decision::rules) on one node are built in as well.
//!
//! `tradewind tune --built-in DIR` measures them again: the files of a class of machines.
//!
//! They were measured between two network namespaces on one virtual Ethernet, with two ranks on
//! each, by a single pair of ranks. For each engine, start costs, latencies, factors of the gaps,
//! overheads as a constant and a share of the gap, the time of combining and γ were then fitted to
//! recorded times of all collectives, by least absolute logarithms of ratios: there the ranks share
//! cores with each other and with the packets, which a single pair does not see. What is true of
//! other networks, too, is their order: a blocking call costs less than the node service, the kernel
//! starts fast, copies slowly, and combines more slowly still.

use crate::file::FileError;
use crate::machine::Fingerprint;
use crate::machine_file::{Machine, Networks};
use crate::prediction::Models;
use std::path::Path;
use std::sync::LazyLock;

/// Names of the files: parameters of one node, the rows that follow from them, and parameters
/// between nodes.
pub const ONE_NODE_FILE: &str = "one-node.json";
/// See [`ONE_NODE_FILE`].
pub const ROWS_FILE: &str = "one-node-decisions.json";
/// See [`ONE_NODE_FILE`].
pub const NODES_FILE: &str = "virtual-ethernet.json";

const ONE_NODE: &[u8] = include_bytes!("builtin/one-node.json");
const NODES: &[u8] = include_bytes!("builtin/virtual-ethernet.json");

/// The built-in parameters of one node, or between nodes.
///
/// # Errors
/// None for the files that are built in.
pub fn machine(is_one_node: bool) -> Result<Machine, FileError> {
    let content = if is_one_node { ONE_NODE } else { NODES };
    Machine::from_bytes(Path::new("built-in parameters"), content)
}

/// The models of the built-in parameters between nodes.
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
        // The example above reads the file; without it nothing would be predicted.
        Models::of(&machine(false).unwrap_or_else(|_| Machine::new(Fingerprint::default())))
    });
    &MODELS
}

/// A measured machine as built-in parameters: of a class of machines, which these words describe,
/// and without samples.
pub fn without_machine(machine: &Machine, words: &str) -> Machine {
    let fingerprint = Fingerprint {
        processor: format!("built in: {}, {words}", std::env::consts::ARCH),
        cores: machine.cores(),
        threads_per_core: 1,
        sockets: 1,
        ..Fingerprint::default()
    };
    let mut built_in = Machine { fingerprint, other_nodes: Vec::new(), ..machine.clone() };
    built_in.networks = Networks::default();
    built_in.engines.values_mut().for_each(|costs| costs.samples.clear());
    built_in
}
