//! The conformance suite on the interpreter, with random delivery order and small memory limits.

use crate::adversarial_network::AdversarialNetwork;

#[test]
fn conforms() {
    let seed = rand::random_range(0..1 << 32);
    println!("network seeds start at {seed}");
    testing::conformance::run_suite(&AdversarialNetwork::new(seed));
}

#[test]
fn vectors_conform_in_many_orders() {
    let seed = rand::random_range(0..1 << 32);
    println!("network seeds start at {seed}");
    let network = AdversarialNetwork::new(seed);
    let small = |vector: &testing::conformance::Vector| {
        vector.inputs.iter().flatten().flatten().map(Vec::len).sum::<usize>() < 20_000
    };
    for vector in testing::conformance::vectors::all().iter().filter(|vector| small(vector)) {
        for _ in 0..50 {
            if let Err(difference) = vector.run(&network) {
                panic!("{}: {difference}", vector.name);
            }
        }
    }
}
