//! The models against measurements that were recorded: a change to a formula that makes predictions
//! or choices worse fails here.
//!
//! `data/` has a machine's file and the median times of every plan that was measured on that
//! machine with `tradewind tune --measure-all`: on one node, and between two nodes of two ranks.

use collectives::{Choice, Collective, Levels};
use models::builtin;
use models::decision::{CallForm, Query};
use models::machine_file::{Engine, Machine};
use models::prediction::Models;
use models::statistics::percentile;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Measured times of the plans of a call, on the engine that ran them.
type Calls = BTreeMap<(Collective, CallForm, u32, u32, u64), Vec<(Option<Engine>, Choice, f64)>>;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn recorded(name: &str) -> Calls {
    let text = std::fs::read_to_string(data(name)).unwrap();
    let mut calls = Calls::new();
    for line in text.lines().skip(1) {
        let words: Vec<&str> = line.split(',').collect();
        let [operation, form, ranks, per_node, engine, bytes, plan, time] = words[..] else {
            panic!("{line}")
        };
        let number = |text: &str| text.parse::<u32>().unwrap();
        let key = (
            operation.parse().unwrap(),
            form.parse().unwrap(),
            number(ranks),
            number(per_node),
            bytes.parse().unwrap(),
        );
        let engine = engine.parse::<Engine>().unwrap();
        let engine = Some(engine).filter(|engine| engine.is_between_nodes());
        calls.entry(key).or_default().push((engine, plan_of(plan), time.parse().unwrap()));
    }
    calls
}

fn plan_of(text: &str) -> Choice {
    let (levels, text) = match text.strip_prefix("two-level ") {
        Some(rest) => (Levels::Two, rest),
        None => (Levels::One, text),
    };
    let (name, tuning) = text.split_once(' ').unwrap_or((text, ""));
    let plan = Choice { levels, ..Choice::of(name.parse().unwrap()) };
    let number = |before, after| tuning.strip_prefix(before)?.strip_suffix(after)?.parse().ok();
    let segment_bytes = number("in segments of ", " bytes").and_then(std::num::NonZeroU64::new);
    let degree = tuning.strip_prefix("of degree ").map(|degree| degree.parse().unwrap());
    Choice { segment_bytes, degree, ..plan }
}

fn query(
    (operation, form, ranks, ranks_per_node, bytes): (Collective, CallForm, u32, u32, u64),
) -> Query {
    Query { operation, form, ranks, ranks_per_node, bytes }
}

/// Relative errors of the models for all recorded times, ascending.
fn errors(models: &Models, calls: &Calls, of: impl Fn(&Query) -> bool) -> Vec<f64> {
    let mut errors = Vec::new();
    for (key, plans) in calls {
        let query = query(*key);
        for (engine, plan, time) in plans.iter().filter(|_| of(&query)) {
            let predicted = models.price(*engine, plan, &query);
            errors.extend(predicted.map(|predicted| (predicted / time - 1.0).abs()));
        }
    }
    errors.sort_by(f64::total_cmp);
    errors
}

/// Time of the models' choice over that of the best recorded plan, for every call of which the
/// choice was recorded, ascending.
fn regrets(models: &Models, calls: &Calls, of: impl Fn(&Query) -> bool) -> Vec<f64> {
    let mut regrets = Vec::new();
    for (key, plans) in calls {
        let query = query(*key);
        if !of(&query) {
            continue;
        }
        let time_of = |engine: Option<Engine>, choice: &Choice| {
            let same = |(other, plan, _): &&(Option<Engine>, Choice, f64)| {
                *other == engine && plan == choice
            };
            plans.iter().find(same).map(|(.., time)| *time)
        };
        let chosen = models.candidates(&query);
        let best = plans.iter().map(|(.., time)| *time).fold(f64::INFINITY, f64::min);
        let time = chosen.first().and_then(|first| time_of(first.engine, &first.plan));
        regrets.extend(time.map(|time| time / best));
    }
    regrets.sort_by(f64::total_cmp);
    regrets
}

/// Median and ninetieth percentile.
fn middle(values: &[f64]) -> [f64; 2] {
    assert!(!values.is_empty());
    [0.5, 0.9].map(|share| percentile(values, share))
}

fn assert_within(what: &str, values: &[f64], limits: [f64; 2]) {
    let [median, p90] = middle(values);
    println!("{what}: median {median:.3}, 90th percentile {p90:.3}, of {}", values.len());
    assert!(median <= limits[0] && p90 <= limits[1], "{what}: {median} and {p90}, not {limits:?}");
}

#[test]
fn predictions_and_choices_on_one_node() {
    let machine = Machine::read(&data("one-node.json")).unwrap();
    let models = Models::of(&machine);
    let calls = recorded("one-node.csv");
    for (ranks, error, regret) in [(2, [0.17, 0.42], [1.02, 1.2]), (4, [0.36, 0.75], [1.02, 1.2])] {
        let of = |query: &Query| query.ranks == ranks;
        assert_within(&format!("errors among {ranks}"), &errors(&models, &calls, of), error);
        assert_within(&format!("regret among {ranks}"), &regrets(&models, &calls, of), regret);
    }
}

#[test]
fn predictions_and_choices_between_nodes() {
    let machine = Machine::read(&data("two-nodes.json")).unwrap();
    let calls = recorded("two-nodes.csv");
    for (form, regret) in [(CallForm::Blocking, [1.3, 2.3]), (CallForm::Nonblocking, [1.5, 2.6])] {
        let of = |query: &Query| query.form == form;
        for (whose, models) in [("own", &Models::of(&machine)), ("built-in", builtin::models())] {
            let what = |what: &str| format!("{what} of {form} calls, {whose} parameters");
            assert_within(&what("errors"), &errors(models, &calls, of), [0.6, 0.9]);
            assert_within(&what("regret"), &regrets(models, &calls, of), regret);
        }
    }
}
