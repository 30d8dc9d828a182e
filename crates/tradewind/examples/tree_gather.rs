//! A gather along a tree, made in one place and run in another: `tradewind run -n 4 --
//! target/release/examples/tree_gather`.
//!
//! Ranks in the middle of the tree collect their subtree's blocks before they pass them on. The
//! function that makes the schedule returns long before a run, so local variables of it cannot hold
//! the collected blocks, and the code that runs the schedule is independent of the tree. They lie
//! in the scratchpad, which comes with the schedule and exists for the length of a run (Schneider
//! et al. 2011, section 2.2).

use clap::Parser;
use collectives::gather;
use tradewind::{Buffers, Communicator, Job, Op, Result, Schedule};

/// Gathers a block from every rank at one of them, several times over, and checks what arrives.
#[derive(Parser)]
struct Arguments {
    /// Bytes of a rank's block
    #[arg(long, default_value_t = 1024)]
    bytes: usize,
    /// Number of gathers; the blocks differ from one to the next
    #[arg(long, default_value_t = 10)]
    times: u32,
    /// Run this many ranks as threads of this process
    #[arg(long)]
    threads: Option<u32>,
}

fn main() -> Result<()> {
    let Arguments { bytes, times, threads } = Arguments::parse();
    match threads {
        Some(ranks) => tradewind::local(ranks, |world| report(&world, bytes, times)),
        None => report(Job::init()?.world(), bytes, times),
    }
}

fn report(world: &Communicator, bytes: usize, times: u32) -> Result<()> {
    let root = world.size() - 1;
    let schedule = make(world, root, bytes)?;
    let wrong = run(world, &schedule, root, bytes, times)?;
    if world.rank() == root {
        println!(
            "rank {root} gathered {bytes} bytes from each of {} ranks, {times} times",
            world.size()
        );
        println!("{wrong} bytes differ from what the ranks gave");
    }
    Ok(())
}

/// Builds the tree and returns its schedule, which refers to nothing here.
pub(crate) fn make(world: &Communicator, root: u32, bytes: usize) -> Result<Schedule> {
    world.compile(&gather::tree_gather(world.rank(), world.size(), root, bytes as u64)?)
}

/// Runs a schedule made elsewhere. Returns, on all ranks, the number of wrong bytes at the root.
pub(crate) fn run(
    world: &Communicator,
    schedule: &Schedule,
    root: u32,
    bytes: usize,
    times: u32,
) -> Result<u64> {
    let mut wrong = 0;
    for time in 0..times {
        let mine = block(world.rank(), time, bytes);
        let mut all =
            if world.rank() == root { vec![0; bytes * world.size() as usize] } else { Vec::new() };
        schedule.run(Buffers::new().input(&mine).output(&mut all))?.wait()?;
        let given = (0..world.size()).flat_map(|rank| block(rank, time, bytes));
        wrong += all.iter().zip(given).filter(|(found, given)| *found != given).count() as u64;
    }
    let mut total = [0];
    world.allreduce(&[wrong], &mut total, Op::Sum)?;
    Ok(total[0])
}

/// A rank's block: other bytes on every rank, every time.
fn block(rank: u32, time: u32, bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|at| (at as u32).wrapping_mul(31).wrapping_add(rank * 7 + time * 13) as u8)
        .collect()
}
