//! Jobs on two nodes whose services exchange messages through libfabric.

use super::loops::{finish, start};
use super::reachable::Reachable;
use crate::nodes::harness::PROGRAM;
use models::machine::Topology;
use models::machine_file::{Machine, Networks, TCP};

testing::tests![needs(Nodes, Libfabric):
    collectives_run_over_libfabric,
    auto_takes_the_network_that_was_measured_to_be_faster,
    every_process_listens_in_the_range_of_ports,
    nodes_with_different_networks_are_named,
];
testing::tests![needs(Nodes):
    a_missing_library_is_reported_by_every_rank,
];

const OPTIONS: [&str; 4] = ["--nodes", "n0,n1", "--ppn", "2"];

/// Runs the collectives of the tests with these variables. Returns whether it succeeded, and what
/// it has printed.
fn collectives(reachable: &Reachable, variables: &[&str]) -> (bool, String) {
    run(reachable, "collectives", variables)
}

/// As [`collectives`], another program of the ranks.
fn run(reachable: &Reachable, name: &str, variables: &[&str]) -> (bool, String) {
    let this = std::env::current_exe().expect("this test program");
    let program = [this.to_str().expect("readable"), "--part", "nodes::rank::program"];
    let named = format!("{PROGRAM}={name}");
    let variables = variables.iter().copied().chain([named.as_str()]);
    let options: Vec<&str> =
        OPTIONS.into_iter().chain(variables.flat_map(|variable| ["--env", variable])).collect();
    finish(start(reachable.run(&options, &program)))
}

fn collectives_run_over_libfabric() {
    let reachable = Reachable::new();
    for path in testing::fabric::libraries() {
        let library = format!("TRADEWIND_LIBFABRIC={}", path.display());
        for provider in ["tcp", "tcp;ofi_rxm", "sockets", "tcp+read"] {
            let network = format!("TRADEWIND_NETWORK=fabric:{provider}");
            let (succeeded, text) =
                collectives(&reachable, &[&network, &library, "TRADEWIND_EXPLAIN=1"]);
            assert!(succeeded, "{text}");
            assert!(
                text.matches("4 ranks on 2 nodes, 2 here, all is right").count() >= 4,
                "{text}"
            );
            let name = provider.trim_end_matches("+read");
            let explained = format!("the nodes are connected by libfabric's provider {name}");
            assert!(text.contains(&explained), "{text}");
            assert_eq!(text.contains("polled"), provider == "sockets", "{text}");
            let reads = text.contains("long messages by remote reads");
            assert_eq!(reads, provider == "tcp+read", "{text}");
            reachable.wait_for_silence();
        }
    }
}

fn auto_takes_the_network_that_was_measured_to_be_faster() {
    let reachable = Reachable::new();
    let times = |short: f64| [(8, short), (65536, 10.0 * short)].into();
    for (ours, explained) in [
        (None, "connected by TCP: it was not compared"),
        (Some(7.0), "connected by TCP: libfabric's tcp takes 1.40 of TCP's time at"),
        (Some(4.0), ": at most 0.80 of TCP's time; the agent runs"),
    ] {
        let folder = tempfile::tempdir().expect("a directory");
        if let Some(ours) = ours {
            let mut machine = Machine::new(Topology::here().fingerprint().clone());
            machine.networks.0.insert(TCP.to_owned(), times(5.0));
            machine.networks.0.insert(Networks::of_provider("tcp"), times(ours));
            machine.write(&folder.path().join(service::MACHINE_FILE)).expect("it is written");
        }
        let decisions = folder.path().join("decisions.json");
        let decisions = format!("TRADEWIND_DECISIONS={}", decisions.display());
        let variables = ["TRADEWIND_NETWORK=auto", "TRADEWIND_EXPLAIN=1", &decisions];
        let (succeeded, text) = collectives(&reachable, &variables);
        assert!(succeeded && text.contains(explained), "{explained}: {text}");
        let is_over_fabric = text.contains("connected by libfabric's provider tcp");
        assert_eq!(is_over_fabric, ours == Some(4.0), "{text}");
        reachable.wait_for_silence();
    }
}

/// The provider of libfabric, too, which listens during the whole job.
fn every_process_listens_in_the_range_of_ports() {
    let reachable = Reachable::new();
    let network = ["TRADEWIND_NETWORK=fabric:tcp", "TRADEWIND_PORTS=7000-7031"];
    let own = ["FI_TCP_PORT_LOW_RANGE=7100", "FI_TCP_PORT_HIGH_RANGE=7131"];
    for (variables, range) in
        [(network.to_vec(), 7000..=7031), ([network, own].concat(), 7100..=7131)]
    {
        let (succeeded, text) = run(&reachable, "listens", &variables);
        assert!(succeeded, "{text}");
        let words = text.lines().filter_map(|line| line.rsplit("> ").next()?.split_once(' '));
        let ports: Vec<u16> = words.filter_map(|(_, port)| port.parse().ok()).collect();
        // Each of the four ranks has found at least the one of its node service.
        assert!(ports.len() >= 4 && ports.iter().all(|port| range.contains(port)), "{text}");
        reachable.wait_for_silence();
    }
}

fn a_missing_library_is_reported_by_every_rank() {
    let reachable = Reachable::new();
    let variables = ["TRADEWIND_NETWORK=fabric:tcp", "TRADEWIND_LIBFABRIC=/nowhere/libfabric.so.1"];
    let (succeeded, text) = collectives(&reachable, &variables);
    assert!(!succeeded, "{text}");
    let count = text.matches("node 0 lacks the network that TRADEWIND_NETWORK requests").count();
    assert!(count >= 4 && text.contains("libfabric cannot be opened"), "{count}: {text}");
    reachable.wait_for_silence();
}

fn nodes_with_different_networks_are_named() {
    let reachable = Reachable::new();
    // Every node has the same variables; the shell of a rank makes its own choice.
    let this = std::env::current_exe().expect("this test program");
    let this = this.to_str().expect("readable");
    let script = format!(
        "[ $TRADEWIND_RANK -lt 2 ] || export TRADEWIND_NETWORK=tcp; \
         exec {this} --part nodes::rank::program"
    );
    let named = format!("{PROGRAM}=collectives");
    let network = "TRADEWIND_NETWORK=fabric:tcp";
    let options = [&OPTIONS[..], &["--env", &named, "--env", network]].concat();
    let (succeeded, text) = finish(start(reachable.run(&options, &["sh", "-c", &script])));
    assert!(!succeeded, "{text}");
    assert!(text.contains("node 0 has libfabric's provider tcp"), "{text}");
    let differ = "node 1 has TCP: set TRADEWIND_NETWORK alike on all nodes";
    assert!(text.matches(differ).count() >= 4, "{text}");
    reachable.wait_for_silence();
}
