//! What the ranks of the tests do. The tests start this very program again with the name of one of
//! these.

#[allow(dead_code, reason = "the example's main is not called")]
#[path = "../../../../tradewind/examples/broadcast.rs"]
mod broadcast;
#[allow(dead_code, reason = "the example's main is not called")]
#[path = "../../../../tradewind/examples/hello.rs"]
mod hello;

use crate::nodes::harness::{PROGRAM, SIGN};
use crate::nodes::{
    deaths, full_connections, mechanisms, messages, multicast, networks, queues, windows,
};
use rustix::process::{Signal, getpid, kill_process};
use std::path::Path;
use std::time::{Duration, Instant};
use tradewind::{Collective, Communicator, Error, Job, Op, Result};

testing::parts![program];

/// Is a rank if this process was started as one; as a test of its own it does nothing.
fn program() {
    let Ok(name) = std::env::var(PROGRAM) else { return };
    let outcome = match name.as_str() {
        "collectives" => collectives(),
        "examples" => examples(),
        "levels" => levels(),
        "rank-2-dies" => rank_2_dies(),
        "dies-behind-its-starts" => dies_behind_its_starts(),
        "exchanges-of-killed-ranks" => deaths::exchange(),
        "waits" => waits(),
        "goes-on" => goes_on(),
        "engine" => engine(),
        "listens" => listens(),
        "joins" => joins(),
        "root-leaves" => root_leaves(),
        "root-ends" => root_ends(),
        "messages" => messages::exchange(),
        "messages-beside-a-killed-rank" => messages::beside_a_killed_rank(),
        "messages-to-a-vanished-node" => messages::to_a_vanished_node(),
        "messages-of-a-rank-that-leaves" => messages::of_a_rank_that_leaves(),
        "leaves-beside-a-silent-rank" => full_connections::leave_beside_a_silent_rank(),
        "messages-of-a-killed-sender" => full_connections::of_a_killed_sender(),
        "messages-for-a-killed-receiver" => full_connections::for_a_killed_receiver(),
        "killed-within-long-messages" => full_connections::killed_within_long_messages(),
        "mechanisms" => mechanisms::exchange(),
        "mechanisms-beside-a-killed-rank" => mechanisms::with_a_killed_rank(),
        "mechanisms-to-a-vanished-node" => mechanisms::to_a_vanished_node(),
        "mechanisms-of-a-rank-that-leaves" => mechanisms::of_a_rank_that_leaves(),
        "set-beside-a-killed-rank" => queues::set_beside_a_killed_rank(),
        "networks" => networks::compare(),
        "queues-without-node-service" => queues::without_node_service(),
        "multicast-to-a-killed-rank" => multicast::multicast_to_a_killed_rank(),
        "windows" => windows::exchange(),
        "windows-of-a-stopped-rank" => windows::of_a_stopped_rank(),
        "windows-beside-a-killed-rank" => windows::beside_a_killed_rank(),
        "windows-of-a-vanished-node" => windows::of_a_vanished_node(),
        other => panic!("there is no program {other}"),
    };
    if let Err(error) = &outcome {
        eprintln!("{error}");
    }
    std::process::exit(outcome.is_err().into());
}

/// Writes a line for the test, by one system call, so that it is never torn.
pub(super) fn say(rank: u32, words: &str) {
    println!("> {rank} {words}");
}

/// The examples with which docs/nodes.md tries each launcher.
fn examples() -> Result<()> {
    let job = Job::init()?;
    let world = job.world();
    say(world.rank(), &hello::greet(world)?);
    say(world.rank(), &broadcast::receive(world)?);
    Ok(())
}

/// Writes the TCP ports at which processes listen on this node during a job.
fn listens() -> Result<()> {
    /// State of a socket that listens, in the tables of the kernel.
    const LISTEN: &str = "0A";
    let job = Job::init()?;
    let world = job.world();
    // Every rank listens by now, and so does every node service.
    world.barrier()?;
    let tables = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
    let sockets =
        tables.map(|table| std::fs::read_to_string(table).expect("Linux has it")).concat();
    for line in sockets.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [_, local, _, LISTEN, ..] = words[..] {
            let port = local.rsplit(':').next().expect("an address and a port");
            say(world.rank(), &u16::from_str_radix(port, 16).expect("a port").to_string());
        }
    }
    world.barrier()
}

/// Everybody's number, by some collectives of each kind.
fn collectives() -> Result<()> {
    let job = Job::init()?;
    let world = job.world();
    let (rank, size) = (world.rank(), world.size());
    let all: Vec<u32> = (0..size).collect();
    // The first collective of a job, and longer than the kernel engine takes.
    let mut first = vec![if rank == 0 { 7u8 } else { 0 }; 4 << 20];
    world.ibcast(&mut first, 0)?.wait()?;
    assert!(first.iter().all(|value| *value == 7));
    for round in 0..20 {
        let mut sum = [0];
        world.allreduce(&[rank + round], &mut sum, Op::Sum)?;
        assert_eq!(sum, [all.iter().sum::<u32>() + size * round]);
        // Longer than what is sent before it is asked for.
        let mut long = vec![if rank == round % size { round } else { 0 }; 100_000];
        world.bcast(&mut long, round % size)?;
        assert!(long.iter().all(|value| *value == round));
        let mut told = vec![0; size as usize];
        let request = world.ialltoall(&all, &mut told)?;
        request.wait()?;
        assert!(told.iter().all(|value| *value == rank));
    }
    let here = world.split_by_node()?;
    let mut companions = vec![0; here.size() as usize];
    here.allgather(&[rank], &mut companions)?;
    assert!(companions.contains(&rank));
    let ring = world.neighbors(&[(rank + size - 1) % size], &[(rank + 1) % size])?;
    let mut before = [0];
    ring.neighbor_alltoall(&[rank], &mut before)?;
    assert_eq!(before, [(rank + size - 1) % size]);
    world.barrier()?;
    say(
        rank,
        &format!("{size} ranks on {} nodes, {} here, all is right", world.nodes(), here.size()),
    );
    Ok(())
}

/// All-to-alls and exchanges with neighbours of short blocks, many under way at once, and of long
/// ones.
fn levels() -> Result<()> {
    let job = Job::init()?;
    let world = job.world();
    let (rank, size) = (world.rank(), world.size());
    let [before, next] = [(rank + size - 1) % size, (rank + 1) % size];
    // Both ways, and one way twice.
    let graph = world.neighbors(&[before, next, before], &[next, before, next])?;
    let block = |from: u32, to: u32, round: u32| [from << 24 | to << 16 | round; 8];
    for round in 0..50 {
        let given: Vec<[u32; 8]> = (0..size).map(|to| block(rank, to, round)).collect();
        let (mut all, mut theirs, mut twice) = (given.clone(), [[0; 8]; 3], [[0; 8]; 3]);
        let to_neighbors = [block(rank, 0, round), block(rank, 1, round), block(rank, 2, round)];
        let of_all = world.ialltoall(&given, &mut all)?;
        let of_neighbors = graph.ineighbor_alltoall(&to_neighbors, &mut theirs)?;
        // In another order than they were started.
        graph.ineighbor_allgather(&to_neighbors[..1], &mut twice)?.wait()?;
        of_neighbors.wait()?;
        of_all.wait()?;
        assert!(
            (0..size).zip(&all).all(|(from, got)| *got == block(from, rank, round)),
            "round {round}: {all:?}"
        );
        assert_eq!(
            theirs,
            [block(before, 0, round), block(next, 1, round), block(before, 2, round)]
        );
        assert_eq!(twice, [before, next, before].map(|from| block(from, 0, round)));
    }
    // Too long for two levels, and for a packet.
    let given: Vec<u32> = (0..size).flat_map(|to| vec![rank << 16 | to; 3000]).collect();
    let mut all = vec![0; given.len()];
    world.alltoall(&given, &mut all)?;
    assert!(
        (0..size)
            .zip(all.chunks(3000))
            .all(|(from, got)| got.iter().all(|word| *word == from << 16 | rank))
    );
    let explanation = world.explain(Collective::Alltoall, 32);
    let levels = explanation
        .ranks_per_node
        .map_or("in one level".into(), |here| format!("in nodes of {here}"));
    say(rank, &format!("{levels}, {}, all is right", explanation.engine));
    Ok(())
}

/// Adds up until something goes wrong, and says what.
fn until_it_fails(world: &Communicator) -> Error {
    let mut sum = [0];
    loop {
        if let Err(error) = world.allreduce(&[1], &mut sum, Op::Sum) {
            return error;
        }
    }
}

fn rank_2_dies() -> Result<()> {
    let job = Job::init()?;
    let world = job.world();
    // Often enough for the engine that will carry them to be settled.
    for _ in 0..3 {
        world.allreduce(&[1], &mut [0], Op::Sum)?;
    }
    if world.rank() == 2 {
        kill_process(getpid(), Signal::KILL).expect("a process may signal itself");
    }
    let error = until_it_fails(world);
    match error.failed_rank() {
        Some(failed) => say(world.rank(), &format!("rank {failed} failed")),
        None => say(world.rank(), &format!("{error}")),
    }
    Ok(())
}

/// Rank 0 is killed as soon as it has started collectives of which rank 1 needs its part.
fn dies_behind_its_starts() -> Result<()> {
    const LONG: usize = 1 << 20;
    let job = Job::init()?;
    let world = job.world();
    let (rank, size) = (world.rank(), world.size());
    let (mut sum, mut all) = ([0], vec![0; size as usize]);
    let mut blocks = vec![0; 32_768];
    let (mut short, mut long) = ([7 - rank], vec![7 - rank; LONG]);
    let given: Vec<u32> = vec![rank + 1; 32_768];
    let own = [rank + 1];
    let adding = world.iallreduce(&own, &mut sum, Op::Sum)?;
    let gathering = world.iallgather(&own, &mut all)?;
    let exchanging = world.ialltoall(&given, &mut blocks)?;
    let long_bcast = world.ibcast(&mut long, 0)?;
    let short_bcast = world.ibcast(&mut short, 0)?;
    let barrier = world.ibarrier()?;
    // A start that finds the rank dead fails: so all others have started before.
    if rank == 0 {
        for other in 1..size {
            world.recv(&mut [0], other, 0)?;
        }
        kill_process(getpid(), Signal::KILL).expect("a process may signal itself");
    }
    world.send(&own, 0, 0)?;
    adding.wait()?;
    gathering.wait()?;
    exchanging.wait()?;
    long_bcast.wait()?;
    short_bcast.wait()?;
    barrier.wait()?;
    assert_eq!((sum, short), ([size * (size + 1) / 2], [7]));
    assert!(all.iter().copied().eq(1..=size));
    let of_each = 32_768 / size;
    assert!(blocks.iter().zip(0u32..).all(|(word, at)| *word == 1 + at / of_each));
    assert!(long.iter().all(|word| *word == 7));
    say(rank, "has all");
    Ok(())
}

fn waits() -> Result<()> {
    let job = Job::init()?;
    let world = job.world();
    world.barrier()?;
    say(world.rank(), "goes on");
    let error = until_it_fails(world);
    match error.unreachable_node() {
        Some(node) => say(world.rank(), &format!("node {node} is unreachable")),
        None => say(world.rank(), &format!("{error}")),
    }
    Ok(())
}

/// Adds up for two seconds, by short and by long vectors, whatever happens meanwhile; all ranks end
/// with the same round.
fn goes_on() -> Result<()> {
    let job = Job::init()?;
    let world = job.world();
    let (rank, size) = (u64::from(world.rank()), u64::from(world.size()));
    let end = Instant::now() + Duration::from_secs(2);
    let (mut sum, mut vector, mut latest) = ([0], vec![0; 1000], [0]);
    world.barrier()?;
    say(world.rank(), "goes on");
    for round in 0.. {
        world.allreduce(&[round * rank], &mut sum, Op::Sum)?;
        assert_eq!(sum, [round * size * (size - 1) / 2]);
        let given = vec![round + rank; 1000];
        let request = world.iallreduce(&given, &mut vector, Op::Sum)?;
        request.wait()?;
        assert!(
            vector.iter().all(|value| *value == round * size + size * (size - 1) / 2),
            "round {round}"
        );
        world.allreduce(&[u64::from(Instant::now() >= end)], &mut latest, Op::Minimum)?;
        if latest == [1] {
            break;
        }
    }
    say(world.rank(), "all is right");
    Ok(())
}

/// Which engine runs what is small.
fn engine() -> Result<()> {
    let job = Job::init()?;
    let form = tradewind::CallForm::Nonblocking;
    say(job.world().rank(), job.world().explain_form(form, Collective::Allreduce, 8).engine);
    // Longer than the shortest network takes.
    let mut long = vec![1; 3000];
    job.world().bcast(&mut long, 0)?;
    Ok(())
}

/// Rank 0 sends more than a receiver buffers before it receives, at most what the sender's node can
/// keep, and exits at once. Rank 1 still computes, and receives it later. With a sign to wait for,
/// both synchronise once more, and rank 1 sends a little of its own before it exits: so many
/// packets at once that some are lost where packets are.
fn root_leaves() -> Result<()> {
    /// In pieces for an MTU of 1500, four are a few dozen more than the messages that a rank
    /// buffers.
    const BYTES: usize = 450_000;
    let job = Job::init()?;
    let world = job.world();
    let (mut processes, mut bytes) = ([0; 2], vec![0u8; BYTES]);
    world.allgather(&[std::process::id()], &mut processes)?;
    // What is settled once among all ranks is settled here.
    world.ibcast(&mut bytes, 0)?.wait()?;
    world.ibcast(&mut processes, 1)?.wait()?;
    world.barrier()?;
    say(world.rank(), "goes on");
    if let Ok(sign) = std::env::var(SIGN) {
        until(Duration::MAX, || Path::new(&sign).exists());
    }
    if world.rank() == 1 {
        let root = format!("/proc/{}", processes[0]);
        until(Duration::from_secs(2), || !Path::new(&root).exists());
        // As long again as its node service would take to follow it.
        until(Duration::from_millis(500), || false);
    }
    for round in 1..=4 {
        if world.rank() == 0 {
            bytes.fill(round);
        }
        let request = world.ibcast(&mut bytes, 0)?;
        let engine = request.explain().map(|explanation| explanation.engine);
        assert_eq!(engine, Some("kernel"));
        request.wait()?;
        assert!(bytes.iter().all(|byte| *byte == round), "round {round}");
    }
    if std::env::var_os(SIGN).is_some() {
        world.barrier()?;
        for _ in 0..20 {
            world.ibcast(&mut processes, 1)?.wait()?;
        }
    }
    say(world.rank(), "has all");
    Ok(())
}

/// Rank 0 sends the others two long messages and exits: it has waited for the first request, and
/// dropped the second. The others want them later.
fn root_ends() -> Result<()> {
    let job = Job::init()?;
    let world = job.world();
    let engine = std::env::var("TRADEWIND_INTERNODE").expect("the test sets it");
    // More than agents send unasked, and more than the kernel engine's window.
    let mut bytes = vec![0u8; if engine == "kernel" { 450_000 } else { 4 << 20 }];
    // What is settled once among all ranks is settled here.
    world.ibcast(&mut bytes, 0)?.wait()?;
    world.barrier()?;
    if world.rank() != 0 {
        until(Duration::from_millis(300), || false);
    }
    for round in 1..=2 {
        if world.rank() == 0 {
            bytes.fill(round);
        }
        let request = world.ibcast(&mut bytes, 0)?;
        let expected = if engine == "ranks" { "direct" } else { &*engine };
        assert_eq!(request.explain().map(|explanation| explanation.engine), Some(expected));
        if world.rank() == 0 && round == 2 {
            drop(request);
            break;
        }
        request.wait()?;
        assert!(bytes.iter().all(|byte| *byte == round), "round {round}");
    }
    say(world.rank(), "has all");
    Ok(())
}

/// Computes until something is so, or the time is over.
fn until(limit: Duration, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() && begun.elapsed() < limit {
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn joins() -> Result<()> {
    if let Err(error) = Job::init() {
        say(0, &error.to_string());
    }
    Ok(())
}
