//! `tradewind tune` and `tradewind schedule predict`: their files and messages, never how long
//! anything takes.

use crate::command::text;
use measure::experiments::decisions::losses_between_nodes;
use measure::rows::Measurements;
use models::decision::{DecisionTable, Evidence};
use models::machine::PairClass;
use models::machine_file::{Engine, Machine, Networks, SizeSamples, TCP};
use std::path::Path;
use std::process::{Command, Output};

testing::tests![
    models_alone_make_a_table,
    predictions_come_from_any_machine_s_file,
    predictions_say_that_a_measurement_was_disturbed,
    a_file_that_is_no_machine_s_is_one_line,
    built_in_parameters_predict_where_there_is_no_file,
    errors_of_models_are_shown_where_they_were_measured,
];
testing::tests![
    needs(Nodes):
    nodes_are_tuned_beside_what_is_kept,
    experiments_run_between_nodes_and_are_gone_on_with,
];

const ONE_NODE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/tests/data/one-node.json");
const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/tests/data/two-nodes.json");

fn tradewind(line: &str, out: Option<&Path>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tradewind"));
    command.args(line.split(' ')).env("XDG_CONFIG_HOME", "/nonexistent");
    if let Some(out) = out {
        command.arg("--out").arg(out);
    }
    command.output().expect("the command can be started")
}

fn models_alone_make_a_table() {
    let place = tempfile::tempdir().expect("space for files");
    let out = place.path().join("decisions.json");
    let output = tradewind("tune --quick --ranks 2 --models-only", Some(&out));
    let said = text(&output.stderr);
    assert!(output.status.success() && said.contains(" 0 measured, 0 predicted and"), "{said}");
    let table = DecisionTable::read(&out).expect("a table");
    let ranges = || table.rows().iter().flat_map(|row| &row.ranges);
    assert_eq!(table.rows().len(), 6, "three operations in two forms");
    assert!(table.rows().iter().all(|row| row.error.is_some()), "{table:?}");
    assert!(ranges().all(|range| range.time.evidence() == Some(Evidence::Predicted)), "{table:?}");
    let machine = Machine::read(&place.path().join("machine.json")).expect("it lies beside");
    assert!(machine.sharing.len() == 1 && machine.flat.len() == 2, "{machine:?}");
}

fn nodes_are_tuned_beside_what_is_kept() {
    let place = tempfile::tempdir().expect("space for files");
    let out = place.path().join("decisions.json");
    let output = tradewind("tune --quick --ranks 2 --models-only", Some(&out));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let measurements = place.path().join("measurements");
    let line = format!(
        "tune --quick --nodes 2 --ranks-per-node 2 --check --measurements {}",
        measurements.display()
    );
    let output = tradewind(&line, Some(&out));
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let table = DecisionTable::read(&out).expect("a table");
    let rows = |nodes: u32| {
        let of = |row: &&models::decision::Row| row.ranks.div_ceil(row.ranks_per_node) == nodes;
        table.rows().iter().filter(of).collect::<Vec<_>>()
    };
    assert_eq!((rows(1).len(), rows(2).len()), (6, 4));
    let has_engine =
        |row: &&models::decision::Row| row.ranges.iter().all(|range| range.engine.is_some());
    assert!(rows(2).iter().all(has_engine), "{table:?}");
    let machine = Machine::read(&place.path().join("machine.json")).expect("it lies beside");
    assert!(machine.engines.contains_key(&Engine::Agent) && !machine.sharing.is_empty());
    assert!(machine.engines[&Engine::Direct].contention.values().all(|ratio| ratio.is_finite()));
    // In the node service overheads have a meaning at all sizes.
    let agent = &machine.engines[&Engine::Agent].samples[&PairClass::OtherNode].sizes;
    let has_overheads = |size: &SizeSamples| {
        !size.send_overhead.values.is_empty() && !size.receive_overhead.values.is_empty()
    };
    assert!(agent.iter().all(has_overheads), "{agent:?}");
    for engine in [Engine::Direct, Engine::Agent] {
        assert!(machine.engines[&engine].calibration.is_some(), "{engine} has times enough");
    }
    let shown = text(&output.stdout);
    assert!(shown.contains("What choices between nodes lose"), "{shown}");
    let measured = Measurements::read(&measurements).expect("it is whole");
    let losses = losses_between_nodes(&measured).expect("it is there");
    // A table, models and built-in parameters, and the table beside these, in two forms and in all.
    assert_eq!((losses.maps.len(), losses.tables[0].rows.len()), (6, 12), "{losses:?}");
    assert!(measurements.join("regret-between-nodes-summary.csv").exists());
    let lengths = |name: &str| machine.networks.0.get(name).map(std::collections::BTreeMap::len);
    assert_eq!(lengths(TCP), Some(5), "{:?}", machine.networks);
    if !testing::fabric::libraries().is_empty() {
        assert_eq!(lengths(&Networks::of_provider("tcp")), Some(5), "{:?}", machine.networks);
    }
    let fastest = machine.networks.fastest().expect("TCP was measured");
    let said = text(&output.stderr);
    assert!(said.contains("TRADEWIND_NETWORK=auto takes") && said.contains(&fastest.why), "{said}");
}

/// The ranks of a step are taken from each node; what is complete is not measured again.
fn experiments_run_between_nodes_and_are_gone_on_with() {
    let place = tempfile::tempdir().expect("space for files");
    let line = "measure barrier --quick --nodes 2 --ranks-per-node 2 --link 1gbit";
    let output = tradewind(line, Some(place.path()));
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let there = Measurements::read(place.path()).expect("rows are whole");
    let run = there.run("barrier-nodes-direct").expect("it is there");
    assert!(run.rows().all(|row| row.link == Some(1_000_000_000)), "{run:?}");
    let part = measure::experiments::part(run).expect("it is known");
    assert!(part.complete && part.steps_done == 2, "2 and 4 ranks: {part:?}");
    assert_eq!(part.setting["link"], "1gbit");
    assert!(text(&output.stderr).contains("each node has a link of 1gbit"));
    let curve = |name: &str| part.figures[0].curve(name).map(|curve| curve.points[0].x);
    assert_eq!(curve("dissemination, blocking, direct"), Some(1.0));
    assert_eq!(curve("dissemination, nonblocking, direct"), Some(1.0));
    let again = tradewind(line, Some(place.path()));
    let said = text(&again.stderr);
    assert!(again.status.success() && !said.contains("barrier: 2 ranks"), "{said}");
    let refused = tradewind("measure progress --nodes 2", Some(place.path()));
    assert!(!refused.status.success() && text(&refused.stderr).contains("--nodes"));
    let report = std::fs::read_to_string(place.path().join("report.html")).expect("a report");
    assert!(report.contains("Barrier on 2^d ranks between nodes"));
}

fn predictions_come_from_any_machine_s_file() {
    let line = format!(
        "schedule predict alltoall -n 64 -b 4096 --ranks-per-node 8 --nonblocking --machine {RECORDED}"
    );
    let output = tradewind(&line, None);
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(
        shown.starts_with("nonblocking alltoall of 4096 bytes among 64 ranks, 8 a node, by "),
        "{shown}"
    );
    assert!(
        shown.contains("kernel") && shown.contains("agent") && shown.contains("1.00"),
        "{shown}"
    );
    let missing = tradewind(&format!("schedule predict barrier -n 4 --machine {RECORDED}"), None);
    let said = text(&missing.stderr);
    assert!(said.contains("has no parameters for a blocking barrier of 8 bytes"), "{said}");
}

fn predictions_say_that_a_measurement_was_disturbed() {
    let place = tempfile::tempdir().expect("space for files");
    let path = place.path().join("machine.json");
    let mut machine = Machine::read(Path::new(RECORDED)).expect("it is recorded");
    let load = "other processes used 43 % of the cores";
    machine.engine_mut(Engine::Agent).disturbed.insert(PairClass::OtherNode, load.to_owned());
    machine.write(&path).expect("space for a file");
    let line = "schedule predict bcast -n 4 --ranks-per-node 2 --nonblocking --machine";
    let output = tradewind(&format!("{line} {}", path.display()), None);
    let shown = text(&output.stdout);
    assert!(shown.ends_with(&format!("\nnoisy: other-node, agent: {load}\n")), "{shown}");
    let undisturbed = tradewind(&format!("{line} {RECORDED}"), None);
    assert!(!text(&undisturbed.stdout).contains("noisy"), "{undisturbed:?}");
}

fn a_file_that_is_no_machine_s_is_one_line() {
    let place = tempfile::tempdir().expect("space for files");
    let path = place.path().join("machine.json");
    let recorded = std::fs::read_to_string(RECORDED).expect("it is recorded");
    let negative = recorded.replacen("\"latency\": ", "\"latency\": -", 1);
    let older = recorded.replacen("\"version\": 3", "\"version\": 2", 1);
    for (content, problem) in
        [("{", "damaged"), (&negative, "the latency is -"), (&older, "older tradewind")]
    {
        std::fs::write(&path, content).expect("space for a file");
        let output =
            tradewind(&format!("schedule predict bcast -n 4 --machine {}", path.display()), None);
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
        assert!(said.contains("machine.json") && said.contains(problem), "{said}");
    }
}

fn built_in_parameters_predict_where_there_is_no_file() {
    // The parameters between nodes were fitted to times directly, without an error.
    for (line, parameters, error) in [
        ("schedule predict bcast -n 4", "one node of two cores", "± "),
        (
            "schedule predict alltoall -n 4 --ranks-per-node 2",
            "one virtual Ethernet",
            "not measured",
        ),
    ] {
        let output = tradewind(line, None);
        let shown = text(&output.stdout);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let start = format!(", by built-in parameters (model error {error}");
        assert!(shown.contains(&start), "{shown}");
        let last = shown.lines().last().unwrap_or_default();
        assert!(
            last.starts_with("no file of this machine: ") && last.contains(parameters),
            "{last}"
        );
    }
}

fn errors_of_models_are_shown_where_they_were_measured() {
    let place = tempfile::tempdir().expect("space for files");
    let path = place.path().join("machine.json");
    let mut machine = Machine::read(Path::new(ONE_NODE)).expect("it is recorded");
    let measured: Vec<u32> = machine.sharing.iter().map(|sharing| sharing.ranks).collect();
    assert_eq!(measured, [2, 4, 8]);
    let first_line = |ranks: u32, machine: &Machine| {
        machine.write(&path).expect("space for a file");
        let line = format!("schedule predict barrier -n {ranks} --machine {}", path.display());
        let shown = text(&tradewind(&line, None).stdout);
        shown.lines().next().unwrap_or_default().to_owned()
    };
    for ranks in [2, 4, 8, 16] {
        let line = first_line(ranks, &machine);
        assert!(line.contains("(model error ± ") && !line.contains("± 0 %"), "{line}");
    }
    assert!(first_line(17, &machine).ends_with("(model error not measured for such calls)"));
    // As few times as constants: the fit meets all of them.
    machine.sharing.iter_mut().for_each(|sharing| sharing.error = 0.0);
    assert!(first_line(2, &machine).ends_with("(model error not measured for such calls)"));
}
