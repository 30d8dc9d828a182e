//! Comparison of two measurements of a machine.

use models::machine::{Fingerprint, PairClass};
use models::machine_file::{Agreement, Apart, Engine, Machine};
use models::parameters::Parameters;

fn machine(class: PairClass, gap: f64) -> Machine {
    let mut machine = Machine::new(Fingerprint::default());
    let network = Parameters::linear(1.0, (0.2, 0.0), (0.2, 0.0), (gap, gap)).expect("times");
    machine.engine_mut(Engine::Caller).classes.insert(class, network.clone());
    machine.engine_mut(Engine::Peers).classes.insert(class, network);
    machine
}

#[test]
fn what_differs_is_seen_and_what_one_has_alone_is_not() {
    let apart =
        Agreement::of(&machine(PairClass::SharedCache, 1.0), &machine(PairClass::SharedCache, 3.0));
    // Two engines; L, and three parameters at two sizes.
    assert_eq!(apart.all.values, 14);
    assert_eq!(apart.each["g"], Apart { values: 4, median: 1.0, p90: 1.0 });
    assert_eq!(apart.each["os"].median, 0.0);
    let nothing =
        Agreement::of(&machine(PairClass::SharedCache, 1.0), &machine(PairClass::SameCore, 1.0));
    assert_eq!(nothing, Agreement::default());
}
