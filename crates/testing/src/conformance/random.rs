//! Random programs, free of deadlocks and of data races by construction.
//!
//! A [`Plan`] is a sequence of steps as one observer might see them: a message, a local operation,
//! a meeting. It is laid out rank by rank: an operation requires the earlier operations of its rank
//! that read or wrote the memory it uses, and on top of that whatever edges chance adds. Both ends
//! of a message and all participants of a join belong to one step and depend on earlier steps only,
//! so the program ends even if every send waits for its receive. In the end vertex order is
//! shuffled, so that it says nothing about the order of execution, in such a way that the k-th send
//! still meets its k-th receive.

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
/// If a round compare_with_reference: shows the smallest plan for which that happens.
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

/// Compares what an engine has found for a program with the reference.
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

/// Plans for an engine that can do everything, for tests of other things than engines.
pub fn any_plans() -> impl proptest::strategy::Strategy<Value = Plan> {
    plans(&Capabilities::default())
}
