//! Joins a job, adds up a number over all ranks, then stays in the job until its standard input
//! ends. `bench/many_nodes` measures the start, and the node services meanwhile.

use std::io::Read;
use tradewind::{Job, Op, Result};

fn main() -> Result<()> {
    let job = Job::init()?;
    let world = job.world();
    println!("joined");
    let mut sum = [0];
    world.iallreduce(&[world.rank() + 1], &mut sum, Op::Sum)?.wait()?;
    println!("{}", sum[0]);
    // An input that cannot be read is at its end.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    Ok(())
}
