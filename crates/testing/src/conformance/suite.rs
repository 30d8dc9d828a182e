//! Vectors and random programs in one call.

use crate::conformance::engine::Engine;
use crate::conformance::{random, vectors};

/// Runs all vectors and random programs that are within the engine's capabilities.
///
/// Random programs differ from run to run; `PROPTEST_RNG_SEED`, which a failure names, repeats
/// them.
///
/// # Panics
/// A result differs. The message names every failed vector with its first differing byte, or
/// contains the smallest random program.
pub fn run_suite(engine: &dyn Engine) {
    let capabilities = engine.capabilities();
    let vectors: Vec<_> =
        vectors::all().into_iter().filter(|vector| vector.is_within(&capabilities)).collect();
    let failures: Vec<String> = vectors
        .iter()
        .filter_map(|vector| {
            vector.run(engine).err().map(|text| format!("  {}: {text}", vector.name))
        })
        .collect();
    assert!(
        failures.is_empty(),
        "the engine `{}` fails {} of {} conformance vectors:\n{}",
        engine.name(),
        failures.len(),
        vectors.len(),
        failures.join("\n")
    );
    random::run_programs(engine);
}
