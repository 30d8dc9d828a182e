//! Nodes joined by a bridge: everybody reaches everybody, at every size, and nothing is left
//! behind.

mod common;

use common::{Family, SIZES, exchange, receiver};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::panic::AssertUnwindSafe;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use testbed::{Error, Options, Testbed};

#[test]
fn everybody_reaches_everybody() {
    for nodes in [2, 4, 8] {
        for mtu in [1500, 9000] {
            let testbed =
                testbed::or_skip!(Testbed::new(nodes, Options { mtu, ..Options::default() }));
            exchange(&testbed, Family::V4, mtu);
            exchange(&testbed, Family::V6, mtu);
        }
    }
}

#[test]
fn no_packet_is_larger_than_the_mtu() {
    for mtu in [1500, 9000] {
        let testbed = testbed::or_skip!(Testbed::new(2, Options { mtu, ..Options::default() }));
        for node in testbed.nodes() {
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

#[test]
fn a_command_and_its_threads_are_in_the_node() {
    let testbed = testbed::or_skip!(Testbed::new(2, Options::default()));
    let name = |path: &str| std::fs::read_link(path).expect("/proc is mounted");
    let own = name("/proc/thread-self/ns/net");
    let mut seen = BTreeSet::from([own.clone()]);
    for node in testbed.nodes() {
        let inside = node.run(|| name("/proc/thread-self/ns/net"));
        let output =
            node.command("readlink").arg("/proc/self/ns/net").output().expect("readlink runs");
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), inside.to_string_lossy());
        seen.insert(inside);
    }
    assert_eq!(seen.len(), 3, "each is somewhere else");
    assert_eq!(name("/proc/thread-self/ns/net"), own, "this thread has stayed where it was");
}

#[test]
fn a_panic_in_a_node_is_a_panic_here() {
    let testbed = testbed::or_skip!(Testbed::new(1, Options::default()));
    let caught = std::panic::catch_unwind(AssertUnwindSafe(|| {
        testbed.nodes()[0].run(|| panic!("in the node"))
    }));
    assert_eq!(caught.expect_err("it panicked").downcast_ref(), Some(&"in the node"));
}

#[test]
fn an_unplugged_node_hears_nothing_until_it_is_plugged_in() {
    let testbed = testbed::or_skip!(Testbed::new(3, Options::default()));
    common::unplug_and_plug(&testbed);
}

#[test]
fn received_packets_can_be_steered() {
    let testbed = testbed::or_skip!(Testbed::new(2, Options::default()));
    for cores in [1, 0] {
        for node in testbed.nodes() {
            testbed::or_skip!(node.receive_on(cores));
        }
        exchange(&testbed, Family::V4, SIZES[0]);
    }
}

#[test]
fn impossible_numbers_of_nodes_are_refused() {
    for nodes in [0, testbed::MAXIMUM_NODES + 1] {
        assert!(matches!(Testbed::new(nodes, Options::default()), Err(Error::Nodes { .. })));
    }
}

/// Set in the process that is to be killed.
const VICTIM: &str = "TRADEWIND_TESTBED_VICTIM";

/// The victim tells its namespaces and waits to be killed. Into each of them the test puts one end
/// of a veth pair: the other end disappears when, and only when, the kernel has taken the namespace
/// down.
#[test]
fn nothing_is_left_of_a_process_that_was_killed() {
    if std::env::var_os(VICTIM).is_some() {
        let testbed = Testbed::new(4, Options::default()).expect("the test itself has made one");
        testbed.nodes().iter().for_each(|node| println!("namespace {}", node.namespace()));
        println!("ready");
        loop {
            std::thread::park();
        }
    }
    let interfaces = || std::fs::read_dir("/sys/class/net").expect("it is mounted").count();
    let (before, named) =
        (interfaces(), std::fs::read_dir("/run/netns").map_or(0, Iterator::count));
    let own = testbed::or_skip!(Testbed::new(1, Options::default()));
    let mut victim = Command::new(std::env::current_exe().expect("it has a path"))
        .args(["--exact", "nothing_is_left_of_a_process_that_was_killed", "--nocapture"])
        .env(VICTIM, "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let output = BufReader::new(victim.stdout.take().expect("it was asked for"));
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
    victim.kill().expect("it is ours");
    victim.wait().expect("it is ours");
    let end = Instant::now() + Duration::from_secs(20);
    while probes(node) > 0 {
        assert!(Instant::now() < end, "namespaces are still there");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(interfaces(), before, "the machine's own network is untouched");
    assert_eq!(std::fs::read_dir("/run/netns").map_or(0, Iterator::count), named);
}

fn probes(node: &testbed::Node) -> usize {
    let output = node.command("ip").args(["-o", "link"]).output().expect("ip runs");
    String::from_utf8_lossy(&output.stdout).matches(": probe").count()
}

#[test]
fn jobs_side_by_side_do_not_hear_each_other() {
    let [one, other] = [0; 2].map(|_| Testbed::new(2, Options::default()));
    let (one, other) = (testbed::or_skip!(one), testbed::or_skip!(other));
    let silent = receiver(&other.nodes()[1], Family::V4);
    exchange(&one, Family::V4, 1500);
    silent.set_nonblocking(true).expect("it is a socket");
    assert_eq!(
        silent.recv(&mut [0; 16]).expect_err("nothing comes").kind(),
        std::io::ErrorKind::WouldBlock
    );
}
