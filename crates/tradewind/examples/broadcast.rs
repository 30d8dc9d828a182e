//! A broadcast of 2 MB, which every rank checks: `tradewind run -n 4 --
//! target/release/examples/broadcast`.

use tradewind::{Job, Result};

const BYTES: usize = 2_000_000;

fn main() -> Result<()> {
    let job = Job::init()?;
    let world = job.world();
    let pattern = |at: usize| (at % 251) as u8;
    let mut block = vec![0; BYTES];
    if world.rank() == 0 {
        block = (0..BYTES).map(pattern).collect();
    }
    world.ibcast(&mut block, 0)?.wait()?;
    let is_right = block.iter().enumerate().all(|(at, byte)| *byte == pattern(at));
    assert!(is_right, "rank {} has received wrong bytes", world.rank());
    println!(
        "rank {} of {} on {} nodes has all {BYTES} bytes",
        world.rank(),
        world.size(),
        world.nodes()
    );
    Ok(())
}
