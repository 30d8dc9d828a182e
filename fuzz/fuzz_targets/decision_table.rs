//! Arbitrary bytes as a decision table's file, and a sound file with arbitrary changes.
#![no_main]

mod changes;

use changes::changed;
use libfuzzer_sys::fuzz_target;
use models::machine::Fingerprint;
use collectives::Collective;
use models::parameters::Parameters;
use models::decision::rules::MachineClass;
use models::decision::{CallForm, DecisionTable, Grid, Query, decide};
use models::machine::PairClass;
use models::machine_file::{Engine, Machine};
use models::prediction::Models;
use std::path::Path;
use std::sync::LazyLock;

/// The content of a sound file.
static SOUND: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let parameters = Parameters::linear(10.0, (1.0, 0.0), (1.0, 0.0), (2.0, 0.25)).expect("valid");
    let mut machine = Machine::new(Fingerprint::default());
    for (engine, class) in [(Engine::Peers, PairClass::SameSocket), (Engine::Agent, PairClass::OtherNode)] {
        machine.engine_mut(engine).classes.insert(class, parameters.clone());
    }
    let grid = Grid::usual(vec![8], vec![2, 8], 1 << 16);
    DecisionTable::build(&Models::of(&machine), &grid, Fingerprint::default()).to_bytes().expect("can be written")
});

fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else { return };
    use_table(&if first & 1 == 0 { changed(&SOUND, rest) } else { rest.to_vec() });
});

/// Reads a table, and decides by what was read.
fn use_table(bytes: &[u8]) {
    let path = Path::new("table.json");
    let table = match DecisionTable::from_bytes(path, bytes) {
        Ok(table) => table,
        Err(error) => return assert!(error.to_string().starts_with("table.json:")),
    };
    let written = table.to_bytes().expect("what was read can be written");
    assert!(DecisionTable::from_bytes(path, &written).expect("what was written can be read") == table);
    assert!(table.gaps().iter().all(|gap| !gap.to_string().is_empty()));
    for operation in Collective::ALL {
        for (ranks, ranks_per_node, bytes) in [(8, 8, 0), (8, 2, 1000), (1, 1, u64::MAX)] {
            let decision = decide(Some(&table), &Query { operation: *operation, form: CallForm::Blocking, ranks, ranks_per_node, bytes }, MachineClass::SharedCores);
            assert!(operation.algorithms().contains(&decision.plan.algorithm) && !decision.to_string().is_empty());
        }
    }
}
