//! Detection of interfaces whose other end is in another network namespace.

#[allow(unused_imports, reason = "its unit tests run in the library")]
#[path = "../../src/interface/pair.rs"]
mod source;

testing::tests![needs(Tap): the_interface_of_a_node_is_one_end_of_a_pair];

fn the_interface_of_a_node_is_one_end_of_a_pair() {
    let nodes = virtual_nodes::VirtualNodes::new(2, 1500).expect("virtual nodes");
    let node = &nodes.nodes()[1];
    assert!(node.run(|| source::ends_elsewhere(node.interface_index())));
    let (nodes, _relay) = testing::relay::relayed_nodes(1, 1500, 1).expect("relayed nodes");
    let node = &nodes.nodes()[0];
    assert!(
        !node.run(|| source::ends_elsewhere(node.interface_index())),
        "a TAP interface has no other end"
    );
}
