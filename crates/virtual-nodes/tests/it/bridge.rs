//! Nodes joined by a bridge: every node reaches every other node at every size, and nothing is left
//! behind.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::panic::AssertUnwindSafe;
use std::process::Stdio;
use std::time::{Duration, Instant};
use testing::traffic::{Family, SIZES, exchange, receiver, unplug_and_plug};
use virtual_nodes::{Entrance, Error, LinkRate, MAXIMUM_NODES, Node, VirtualNodes};

testing::tests![needs(Nodes):
    every_node_reaches_every_other_node,
    interfaces_have_the_mtu,
    a_command_and_its_threads_are_in_the_node,
    a_panic_in_a_node_continues_on_the_caller,
    an_unplugged_node_receives_nothing_until_it_is_plugged_in,
    received_packets_can_be_steered,
    nothing_is_left_of_a_process_that_was_killed,
    separate_sets_of_nodes_do_not_receive_from_each_other,
    both_ends_of_a_link_have_its_rate,
    an_entrance_runs_commands_on_the_node_that_it_is_told,
];
testing::tests![impossible_numbers_of_nodes_are_refused, rates_have_bounds_and_a_unit];
testing::parts![victim];

fn nodes_with(count: usize, mtu: u32) -> VirtualNodes {
    VirtualNodes::new(count, mtu).expect("the machine has virtual nodes")
}

fn every_node_reaches_every_other_node() {
    for count in [2, 4, 8] {
        for mtu in [1500, 9000] {
            let nodes = nodes_with(count, mtu);
            exchange(&nodes, Family::V4, mtu);
            exchange(&nodes, Family::V6, mtu);
        }
    }
}

fn interfaces_have_the_mtu() {
    for mtu in [1500, 9000] {
        let nodes = nodes_with(2, mtu);
        for node in nodes.nodes() {
            let output = node
                .command("ip")
                .args(["link", "show", "dev", node.interface()])
                .output()
                .expect("ip runs");
            assert!(
                String::from_utf8_lossy(&output.stdout).contains(&format!("mtu {mtu} ")),
                "{output:?}"
            );
        }
    }
}

fn a_command_and_its_threads_are_in_the_node() {
    let nodes = nodes_with(2, 1500);
    let name = |path: &str| std::fs::read_link(path).expect("/proc is mounted");
    let own = name("/proc/thread-self/ns/net");
    let mut seen = BTreeSet::from([own.clone()]);
    for node in nodes.nodes() {
        let inside = node.run(|| name("/proc/thread-self/ns/net"));
        let output =
            node.command("readlink").arg("/proc/self/ns/net").output().expect("readlink runs");
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), inside.to_string_lossy());
        seen.insert(inside);
    }
    assert_eq!(seen.len(), 3, "each node is another namespace");
    assert_eq!(name("/proc/thread-self/ns/net"), own, "the namespace of this thread is unchanged");
}

fn a_panic_in_a_node_continues_on_the_caller() {
    let nodes = nodes_with(1, 1500);
    let caught = std::panic::catch_unwind(AssertUnwindSafe(|| {
        nodes.nodes()[0].run(|| panic!("in the node"))
    }));
    assert_eq!(caught.expect_err("the closure panics").downcast_ref(), Some(&"in the node"));
}

fn an_unplugged_node_receives_nothing_until_it_is_plugged_in() {
    let nodes = nodes_with(3, 1500);
    unplug_and_plug(&nodes);
}

fn received_packets_can_be_steered() {
    let nodes = nodes_with(2, 1500);
    for cores in [1, 0] {
        for node in nodes.nodes() {
            node.receive_on(cores).expect("the kernel can steer packets");
        }
        exchange(&nodes, Family::V4, SIZES[0]);
    }
}

fn impossible_numbers_of_nodes_are_refused() {
    for count in [0, MAXIMUM_NODES + 1] {
        assert!(matches!(VirtualNodes::new(count, 1500), Err(Error::Nodes { .. })));
    }
}

/// Prints its namespaces and waits to be killed.
fn victim() {
    let nodes = nodes_with(4, 1500);
    nodes.nodes().iter().for_each(|node| println!("namespace {}", node.namespace()));
    println!("ready");
    loop {
        std::thread::park();
    }
}

/// The test creates one end of a veth pair in each namespace of the victim. The other end
/// disappears exactly when the kernel has removed the namespace.
fn nothing_is_left_of_a_process_that_was_killed() {
    let interfaces = || std::fs::read_dir("/sys/class/net").expect("it is mounted").count();
    let named_namespaces = || std::fs::read_dir("/run/netns").map_or(0, Iterator::count);
    let before = interfaces();
    let named = named_namespaces();
    let own = nodes_with(1, 1500);
    let mut victim =
        testing::part("bridge::victim").stdout(Stdio::piped()).spawn().expect("a process");
    let output = BufReader::new(victim.stdout.take().expect("standard output is a pipe"));
    let lines = output.lines().map(|line| line.expect("text")).take_while(|line| line != "ready");
    let namespaces: Vec<_> =
        lines.filter_map(|line| line.strip_prefix("namespace ").map(str::to_owned)).collect();
    assert_eq!(namespaces.len(), 4);
    let node = &own.nodes()[0];
    for (number, namespace) in namespaces.iter().enumerate() {
        let order = format!("link add probe{number} type veth peer name probe netns {namespace}");
        assert!(node.command("ip").args(order.split(' ')).status().expect("ip runs").success());
    }
    assert_eq!(probes(node), 4);
    victim.kill().expect("the child is running");
    victim.wait().expect("the child is running");
    let end = Instant::now() + Duration::from_secs(20);
    while probes(node) > 0 {
        assert!(Instant::now() < end, "namespaces are still there");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(interfaces(), before, "the machine's own network is untouched");
    assert_eq!(named_namespaces(), named);
}

fn probes(node: &Node) -> usize {
    let output = node.command("ip").args(["-o", "link"]).output().expect("ip runs");
    String::from_utf8_lossy(&output.stdout).matches(": probe").count()
}

fn separate_sets_of_nodes_do_not_receive_from_each_other() {
    let one = nodes_with(2, 1500);
    let other = nodes_with(2, 1500);
    let silent = receiver(&other.nodes()[1], Family::V4);
    exchange(&one, Family::V4, 1500);
    silent.set_nonblocking(true).expect("a socket can be nonblocking");
    assert_eq!(
        silent.recv(&mut [0; 16]).expect_err("no packet arrives").kind(),
        std::io::ErrorKind::WouldBlock
    );
}

/// The kernel states the rate of each queue, and packets of every size still arrive.
fn both_ends_of_a_link_have_its_rate() {
    for (text, bytes_per_second) in [("1gbit", 125_000_000), ("100mbit", 12_500_000)] {
        let rate: LinkRate = text.parse().expect("a rate");
        for mtu in [1500, 9000] {
            let nodes = VirtualNodes::with_rate(3, mtu, Some(rate)).expect("the machine has tc");
            for node in nodes.nodes() {
                let show = ["-j", "-d", "qdisc", "show", "dev", node.interface()];
                let output = node.command("tc").args(show).output().expect("tc runs");
                let shown = String::from_utf8_lossy(&output.stdout);
                let expected = format!("\"rate\":{bytes_per_second},");
                assert!(shown.contains("\"kind\":\"tbf\"") && shown.contains(&expected), "{shown}");
            }
            exchange(&nodes, Family::V4, mtu);
        }
    }
}

fn rates_have_bounds_and_a_unit() {
    for wrong in ["", "1", "gbit", "1 gbit", "-1mbit", "1.5gbit", "99kbit", "101gbit", "1gbps"] {
        let error = wrong.parse::<LinkRate>().expect_err(wrong).to_string();
        let names_what_is_accepted = error.contains("kbit, mbit or gbit");
        assert!(names_what_is_accepted && error.contains("from 100kbit to 100gbit"), "{error}");
    }
    let most = u64::MAX.to_string() + "gbit";
    assert!(most.parse::<LinkRate>().is_err());
}

fn an_entrance_runs_commands_on_the_node_that_it_is_told() {
    let nodes = nodes_with(2, 1500);
    let directory = std::env::temp_dir().join(format!("tradewind-entrance-{}", std::process::id()));
    let named =
        nodes.nodes().iter().map(|node| (format!("n{}", node.number()), node, "env X=1".into()));
    Entrance::new(named).write(&directory).expect("there is space");
    let run = |arguments: &[&str]| {
        std::process::Command::new(&directory).args(arguments).output().expect("it is a program")
    };
    for (name, node) in ["n0", "n1"].into_iter().zip(nodes.nodes()) {
        let output = run(&["-x", "-l", "me", name, "readlink /proc/self/ns/net;", "echo $X"]);
        let inside = node.run(|| std::fs::read_link("/proc/thread-self/ns/net"));
        let inside = inside.expect("/proc is mounted").display().to_string();
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{inside}\n1\n"));
    }
    let unknown = run(&["n2", "true"]);
    assert_eq!(unknown.status.code(), Some(255));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("there is no node n2"));
    std::fs::remove_file(&directory).expect("it is ours");
}
