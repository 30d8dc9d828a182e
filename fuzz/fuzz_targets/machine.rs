//! Arbitrary bytes as a machine's file, and a sound file with arbitrary changes.
#![no_main]

mod changes;

use changes::changed;
use libfuzzer_sys::fuzz_target;
use models::machine::Fingerprint;
use models::costs::{FlatCosts, FlatPoint};
use models::decision::CallForm;
use models::machine_file::{Engine, Machine};
use collectives::{Choice, Collective};
use models::machine::PairClass;
use models::parameters::Parameters;
use std::path::Path;
use std::sync::LazyLock;

/// The content of a sound file.
static SOUND: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut machine = Machine::new(Fingerprint::default());
    let parameters = Parameters::linear(0.25, (0.125, 0.0), (0.125, 0.0), (0.5, 0.25)).expect("valid");
    machine.engine_mut(Engine::Peers).classes.insert(PairClass::SameSocket, parameters);
    let flat = FlatCosts::new(vec![FlatPoint { ranks: 2, bytes: 8, microseconds: 0.5 }]).expect("a time");
    machine.flat.entry(CallForm::Blocking).or_default().insert(Collective::Bcast, flat);
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
    let engines = machine.engines.keys().flat_map(|engine| PairClass::ALL.iter().map(move |class| (*engine, *class)));
    for (engine, class) in engines {
        let Some(costs) = machine.costs(engine, CallForm::Blocking, class) else { continue };
        for operation in Collective::ALL {
            for algorithm in operation.algorithms() {
                let time = costs.predict(*operation, &Choice::of(*algorithm), 5, 1000);
                assert!(time.is_none_or(|time| time.is_finite() && time >= 0.0), "{algorithm} {operation}: {time:?}");
            }
        }
    }
}
