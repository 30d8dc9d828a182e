//! A value is passed around all ranks, and every rank adds its own number: messages selected by
//! sender and tag.
//!
//! ```sh
//! cargo build --release -p tradewind --example ring_exchange
//! cargo run --release -- run -n 4 -- target/release/examples/ring_exchange
//! ```

use tradewind::{Communicator, Job, Result, Source, Tag};

/// Tag of the value.
const VALUE: u32 = 1;

/// Tag of the reports to rank 0.
const REPORT: u32 = 2;

fn main() -> Result<()> {
    if let Some(lines) = pass_around(Job::init()?.world())? {
        lines.iter().for_each(|line| println!("{line}"));
    }
    Ok(())
}

/// Returns the reports of all ranks on rank 0.
pub(crate) fn pass_around(world: &Communicator) -> Result<Option<Vec<String>>> {
    let rank = world.rank();
    let size = world.size();
    let mut sum = [0_u32];
    // Rank 0 begins, the others wait for the rank before them.
    if rank > 0 {
        world.recv(&mut sum, rank - 1, VALUE)?;
    }
    sum[0] += rank;
    let onward = world.isend(&sum, (rank + 1) % size, VALUE)?;
    let report = format!("rank {rank} passes on {}", sum[0]);
    world.send(report.as_bytes(), 0, REPORT)?;
    if rank > 0 {
        onward.wait()?;
        return Ok(None);
    }
    let mut total = [0];
    world.recv(&mut total, size - 1, VALUE)?;
    onward.wait()?;
    let mut lines = vec![format!("all together: {}", total[0])];
    for _ in 0..size {
        // Of any length, from the rank with the first report.
        let report = world.mprobe(Source::Any, Tag::Is(REPORT))?;
        lines.push(String::from_utf8_lossy(&report.recv_vec()?).into_owned());
    }
    lines[1..].sort_unstable();
    Ok(Some(lines))
}
