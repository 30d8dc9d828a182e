//! A small machine and its decision table.

use collectives::Collective;
use models::costs::CostModel;
use models::decision::{DecisionTable, Grid};
use models::formulas::join::JoinCosts;
use models::machine::Fingerprint;
use models::machine::PairClass;
use models::machine_file::{Machine, Noise, Samples, SizeSamples, StartCosts};
use models::parameters::Parameters;
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
    machine.classes.insert(PairClass::SameSocket, inside);
    machine.classes.insert(PairClass::OtherNode, between);
    let sample = Sample::of(vec![1.0, 1.5, 1.25]);
    let size = SizeSamples {
        bytes: 0,
        send_overhead: sample.clone(),
        receive_overhead: sample.clone(),
        gap: sample.clone(),
    };
    machine
        .samples
        .insert(PairClass::SameSocket, Samples { round_trip: sample, sizes: vec![size] });
    machine.starts.insert(PairClass::SameSocket, StartCosts { fixed: 0.5, per_byte: 0.0001 });
    machine.peers.starts.insert(PairClass::SameCore, StartCosts { fixed: 0.75, per_byte: 0.0001 });
    machine.peers.classes.insert(
        PairClass::SameSocket,
        Parameters::linear(0.0, (0.0625, 0.0), (0.0625, 0.0), (0.125, 0.0001)).expect("valid"),
    );
    machine.combine = 0.001;
    machine.contention = 0.4;
    let join = JoinCosts { fixed: 0.125, per_rank: 0.0625, per_byte: 0.001 };
    for operation in [Collective::Barrier, Collective::Allreduce, Collective::Bcast] {
        machine.joins.insert(operation, join);
    }
    machine
}

pub(crate) fn grid() -> Grid {
    Grid::usual(vec![2, 4, 8, 16], vec![1, 2, 4, 8, 16], 1 << 20)
}

pub(crate) fn table() -> DecisionTable {
    let machine = machine();
    let inside = machine.costs(PairClass::SameSocket).expect("measured");
    let between = machine.costs(PairClass::OtherNode).expect("measured");
    let prices = CostModel { inside: &inside, between: Some(&between), available: &|_, _, _| true };
    DecisionTable::build(prices, &grid(), fingerprint())
}
