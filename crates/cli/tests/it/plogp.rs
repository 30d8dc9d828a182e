//! `tradewind measure plogp` on real processes: what comes out, never how long anything takes.
#![expect(clippy::unwrap_used, reason = "a test that cannot make its own input should fail")]

use crate::command::text;
use measure::rows::{Measurements, Run};
use models::machine::Fingerprint;
use models::machine_file::{Engine, Machine};
use models::parameters::Classes;
use std::path::Path;
use std::process::{Command, Output};

testing::tests![
    a_machine_s_file_is_written_whole_and_belongs_to_it,
    another_machine_s_file_is_not_written_over,
];

fn measure(out: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tradewind"));
    command.args(["measure", "plogp", "--quick", "--out"]).arg(out).args(more);
    command.output().unwrap()
}

fn assert_are_parameters(classes: &Classes, expected: usize) {
    assert_eq!(classes.iter().count(), expected);
    for (class, parameters) in classes.iter() {
        // Reading the file has checked that all are times, with sizes that ascend from 0.
        assert!(
            parameters.arrival(0) > 0.0 && parameters.points().len() >= 7,
            "{class}: {parameters:?}"
        );
    }
}

fn a_machine_s_file_is_written_whole_and_belongs_to_it() {
    let directory = tempfile::tempdir().unwrap();
    let output = measure(directory.path(), &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(
        shown.contains("L (µs)") && shown.contains("same-core") && shown.contains("allreduce"),
        "{shown}"
    );

    let here = models::machine::Topology::here();
    let machine =
        Machine::read_for(&directory.path().join("machine.json"), here.fingerprint()).unwrap();
    let classes = here.pairs().len();
    for engine in [Engine::Caller, Engine::Peers] {
        let costs = &machine.engines[&engine];
        assert_are_parameters(&costs.classes, classes);
        assert_eq!((costs.starts.len(), costs.samples.len()), (classes, classes));
        assert!(costs.contention.values().all(|ratio| ratio.is_finite()), "{costs:?}");
    }
    assert!(machine.clock_nanoseconds > 0.0 && machine.combine > 0.0);
    // A barrier, a broadcast and an allreduce among two ranks.
    assert!(machine.flat.values().all(|of_form| of_form.len() == 3) && machine.flat.len() == 2);
    assert_eq!(machine.sharing.iter().map(|one| one.ranks).collect::<Vec<_>>(), [2]);
    let rows = Measurements::read(directory.path()).unwrap();
    assert!(rows.run("plogp").is_some_and(Run::is_complete), "{:?}", rows.problems);
    assert!(!directory.path().join("plogp.json").exists(), "the rows are the record");

    // What is complete is not measured again; a file that is gone follows from the rows.
    std::fs::remove_file(directory.path().join("machine.json")).unwrap();
    let again = measure(directory.path(), &[]);
    assert!(
        again.status.success() && text(&again.stderr).contains("--again"),
        "{}",
        text(&again.stderr)
    );
    assert_eq!(Machine::read(&directory.path().join("machine.json")).unwrap(), machine);
}

fn another_machine_s_file_is_not_written_over() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("machine.json");
    let other = Machine::new(Fingerprint { cores: 999, ..Fingerprint::default() });
    other.write(&path).unwrap();
    let output = measure(directory.path(), &[]);
    assert!(!output.status.success());
    let said = text(&output.stderr);
    assert!(said.contains("999 there") && said.contains("choose another directory"), "{said}");
    assert_eq!(Machine::read(&path).unwrap(), other);
}
