//! Cost of the program for the kernel's verifier.

use kernel::wire::{Endpoint, Key};
use kernel::{JobDescription, Loader};
use virtual_nodes::VirtualNodes;

testing::tests![needs(Nodes, Bpf):
    the_verifier_has_little_to_do,
];

/// The verifier examines at most a million instructions. The limit here leaves a margin for other
/// kernels with verifiers that examine more paths of the same program.
const LIMIT: u32 = 250_000;

fn the_verifier_has_little_to_do() {
    let testbed = VirtualNodes::new(1, 1500).expect("virtual nodes");
    let endpoint =
        Endpoint { hardware_address: [2; 6], address: [10, 84, 0, 1].into(), port: 7199 };
    let job = JobDescription {
        node: 0,
        node_of_rank: vec![0],
        endpoints: vec![endpoint],
        number: 0,
        key: Key([0, 1]),
        interface: "eth0".to_owned(),
        mtu: 1500,
    };
    let loader = testbed.nodes()[0].run(|| Loader::load(&job)).expect("the program is loaded");
    let count = loader.verified_instructions().expect("this kernel reports it");
    println!("instructions that the verifier examined: {count}");
    assert!(count < LIMIT, "the verifier examines {count} instructions, more than {LIMIT}");
}
