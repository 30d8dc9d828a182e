//! A small machine and its decision table.

use collectives::Collective;
use models::costs::{FlatCosts, FlatPoint, StartCosts};
use models::decision::{CallForm, DecisionTable, Grid};
use models::machine::{Fingerprint, PairClass};
use models::machine_file::{Engine, EngineCosts, Machine, Noise, Samples, SizeSamples};
use models::parameters::Parameters;
use models::prediction::Models;
use models::statistics::Sample;

pub(crate) fn fingerprint() -> Fingerprint {
    Fingerprint {
        processor: "x86 of some kind".to_owned(),
        cores: 2,
        threads_per_core: 1,
        sockets: 1,
        caches: vec![32 << 10, 1 << 20],
        kernel: "6.1".to_owned(),
        hypervisor: Some("kvm".to_owned()),
    }
}

pub(crate) fn machine() -> Machine {
    let mut machine = Machine::new(fingerprint());
    machine.clock_nanoseconds = 20.0;
    machine.noise = Noise { share: 0.01, per_second: 250.0, longest: 40.0 };
    let inside =
        Parameters::linear(0.25, (0.125, 0.0), (0.125, 0.0), (0.5, 0.0001)).expect("valid");
    let between =
        Parameters::linear(20.0, (2.0, 0.001), (2.0, 0.001), (5.0, 0.008)).expect("valid");
    let sample = Sample::of(vec![1.0, 1.5, 1.25]);
    let size = SizeSamples {
        bytes: 0,
        send_overhead: sample.clone(),
        receive_overhead: sample.clone(),
        gap: sample.clone(),
    };
    let samples = Samples { round_trip: sample, sizes: vec![size] };
    let start = StartCosts { fixed: 0.5, per_byte: 0.0001 };
    let mut caller = EngineCosts::default();
    caller.classes.insert(PairClass::SameSocket, inside.clone());
    caller.samples.insert(PairClass::SameSocket, samples);
    caller.starts.insert(PairClass::SameSocket, start);
    caller.contention.insert(PairClass::SameSocket, 0.4);
    machine.engines.insert(Engine::Caller, caller.clone());
    machine.engines.insert(Engine::Peers, EngineCosts { samples: [].into(), ..caller });
    let agent = machine.engine_mut(Engine::Agent);
    agent.classes.insert(PairClass::SameSocket, inside);
    agent.classes.insert(PairClass::OtherNode, between);
    agent.contention = [(PairClass::SameSocket, 0.4), (PairClass::OtherNode, 0.4)].into();
    machine.combine = 0.001;
    let point = |ranks: u32, bytes: u64| FlatPoint {
        ranks,
        bytes,
        microseconds: 0.125 + 0.0625 * f64::from(ranks) + 0.001 * bytes as f64,
    };
    let points =
        [2, 4, 8].into_iter().flat_map(|ranks| [0, 1 << 20].map(|bytes| point(ranks, bytes)));
    let flat = FlatCosts::new(points.collect()).expect("times");
    for form in CallForm::ALL {
        for operation in [Collective::Barrier, Collective::Allreduce, Collective::Bcast] {
            machine.flat.entry(*form).or_default().insert(operation, flat.clone());
        }
    }
    machine
}

pub(crate) fn grid() -> Grid {
    Grid::usual(vec![2, 4, 8, 16], vec![1, 2, 4, 8, 16], 1 << 20)
}

pub(crate) fn table() -> DecisionTable {
    DecisionTable::build(&Models::of(&machine()), &grid(), fingerprint())
}
