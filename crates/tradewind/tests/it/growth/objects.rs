//! Communicators, requests, persistent collectives, schedules and neighbours.

use super::rounds::Row;
use tradewind::graph::{Access, Graph};
use tradewind::{Algorithm, Algorithms, Buffers, Communicator, InPlace, Op, Result, fold, interop};

pub(super) const ROWS: &[Row] = &[
    Row { name: "dup", round: |world, _| world.dup().map(drop) },
    Row { name: "dup with a nonblocking allgather", round: dup_and_allgather },
    Row { name: "dup with long collectives", round: dup_and_long },
    Row { name: "dup with a schedule", round: dup_and_schedule },
    Row { name: "dup with a dropped request", round: dup_and_drop },
    Row { name: "dup with a message", round: dup_and_message },
    Row { name: "dup of dup", round: dup_of_dup },
    Row { name: "split", round: split },
    Row { name: "group", round: group },
    Row { name: "split by node", round: |world, _| world.split_by_node()?.barrier() },
    Row { name: "dropped requests", round: dropped_requests },
    Row { name: "dropped requests with shared buffers", round: dropped_shared },
    Row { name: "dropped requests of schedules", round: dropped_of_schedules },
    Row { name: "requests of changing lengths", round: changing_lengths },
    Row { name: "requests with user-defined operations", round: user_defined },
    Row { name: "persistent collectives", round: persistent },
    Row { name: "persistent collectives with schedules", round: persistent_schedules },
    Row { name: "compiled schedules", round: compiled },
    Row { name: "compiled schedules with dropped runs", round: compiled_and_dropped },
    Row { name: "neighbours", round: neighbours },
    Row { name: "neighbours with schedules", round: neighbours_with_schedules },
    Row { name: "persistent neighbours", round: persistent_neighbours },
    Row { name: "grids", round: grids },
    Row { name: "relief", round: |world, _| interop::relieve_memory(world, || {}).map(drop) },
];

const SHORT: usize = 4;
/// Longer than what collectives carry in the slots of a communicator.
const LONG: usize = 1000;

fn scheduled(world: &Communicator) -> Communicator {
    world.with_algorithms(Algorithms {
        allreduce: Some(Algorithm::RecursiveDoubling),
        bcast: Some(Algorithm::Binomial),
        allgather: Some(Algorithm::Ring),
        neighbor: Some(Algorithm::Direct),
        ..Algorithms::default()
    })
}

fn allgather(communicator: &Communicator, count: usize) -> Result<()> {
    let mut all = vec![0.0; count * communicator.size() as usize];
    communicator.iallgather(&vec![1.0f64; count], &mut all[..])?.wait().map(drop)
}

/// Waits for a run behind dropped ones. Otherwise ranks start more of them between nodes than the
/// node services complete meanwhile.
fn follow_runs(communicator: &Communicator) -> Result<()> {
    let mut sum = [0];
    communicator.iallreduce(&[1], &mut sum, Op::Sum)?.wait().map(drop)
}

fn dup_and_allgather(world: &Communicator, _: usize) -> Result<()> {
    allgather(&world.dup()?, LONG)
}

fn dup_and_long(world: &Communicator, round: usize) -> Result<()> {
    let copy = world.dup()?;
    let mut buffer = vec![1.0f64; 5 * LONG];
    copy.bcast(&mut buffer, round as u32 % world.size())?;
    copy.allreduce(InPlace, &mut buffer, Op::Sum)
}

fn dup_and_schedule(world: &Communicator, round: usize) -> Result<()> {
    let copy = scheduled(&world.dup()?);
    let mut sum = [0.0; SHORT];
    copy.iallreduce(&[1.0; SHORT], &mut sum, Op::Sum)?.wait()?;
    let mut buffer = [1.0; LONG];
    copy.ibcast(&mut buffer, round as u32 % world.size())?.wait()
}

fn dup_and_drop(world: &Communicator, round: usize) -> Result<()> {
    let copy = world.dup()?;
    let copy = if round.is_multiple_of(2) { scheduled(&copy) } else { copy };
    let mut sum = vec![0.0; LONG];
    drop(copy.iallreduce(&vec![1.0; LONG], &mut sum, Op::Sum)?);
    follow_runs(&copy)
}

fn dup_and_message(world: &Communicator, round: usize) -> Result<()> {
    let copy = world.dup()?;
    let (rank, size) = (copy.rank(), copy.size());
    let message = [rank; LONG];
    // Every second round has a message that no rank receives.
    if round.is_multiple_of(2) {
        copy.send(&[rank], (rank + 1) % size, 2)?;
    }
    let sent = copy.isend(&message, (rank + 1) % size, 1)?;
    let mut received = [0; LONG];
    copy.recv(&mut received, (rank + size - 1) % size, 1)?;
    sent.wait()
}

fn dup_of_dup(world: &Communicator, round: usize) -> Result<()> {
    let copy = world.dup()?;
    let second = copy.dup()?;
    // Dropped in another order on every rank.
    if (round + world.rank() as usize).is_multiple_of(2) {
        drop(copy);
    }
    allgather(&second, LONG)
}

fn split(world: &Communicator, round: usize) -> Result<()> {
    let color = Some(world.rank() % 2).filter(|_| round as u32 % 5 != world.rank());
    match world.split(color, -i64::from(world.rank()))? {
        Some(part) => allgather(&part, LONG),
        None => Ok(()),
    }
}

fn group(world: &Communicator, round: usize) -> Result<()> {
    // Without another rank in each round.
    let without = round as u32 % world.size();
    if without == world.rank() {
        return Ok(());
    }
    let ranks: Vec<u32> = (0..world.size()).rev().filter(|rank| *rank != without).collect();
    allgather(&world.create_from_group(&ranks, 9)?, LONG)
}

fn dropped_requests(world: &Communicator, round: usize) -> Result<()> {
    let count = [SHORT, LONG][round % 2];
    let mut all = vec![0; count * world.size() as usize];
    drop(world.iallgather(&vec![1u64; count], &mut all[..])?);
    drop(world.ibarrier()?);
    let mut sum = vec![0; count];
    drop(world.iallreduce(&vec![1u64; count], &mut sum[..], Op::Sum)?);
    follow_runs(world)
}

fn dropped_shared(world: &Communicator, round: usize) -> Result<()> {
    let count = [SHORT, LONG][round % 2];
    let (input, output) = (world.alloc::<u64>(count)?, world.alloc::<u64>(count)?);
    drop(world.iallreduce(input, output, Op::Sum)?);
    follow_runs(world)
}

fn dropped_of_schedules(world: &Communicator, round: usize) -> Result<()> {
    dropped_requests(&scheduled(world), round)
}

fn changing_lengths(world: &Communicator, round: usize) -> Result<()> {
    // Few enough for the first rounds to see all of them: a communicator keeps their schedules.
    let count = 1 + round * 7 % 61;
    allgather(world, count)?;
    allgather(&scheduled(world), count)
}

fn user_defined(world: &Communicator, _: usize) -> Result<()> {
    let mut all = [0u64; SHORT];
    let largest = fold(|a: &mut u64, b: &u64| *a = (*a).max(*b));
    world.iallreduce(&[u64::from(world.rank()); SHORT], &mut all, largest)?.wait().map(drop)
}

fn persistent(world: &Communicator, round: usize) -> Result<()> {
    let count = 1 + round * 7 % 61;
    let sum = world.allreduce_init::<f64>(count, Op::Sum)?;
    let mut output = vec![0.0; count];
    sum.start(&vec![1.0; count], &mut output[..])?.wait()?;
    let copy = world.bcast_init::<f64>(4 * LONG, round as u32 % world.size())?;
    let mut buffer = vec![1.0; 4 * LONG];
    copy.start(&mut buffer[..])?.wait()?;
    drop(sum.start(&vec![1.0; count], &mut output[..])?);
    Ok(())
}

fn persistent_schedules(world: &Communicator, round: usize) -> Result<()> {
    persistent(&scheduled(world), round)
}

/// A graph that passes a number on to the next rank.
fn shift(world: &Communicator) -> Graph {
    let (rank, size) = (world.rank(), world.size());
    let mut graph = Graph::new(rank, size);
    let mine = graph.buffer(Access::Input, 8 * LONG as u64);
    let theirs = graph.buffer(Access::Output, 8 * LONG as u64);
    graph.send(mine, (rank + 1) % size, 0);
    graph.receive(theirs, (rank + size - 1) % size, 0);
    graph
}

fn compiled(world: &Communicator, _: usize) -> Result<()> {
    let schedule = world.compile(&shift(world))?;
    let mut output = [0u64; LONG];
    schedule.run(Buffers::new().input(&[1u64; LONG]).output(&mut output))?.wait().map(drop)
}

fn compiled_and_dropped(world: &Communicator, _: usize) -> Result<()> {
    let schedule = world.compile(&shift(world))?;
    let mut output = [0u64; LONG];
    drop(schedule.run(Buffers::new().input(&[1u64; LONG]).output(&mut output))?);
    follow_runs(world)
}

/// The ranks before and behind this one in a ring.
fn ring(world: &Communicator) -> ([u32; 1], [u32; 1]) {
    let (rank, size) = (world.rank(), world.size());
    ([(rank + size - 1) % size], [(rank + 1) % size])
}

fn neighbours(world: &Communicator, round: usize) -> Result<()> {
    let (before, behind) = ring(world);
    let ring = world.neighbors(&before, &behind)?;
    let count = 1 + round * 7 % 61 * 40;
    let mut received = vec![0.0; count];
    ring.ineighbor_alltoall(&vec![1.0; count], &mut received[..])?.wait()?;
    ring.neighbor_allgatherv(&vec![1.0; count], &mut received, &[count])
}

fn neighbours_with_schedules(world: &Communicator, round: usize) -> Result<()> {
    neighbours(&scheduled(world), round)
}

fn persistent_neighbours(world: &Communicator, round: usize) -> Result<()> {
    let world = if round.is_multiple_of(2) { &scheduled(world) } else { world };
    let (before, behind) = ring(world);
    let ring = world.neighbors(&before, &behind)?;
    let exchange = ring.neighbor_alltoall_init::<f64>(LONG)?;
    let mut received = vec![0.0; LONG];
    exchange.start(&vec![1.0; LONG], &mut received[..])?.wait().map(drop)
}

fn grids(world: &Communicator, round: usize) -> Result<()> {
    let line = world.cartesian(&[world.size()], &[round.is_multiple_of(2)])?;
    let mut received = vec![0u32; 2 * SHORT];
    line.neighbor_allgather(&[1u32; SHORT], &mut received)
}
