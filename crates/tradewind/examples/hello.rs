//! The shortest whole program: `tradewind run -n 4 -- target/release/examples/hello`.

use tradewind::{Communicator, Job, Op, Result};

fn main() -> Result<()> {
    println!("{}", greet(Job::init()?.world())?);
    Ok(())
}

/// Adds one number from every rank. The sum is computed while this rank formats its greeting.
pub(crate) fn greet(world: &Communicator) -> Result<String> {
    let mine = [world.rank() + 1];
    let mut sum = [0];
    let request = world.iallreduce(&mine, &mut sum, Op::Sum)?;
    let greeting = format!("hello from rank {} of {}", world.rank(), world.size());
    request.wait()?;
    Ok(format!("{greeting}: together we are {}", sum[0]))
}
