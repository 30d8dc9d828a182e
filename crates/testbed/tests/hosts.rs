//! Hosts joined by a bridge: everybody reaches everybody, at every size, and nothing is left behind.

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
    for hosts in [2, 4, 8] {
        for mtu in [1500, 9000] {
            let testbed =
                testbed::or_skip!(Testbed::new(hosts, Options { mtu, ..Options::default() }));
            exchange(&testbed, Family::V4, mtu);
            exchange(&testbed, Family::V6, mtu);
        }
    }
}

#[test]
fn no_packet_is_larger_than_the_mtu() {
    for mtu in [1500, 9000] {
        let testbed = testbed::or_skip!(Testbed::new(2, Options { mtu, ..Options::default() }));
        for host in testbed.hosts() {
            let output = host
                .command("ip")
                .args(["link", "show", "dev", host.interface()])
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
fn a_command_and_its_threads_are_in_the_host() {
    let testbed = testbed::or_skip!(Testbed::new(2, Options::default()));
    let name = |path: &str| std::fs::read_link(path).expect("/proc is mounted");
    let own = name("/proc/thread-self/ns/net");
    let mut seen = BTreeSet::from([own.clone()]);
    for host in testbed.hosts() {
        let inside = host.run(|| name("/proc/thread-self/ns/net"));
        let output =
            host.command("readlink").arg("/proc/self/ns/net").output().expect("readlink runs");
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), inside.to_string_lossy());
        seen.insert(inside);
    }
    assert_eq!(seen.len(), 3, "each is somewhere else");
    assert_eq!(name("/proc/thread-self/ns/net"), own, "this thread has stayed where it was");
}

#[test]
fn a_panic_in_a_host_is_a_panic_here() {
    let testbed = testbed::or_skip!(Testbed::new(1, Options::default()));
    let caught = std::panic::catch_unwind(AssertUnwindSafe(|| {
        testbed.hosts()[0].run(|| panic!("in the host"))
    }));
    assert_eq!(caught.expect_err("it panicked").downcast_ref(), Some(&"in the host"));
}

#[test]
fn an_unplugged_host_hears_nothing_until_it_is_plugged_in() {
    let testbed = testbed::or_skip!(Testbed::new(3, Options::default()));
    common::unplug_and_plug(&testbed);
}

#[test]
fn received_packets_can_be_steered() {
    let testbed = testbed::or_skip!(Testbed::new(2, Options::default()));
    for cores in [1, 0] {
        for host in testbed.hosts() {
            testbed::or_skip!(host.receive_on(cores));
        }
        exchange(&testbed, Family::V4, SIZES[0]);
    }
}

#[test]
fn impossible_numbers_of_hosts_are_refused() {
    for hosts in [0, testbed::MAXIMUM_HOSTS + 1] {
        assert!(matches!(Testbed::new(hosts, Options::default()), Err(Error::Hosts { .. })));
    }
}

/// Set in the process that is to be killed.
const VICTIM: &str = "TRADEWIND_TESTBED_VICTIM";

/// The victim tells its namespaces and waits to be killed. Into each of them the test puts one end of a veth pair: the other
/// end disappears when, and only when, the kernel has taken the namespace down.
#[test]
fn nothing_is_left_of_a_process_that_was_killed() {
    if std::env::var_os(VICTIM).is_some() {
        let testbed = Testbed::new(4, Options::default()).expect("the test itself has made one");
        testbed.hosts().iter().for_each(|host| println!("namespace {}", host.namespace()));
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
    let host = &own.hosts()[0];
    for (number, namespace) in namespaces.iter().enumerate() {
        let order = format!("link add probe{number} type veth peer name probe netns {namespace}");
        assert!(host.command("ip").args(order.split(' ')).status().expect("ip runs").success());
    }
    assert_eq!(probes(host), 4);
    victim.kill().expect("it is ours");
    victim.wait().expect("it is ours");
    let end = Instant::now() + Duration::from_secs(20);
    while probes(host) > 0 {
        assert!(Instant::now() < end, "namespaces are still there");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(interfaces(), before, "the machine's own network is untouched");
    assert_eq!(std::fs::read_dir("/run/netns").map_or(0, Iterator::count), named);
}

fn probes(host: &testbed::Host) -> usize {
    let output = host.command("ip").args(["-o", "link"]).output().expect("ip runs");
    String::from_utf8_lossy(&output.stdout).matches(": probe").count()
}

#[test]
fn jobs_side_by_side_do_not_hear_each_other() {
    let [one, other] = [0; 2].map(|_| Testbed::new(2, Options::default()));
    let (one, other) = (testbed::or_skip!(one), testbed::or_skip!(other));
    let silent = receiver(&other.hosts()[1], Family::V4);
    exchange(&one, Family::V4, 1500);
    silent.set_nonblocking(true).expect("it is a socket");
    assert_eq!(
        silent.recv(&mut [0; 16]).expect_err("nothing comes").kind(),
        std::io::ErrorKind::WouldBlock
    );
}
