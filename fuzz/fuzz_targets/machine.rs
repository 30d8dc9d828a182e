//! Arbitrary bytes as a machine's file, and a sound file with arbitrary changes.
#![no_main]

mod changes;

use changes::changed;
use libfuzzer_sys::fuzz_target;
use models::machine::Fingerprint;
use models::machine_file::Machine;
use models::formulas::join::JoinCosts;
use collectives::{Choice, Collective};
use models::machine::PairClass;
use models::parameters::Parameters;
use std::path::Path;
use std::sync::LazyLock;

/// The content of a sound file.
static SOUND: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut machine = Machine::new(Fingerprint::default());
    let parameters = Parameters::linear(0.25, (0.125, 0.0), (0.125, 0.0), (0.5, 0.25)).expect("valid");
    machine.classes.insert(PairClass::SameSocket, parameters);
    machine.joins.insert(Collective::Bcast, JoinCosts { fixed: 0.5, per_rank: 0.25, per_byte: 0.5 });
    machine.to_bytes().expect("can be written")
});

fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else { return };
    use_machine(&if first & 1 == 0 { changed(&SOUND, rest) } else { rest.to_vec() });
});

/// Reads a machine, and predicts with what was read.
fn use_machine(bytes: &[u8]) {
    let path = Path::new("machine.json");
    let machine = match Machine::from_bytes(path, bytes) {
        Ok(machine) => machine,
        Err(error) => return assert!(error.to_string().starts_with("machine.json:")),
    };
    let written = machine.to_bytes().expect("what was read can be written");
    assert_eq!(Machine::from_bytes(path, &written).expect("what was written can be read"), machine);
    for class in PairClass::ALL {
        let Some(costs) = machine.costs(*class) else { continue };
        for operation in Collective::ALL {
            for algorithm in operation.algorithms() {
                let time = costs.predict(*operation, &Choice::of(*algorithm), 5, 1000);
                assert!(time.is_none_or(|time| time.is_finite() && time >= 0.0), "{algorithm} {operation}: {time:?}");
            }
        }
    }
}
