//! Damaged files: every byte changed, and thousands of random changes. Nothing may panic, and what
//! is accepted must be sound. The fuzz targets in `fuzz/` do the same without end.

use collectives::{Choice, Collective};
use models::decision::rules::MachineClass;
use models::decision::{CallForm, DecisionTable, Query, decide};
use models::machine::PairClass;
use models::machine_file::Machine;
use proptest::prelude::*;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

static MACHINE: LazyLock<Vec<u8>> =
    LazyLock::new(|| written(|path| crate::sample_machine::machine().write(path).unwrap()));
static TABLE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let rows = crate::sample_machine::table()
        .rows()
        .iter()
        .filter(|row| row.ranks == 4)
        .cloned()
        .collect();
    written(|path| {
        DecisionTable::new(crate::sample_machine::fingerprint(), rows).unwrap().write(path).unwrap()
    })
});

fn written(write: impl FnOnce(&Path)) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file.json");
    write(&path);
    fs::read(&path).unwrap()
}

/// Reads bytes as a machine, and predicts with what was read.
fn use_machine(bytes: &[u8]) {
    let machine = match Machine::from_bytes(Path::new("machine.json"), bytes) {
        Ok(machine) => machine,
        Err(error) => return assert!(error.to_string().starts_with("machine.json:")),
    };
    let engines = machine
        .engines
        .keys()
        .flat_map(|engine| PairClass::ALL.iter().map(move |class| (*engine, *class)));
    for (engine, class) in engines {
        let Some(costs) = machine.costs(engine, CallForm::Blocking, class) else { continue };
        for operation in Collective::ALL {
            for algorithm in operation.algorithms() {
                let time = costs.predict(*operation, &Choice::of(*algorithm), 5, 1000);
                assert!(
                    time.is_none_or(|time| time.is_finite() && time >= 0.0),
                    "{algorithm} {operation}: {time:?}"
                );
            }
        }
    }
}

/// Reads bytes as a decision table, and decides by what was read.
fn use_table(bytes: &[u8]) {
    let table = match DecisionTable::from_bytes(Path::new("table.json"), bytes) {
        Ok(table) => table,
        Err(error) => return assert!(error.to_string().starts_with("table.json:")),
    };
    let gaps = table.gaps();
    for operation in Collective::ALL {
        for (ranks, ranks_per_node, bytes) in [(4, 4, 0), (4, 2, 1000), (1, 1, u64::MAX)] {
            let decision = decide(
                Some(&table),
                &Query {
                    operation: *operation,
                    form: CallForm::Blocking,
                    ranks,
                    ranks_per_node,
                    bytes,
                },
                MachineClass::SharedCores,
            );
            assert!(
                operation.algorithms().contains(&decision.plan.algorithm)
                    && !decision.to_string().is_empty()
            );
        }
    }
    assert!(gaps.iter().all(|gap| !gap.to_string().is_empty()));
}

#[test]
fn every_byte_of_a_machine_may_be_another() {
    use_machine(&MACHINE);
    for place in 0..MACHINE.len() {
        for byte in [0, b' ', b'"', b'-', b'9', b'e', b'}', 0xff] {
            let mut bytes = MACHINE.clone();
            bytes[place] = byte;
            use_machine(&bytes);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn random_changes_of_a_machine(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        use_machine(&changed(&MACHINE, &changes));
    }

    #[test]
    fn digits_of_a_table_become_others(changes in prop::collection::vec((any::<prop::sample::Index>(), b'0'..=b'9'), 1..4)) {
        // Mostly still JSON, so that the changes reach the checks behind it.
        let digits: Vec<usize> = (0..TABLE.len()).filter(|place| TABLE[*place].is_ascii_digit()).collect();
        let mut bytes = TABLE.clone();
        for (place, digit) in &changes {
            bytes[digits[place.index(digits.len())]] = *digit;
        }
        use_table(&bytes);
    }

    #[test]
    fn random_changes_of_a_table(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        use_table(&changed(&TABLE, &changes));
    }
}

fn changed(bytes: &[u8], changes: &[(prop::sample::Index, u8)]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for (place, byte) in changes {
        let place = place.index(bytes.len());
        bytes[place] = *byte;
    }
    bytes
}
