//! Profiles: what is in them, and that viewers can show it.

use crate::command::text;
use crate::exec::files::{EVERYTHING, ring};
use crate::exec::harness::{Folder, report, tradewind};
use crate::exec::perfetto::Profile;
use std::collections::BTreeMap;
use tradewind::{Algorithm, Algorithms, Communicator, Job, Op};

testing::tests![
    every_operation_edge_and_message_of_a_file_is_there,
    operations_on_the_cpu_of_a_calc_do_not_overlap,
    collectives_of_a_program_are_there_under_the_ranks_of_the_job,
    a_part_that_is_none_is_named,
];
testing::parts![rank];

fn profile(folder: &Folder, source: &str, options: &[&str]) -> Profile {
    let (file, profile) = (folder.file("source.goal", source), folder.path("profile.json"));
    report(&file, &[options, &["--trace", profile.to_str().expect("readable")]].concat());
    Profile::read(&profile)
}

fn every_operation_edge_and_message_of_a_file_is_there() {
    let folder = Folder::new();
    for options in [&["--engine", "peers"][..], &["--engine", "caller"], &["--eager-bytes", "0"]] {
        let profile = profile(&folder, EVERYTHING, options);
        // The file's own operations; what is around them are a barrier and reductions.
        let mut operations: BTreeMap<(u32, u64), Vec<&str>> = BTreeMap::new();
        for slice in profile.operations().filter(|slice| slice.args["call"] == "schedule") {
            let number = slice.args["operation"].as_u64().expect("a number");
            operations.entry((slice.pid, number)).or_default().push(&slice.name);
        }
        assert_eq!(operations.len(), 22, "{options:?}: {operations:?}");
        let names: Vec<&str> = operations.values().flatten().copied().collect();
        for name in [
            "send 300000b to 2 tag 4",
            "calc 50000",
            "recv 9b from 1 tag -1, taken from 1",
            "recv 0b from 0 tag 0",
        ] {
            assert!(names.iter().any(|found| found.starts_with(name)), "{name} in {names:?}");
        }
        let own = |name: &str| {
            let of_file = |arrow: &&(String, _, crate::exec::perfetto::Slice)| {
                arrow.2.args["call"] == "schedule"
            };
            profile.arrows.iter().filter(of_file).filter(|arrow| arrow.0 == name).count()
        };
        assert_eq!((own("requires"), own("irequires"), own("message")), (8, 3, 9), "{options:?}");
        for (name, from, to) in profile.arrows.iter().filter(|arrow| arrow.0 == "message") {
            assert!(
                from.name.starts_with("send") && to.name.starts_with("recv"),
                "{name}: {from:?} {to:?}"
            );
        }
        let processes: Vec<_> = (0..5).map(|rank| profile.processes[&rank].as_str()).collect();
        assert_eq!(processes, ["rank 0", "rank 1", "rank 2", "rank 3", "rank 4"]);
    }
}

/// A calc has its cpu to itself: no other operation of that cpu overlaps it.
fn operations_on_the_cpu_of_a_calc_do_not_overlap() {
    let folder = Folder::new();
    let mut source = ring(4, 6, 3000);
    for rank in 0..4 {
        let start = format!("rank {rank} {{\n");
        let calcs = (0..4).map(|number| format!("c{number}: calc {}\n", 50_000 * (number + 1)));
        source = source.replace(&start, &(start.clone() + &calcs.collect::<String>()));
    }
    let profile = profile(&folder, &source, &["--engine", "peers"]);
    let mut cpus: BTreeMap<(u32, u64), Vec<(u64, u64)>> = BTreeMap::new();
    for slice in profile.operations().filter(|slice| slice.args["call"] == "schedule") {
        cpus.entry((slice.pid, slice.cpu())).or_default().push(slice.span());
    }
    assert_eq!(cpus.len(), 4);
    for (cpu, mut spans) in cpus {
        assert_eq!(spans.len(), 16);
        spans.sort_unstable();
        assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{cpu:?}: {spans:?}");
    }
}

/// One rank of the job.
fn rank() {
    let job = Job::init().expect("tradewind run has started this process");
    collectives(job.world()).expect("the collectives work");
    job.finish().expect("the profile can be written");
}

/// A join, a linked collective, and both once more on communicators whose ranks have other numbers.
fn collectives(world: &Communicator) -> tradewind::Result<()> {
    let dissemination =
        Algorithms { barrier: Some(Algorithm::Dissemination), ..Algorithms::default() };
    let mut sum = [0u64; 4];
    world.allreduce(&[1; 4], &mut sum, Op::Sum)?;
    world.with_algorithms(dissemination).barrier()?;
    let half = world.split(Some(world.rank() % 2), -i64::from(world.rank()))?;
    if let Some(half) = half {
        let request = half.iallreduce(&[1; 4], &mut sum, Op::Sum)?;
        half.with_algorithms(dissemination).barrier()?;
        request.wait()?;
    }
    Ok(())
}

fn a_part_that_is_none_is_named() {
    let folder = Folder::new();
    folder.file("rank-0.json", "junk\n");
    let parts = folder.path(".");
    let output = tradewind()
        .args(["exec", "trace"])
        .args([&parts, &folder.path("profile.json")])
        .output()
        .expect("cargo has built the command");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("rank-0.json: 1 lines cannot be read"), "{output:?}");
}

fn collectives_of_a_program_are_there_under_the_ranks_of_the_job() {
    let folder = Folder::new();
    let path = folder.path("profile.json");
    let itself = std::env::current_exe().expect("/proc is mounted");
    let output = tradewind()
        .args(["run", "-n", "4", "--timeout", "60", "--trace"])
        .arg(&path)
        .arg("--")
        .arg(itself)
        .args(["--part", "exec::profiles::rank"])
        .output()
        .expect("cargo has built the command");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let profile = Profile::read(&path);
    for rank in 0..4 {
        let calls: Vec<_> = profile
            .slices
            .iter()
            .filter(|slice| slice.pid == rank && slice.cat == "collective")
            .collect();
        let names: Vec<&str> = calls.iter().map(|call| call.name.as_str()).collect();
        assert_eq!(names, ["allreduce 32b", "barrier", "allreduce 32b", "barrier"], "rank {rank}");
        // The last two ran at the same time.
        assert!(calls[2].span().1 >= calls[3].span().1, "rank {rank}: {calls:?}");
        assert_ne!(calls[2].args["communicator"], 0, "rank {rank}");
    }
    // Dissemination among four takes two rounds, among two one: a send and a receive each.
    assert_eq!(profile.operations().count(), 4 * (4 + 2));
    assert_eq!(profile.count("message"), 4 * (2 + 1));
    let mut halves: Vec<(u32, u32)> = profile
        .arrows
        .iter()
        .filter(|(name, _, to)| name == "message" && to.args["communicator"] != 0)
        .map(|(_, from, to)| (from.pid, to.pid))
        .collect();
    halves.sort_unstable();
    assert_eq!(halves, [(0, 2), (1, 3), (2, 0), (3, 1)]);
}
