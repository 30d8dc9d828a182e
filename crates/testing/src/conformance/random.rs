//! Random programs, free of deadlocks and of data races by construction.
//!
//! A [`Plan`] is a sequence of steps in one global order: a message, a local operation, a join. It
//! is laid out rank by rank: an operation requires the earlier operations of its rank that read or
//! wrote the memory it uses; further edges are random. Both ends of a message and all participants
//! of a join belong to one step and depend on earlier steps only, so the program ends even if every
//! send waits for its receive. Finally vertex order is shuffled, so that it does not determine the
//! order of execution; the shuffle preserves the pairing of the k-th send with the k-th receive.

mod layout;
mod plan;

pub use layout::{Program, lay_out};
pub use plan::{Plan, Step, plans};

use crate::conformance::engine::{Capabilities, Engine, Failure, RoundOutcome};
use crate::conformance::reference;
use crate::conformance::vector::compare;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestError, TestRunner};
use std::hash::{BuildHasher, RandomState};

/// Runs random programs and compares every round with the reference.
///
/// # Panics
/// A round differs from the reference. The message contains the smallest such plan.
pub(crate) fn run_programs(engine: &dyn Engine) {
    let capabilities = engine.capabilities();
    let mut config = Config {
        cases: capabilities.random_programs,
        failure_persistence: None,
        ..Config::default()
    };
    let seed = match config.rng_seed {
        RngSeed::Fixed(seed) => seed,
        RngSeed::Random => RandomState::new().hash_one(engine.name()),
    };
    config.rng_seed = RngSeed::Fixed(seed);
    let outcome = TestRunner::new(config).run(&plans(&capabilities), |plan| {
        let program = lay_out(&plan);
        verify(engine, &program).map_err(TestCaseError::fail)
    });
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(reason, plan)) => panic!(
            "the engine `{}` fails a random program (again with PROPTEST_RNG_SEED={seed}): {reason}\n{plan:#?}",
            engine.name()
        ),
        Err(TestError::Abort(reason)) => panic!("no random programs could be made: {reason}"),
    }
}

/// Runs one program and compares it with the reference.
///
/// # Errors
/// The difference, or the engine's failure.
pub fn verify(engine: &dyn Engine, program: &Program) -> Result<(), String> {
    compare_with_reference(
        program,
        &engine.run(&program.graphs, &program.inputs).map_err(|failure| failure.to_string())?,
    )
}

/// Compares an engine's outcomes for a program with those of the reference.
///
/// # Errors
/// The difference.
pub fn compare_with_reference(program: &Program, found: &[RoundOutcome]) -> Result<(), String> {
    let expected: Result<Vec<_>, Failure> =
        program.inputs.iter().map(|round| reference::evaluate(&program.graphs, round)).collect();
    let expected = expected
        .map_err(|failure| format!("the generator made a program that cannot be: {failure}"))?;
    let rounds: Vec<_> = expected.into_iter().map(|outcome| outcome.buffers).collect();
    compare(&rounds, &[], found)
}

/// Returns plans for an engine with all capabilities, for tests of other components.
pub fn any_plans() -> impl proptest::strategy::Strategy<Value = Plan> {
    plans(&Capabilities::default())
}
