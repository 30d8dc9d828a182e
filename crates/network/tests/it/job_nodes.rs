//! The nodes of a job, and their endpoints, as bytes and as text.

use network::job_nodes::{EndpointError, JobNodes, KernelEndpoint, ServiceEndpoint};
use network::node_map::NodeMap;
use network::node_network::{FabricEndpoint, NodeNetwork};
use proptest::prelude::*;

testing::tests![decoding_reverses_encoding, endpoints_are_formatted_and_parsed, noise_is_refused];

fn decoding_reverses_encoding() {
    let addresses = ["10.0.0.1:7", "[2001:db8::1]:65535", "[fe80::1%3]:9"]
        .map(|text| text.parse().expect("one"));
    let nodes = NodeMap::new(["a", "b", "a", "c"]);
    let kernel = |port| KernelEndpoint { hardware_address: [2, 0, 0, 0, 0, 9], port, mtu: 9000 };
    let (addresses, kernel_endpoints) = (addresses.to_vec(), [1, 2, 3].map(kernel).to_vec());
    let networks = vec![NodeNetwork::default(), fabric(), NodeNetwork::Missing("why".into())];
    let job = JobNodes { key: [7; 16], node: 2, addresses, kernel_endpoints, networks, nodes };
    let alone = JobNodes { kernel_endpoints: Vec::new(), ..job.clone() };
    assert_eq!(JobNodes::decode(&alone.encode()), Some(alone));
    assert_eq!(JobNodes::decode(&job.encode()), Some(job.clone()));
    assert!(
        !format!("{:?}", JobNodes { key: [0xab; 16], ..job.clone() }).contains("171"),
        "a secret"
    );
    assert_eq!(JobNodes::decode(&JobNodes { node: 3, ..job }.encode()), None, "there is no node 3");
}

fn endpoints_are_formatted_and_parsed() {
    let kernel =
        Some(KernelEndpoint { hardware_address: [255, 1, 2, 3, 4, 0], port: 65535, mtu: 1280 });
    for address in ["10.0.0.1:7", "[2001:db8::1]:65535"].map(|text| text.parse().expect("one")) {
        for (kernel, network) in [
            (kernel, NodeNetwork::default()),
            (None, NodeNetwork::default()),
            (None, fabric()),
            (None, NodeNetwork::Missing("x".repeat(90))),
        ] {
            let place = ServiceEndpoint { address, kernel, network };
            let text = place.to_string();
            assert!(text.len() <= 255 && !text.contains([' ', ';']), "{text}");
            assert_eq!(text.parse(), Ok(place));
        }
    }
    for wrong in [
        "",
        "10.0.0.1",
        "10.0.0.1:7@",
        "10.0.0.1:7@1:2:3:4:5/6/7",
        "10.0.0.1:7@1:2:3:4:5:6/7",
        "x@1:2:3:4:5:6/7/8",
        "10.0.0.1:7#",
        "10.0.0.1:7#0",
        "10.0.0.1:7#0400zz",
    ] {
        assert_eq!(wrong.parse::<ServiceEndpoint>(), Err(EndpointError), "{wrong:?}");
    }
}

fn fabric() -> NodeNetwork {
    NodeNetwork::Fabric(FabricEndpoint {
        provider: "tcp;ofi_rxm".into(),
        name: vec![2, 0, 31, 64, 127, 0, 0, 1],
        is_required: true,
        can_sleep: true,
        reads: false,
        why: "at most 0.55 of TCP's time".into(),
    })
}

proptest! {
    fn noise_is_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Some(job) = JobNodes::decode(&bytes) {
            prop_assert!(job.node < job.nodes.count());
        }
    }
}
