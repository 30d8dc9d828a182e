//! `machine.json`, which grows step by step.

use crate::harness::Error;
use models::file::FileError;
use models::machine::Topology;
use models::machine_file::Machine;
use std::path::{Path, PathBuf};

/// Path of the file.
fn place(directory: &Path) -> PathBuf {
    directory.join("machine.json")
}

/// Returns true if the file may be begun anew: if what is there is of this machine, or cannot be
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
        begin(path, |_| {}).expect("what is damaged is nobody's");
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
