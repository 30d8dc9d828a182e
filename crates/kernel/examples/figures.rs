//! Costs of the kernel engine on this machine: `cargo run --release -p tradewind-kernel --example
//! figures`, as root.
//!
//! Two nodes are two network namespaces on one bridge. Without receive steering (RPS) a packet is
//! received inside the system call that sends it; with it, on another core, as with a network
//! card's interrupt.

#[path = "../tests/it/world/mod.rs"]
mod world;

use goal::arithmetic::{Arithmetic, DataType, apply_in_place_left};
use goal::compile::compile;
use goal::graph::{Blocks, Graph};
use goal::schedule::Schedule;
use kernel::Rank;
use network::backend::{Backend, CommunicatorContext, RunId, ScheduleId};
use std::time::{Duration, Instant};
use world::World;

/// Number of repetitions of each short measurement.
const LAPS: u64 = 20_000;

fn main() {
    let world = World::new(2, 1, 1500);
    for loader in &world.loaders[..1] {
        println!("instructions that the verifier looked at: {:?}", loader.verified_instructions());
    }
    chain(&world);
    reductions(&world);
    test_and_late_wait(&world);
    for (name, cores) in
        [("in the sender's call", [0, 0]), ("on the receiver's core (RPS)", [1, 2])]
    {
        for (node, cores) in world.testbed.nodes().iter().zip(cores) {
            node.receive_on(cores).expect("packets can be steered");
        }
        println!("packets received {name}:");
        start_with_send(&world);
        barrier(&world);
    }
}

/// Runs a schedule repeatedly on one rank. Returns the median of one run in nanoseconds: start,
/// wait and fetch together.
fn laps(rank: &Rank, prepared: ScheduleId, first: u64, count: u64) -> u64 {
    let mut times: Vec<u64> = (0..count)
        .map(|lap| {
            let before = Instant::now();
            let run = rank.start(prepared, first + lap, &[]).expect("it starts");
            assert!(rank.wait(run, None).expect("it ends"));
            rank.fetch(run, &mut []).expect("it went well");
            before.elapsed().as_nanos() as u64
        })
        .collect();
    median(&mut times)
}

fn median(times: &mut [u64]) -> u64 {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Returns a schedule in which each operation waits for the previous one.
fn chain_of(length: u64, kind: &str) -> Schedule {
    let mut graph = Graph::new(0, 1);
    let from = graph.scratchpad(8);
    let to = graph.scratchpad(8);
    let mut last = None;
    for _ in 0..length {
        let vertex = match kind {
            "nothing" => graph.calc(0),
            "copy of 8 bytes" => graph.copy(from, to),
            _ => graph.local(Arithmetic::Add, DataType::U64, to, from, to),
        };
        if let Some(last) = last {
            graph.requires(vertex, last);
        }
        last = Some(vertex);
    }
    compile(&graph).expect("the graph is right")
}

fn chain(world: &World) {
    const LENGTH: u64 = 250;
    for kind in ["nothing", "copy of 8 bytes", "addition of u64"] {
        let context =
            CommunicatorContext { number: world.communicator(), members: [0].into(), rank: 0 };
        let [one, many] = world.run(1, move |_, rank| {
            [1, LENGTH + 1].map(|length| {
                let context = CommunicatorContext {
                    number: context.number * 1000 + length as u32,
                    ..context.clone()
                };
                let prepared =
                    rank.register(&context, &chain_of(length, kind), 0).expect("it is small");
                laps(rank, prepared, 0, LAPS)
            })
        })[0];
        println!(
            "{kind}: run of one operation {one} ns; each further one {} ns",
            (many - one) / LENGTH
        );
    }
}

/// Vectors that are combined, by operation, type and length: in the kernel, and by the same arithmetic
/// in user space (figure 4b of the ESPGOAL paper).
fn reductions(world: &World) {
    const OPERATIONS: [(Arithmetic, DataType); 6] = [
        (Arithmetic::Maximum, DataType::F32),
        (Arithmetic::Add, DataType::F64),
        (Arithmetic::Add, DataType::I64),
        (Arithmetic::Add, DataType::U8),
        (Arithmetic::Minimum, DataType::I32),
        (Arithmetic::Or, DataType::Bit),
    ];
    println!("reductions: bytes of each vector, ns in the kernel, ns in user space");
    for (operation, data_type) in OPERATIONS {
        for bytes in [1 << 10, 4 << 10, 16 << 10, 64 << 10] {
            let [one, several] = [1, 1 + REDUCTIONS].map(|length| {
                let number = world.communicator();
                let times = world.run(1, move |_, rank| {
                    let context = CommunicatorContext { number, members: [0].into(), rank: 0 };
                    let schedule = chain_of_reductions(length, (operation, data_type), bytes);
                    let prepared = rank.register(&context, &schedule, 0).expect("it is small");
                    laps(rank, prepared, 0, 300)
                });
                times[0]
            });
            let here = in_user_space((operation, data_type), bytes as usize);
            let there = several.saturating_sub(one) / REDUCTIONS;
            println!("  {operation} of {data_type}: {bytes} {there} {here}");
        }
    }
}

/// Further reductions of a run, over which the difference of two runs is divided.
const REDUCTIONS: u64 = 8;

fn chain_of_reductions(
    length: u64,
    (operation, data_type): (Arithmetic, DataType),
    bytes: u64,
) -> Schedule {
    let mut graph = Graph::new(0, 1);
    let [from, to] = [(); 2].map(|()| graph.scratchpad(bytes));
    let mut last = None;
    for _ in 0..length {
        let vertex = graph.local(operation, data_type, to, from, to);
        if let Some(last) = last {
            graph.requires(vertex, last);
        }
        last = Some(vertex);
    }
    compile(&graph).expect("the graph is right")
}

fn in_user_space((operation, data_type): (Arithmetic, DataType), bytes: usize) -> u64 {
    let from = vec![0; bytes];
    let mut to = vec![0; bytes];
    let mut times: Vec<u64> = (0..2000)
        .map(|_| {
            let before = Instant::now();
            let from = std::hint::black_box(&from);
            apply_in_place_left(operation, data_type, &mut to, from).expect("it is defined");
            before.elapsed().as_nanos() as u64
        })
        .collect();
    median(&mut times)
}

/// Returns a rank's part of an exchange of empty messages between two ranks.
fn exchange(rank: usize) -> Schedule {
    let mut graph = Graph::new(rank as u32, 2);
    let peer = 1 - rank as u32;
    graph.send(Blocks::none(), peer, 0);
    graph.receive(Blocks::none(), peer, 0);
    compile(&graph).expect("the graph is right")
}

fn test_and_late_wait(world: &World) {
    let number = world.communicator();
    let results = world.run(2, move |rank, here| {
        let context = CommunicatorContext { number, members: [0, 1].into(), rank: rank as u32 };
        let prepared = here.register(&context, &exchange(rank), 0).expect("it is small");
        let mut waits = Vec::new();
        let mut test = Duration::ZERO;
        for lap in 0..2000 {
            let run = here.start(prepared, lap, &[]).expect("it starts");
            while !here.is_complete(run) {
                std::thread::yield_now();
            }
            if lap == 0 {
                test = time_of_tests(here, run);
            }
            let before = Instant::now();
            here.wait(run, None).expect("it has ended");
            waits.push(before.elapsed().as_nanos() as u64);
            here.fetch(run, &mut []).expect("it went well");
        }
        (test, median(&mut waits))
    });
    let (test, wait) = results[0];
    println!(
        "test(): {:.2} ns; wait() when the run has ended: {wait} ns, with the clock",
        test.as_nanos() as f64 / 1e7
    );
}

fn time_of_tests(rank: &Rank, run: RunId) -> Duration {
    let before = Instant::now();
    let found = (0..10_000_000).filter(|_| rank.is_complete(std::hint::black_box(run))).count();
    std::hint::black_box(found);
    before.elapsed()
}

/// Start of a schedule with one send to a posted receive.
fn start_with_send(world: &World) {
    let number = world.communicator();
    let starts = world.run(2, move |rank, here| {
        let mut graph = Graph::new(rank as u32, 2);
        // The answer is sent after the message was received, so rounds do not overlap.
        match rank {
            0 => {
                graph.send(Blocks::none(), 1, 0);
                graph.receive(Blocks::none(), 1, 1);
            }
            _ => {
                let receive = graph.receive(Blocks::none(), 0, 0);
                let send = graph.send(Blocks::none(), 0, 1);
                graph.requires(send, receive);
            }
        }
        let context = CommunicatorContext { number, members: [0, 1].into(), rank: rank as u32 };
        let prepared = here
            .register(&context, &compile(&graph).expect("it is right"), 0)
            .expect("it is small");
        let mut starts = Vec::new();
        for lap in 0..LAPS {
            let before = Instant::now();
            let run = here.start(prepared, lap, &[]).expect("it starts");
            starts.push(before.elapsed().as_nanos() as u64);
            here.wait(run, None).expect("it ends");
            here.fetch(run, &mut []).expect("it went well");
        }
        median(&mut starts)
    });
    println!("  start with one send {} ns, with none {} ns", starts[0], starts[1]);
}

fn barrier(world: &World) {
    let number = world.communicator();
    let times = world.run(2, move |rank, here| {
        let context = CommunicatorContext { number, members: [0, 1].into(), rank: rank as u32 };
        let prepared = here.register(&context, &exchange(rank), 0).expect("it is small");
        let before = Instant::now();
        let typical = laps(here, prepared, 0, LAPS);
        (typical, before.elapsed().as_nanos() as u64 / LAPS)
    });
    println!("  barrier of two nodes: median {} ns, mean {} ns", times[0].0, times[0].1);
}
