//! Jobs of real processes on several nodes, which are network namespaces, started by hydra, MPICH's
//! `mpiexec`.

mod deaths;
mod full_connections;
pub(crate) mod harness;
mod mechanisms;
mod messages;
mod multicast;
mod networks;
mod queues;
mod rank;
mod windows;

use harness::{Hydra, SIGN, Said, User};
use std::time::Duration;
use testing::relay::{Faults, relayed_nodes};
use virtual_nodes::VirtualNodes;

testing::tests![
    needs(Nodes, Mpiexec):
    ranks_on_several_nodes_find_each_other_by_pmi,
    nodes_may_be_many_and_have_different_numbers_of_ranks,
    nodes_of_several_ranks_exchange_blocks_in_two_levels_by_both_engines,
    ranks_whose_launcher_knows_several_names_of_one_node_are_on_one_node,
    a_rank_that_is_killed_is_named_on_every_node,
    a_node_that_vanishes_is_named,
    what_a_rank_has_sent_outlives_it,
    what_a_rank_has_started_outlives_its_death,
    what_a_rank_has_sent_outlives_its_node_service,
    an_unavailable_demand_is_refused_with_its_reason,
    without_an_address_the_way_out_is_named,
    a_link_that_is_down_for_a_second_costs_time_only,
    two_jobs_on_the_same_nodes_do_not_disturb_each_other,
    the_kernel_engine_is_taken_where_its_packets_arrive_and_only_there,
    short_calls_run_in_the_services_of_nodes_with_spare_cores,
    the_time_after_which_a_node_is_unreachable_can_be_set,
    a_profile_shows_what_the_kernel_did_on_every_node,
];
testing::tests![
    needs(Nodes, Tap, Mpiexec, Bpf):
    what_is_lost_at_the_end_comes_again,
];
testing::tests![
    needs(Nodes, Mpiexec, Setcap, Bpf):
    an_ordinary_user_has_the_kernel_engine_by_a_command_with_rights,
];
testing::tests![
    needs(Nodes, Bpf):
    the_command_says_whether_an_interface_takes_the_kernel_engine,
];

/// So many nodes in network namespaces.
fn nodes(count: usize) -> VirtualNodes {
    VirtualNodes::new(count, 1500).expect("the runner has made sure of virtual nodes")
}

/// The rank that is killed, or whose node vanishes. It is alone on the second node, ranks 0 and 1 are
/// on the first.
const VICTIM: u32 = 2;

/// Runs a program in which [`VICTIM`] is killed; ranks 0 and 1 must say these words.
fn after_a_kill(program: &str, words: &str) {
    let testbed = nodes(2);
    let said = Hydra::new(&testbed, &[2, 1]).option("-disable-auto-cleanup").program(program).run();
    assert_eq!(said, [0, 1].map(|rank| Said::new(rank, words)));
}

/// Runs a program whose ranks say that they wait, then disconnects the node of [`VICTIM`]; ranks 0
/// and 1 must say all these words.
fn after_a_disconnection(program: &str, words: &[&str]) {
    let testbed = nodes(2);
    let mut job = Hydra::new(&testbed, &[2, 1])
        .option("-disable-auto-cleanup")
        .variable("TRADEWIND_NODE_TIMEOUT", "2")
        .program(program)
        .start();
    job.hear(&[0, 1, VICTIM].map(|rank| Said::new(rank, "waits")));
    testbed.unplug(1).expect("a cable can be pulled");
    let by_both = |words: &&str| [0, 1].map(|rank| Said::new(rank, words));
    job.hear(&words.iter().flat_map(by_both).collect::<Vec<_>>());
}

fn ranks_on_several_nodes_find_each_other_by_pmi() {
    let testbed = nodes(2);
    let said = Hydra::new(&testbed, &[2, 2]).program("collectives").run();
    let expected: Vec<Said> =
        (0..4).map(|rank| Said::new(rank, "4 ranks on 2 nodes, 2 here, all is right")).collect();
    assert_eq!(said, expected);
}

fn nodes_may_be_many_and_have_different_numbers_of_ranks() {
    let testbed = nodes(4);
    let said = Hydra::new(&testbed, &[1, 3, 1, 2]).program("collectives").run();
    assert_eq!(said.len(), 7, "{said:?}");
    for Said { rank, words } in said {
        let here = [1, 3, 3, 3, 1, 2, 2][rank as usize];
        assert_eq!(words, format!("7 ranks on 4 nodes, {here} here, all is right"));
    }
}

fn nodes_of_several_ranks_exchange_blocks_in_two_levels_by_both_engines() {
    let testbed = nodes(3);
    for engine in ["kernel", "agent"] {
        // The last node may have fewer ranks; where others have, there are no levels, but for
        // neighbours.
        for (ranks, levels) in [
            ([2, 2, 1], "in nodes of 2"),
            ([3, 3, 3], "in nodes of 3"),
            ([1, 3, 2], "in one level"),
        ] {
            let said = Hydra::new(&testbed, &ranks)
                .variable("TRADEWIND_INTERNODE", engine)
                .program("levels")
                .run();
            let words = format!("{levels}, {engine}, all is right");
            let expected: Vec<Said> =
                (0..ranks.iter().sum()).map(|rank| Said::new(rank, &words)).collect();
            assert_eq!(said, expected, "{ranks:?}");
        }
    }
}

fn ranks_whose_launcher_knows_several_names_of_one_node_are_on_one_node() {
    let testbed = nodes(1);
    let said = Hydra::new(&testbed, &[1, 1]).all_on_one().program("collectives").run();
    let expected: Vec<Said> =
        (0..2).map(|rank| Said::new(rank, "2 ranks on 1 nodes, 2 here, all is right")).collect();
    assert_eq!(said, expected);
}

fn a_rank_that_is_killed_is_named_on_every_node() {
    let testbed = nodes(2);
    let said =
        Hydra::new(&testbed, &[2, 2]).option("-disable-auto-cleanup").program("rank-2-dies").run();
    let expected: Vec<Said> = [0, 1, 3].map(|rank| Said::new(rank, "rank 2 failed")).to_vec();
    assert_eq!(said, expected);
}

fn a_node_that_vanishes_is_named() {
    let testbed = nodes(2);
    let mut job =
        Hydra::new(&testbed, &[2, 1]).option("-disable-auto-cleanup").program("waits").start();
    job.hear(&[Said::new(0, "goes on"), Said::new(1, "goes on"), Said::new(2, "goes on")]);
    testbed.unplug(1).expect("a cable can be pulled");
    job.hear(&[Said::new(0, "node 1 is unreachable"), Said::new(1, "node 1 is unreachable")]);
}

/// What a rank has sent through the kernel arrives also when it, and all ranks of its node, have
/// ended before.
fn what_a_rank_has_sent_outlives_it() {
    let testbed = nodes(2);
    let said = Hydra::new(&testbed, &[1, 1])
        .variable("TRADEWIND_INTERNODE", "kernel")
        .program("root-leaves")
        .run();
    let mut expected = [both("goes on"), both("has all")].concat();
    expected.sort();
    assert_eq!(said, expected);
}

/// Short collectives and a long one are completed for the other rank although one is killed
/// behind its starts.
fn what_a_rank_has_started_outlives_its_death() {
    for ranks in [2, 4] {
        let testbed = nodes(ranks);
        for (engine, round) in ["direct", "agent"]
            .into_iter()
            .flat_map(|engine| (0..3).map(move |round| (engine, round)))
        {
            let said = Hydra::new(&testbed, &vec![1; ranks])
                .option("-disable-auto-cleanup")
                .variable("TRADEWIND_INTERNODE", engine)
                .program("dies-behind-its-starts")
                .run();
            let expected: Vec<Said> =
                (1..ranks as u32).map(|rank| Said::new(rank, "has all")).collect();
            assert_eq!(said, expected, "{engine}, round {round}");
        }
    }
}

/// The same where the node service is killed as soon as the last rank of its node has ended.
fn what_a_rank_has_sent_outlives_its_node_service() {
    let testbed = nodes(3);
    for engine in ["agent", "kernel", "ranks"] {
        for round in 0..3 {
            let said = Hydra::new(&testbed, &[1, 2, 1])
                .variable("TRADEWIND_INTERNODE", engine)
                .killing_what_is_left()
                .program("root-ends")
                .run();
            let expected: Vec<Said> = (0..4).map(|rank| Said::new(rank, "has all")).collect();
            assert_eq!(said, expected, "{engine}, round {round}");
        }
    }
}

/// The same where the network loses packets, down to the last ones.
fn what_is_lost_at_the_end_comes_again() {
    let (testbed, relay) =
        relayed_nodes(2, 1500, 7).expect("the runner has made sure of TAP interfaces");
    for round in 0..2 {
        relay.set_faults(Faults::default());
        let directory = tempfile::tempdir().expect("there is space");
        let sign = directory.path().join("go");
        let job = Hydra::new(&testbed, &[1, 1])
            .variable("TRADEWIND_INTERNODE", "kernel")
            .program("root-leaves");
        let mut job = job.variable(SIGN, sign.to_str().expect("text")).start();
        job.hear(&both("goes on"));
        relay.set_faults(Faults::of_networks(0.2));
        std::fs::write(&sign, []).expect("there is space");
        assert_eq!(job.finish(), both("has all"), "round {round}");
    }
}

fn both(words: &str) -> [Said; 2] {
    [Said::new(0, words), Said::new(1, words)]
}

fn an_unavailable_demand_is_refused_with_its_reason() {
    let testbed = nodes(2);
    for node in testbed.nodes() {
        // Shorter packets than the engine takes; the agent goes on.
        let shortened =
            node.command("ip").args(["link", "set", node.interface(), "mtu", "1400"]).status();
        assert!(shortened.is_ok_and(|status| status.success()));
    }
    let said = Hydra::new(&testbed, &[1, 1])
        .variable("TRADEWIND_INTERNODE", "kernel")
        .program("joins")
        .run();
    assert!(!said.is_empty());
    for Said { words, .. } in said {
        assert!(
            words.contains("demands the kernel engine") && words.contains("packets of 1400 bytes"),
            "{words}"
        );
    }
    let said = Hydra::new(&testbed, &[1, 1])
        .variable("TRADEWIND_INTERNODE", "kernal")
        .program("joins")
        .run();
    assert!(!said.is_empty());
    for Said { words, .. } in said {
        assert!(words.starts_with("TRADEWIND_INTERNODE is \"kernal\""), "{words}");
    }
    let said = Hydra::new(&testbed, &[1, 1]).program("collectives").run();
    assert_eq!(said, both("2 ranks on 2 nodes, 1 here, all is right"), "by the agent");
}

/// As the README says: rights for the `tradewind` command alone.
fn an_ordinary_user_has_the_kernel_engine_by_a_command_with_rights() {
    let testbed = nodes(2);
    let demanding = || Hydra::new(&testbed, &[2, 1]).variable("TRADEWIND_INTERNODE", "kernel");
    let said = demanding().user(User::WithCommand).program("collectives").run();
    let expected: Vec<Said> = [2, 2, 1]
        .into_iter()
        .zip(0..)
        .map(|(here, rank)| {
            Said::new(rank, &format!("3 ranks on 2 nodes, {here} here, all is right"))
        })
        .collect();
    assert_eq!(said, expected);
    let said = demanding().user(User::Without).program("joins").run();
    assert!(!said.is_empty());
    for Said { words, .. } in said {
        assert!(
            words.contains("not permitted")
                && words.contains("CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON"),
            "{words}"
        );
    }
}

fn without_an_address_the_way_out_is_named() {
    let testbed = nodes(2);
    let said =
        Hydra::new(&testbed, &[1, 1]).variable("TRADEWIND_INTERFACE", "ib7").program("joins").run();
    assert!(!said.is_empty());
    for Said { words, .. } in said {
        assert!(
            words.contains("no address of \"ib7\"") && words.contains("TRADEWIND_INTERFACE"),
            "{words}"
        );
    }
}

fn a_link_that_is_down_for_a_second_costs_time_only() {
    let testbed = nodes(2);
    for engine in ["kernel", "agent"] {
        let job = Hydra::new(&testbed, &[2, 2])
            .variable("TRADEWIND_INTERNODE", engine)
            .program("goes-on");
        let mut job = job.start();
        let all = |words| [0, 1, 2, 3].map(|rank| Said::new(rank, words));
        job.hear(&all("goes on"));
        testbed.unplug(1).expect("a cable can be pulled");
        // Not to be in time for something: this is how long the link is down.
        std::thread::sleep(Duration::from_secs(1));
        testbed.plug(1).expect("it can be put back");
        job.hear(&all("all is right"));
    }
}

fn two_jobs_on_the_same_nodes_do_not_disturb_each_other() {
    let testbed = nodes(2);
    let mut jobs = [(); 2].map(|()| Hydra::new(&testbed, &[1, 2]).program("goes-on").start());
    for words in ["goes on", "all is right"] {
        jobs.iter_mut().for_each(|job| job.hear(&[0, 1, 2].map(|rank| Said::new(rank, words))));
    }
}

fn the_kernel_engine_is_taken_where_its_packets_arrive_and_only_there() {
    let testbed = nodes(2);
    let engine = || Hydra::new(&testbed, &[1, 2]).program("engine");
    let all = |name| (0..3).map(|rank| Said::new(rank, name)).collect::<Vec<_>>();
    assert_eq!(engine().run(), all("kernel"));
    assert_eq!(engine().variable("TRADEWIND_INTERNODE", "agent").run(), all("agent"));
    // Interfaces that promise more than the network between them takes. TCP is told.
    for node in testbed.nodes() {
        for order in ["link set eth0 mtu 9000", "route change 10.84.0.0/24 dev eth0 advmss 1200"] {
            let status = node.command("ip").args(order.split(' ')).status().expect("ip is there");
            assert!(status.success(), "{order}");
        }
    }
    assert_eq!(engine().run(), all("agent"));
}

fn short_calls_run_in_the_services_of_nodes_with_spare_cores() {
    let has_spare_core = shm::process::allowed_cores().len() > 1;
    let testbed = nodes(2);
    let job = || Hydra::new(&testbed, &[1, 1]).user(User::Without).program("engine");
    let all = |name| (0..2).map(|rank| Said::new(rank, name)).collect::<Vec<_>>();
    assert_eq!(job().run(), all(if has_spare_core { "agent" } else { "direct" }));
    assert_eq!(job().on_one_core().run(), all("direct"));
    assert_eq!(job().variable("TRADEWIND_INTERNODE", "direct").run(), all("direct"));
    assert_eq!(job().on_one_core().variable("TRADEWIND_INTERNODE", "agent").run(), all("agent"));
}

fn the_time_after_which_a_node_is_unreachable_can_be_set() {
    let testbed = nodes(2);
    for engine in ["kernel", "agent"] {
        let job = Hydra::new(&testbed, &[1, 1]).option("-disable-auto-cleanup").program("waits");
        let job =
            job.variable("TRADEWIND_INTERNODE", engine).variable("TRADEWIND_NODE_TIMEOUT", "1.5");
        let mut job = job.start();
        job.hear(&[Said::new(0, "goes on"), Said::new(1, "goes on")]);
        testbed.unplug(1).expect("a cable can be pulled");
        job.hear(&[Said::new(0, "node 1 is unreachable")]);
        drop(job);
        testbed.plug(1).expect("it can be put back");
    }
}

fn a_profile_shows_what_the_kernel_did_on_every_node() {
    let testbed = nodes(2);
    let folder = tempfile::tempdir().expect("there is space");
    let parts = folder.path().to_str().expect("readable");
    let said = Hydra::new(&testbed, &[2, 1])
        .variable("TRADEWIND_TRACE", parts)
        .program("collectives")
        .run();
    assert_eq!(said.len(), 3, "{said:?}");
    let file = folder.path().join("profile.json");
    let merge = tradewind(&testbed, &["exec", "trace", parts, file.to_str().expect("readable")]);
    assert!(merge.status.success(), "{}", String::from_utf8_lossy(&merge.stderr));
    let profile = crate::exec::perfetto::Profile::read(&file);
    assert_eq!(profile.processes.len(), 3, "{:?}", profile.processes);
    for rank in 0..3 {
        let calls =
            profile.slices.iter().filter(|slice| slice.pid == rank && slice.name == "allreduce 4b");
        assert_eq!(calls.count(), 20, "rank {rank}");
    }
    // From one node to the other and back, by the program's own clock.
    for (from, to) in [(0, 2), (2, 0)] {
        let crossing = |(name, left, reached): &&(
            String,
            crate::exec::perfetto::Slice,
            crate::exec::perfetto::Slice,
        )| { name == "message" && (left.pid, reached.pid) == (from, to) };
        assert!(
            profile.arrows.iter().find(crossing).is_some(),
            "no message from rank {from} to rank {to}"
        );
    }
}

fn the_command_says_whether_an_interface_takes_the_kernel_engine() {
    let testbed = nodes(1);
    let name = testbed.nodes()[0].interface();
    let found = tradewind(&testbed, &["doctor", "kernel", "--interface", name]);
    let text = String::from_utf8_lossy(&found.stdout);
    assert!(found.status.success() && text.contains("takes the kernel engine"), "{text}");
    for (interface, parts) in [
        ("no-such-one", ["no network interface `no-such-one`", "`ip link`"]),
        ("lo", ["`lo` is not an Ethernet", "TRADEWIND_INTERFACE"]),
    ] {
        let refused = tradewind(&testbed, &["doctor", "kernel", "--interface", interface]);
        let text = String::from_utf8_lossy(&refused.stdout);
        assert!(
            !refused.status.success() && parts.iter().all(|part| text.contains(part)),
            "{text}"
        );
    }
    let narrow = VirtualNodes::new(1, 1400).expect("the runner has made sure of virtual nodes");
    let name = narrow.nodes()[0].interface();
    let refused = tradewind(&narrow, &["doctor", "kernel"]);
    let text = String::from_utf8_lossy(&refused.stdout);
    let problem = format!("the interface `{name}` takes packets of 1400 bytes at most");
    let way_out = format!("`ip link set dev {name} mtu 1440`");
    assert!(!refused.status.success(), "{text}");
    assert!(text.contains(&problem) && text.contains(&way_out), "{text}");
}

/// Runs the command on the first node.
fn tradewind(testbed: &VirtualNodes, arguments: &[&str]) -> std::process::Output {
    let mut command = testbed.nodes()[0].command(env!("CARGO_BIN_EXE_tradewind"));
    command.args(arguments).output().expect("it can be started")
}
