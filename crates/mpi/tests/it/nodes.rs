//! Programs whose ranks are on two nodes: network namespaces, which MPICH's launcher enters by a
//! command in the place of ssh.

use crate::harness::{Finished, Host, Job};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};
use testing::mpi::Family;
use virtual_nodes::VirtualNodes;

testing::tests![needs(MpichFortran, Nodes): collectives_of_two_nodes_run_on_tradewind];
testing::tests![needs(Mpich, Nodes):
    starts_between_nodes_wait_for_no_rank,
    exchanges_between_nodes_have_the_lengths_of_pairs,
    communicators_of_two_nodes_and_of_one,
    persistent_collectives_of_two_nodes,
    a_killed_rank_ends_a_job_of_two_nodes,
    a_collective_divided_between_two_libraries_ends_a_job_of_two_nodes,
    a_node_without_the_command_leaves_everything_in_one_line,
];

/// Runs a program on two nodes, with these numbers of ranks.
fn on_nodes(program: &str, ranks: [u32; 2], change: impl FnOnce(Job) -> Job) -> Finished {
    of_host(first_host(), program, ranks, change)
}

/// As [`on_nodes`], with a certain library.
fn of_host(
    host: Host,
    program: &str,
    ranks: [u32; 2],
    change: impl FnOnce(Job) -> Job,
) -> Finished {
    let nodes = VirtualNodes::new(2, 1500).expect("the runner has made sure of virtual nodes");
    let job = host.job_on_nodes(program, &nodes, &ranks);
    let finished = change(job).preloaded();
    wait_for_silence(&nodes);
    finished
}

/// Waits until no process is left on the nodes: the node services end after their ranks.
fn wait_for_silence(nodes: &VirtualNodes) {
    let inode = |path: &str| std::fs::metadata(path).map(|metadata| metadata.ino()).ok();
    let spaces: Vec<_> = nodes.nodes().iter().filter_map(|node| inode(&node.namespace())).collect();
    assert_eq!(spaces.len(), nodes.nodes().len());
    let left = || {
        let processes = std::fs::read_dir("/proc").expect("it is mounted").flatten();
        processes
            .filter_map(|entry| inode(&format!("{}/ns/net", entry.path().display())))
            .filter(|space| spaces.contains(space))
            .count()
    };
    let end = Instant::now() + Duration::from_secs(20);
    while left() > 0 {
        assert!(Instant::now() < end, "{} processes are left behind", left());
        std::thread::yield_now();
    }
}

fn first_host() -> Host {
    Host::all(Family::Mpich)[0]
}

fn collectives_of_two_nodes_run_on_tradewind() {
    // Of several ranks in namespaces, MPICH 5.0 hangs in MPI_Dist_graph_create, also without
    // tradewind. With two ranks, MPICH 4.0 exchanges the blocks of a ring wrongly.
    let host = Host::of_debian().expect("the runner has made sure of Debian's MPICH");
    for ranks in [[2, 1], [1, 3]] {
        let change = |job: Job| job.argument("nodes");
        let finished = of_host(host, "collectives", ranks, change).expect_success();
        assert!(finished.errors.contains("ranks of 2 nodes"), "{finished:?}");
        for name in ["Ibcast", "Igather", "Iscatter", "Iallgather", "Iallgatherv", "Ialltoall"] {
            assert!(finished.calls(&format!("MPI_{name}")).0 > 0, "{name}: {finished:?}");
        }
        for name in ["Ireduce", "Iallreduce", "Ireduce_scatter", "Iscan"] {
            assert!(finished.calls(&format!("MPI_{name}")).0 > 0, "{name}: {finished:?}");
        }
        for name in ["Ineighbor_alltoall", "Ineighbor_allgatherv", "Ineighbor_alltoallv"] {
            let (taken, left) = finished.calls(&format!("MPI_{name}"));
            assert!(taken > 0 && left == 0, "{name}: {finished:?}");
        }
        for name in ["Ialltoallv", "Igatherv", "Iscatterv"] {
            let (taken, left) = finished.calls(&format!("MPI_{name}"));
            assert!(taken > 0 && left == 0, "{name}: {finished:?}");
        }
    }
}

fn starts_between_nodes_wait_for_no_rank() {
    let finished = on_nodes("progress", [1, 2], |job| job).expect_success();
    assert!(finished.calls("MPI_Iallreduce").0 > 0, "{finished:?}");
}

fn exchanges_between_nodes_have_the_lengths_of_pairs() {
    // Of several ranks in namespaces, MPICH 5.0 hangs in MPI_Dist_graph_create.
    let host = Host::of_debian().unwrap_or_else(first_host);
    let cases = ["chain_with_missing_neighbors", "ranks_without_neighbors", "lengths_of_pairs"];
    let change = |job: Job| cases.iter().fold(job, |job, case| job.argument(case));
    let finished = of_host(host, "decisions", [2, 2], change).expect_success();
    assert_eq!(finished.output.lines().collect::<Vec<_>>(), cases, "{finished:?}");
    for name in ["Ineighbor_alltoall", "Ineighbor_allgather", "Ineighbor_alltoallw"] {
        let (taken, left) = finished.calls(&format!("MPI_{name}"));
        assert!(taken > 0 && left == 0, "{name}: {finished:?}");
    }
}

fn communicators_of_two_nodes_and_of_one() {
    let finished = on_nodes("communicators", [2, 1], |job| job).expect_success();
    assert!(finished.calls("MPI_Iallreduce").0 > 0, "{finished:?}");
}

fn persistent_collectives_of_two_nodes() {
    let finished = on_nodes("persistent", [1, 1], |job| job).expect_success();
    assert!(finished.calls("MPI_Allreduce_init").0 > 0, "{finished:?}");
}

fn a_killed_rank_ends_a_job_of_two_nodes() {
    // Its node service or the launcher ends the other rank, whichever is first.
    let finished = on_nodes("death", [1, 1], |job| job);
    assert!(finished.in_time && finished.status != Some(0), "{finished:?}");
}

fn a_collective_divided_between_two_libraries_ends_a_job_of_two_nodes() {
    for (arguments, left) in
        [(&["long_ialltoall"][..], 1), (&["long_ialltoall", "return"], 1), (&["ibcast"], 0)]
    {
        let change = |job: Job| arguments.iter().fold(job, |job, argument| job.argument(argument));
        let finished = on_nodes("mismatched", [1, 1], change);
        assert!(finished.in_time && finished.status != Some(0), "{finished:?}");
        let named = &format!("rank {left} is in a collective of another library");
        assert!(finished.errors.contains(named), "{finished:?}");
    }
}

fn a_node_without_the_command_leaves_everything_in_one_line() {
    // The node service of the first node ends when no rank has come within this time.
    let change = |job: Job| {
        job.variable("TRADEWIND_START_TIMEOUT", "3")
            .with_setting_of_rank_1("TRADEWIND_COMMAND", "/no/such/command")
    };
    let finished = on_nodes("progress", [1, 1], change).expect_success();
    let lines = finished.errors.lines().filter(|line| line.contains("/no/such/command"));
    assert_eq!(lines.count(), 1, "{finished:?}");
    assert_eq!(finished.calls("MPI_Iallreduce").0, 0, "{finished:?}");
}
