//! Files that are not what they should be: each mistake has its own message, with the file, the
//! place and the way out.

use crate::sample_machine::{fingerprint, machine, table};
use models::decision::CallForm;
use models::decision::DecisionTable;
use models::file::{FileError, replace};
use models::machine::Fingerprint;
use models::machine::PairClass;
use models::machine_file::{Engine, Machine};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const HERE: &str = "machine.json";

/// The machine's file with one change.
fn changed(from: &str, to: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(HERE);
    machine().write(&path).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "`{from}` is not in\n{text}");
    text.replacen(from, to, 1)
}

fn refused(text: &str) -> FileError {
    Machine::from_bytes(Path::new(HERE), text.as_bytes()).unwrap_err()
}

#[test]
fn what_is_written_is_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let (machine_file, table_file) =
        (directory.path().join(HERE), directory.path().join("table.json"));
    machine().write(&machine_file).unwrap();
    assert_eq!(Machine::read_for(&machine_file, &fingerprint()).unwrap(), machine());
    table().write(&table_file).unwrap();
    assert!(DecisionTable::read_for(&table_file, &fingerprint()).unwrap() == table());
    // Again, over the old one.
    Machine::new(fingerprint()).write(&machine_file).unwrap();
    assert_eq!(Machine::read(&machine_file).unwrap(), Machine::new(fingerprint()));
    assert_eq!(
        fs::read_dir(directory.path()).unwrap().count(),
        2,
        "nothing is left beside the files"
    );
}

/// A measurement that was disturbed spoils what was measured undisturbed, and nothing else.
#[test]
fn disturbances_are_kept_and_told_apart() {
    let load = "other processes used 43 % of the cores";
    let quiet = machine();
    let (engine, costs) = quiet.engines.iter().next().unwrap();
    let (class, _) = costs.classes.iter().next().unwrap();
    let mut noisy = quiet.clone();
    noisy.engine_mut(*engine).disturbed.insert(class, load.to_owned());
    noisy.disturbed.insert(77, load.to_owned());
    assert!(quiet.is_quiet_between(*engine, class) && !noisy.is_quiet_between(*engine, class));
    assert!(!quiet.is_quiet_among(77), "it was not measured");
    let of_pair = format!("{class}, {engine}: {load}");
    assert_eq!(noisy.disturbances(), [of_pair.clone(), format!("77 ranks: {load}")]);
    assert_eq!(quiet.spoilt_by(&noisy), [of_pair]);
    assert!(noisy.spoilt_by(&noisy).is_empty() && noisy.spoilt_by(&quiet).is_empty());
    let written = Machine::from_bytes(Path::new(HERE), &noisy.to_bytes().unwrap()).unwrap();
    assert_eq!(written, noisy);
    let mut replaced = noisy.clone();
    replaced.absorb(quiet.clone());
    assert!(replaced.is_quiet_between(*engine, class));
}

#[test]
fn a_missing_file_says_how_to_get_one() {
    let error = Machine::read(Path::new("/nowhere/machine.json")).unwrap_err();
    assert!(matches!(error, FileError::Unreadable { .. }));
    let message = error.to_string();
    assert!(
        message.starts_with("/nowhere/machine.json: cannot be read: No such file"),
        "{message}"
    );
    assert!(message.ends_with("measure this machine with `tradewind measure plogp`"), "{message}");
}

#[test]
fn damage_is_named_by_line_column_and_field() {
    let error = refused(&changed("\"gap\": 0.5", "\"gap\": -0.5"));
    let FileError::Damaged { line, column, ref field, ref what, .. } = error else {
        panic!("{error}")
    };
    assert_eq!(field, "content.engines.caller.classes.same-socket");
    assert!(line > 1 && column > 0, "{error}");
    assert!(what.starts_with("the gap in the list of sizes at position 0 is -0.5 µs"), "{error}");

    let error = refused(&changed("\"gap\": 0.5", "\"gap\": null"));
    assert!(
        error.to_string().contains("in field `content.engines.caller.classes.same-socket"),
        "{error}"
    );
    let error = refused(&changed("\"latency\"", "\"lateness\""));
    assert!(error.to_string().contains("unknown field `lateness`"), "{error}");
    let error = refused(&changed("\"same-socket\"", "\"next-door\""));
    assert!(
        error.to_string().contains("`next-door` is no class of pairs; use one of same-core,"),
        "{error}"
    );
    let error = refused(&changed("\"combine\": 0.001", "\"combine\": -0.001"));
    assert!(
        error.to_string().contains("`combine` is -0.001: give a number that is not negative"),
        "{error}"
    );
    let error = refused("");
    assert!(
        error.to_string().starts_with("machine.json:1:0: damaged: the file ends here"),
        "{error}"
    );
}

#[test]
fn a_file_cut_off_anywhere_is_damaged() {
    let text = changed("x86", "x86");
    for end in 0..text.trim_end().len() {
        assert!(
            matches!(refused(&text[..end]), FileError::Damaged { line: 1.., .. }),
            "cut off after {end} bytes"
        );
    }
    assert!(matches!(refused(&format!("{text}x")), FileError::Damaged { .. }));
}

#[test]
fn versions_are_told_apart_even_if_nothing_else_is_known_of_them() {
    let older = refused(&changed("\"version\": 6", "\"version\": 1"));
    assert!(matches!(older, FileError::Older { found: 1, .. }));
    assert!(older.to_string().contains(
        "has version 1, from an older tradewind; this one reads versions 3 to 6: measure"
    ));
    let text = changed("\"version\": 6", "\"version\": 3");
    assert_eq!(Machine::from_bytes(Path::new(HERE), text.as_bytes()).unwrap(), machine());
    let newer = refused(r#"{"format": "tradewind machine", "version": 7, "spirit": "unknown"}"#);
    assert!(matches!(newer, FileError::Newer { found: 7, .. }));
    assert!(
        newer
            .to_string()
            .contains("from a newer tradewind; this one reads versions 3 to 6: use the newer"),
        "{newer}"
    );
}

#[test]
fn one_kind_of_file_is_not_taken_for_the_other() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(HERE);
    table().write(&path).unwrap();
    let error = Machine::read(&path).unwrap_err();
    assert!(matches!(error, FileError::OtherKind { .. }));
    assert!(
        error
            .to_string()
            .contains("is a `tradewind decision table` file, not a `tradewind machine` file"),
        "{error}"
    );
}

#[test]
fn another_machine_s_file_is_refused_with_every_difference() {
    let directory = tempfile::tempdir().unwrap();
    let (machine_file, table_file) =
        (directory.path().join(HERE), directory.path().join("table.json"));
    machine().write(&machine_file).unwrap();
    table().write(&table_file).unwrap();
    let other =
        Fingerprint { cores: 64, kernel: "7.0".to_owned(), hypervisor: None, ..fingerprint() };
    let error = Machine::read_for(&machine_file, &other).unwrap_err();
    let FileError::OtherMachine { ref differences, .. } = error else { panic!("{error}") };
    assert_eq!(
        differences,
        &[
            "cores: 2 there, 64 here",
            "kernel: 6.1 there, 7.0 here",
            "hypervisor: kvm there, none here"
        ]
    );
    assert!(matches!(
        DecisionTable::read_for(&table_file, &other),
        Err(FileError::OtherMachine { .. })
    ));
}

#[test]
fn a_file_that_cannot_be_written_says_so() {
    let error = machine().write(Path::new("/proc/machine.json")).unwrap_err();
    assert!(matches!(error, FileError::Unwritable { .. }));
    assert!(error.to_string().contains("what was there is unchanged"), "{error}");
}

#[test]
fn an_unmeasured_class_is_replaced_by_a_farther_one_of_the_same_node() {
    let machine = machine();
    let costs = |engine, class| machine.costs(engine, CallForm::Blocking, class);
    let latency = |engine, class| costs(engine, class).map(|costs| costs.network.latency());
    assert_eq!(latency(Engine::Peers, PairClass::SharedCache), Some(0.25)); // as the socket
    assert_eq!(latency(Engine::Peers, PairClass::OtherSocket), Some(0.25)); // nothing farther is known
    assert_eq!(latency(Engine::Peers, PairClass::OtherNode), None);
    assert_eq!(latency(Engine::Agent, PairClass::OtherNode), Some(20.0));
    let has_flat = |engine, class| costs(engine, class).is_some_and(|costs| !costs.flat.is_empty());
    assert!(!has_flat(Engine::Agent, PairClass::OtherNode), "no memory is shared between nodes");
    assert!(!has_flat(Engine::Caller, PairClass::SameCore), "each rank runs its own operations");
    assert!(has_flat(Engine::Peers, PairClass::SameCore));
}

#[test]
fn impossible_costs_are_refused() {
    let error = refused(&changed("\"fixed\": 0.5", "\"fixed\": -0.5"));
    let expected = "`engines.caller.starts.same-socket.fixed` is -0.5";
    assert!(error.to_string().contains(expected), "{error}");
    let error = refused(&changed("\"microseconds\": 0.25", "\"microseconds\": -1.0"));
    assert!(error.to_string().contains("takes -1 µs: give a time"), "{error}");
    let error = refused(&changed("\"ranks\": 4", "\"ranks\": 2"));
    assert!(error.to_string().contains("among 2 ranks has two times"), "{error}");
}

#[test]
fn a_disk_that_fills_up_leaves_the_old_file_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("machine.json");
    fs::write(&path, "the old one").unwrap();
    let error = replace(&path, |file| {
        file.write_all(b"half of the new o")?;
        Err(io::ErrorKind::StorageFull.into())
    });
    assert_eq!(error.unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(fs::read_to_string(&path).unwrap(), "the old one");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn a_new_file_takes_the_old_one_s_place_with_the_rights_of_any_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("machine.json");
    let ordinary = directory.path().join("ordinary");
    fs::write(&path, "the old one").unwrap();
    fs::write(&ordinary, "").unwrap();
    replace(&path, |file| file.write_all(b"the new one")).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "the new one");
    let mode = |path| fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&path), mode(&ordinary));
}
