//! Times of single plans: corrections of their predictions, and one time for equal graphs.

use crate::sample_machine::fingerprint;
use crate::selection::query;
use collectives::{Algorithm, Choice, Collective, Levels};
use models::calibration::TimedCall;
use models::decision::{Measured, Query, pooled};
use models::machine::PairClass;
use models::machine_file::{Engine, Machine};
use models::parameters::Parameters;
use models::prediction::Models;
use std::num::NonZeroU32;

/// By hand: a plan took four times as long as predicted with 64 bytes, and as long as predicted with
/// 4096. In the middle, by doublings, it is twice as long; 0.8 of the logarithm counts. Other shapes and
/// plans are predicted as before.
#[test]
fn times_of_a_plan_correct_its_predictions_between_them() {
    let mut machine = Machine::new(fingerprint());
    let linear = Parameters::linear(20.0, (2.0, 0.0), (2.0, 0.0), (5.0, 0.01)).expect("valid");
    machine.engine_mut(Engine::Agent).classes.insert(PairClass::OtherNode, linear);
    let models = Models::of(&machine);
    let at = |ranks, bytes| query(Collective::Bcast, ranks, 2, bytes);
    let plan = Choice::of(Algorithm::Binomial);
    let price = |models: &Models, plan, query| {
        models.price(Some(Engine::Agent), &plan, &query).expect("there is a model")
    };
    let timed = |bytes, factor| TimedCall {
        query: at(4, bytes),
        plan,
        microseconds: factor * price(&models, plan, at(4, bytes)),
    };
    let with = models.clone().with_times(Engine::Agent, &[timed(4096, 1.0), timed(64, 4.0)]);
    let factor = |plan, query| price(&with, plan, query) / price(&models, plan, query);
    for (bytes, expected) in [(0, 4.0f64), (64, 4.0), (512, 2.0), (4096, 1.0), (1 << 20, 1.0)] {
        let found = factor(plan, at(4, bytes));
        assert!((found - expected.powf(0.8)).abs() < 1e-9, "{bytes}: {found}");
    }
    assert_eq!(factor(plan, at(8, 64)), 1.0);
    assert_eq!(factor(Choice::of(Algorithm::Chain), at(4, 64)), 1.0);
    let of_candidate = |models: &Models| {
        let all = models.candidates(&at(4, 64));
        all.into_iter().find(|one| one.plan == plan).map(|one| one.microseconds)
    };
    let ratio = of_candidate(&with).zip(of_candidate(&models)).map(|(with, of)| with / of);
    assert!(ratio.is_some_and(|ratio| (ratio - 4f64.powf(0.8)).abs() < 1e-9), "{ratio:?}");
}

/// A chain takes four times as long as predicted, a flat tree three times, and a tree of degree 3 twice.
/// Among six ranks a tree of degree 1 is a chain, and one of degree 5 is flat.
#[test]
fn trees_of_degree_one_have_the_times_of_chains() {
    let mut machine = Machine::new(fingerprint());
    let linear = Parameters::linear(20.0, (2.0, 0.0), (2.0, 0.0), (5.0, 0.01)).expect("valid");
    machine.engine_mut(Engine::Agent).classes.insert(PairClass::OtherNode, linear);
    let models = Models::of(&machine);
    let here = query(Collective::Reduce, 6, 1, 64);
    let tree = |degree| Choice { degree: NonZeroU32::new(degree), ..Choice::of(Algorithm::Dary) };
    let (chain, flat) = (Choice::of(Algorithm::Chain), Choice::of(Algorithm::Flat));
    let price = |models: &Models, plan: &Choice| {
        models.price(Some(Engine::Agent), plan, &here).expect("there is a model")
    };
    let timed = [(chain, 4.0), (flat, 3.0), (tree(3), 2.0)].map(|(plan, factor)| TimedCall {
        query: here,
        plan,
        microseconds: factor * price(&models, &plan),
    });
    let with = models.clone().with_times(Engine::Agent, &timed);
    for (plan, expected) in
        [(tree(1), 4.0f64), (tree(2), 2.0), (tree(3), 2.0), (tree(5), 3.0), (chain, 4.0)]
    {
        let found = price(&with, &plan) / price(&models, &plan);
        assert!((found - expected.powf(0.8)).abs() < 1e-9, "{plan}: {found}");
    }
    // They are the same graphs, so they share their times.
    for same in [[tree(1), chain], [tree(5), flat]] {
        let engine = Some(Engine::Agent);
        let timed = |(plan, median)| Measured { plan, engine, median, quartiles: [median; 2] };
        let found = pooled(&here, same.into_iter().zip([1.0, 4.0]).map(timed).collect());
        assert!(found.iter().all(|one| (one.median - 2.0).abs() < 1e-9), "{found:?}");
    }
}

#[test]
fn plans_with_equal_graphs_have_one_time() {
    let here = query(Collective::Bcast, 4, 2, 64);
    let two_levels = |algorithm| Choice { levels: Levels::Two, ..Choice::of(algorithm) };
    let degree = NonZeroU32::new(3);
    let all = [
        (Choice::of(Algorithm::Flat), Engine::Agent, 2.0),
        (Choice { degree, ..Choice::of(Algorithm::Dary) }, Engine::Agent, 8.0),
        (Choice::of(Algorithm::Flat), Engine::Kernel, 1.0),
        (two_levels(Algorithm::Chain), Engine::Agent, 3.0),
        (two_levels(Algorithm::Flat), Engine::Agent, 12.0),
        (Choice::of(Algorithm::Chain), Engine::Agent, 5.0),
    ];
    let measured = all.map(|(plan, engine, median)| Measured {
        plan,
        engine: Some(engine),
        median,
        quartiles: [median / 2.0, median * 2.0],
    });
    let found = pooled(&here, measured.to_vec());
    let expected = [4.0, 4.0, 1.0, 6.0, 6.0, 5.0];
    for (one, expected) in found.iter().zip(expected) {
        assert!((one.median - expected).abs() < 1e-9, "{one:?}, expected {expected}");
        assert!((one.quartiles[1] - 2.0 * expected).abs() < 1e-9, "{one:?}");
    }
    let in_many = Query { ranks: 128, ..here };
    assert_eq!(pooled(&in_many, measured.to_vec()), measured);
}
