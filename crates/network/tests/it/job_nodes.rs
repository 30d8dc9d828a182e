//! The nodes of a job, and their endpoints, as bytes and as text.

use network::job_nodes::{EndpointError, JobNodes, KernelEndpoint, ServiceEndpoint};
use network::node_map::NodeMap;
use proptest::prelude::*;

testing::tests![decoding_reverses_encoding, endpoints_are_formatted_and_parsed, noise_is_refused];

fn decoding_reverses_encoding() {
    let addresses = ["10.0.0.1:7", "[2001:db8::1]:65535", "[fe80::1%3]:9"]
        .map(|text| text.parse().expect("one"));
    let nodes = NodeMap::new(["a", "b", "a", "c"]);
    let kernel = |port| KernelEndpoint { hardware_address: [2, 0, 0, 0, 0, 9], port, mtu: 9000 };
    let (addresses, kernel_endpoints) = (addresses.to_vec(), [1, 2, 3].map(kernel).to_vec());
    let job = JobNodes { key: [7; 16], node: 2, addresses, kernel_endpoints, nodes };
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
        for place in
            [ServiceEndpoint { address, kernel }, ServiceEndpoint { address, kernel: None }]
        {
            assert_eq!(place.to_string().parse(), Ok(place));
        }
    }
    for wrong in [
        "",
        "10.0.0.1",
        "10.0.0.1:7@",
        "10.0.0.1:7@1:2:3:4:5/6/7",
        "10.0.0.1:7@1:2:3:4:5:6/7",
        "x@1:2:3:4:5:6/7/8",
    ] {
        assert_eq!(wrong.parse::<ServiceEndpoint>(), Err(EndpointError), "{wrong:?}");
    }
}

proptest! {
    fn noise_is_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Some(job) = JobNodes::decode(&bytes) {
            prop_assert!(job.node < job.nodes.count());
        }
    }
}
