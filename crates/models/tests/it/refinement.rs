//! Rows of decision tables that measurements correct.

use crate::sample_machine::fingerprint;
use crate::selection::{MODELS, bcast_row, query, range};
use collectives::{Algorithm, Choice, Collective};
use models::decision::{DecisionTable, Evidence, Measured, Range, Row};
use models::machine_file::Engine;
use proptest::prelude::*;

fn measured(algorithm: Algorithm, [lower, median, upper]: [f64; 3]) -> Measured {
    Measured { plan: Choice::of(algorithm), engine: None, median, quartiles: [lower, upper] }
}

fn ranges_of(row: &Row) -> Vec<(u64, Option<u64>, Algorithm, Option<Evidence>)> {
    let range = |range: &Range| (range.from, range.to, range.plan.algorithm, range.time.evidence());
    row.ranges.iter().map(range).collect()
}

#[test]
fn a_measured_winner_takes_the_sizes_around_its_own() {
    use Evidence::{Both, Measured as ByClock, Predicted};
    let ranges = vec![range(0, Some(100), Algorithm::Flat), range(100, None, Algorithm::Chain)];
    let mut row = bcast_row(4, 4, ranges);
    let exactly = |algorithm, time| measured(algorithm, [time; 3]);
    let predict =
        |_: Option<Engine>, plan: &Choice| (plan.algorithm == Algorithm::Flat).then_some(1.0);
    // As fast as the best: the models' plan stays.
    row.refine(
        8,
        (4, Some(32)),
        &[exactly(Algorithm::Flat, 1.02), exactly(Algorithm::Chain, 1.0)],
        predict,
    );
    let (flat, chain) = (Algorithm::Flat, Algorithm::Chain);
    let expected = [(0, Some(100), flat, Some(Both)), (100, None, chain, Some(Predicted))];
    assert_eq!(ranges_of(&row), expected);
    assert_eq!(
        (row.ranges[0].at, row.ranges[0].runner_up.map(|next| next.plan.algorithm)),
        (8, Some(chain))
    );
    // Slower than the best: the best takes its window, and joins what has the same plan.
    row.refine(64, (32, Some(128)), &[exactly(flat, 2.0), exactly(chain, 1.0)], predict);
    let expected = [(0, Some(32), flat, Some(Both)), (32, None, chain, Some(ByClock))];
    assert_eq!(ranges_of(&row), expected);
    row.refine(1000, (500, None), &[exactly(flat, 1.0), exactly(chain, 2.0)], predict);
    let expected = [
        (0, Some(32), flat, Some(Both)),
        (32, Some(500), chain, Some(ByClock)),
        (500, None, flat, Some(Both)),
    ];
    assert_eq!(ranges_of(&row), expected);
    assert!(DecisionTable::new(fingerprint(), vec![row]).is_ok());
}

/// Plans on two engines are timed in different jobs: a quarter of the time does not change the engine.
#[test]
fn another_engine_wins_by_more_than_a_quarter() {
    let on = |algorithm, engine, time| Measured {
        engine: Some(engine),
        ..measured(algorithm, [time; 3])
    };
    let (flat, chain, tree) = (Algorithm::Flat, Algorithm::Chain, Algorithm::Binomial);
    for (in_kernel, expected) in [
        (1.0, (chain, Engine::Agent)),
        (0.81, (chain, Engine::Agent)),
        (0.7, (tree, Engine::Kernel)),
    ] {
        let usual = Range { engine: Some(Engine::Agent), ..range(0, None, flat) };
        let mut row = bcast_row(4, 2, vec![usual]);
        let found = [
            on(flat, Engine::Agent, 1.2),
            on(chain, Engine::Agent, 1.0),
            on(tree, Engine::Kernel, in_kernel),
        ];
        row.refine(8, (0, None), &found, |_, _| None);
        let chosen = (row.ranges[0].plan.algorithm, row.ranges[0].engine);
        assert_eq!(chosen, (expected.0, Some(expected.1)), "{in_kernel}");
    }
}

/// The job of one engine leaves out a call of which it has one plan only, so the models' plan may not be
/// timed where one of another engine is.
#[test]
fn an_engine_that_was_timed_alone_does_not_win_over_a_faster_prediction() {
    let (flat, tree) = (Algorithm::Flat, Algorithm::Binomial);
    for (predicted, expected) in [
        (Some(0.6), (flat, Engine::Agent)),
        (Some(1.2), (flat, Engine::Agent)),
        (Some(1.3), (tree, Engine::Kernel)),
        (None, (tree, Engine::Kernel)),
    ] {
        let usual = Range { engine: Some(Engine::Agent), ..range(0, None, flat) };
        let mut row = bcast_row(4, 1, vec![usual]);
        let found = [Measured { engine: Some(Engine::Kernel), ..measured(tree, [1.0; 3]) }];
        let predict = |engine, _: &Choice| predicted.filter(|_| engine == Some(Engine::Agent));
        row.refine(8, (0, None), &found, predict);
        let chosen = (row.ranges[0].plan.algorithm, row.ranges[0].engine);
        assert_eq!(chosen, (expected.0, Some(expected.1)), "{predicted:?}");
    }
}

#[test]
fn a_flat_collective_wins_where_times_cannot_decide() {
    let chosen = |join, ring| {
        let mut row = bcast_row(4, 4, vec![range(0, None, Algorithm::Flat)]);
        let found = [measured(Algorithm::Chain, ring), measured(Algorithm::Join, join)];
        row.refine(8, (0, None), &found, |_, _| None);
        row.ranges[0].plan.algorithm
    };
    assert_eq!(chosen([19.4, 26.0, 27.4], [19.4, 22.5, 33.8]), Algorithm::Join);
    assert_eq!(chosen([25.0, 26.0, 27.4], [19.4, 22.5, 24.0]), Algorithm::Chain);
    assert_eq!(
        chosen([19.4, 30.0, 47.4], [19.4, 22.5, 33.8]),
        Algorithm::Chain,
        "1.33 times as long"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_refined_row_has_one_plan_for_every_size(
        times in proptest::collection::btree_map(1u64..1 << 30, (0.1f64..9.0, 0.1f64..9.0), 1..12), bytes: u64,
    ) {
        let shape = query(Collective::Allreduce, 4, 4, 0);
        let sizes: Vec<u64> = times.keys().copied().collect();
        let mut row = Row::build(&MODELS, &shape, &sizes).expect("known costs");
        for (place, (size, (one, other))) in times.iter().enumerate() {
            let middle = |other: &u64| (*other as f64 * *size as f64).sqrt() as u64 + 1;
            let low = place.checked_sub(1).map_or(0, |before| middle(&sizes[before]).min(*size));
            let high = sizes.get(place + 1).map(|next| middle(next).max(size + 1));
            let found = [measured(Algorithm::Ring, [*one; 3]), measured(Algorithm::Join, [*other; 3])];
            row.refine(*size, (low, high), &found, |_, _| None);
        }
        prop_assert!(row.range(bytes).is_ok(), "{row:?}");
        let table = DecisionTable::new(fingerprint(), vec![row]);
        prop_assert!(table.is_ok(), "{table:?}");
    }
}
