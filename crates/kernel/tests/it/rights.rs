//! Rights of loader and ranks, and resources that remain after them.

use crate::world::World;
use aya::programs::{SchedClassifier, TcAttachType};
use goal::compile::compile;
use goal::graph::{Access, Graph};
use kernel::wire::{Endpoint, Key};
use kernel::{Handles, JobDescription, LoadError, Loader, Rank};
use network::backend::{Backend, CommunicatorContext};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use virtual_nodes::VirtualNodes;

testing::tests![needs(Nodes, Bpf):
    ranks_need_no_rights,
    says_what_is_missing,
    is_detached_when_the_process_is_killed,
];
testing::parts![holder];

/// Job of one rank on one node, to be loaded inside that node.
fn job_on(interface: &str) -> JobDescription {
    let endpoint =
        Endpoint { hardware_address: [2; 6], address: [10, 84, 0, 1].into(), port: 7199 };
    JobDescription {
        node: 0,
        node_of_rank: vec![0],
        endpoints: vec![endpoint],
        number: 0,
        key: Key([0, 1]),
        interface: interface.to_owned(),
        mtu: 1500,
    }
}

/// Drops every capability of this thread.
fn drop_rights() {
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
        .expect("rights can always be given up");
    let left = capabilities(None).expect("they can be looked at");
    assert!(left.effective.is_empty() && left.permitted.is_empty());
}

/// All operations of a rank, from the mapping of its memory on.
fn exchange(handles: Handles, rank: usize) -> u64 {
    let here = Rank::new(handles).expect("the maps can be mapped");
    let peer = 1 - rank as u32;
    let mut graph = Graph::new(rank as u32, 2);
    let input = graph.buffer(Access::Input, 8);
    let output = graph.buffer(Access::Output, 8);
    graph.send(input, peer, 0);
    graph.receive(output, peer, 0);
    let context = CommunicatorContext { number: 0, members: [0, 1].into(), rank: rank as u32 };
    let schedule = compile(&graph).expect("the graph is right");
    let prepared = here.register(&context, &schedule, 0).expect("it is small");
    let mut found = [0; 8];
    for sequence in 0..100u64 {
        let own = (10 * sequence + rank as u64).to_le_bytes();
        let run_id = here.start(prepared, sequence, &[&own, &[]]).expect("it starts");
        assert!(here.wait(run_id, None).expect("it ends"));
        here.fetch(run_id, &mut [&mut [], &mut found]).expect("it went well");
        assert_eq!(u64::from_le_bytes(found), 10 * sequence + u64::from(peer));
    }
    u64::from_le_bytes(found)
}

fn ranks_need_no_rights() {
    let world = World::new(2, 1, 1500);
    let handles = [0, 1].map(|rank| {
        Mutex::new(world.loaders[rank].handles(rank as u32).expect("there are descriptors"))
    });
    let handles = Arc::new(handles);
    let found = world.run(2, move |rank, _| {
        drop_rights();
        let forbidden = Loader::load(&job_on("eth0"));
        assert!(
            matches!(forbidden, Err(LoadError::Forbidden { .. })),
            "without rights: {forbidden:?}"
        );
        let handles =
            handles[rank].lock().expect("no panic").take().expect("the rank is on this node");
        exchange(handles, rank)
    });
    assert_eq!(found, [991, 990]);
}

fn says_what_is_missing() {
    let testbed = VirtualNodes::new(1, 1500).expect("virtual nodes");
    let missing = testbed.nodes()[0].run(|| Loader::load(&job_on("nowhere0")));
    let Err(LoadError::NoInterface { name }) = &missing else {
        panic!("without the interface: {missing:?}")
    };
    assert_eq!(name, "nowhere0");
    let forbidden = testbed.nodes()[0].run(|| {
        drop_rights();
        Loader::load(&job_on("eth0"))
    });
    let text = forbidden.expect_err("it has no rights").to_string();
    for right in ["CAP_BPF", "CAP_NET_ADMIN", "CAP_PERFMON"] {
        assert!(text.contains(right), "{text}");
    }
}

/// Returns the programs at the ingress of a node's interface.
fn attached(node: &virtual_nodes::Node) -> usize {
    node.run(|| SchedClassifier::query_tcx("eth0", TcAttachType::Ingress))
        .map_or(0, |(_, programs)| programs.len())
}

/// Loads the program and waits to be killed.
fn holder() {
    let loader = Loader::load(&job_on("eth0")).expect("the program is loaded");
    eprintln!("loaded");
    loop {
        std::thread::park();
        std::hint::black_box(&loader);
    }
}

fn is_detached_when_the_process_is_killed() {
    let testbed = VirtualNodes::new(1, 1500).expect("virtual nodes");
    let node = &testbed.nodes()[0];
    assert_eq!(attached(node), 0);
    let mut command = testing::part_by("rights::holder", |program| node.command(program));
    let mut child = command.stderr(Stdio::piped()).spawn().expect("it can be started");
    let lines = BufReader::new(child.stderr.take().expect("it is a pipe")).lines();
    let loaded = lines.map_while(Result::ok).any(|line| line == "loaded");
    assert!(loaded, "the child ended before it had loaded the program");
    assert_eq!(attached(node), 1);
    child.kill().expect("it is ours");
    child.wait().expect("it is ours");
    assert_eq!(attached(node), 0, "something was left behind");
}
