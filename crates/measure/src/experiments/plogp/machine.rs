//! `machine.json`: the parameters of a machine, from the rows of its runs.

use super::found::{Messages, messages};
use super::progress::{Progress, cores_of};
use super::{noise, starts};
use crate::harness::{Doubts, Error, OTHER_MACHINES};
use crate::rows::{Run, What};
use models::file::FileError;
use models::machine::Topology;
use models::machine_file::{Engine, Machine};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Path of the file.
fn place(directory: &Path) -> PathBuf {
    directory.join("machine.json")
}

/// Returns true if a run of this name has parameters of a machine.
fn has_parameters(run: &str) -> bool {
    run == "progress" || run.split("-nodes").next() == Some("plogp")
}

/// Checks that a run of this name may write the machine's file of a directory: it has no
/// parameters, or there is no such file, or it is of this machine, or cannot be read any more.
///
/// # Errors
/// Another machine's file is there.
pub fn check_machine(directory: &Path, run: &str) -> Result<(), Error> {
    if has_parameters(run) { read(directory).map(drop) } else { Ok(()) }
}

/// The file of this machine, or a new one.
fn read(directory: &Path) -> Result<Machine, Error> {
    let topology = Topology::here();
    let here = topology.fingerprint();
    match Machine::read_for(&place(directory), here) {
        Err(error @ FileError::OtherMachine { .. }) => {
            let way_out = "choose another directory with --out, or remove the file".to_owned();
            Err(Error::Impossible { what: error.to_string(), way_out })
        }
        Err(_) => Ok(Machine::new(here.clone())),
        Ok(machine) => Ok(machine),
    }
}

/// Puts the parameters from a run into the machine's file of a directory, if it has any.
///
/// # Errors
/// Another machine's file is there, or it cannot be written.
pub fn write_machine(directory: &Path, run: &Run) -> Result<(), Error> {
    if !has_parameters(&run.name) || run.done() == 0 {
        return Ok(());
    }
    let mut machine = read(directory)?;
    put(run, messages(run), &mut machine);
    Ok(machine.write(&place(directory))?)
}

/// Puts the parameters from a run, of which those of messages are given, in the place of earlier
/// ones. Those that something disturbed replace none that nothing disturbed.
pub(super) fn put(run: &Run, messages: Vec<Messages>, machine: &mut Machine) {
    let is_quiet =
        |what| !Doubts::beside(run.whole_rows().filter(|row| row.what == what)).is_disturbed();
    if let Some(found) = noise::of_rows(run.whole_rows())
        && (is_quiet(What::Looks) || machine.clock_nanoseconds == 0.0)
    {
        (machine.clock_nanoseconds, machine.noise) = found;
    }
    let is_between_nodes = run.rows().any(|row| row.nodes > 1);
    // Between nodes it is measured beside other things, and only if need be.
    let is_better = !is_between_nodes && is_quiet(What::Combination);
    if is_better || machine.combine == 0.0 {
        machine.combine = starts::combine(run.whole_rows(), None).unwrap_or(machine.combine);
    }
    if is_between_nodes {
        let others =
            run.setting.get(OTHER_MACHINES).and_then(|text| serde_json::from_str(text).ok());
        machine.other_nodes = others.unwrap_or_default();
    }
    for found in messages {
        let engine = found.engine;
        let class = found.class;
        if found.is_always_disturbed && machine.is_quiet_between(engine, class) {
            continue;
        }
        let costs = machine.engine_mut(engine);
        costs.classes.insert(class, found.survey.parameters);
        costs.samples.insert(class, found.survey.samples);
        costs.starts.insert(class, found.start);
        costs.contention.extend(found.contention.map(|ratio| (class, ratio)));
        put_doubts(&mut costs.disturbed, class, found.doubts);
    }
    for engine in Engine::ALL.iter().copied().filter(|engine| engine.is_between_nodes()) {
        if let Some(combine) = starts::combine(run.whole_rows(), Some(engine)) {
            let costs = machine.engine_mut(engine);
            if is_quiet(What::Combination) || costs.combine.is_none() {
                costs.combine = Some(combine);
            }
        }
    }
    let cores = cores_of(run);
    for step in run.found.values().filter(|step| step.whole) {
        let Some(progress) = Progress::of(&step.rows) else { continue };
        let doubts = Doubts::beside(&step.rows).and(progress.doubts());
        if !(doubts.is_disturbed() && machine.is_quiet_among(progress.ranks)) {
            progress.put(machine, cores);
            put_doubts(&mut machine.disturbed, progress.ranks, doubts);
        }
    }
}

/// Records the disturbance of a new measurement, or that nothing disturbed it.
fn put_doubts<K: Ord>(disturbed: &mut BTreeMap<K, String>, of: K, doubts: Doubts) {
    if doubts.is_disturbed() {
        disturbed.insert(of, doubts.to_string());
    } else {
        disturbed.remove(&of);
    }
}

#[cfg(test)]
mod tests {
    use super::super::found::tests::{pass, row, run};
    use super::*;
    use crate::rows::{Load, Quantity, Row, StepRows};
    use models::machine::{Fingerprint, PairClass};

    const CLASS: PairClass = PairClass::SameSocket;

    fn put_all(run: &Run, machine: &mut Machine) {
        put(run, messages(run), machine);
    }

    /// A first step, with what a pass has beside the messages.
    fn first() -> StepRows {
        let mut step = pass(1.0, 0.0);
        step.rows.push(row(What::Looks, Quantity::Least, &[0.02]));
        step.rows.push(row(What::Looks, Quantity::Alone, &[1e6]));
        step.rows.push(row(What::Looks, Quantity::Interruption, &[30.0, 70.0]));
        step.rows.push(row(What::Combination, Quantity::Alone, &[16.0]).sized(64));
        step
    }

    #[test]
    fn a_file_has_the_parameters_of_the_rows() {
        let mut machine = Machine::new(Fingerprint::default());
        put_all(&run(vec![first(), pass(1.0, 0.0)]), &mut machine);
        let costs = &machine.engines[&Engine::Caller];
        let network = costs.classes.get(CLASS).expect("it was measured");
        assert_eq!((network.latency(), network.gap(0), network.gap(64)), (1.0, 1.0, 2.0));
        assert_eq!((network.send_overhead(0), network.receive_overhead(64)), (0.5, 0.25));
        let start = &costs.starts[&CLASS];
        assert_eq!((start.fixed, start.per_byte), (1.0, 0.0));
        assert_eq!(costs.samples[&CLASS].sizes.len(), 2);
        assert_eq!((machine.clock_nanoseconds, machine.combine), (20.0, 0.25));
        assert!((machine.noise.share - 1e-4).abs() < 1e-12, "{:?}", machine.noise);
        assert_eq!((machine.noise.per_second, machine.noise.longest), (2.0, 70.0));
        assert!(machine.disturbances().is_empty());
    }

    #[test]
    fn other_machines_of_a_job_are_named() {
        let other = Fingerprint { cores: 999, ..Fingerprint::default() };
        let mut between = run(vec![pass(1.0, 0.0)]);
        let step = between.found.get_mut(&0).expect("it is there");
        step.rows = step.rows.drain(..).map(|row| row.among(&[0, 1])).collect();
        let text = serde_json::to_string(&[&other]).expect("text");
        between.setting.insert(OTHER_MACHINES.to_owned(), text);
        let mut machine = Machine::new(Fingerprint::default());
        put_all(&between, &mut machine);
        assert_eq!(machine.other_nodes, [other]);
    }

    #[test]
    fn disturbed_times_replace_disturbed_ones_only() {
        let mut machine = Machine::new(Fingerprint::default());
        let arrival = |machine: &Machine| {
            machine.classes(Engine::Caller).and_then(|all| all.get(CLASS)).map(|one| one.arrival(0))
        };
        let loaded = |slowdown| run(vec![pass(slowdown, 0.5)]);
        put_all(&loaded(3.0), &mut machine);
        assert_eq!((arrival(&machine), machine.disturbances().len()), (Some(6.0), 1));
        put_all(&loaded(4.0), &mut machine);
        assert_eq!(arrival(&machine), Some(8.0));
        put_all(&run(vec![pass(1.0, 0.0)]), &mut machine);
        assert_eq!((arrival(&machine), machine.disturbances().len()), (Some(2.0), 0));
        put_all(&loaded(5.0), &mut machine);
        assert_eq!((arrival(&machine), machine.disturbances().len()), (Some(2.0), 0));
    }

    #[test]
    fn a_disturbed_combination_replaces_none_that_nothing_disturbed() {
        let combination = |microseconds, others| {
            let mut step = pass(1.0, 0.0);
            let row = row(What::Combination, Quantity::Alone, &[microseconds]).sized(64);
            step.rows.push(Row { load: Some(Load { others, stolen: 0.0 }), ..row });
            run(vec![step])
        };
        let mut machine = Machine::new(Fingerprint::default());
        put_all(&combination(64.0, 0.5), &mut machine);
        assert_eq!(machine.combine, 1.0);
        put_all(&combination(16.0, 0.0), &mut machine);
        put_all(&combination(64.0, 0.5), &mut machine);
        assert_eq!(machine.combine, 0.25);
    }

    #[test]
    fn a_file_grows_and_a_damaged_one_is_replaced() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path();
        let machine = || Machine::read(&place(path)).expect("it is whole");
        write_machine(path, &Run { name: "queues".to_owned(), ..run(vec![first()]) })
            .expect("none");
        assert!(!place(path).exists(), "queues have no parameters");
        write_machine(path, &run(vec![first()])).expect("it can be written");
        write_machine(path, &run(vec![pass(2.0, 0.0)])).expect("it can be written");
        assert_eq!((machine().combine, machine().engines.len()), (0.25, 1));
        std::fs::write(place(path), "{").expect("it can be damaged");
        check_machine(path, "plogp").expect("a damaged file may be replaced");
        write_machine(path, &run(vec![pass(2.0, 0.0)])).expect("it can be written");
        assert_eq!(machine().combine, 0.0);
    }

    #[test]
    fn the_file_of_another_machine_is_left_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path();
        let other = Machine::new(Fingerprint { cores: 999, ..Fingerprint::default() });
        other.write(&place(path)).expect("it can be written");
        let between = Run { name: "plogp-nodes-direct".to_owned(), ..run(vec![first()]) };
        for refused in [check_machine(path, "progress"), write_machine(path, &between)] {
            let error = refused.expect_err("it is of another machine").to_string();
            assert!(error.contains("999 there"), "{error}");
        }
        check_machine(path, "queues").expect("it has no parameters");
        assert_eq!(Machine::read(&place(path)).expect("it is whole"), other);
    }
}
