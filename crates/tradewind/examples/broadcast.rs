//! A broadcast of 2 MB, which every rank checks: `tradewind run -n 4 --
//! target/release/examples/broadcast`.

use tradewind::{Communicator, Job, Result};

const BYTES: usize = 2_000_000;

fn main() -> Result<()> {
    println!("{}", receive(Job::init()?.world())?);
    Ok(())
}

/// Broadcasts the bytes from rank 0, and checks them.
pub(crate) fn receive(world: &Communicator) -> Result<String> {
    let pattern = |at: usize| (at % 251) as u8;
    let mut block = vec![0; BYTES];
    if world.rank() == 0 {
        block = (0..BYTES).map(pattern).collect();
    }
    world.ibcast(&mut block, 0)?.wait()?;
    let is_right = block.iter().enumerate().all(|(at, byte)| *byte == pattern(at));
    assert!(is_right, "rank {} has received wrong bytes", world.rank());
    let rank = world.rank();
    let ranks = world.size();
    let nodes = world.nodes();
    Ok(format!("rank {rank} of {ranks} on {nodes} nodes has all {BYTES} bytes"))
}
