//! Parameters that are built in, for jobs between nodes without measurements.
//! [Decisions](crate::decision::rules) on one node are built in as well.
//!
//! They were measured between two network namespaces on one virtual Ethernet, with two ranks on
//! each, by a single pair of ranks. Start costs, latencies and factors of the gaps were then fitted
//! to recorded times of all collectives: there the ranks share cores with each other and with the
//! packets, which a single pair does not see. The start of a call takes from twice (agent) to five
//! times (kernel) as long, and a message of the kernel twice the gap. Latencies inside a node are
//! open against start costs; where fits had the same error, those with the better choices were
//! taken. What is true of other networks, too, is their order: a blocking call costs less than the
//! node service, the kernel starts fast and copies slowly.

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
