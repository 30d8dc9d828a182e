//! The parts on models, decisions and regret, made in a hurry on threads.

use crate::run_on_threads;
use ::models::machine::Fingerprint;
use ::models::machine_file::Machine;
use collectives::Collective;
use measure::experiments::{decisions, models};
use measure::harness::Setting;
use measure::results::{Part, Role, Value};

testing::tests![
    every_measured_algorithm_is_predicted,
    a_table_is_made_of_the_winners,
    every_choice_has_its_regret,
];

fn quick() -> Setting {
    Setting { quick: true, ..Setting::default() }
}

fn cells(part: &Part) -> usize {
    part.maps.iter().map(|map| map.cells.len()).sum()
}

fn every_measured_algorithm_is_predicted() {
    let part = run_on_threads(&models::experiment(&quick())).expect("it can be measured");
    assert!(part.complete);
    let figure = part
        .figures
        .iter()
        .find(|figure| figure.name == "bcast-2-peers")
        .expect("bcast is among them");
    for measured in
        figure.series.iter().filter(|series| series.role == Role::Measured && series.name != "join")
    {
        let name = format!("{}, sharing", measured.name);
        let predicted = figure
            .series
            .iter()
            .find(|series| series.name == name)
            .expect("each has its prediction");
        assert_eq!(predicted.points.len(), measured.points.len(), "{name}");
        assert!(predicted.points.iter().all(|point| point.median > 0.0), "{name}");
    }
    let errors = part.table("errors").expect("there is one");
    assert!(errors.rows.iter().any(|row| row[1] == Value::from("binomial")));
    assert!(!part.table("summary").expect("there is one").rows.is_empty());
    assert!(!part.table("contention").expect("there is one").rows.is_empty());
}

fn a_table_is_made_of_the_winners() {
    let part = run_on_threads(&decisions::experiment(&quick())).expect("it can be measured");
    assert!(part.complete && cells(&part) > 0);
    let machine = Machine::new(Fingerprint::default());
    let table = decisions::table(&part, &machine).expect("ranges that can be");
    let operations: Vec<Collective> =
        table.rows().iter().step_by(2).map(|row| row.operation).collect();
    assert_eq!(operations, [Collective::Barrier, Collective::Bcast, Collective::Allreduce]);
    assert_eq!(table.rows().len(), 6, "in two forms");
    for row in table.rows() {
        assert!([0, 1, 100, u64::MAX].into_iter().all(|bytes| row.range(bytes).is_ok()), "{row:?}");
    }
}

fn every_choice_has_its_regret() {
    let part = run_on_threads(&decisions::regret(&quick())).expect("it can be measured");
    // A barrier, and two operations of three sizes each; threads have neither models nor a table.
    assert!(part.complete);
    assert_eq!(cells(&part), 7);
    for cell in part.maps.iter().flat_map(|map| &map.cells) {
        assert!(cell.detail.contains(" by the built-in rules: "), "{cell:?}");
    }
    // The times behind it, which predictions are compared with.
    let bcast = part.figure("bcast-2-blocking").expect("it is among them");
    let is_timed = |name: &str| {
        let curve = bcast.curve(name).map(|curve| (curve.role, curve.points.len()));
        curve == Some((Role::Measured, 3))
    };
    assert!(is_timed("join") && is_timed("binomial"), "{bcast:?}");
    assert!(part.table("errors").expect("there is one").rows.is_empty());
    let summary = part.table("summary").expect("there is one");
    let values = part.maps.iter().flat_map(|map| map.cells.iter().filter_map(|cell| cell.value));
    assert_eq!(summary.rows.len(), 1);
    assert_eq!(summary.rows[0][4], Value::from(values.fold(0.0, f64::max)));
}
