//! The parts on models, decisions and regret, made in a hurry on threads.

use crate::recorded::{data, recorded, run};
use crate::{part_on_threads, run_on_threads};
use ::models::decision::DecisionTable;
use ::models::machine::Fingerprint;
use ::models::machine_file::{Engine, Machine};
use collectives::Collective;
use measure::experiments::decisions::{Purpose, at_speed, experiment, table};
use measure::experiments::{find, part};
use measure::harness::Setting;
use measure::results::{Part, Role, Value};

testing::tests![
    every_measured_algorithm_is_predicted,
    a_table_is_made_of_the_winners,
    recorded_times_make_the_recorded_tables,
    every_choice_has_its_regret,
];

fn quick() -> Setting {
    Setting { quick: true, ..Setting::default() }
}

fn cells(part: &Part) -> usize {
    part.maps.iter().map(|map| map.cells.len()).sum()
}

fn every_measured_algorithm_is_predicted() {
    let part = part_on_threads(&find("models").expect("it is there").experiment(&quick()))
        .expect("it can be measured");
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
    let run = run_on_threads(&experiment(Purpose::Decision, &quick()));
    let run = run.expect("it can be measured");
    let part = part(&run).expect("an experiment of rows");
    assert!(part.complete && cells(&part) > 0);
    let machine = Machine::new(Fingerprint::default());
    let table = table::on_one_node(&run, &machine).expect("ranges that can be");
    let operations: Vec<Collective> =
        table.rows().iter().step_by(2).map(|row| row.operation).collect();
    assert_eq!(operations, [Collective::Barrier, Collective::Bcast, Collective::Allreduce]);
    assert_eq!(table.rows().len(), 6, "in two forms");
    for row in table.rows() {
        assert!([0, 1, 100, u64::MAX].into_iter().all(|bytes| row.range(bytes).is_ok()), "{row:?}");
    }
}

/// The ranges of a table as the recorded ones: times of the models, which other tests are about, are
/// left out.
fn ranges(table: &DecisionTable) -> Vec<String> {
    let mut lines = Vec::new();
    for row in table.rows() {
        for range in &row.ranges {
            let engine = range.engine.map(|engine| engine.to_string()).unwrap_or_default();
            let measured = range.time.measured.map(|time| format!("{time:.3}"));
            let shape = (row.operation, row.form, row.ranks, row.ranks_per_node);
            let (operation, form, ranks, ranks_per_node) = shape;
            lines.push(format!(
                "{operation},{form},{ranks},{ranks_per_node},{},{},{engine},{},{}",
                range.from,
                range.at,
                range.plan,
                measured.unwrap_or_default()
            ));
        }
    }
    lines
}

fn lines(recorded: &str) -> Vec<&str> {
    recorded.lines().skip(1).collect()
}

/// The tables in `data` were made when the figures of a part were the source of a table.
fn recorded_times_make_the_recorded_tables() {
    let machine = Machine::read(&data("one-node.json")).expect("the machine's file");
    let rows = recorded("one-node.csv").into_values().flatten().collect();
    let timed = run("decisions", rows);
    let table = table::on_one_node(&timed, &at_speed(&timed, &machine));
    let found = ranges(&table.expect("ranges that can be"));
    assert_eq!(found, lines(include_str!("../data/one-node-table.csv")));

    let machine = Machine::read(&data("two-nodes-tuned.json")).expect("the machine's file");
    let rows = recorded("two-nodes-tuned.csv").into_values().flatten();
    let (in_kernel, in_user_space) = rows.partition(|row| row.engine == Some(Engine::Kernel));
    let kernel = run("decisions-nodes-kernel", in_kernel);
    let direct = run("decisions-nodes-direct", in_user_space);
    let runs = [&direct, &kernel];
    let machine = table::corrected(&runs, &machine);
    let table = table::between_nodes(&runs, &machine, &table::of_table(&machine, &runs));
    let found = ranges(&table.expect("ranges that can be"));
    assert_eq!(found, lines(include_str!("../data/two-nodes-table.csv")));
}

fn every_choice_has_its_regret() {
    let part = part_on_threads(&experiment(Purpose::Check, &quick())).expect("it can be measured");
    // A barrier, and two operations of three sizes each; threads have neither models nor a table.
    assert!(part.complete);
    assert_eq!(cells(&part), 7);
    for cell in part.maps.iter().flat_map(|map| &map.cells) {
        assert!(cell.detail.contains("; best: "), "{cell:?}");
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
    assert_eq!((summary.rows.len(), &summary.rows[0][0]), (1, &Value::from("built-in")));
    assert_eq!(summary.rows[0][4], Value::from(values.fold(0.0, f64::max)));
}
