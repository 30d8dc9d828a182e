//! `machine.json`, which grows step by step.

use crate::harness::{Doubts, Error};
use models::file::FileError;
use models::machine::Topology;
use models::machine_file::Machine;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Path of the file.
fn place(directory: &Path) -> PathBuf {
    directory.join("machine.json")
}

/// Checks that the file may be begun anew: there is none, or it is of this machine, or cannot be
/// read any more. Another machine's file is kept.
pub(super) fn check(directory: &Path) -> Result<(), Error> {
    match Machine::read_for(&place(directory), Topology::here().fingerprint()) {
        Err(error @ FileError::OtherMachine { .. }) => {
            let way_out = "choose another directory with --out, or remove the file".to_owned();
            Err(Error::Impossible { what: error.to_string(), way_out })
        }
        _ => Ok(()),
    }
}

/// Returns `true` if disturbed measurements would replace undisturbed ones: if `is_quiet` is true of
/// this machine's file in the directory.
pub(super) fn is_spoilt(
    directory: Option<&Path>,
    doubts: Doubts,
    is_quiet: impl FnOnce(&Machine) -> bool,
) -> bool {
    let read = |directory| Machine::read_for(&place(directory), Topology::here().fingerprint());
    doubts.is_disturbed()
        && directory.is_some_and(|directory| read(directory).is_ok_and(|there| is_quiet(&there)))
}

/// Records the disturbance of a new measurement, or that nothing disturbed it.
pub(super) fn keep_doubts<K: Ord>(disturbed: &mut BTreeMap<K, String>, of: K, doubts: Doubts) {
    if doubts.is_disturbed() {
        disturbed.insert(of, doubts.to_string());
    } else {
        disturbed.remove(&of);
    }
}

/// Error of a disturbed measurement of this, which would replace the whole file.
pub(super) fn too_noisy(directory: &Path, what: &str, doubts: Doubts) -> Error {
    Error::Impossible {
        what: format!("{what}: {doubts}; {} is left as it is", place(directory).display()),
        way_out: "measure again when less else runs on the machine".to_owned(),
    }
}

/// Begins the file anew.
pub(super) fn begin(directory: &Path, change: impl FnOnce(&mut Machine)) -> Result<(), Error> {
    check(directory)?;
    let mut machine = Machine::new(Topology::here().fingerprint().clone());
    change(&mut machine);
    Ok(machine.write(&place(directory))?)
}

/// Adds to the file of this machine, or begins one where there is none that can be read.
pub(super) fn begin_or_add(
    directory: &Path,
    change: impl FnOnce(&mut Machine),
) -> Result<(), Error> {
    check(directory)?;
    match Machine::read(&place(directory)) {
        Ok(_) => add(directory, change),
        Err(_) => begin(directory, change),
    }
}

/// Adds to the file of this machine.
pub(super) fn add(directory: &Path, change: impl FnOnce(&mut Machine)) -> Result<(), Error> {
    let mut machine = Machine::read_for(&place(directory), Topology::here().fingerprint())
        .map_err(|error| {
            let way_out =
                "what was measured before has to be there: begin anew with --again".to_owned();
            Error::Impossible { what: error.to_string(), way_out }
        })?;
    change(&mut machine);
    Ok(machine.write(&place(directory))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Sign;
    use models::machine::Fingerprint;

    #[test]
    fn a_file_grows_and_begins_anew() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path();
        let error = add(path, |_| {}).expect_err("nothing is there").to_string();
        assert!(error.contains("cannot be read") && error.contains("--again"), "{error}");
        begin(path, |machine| machine.combine = 1.0).expect("it can be written");
        add(path, |machine| machine.clock_nanoseconds = 2.0).expect("it can be written");
        let machine = Machine::read(&place(path)).expect("it is whole");
        assert_eq!((machine.combine, machine.clock_nanoseconds), (1.0, 2.0));
        std::fs::write(place(path), "{").expect("it can be damaged");
        let error = add(path, |_| {}).expect_err("it is damaged").to_string();
        assert!(error.contains("damaged") && error.contains("--again"), "{error}");
        begin(path, |_| {}).expect("a damaged file may be replaced");
    }

    #[test]
    fn what_was_measured_undisturbed_is_spoilt_by_doubts() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path();
        let loaded = Doubts::of([(Sign::OtherProcesses, 0.5)]);
        let is_spoilt =
            |doubts| is_spoilt(Some(path), doubts, |there| there.disturbances().is_empty());
        assert!(!is_spoilt(loaded), "nothing is there");
        begin(path, |machine| machine.combine = 1.0).expect("it can be written");
        assert!(is_spoilt(loaded) && !is_spoilt(Doubts::default()));
        add(path, |machine| drop(machine.disturbed.insert(2, "load".to_owned())))
            .expect("it can be written");
        assert!(!is_spoilt(loaded), "what is there is no better");
        let error = too_noisy(path, "2 ranks", loaded).to_string();
        let begins = "2 ranks: other processes used 50 % of the cores; ";
        assert!(error.starts_with(begins) && error.contains("is left as it is"), "{error}");
    }

    #[test]
    fn another_machine_s_file_is_left_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path();
        let other = Machine::new(Fingerprint { cores: 999, ..Fingerprint::default() });
        other.write(&place(path)).expect("it can be written");
        for change in [begin(path, |_| {}), add(path, |_| {})] {
            let error = change.expect_err("it is of another machine").to_string();
            assert!(error.contains("999 there"), "{error}");
        }
        assert_eq!(Machine::read(&place(path)).expect("it is whole"), other);
    }
}
