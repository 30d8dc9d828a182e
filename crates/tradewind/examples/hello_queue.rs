//! Every rank sends five bytes to all ranks, on one node or several: an Express queue each.
//!
//! ```sh
//! cargo build --release -p tradewind --example hello_queue
//! cargo run --release -- run -n 4 -- target/release/examples/hello_queue
//! ```

use tradewind::messages::{ExpressMessage, SourceName};
use tradewind::{Communicator, Job, Result};

fn main() -> Result<()> {
    println!("{}", greet(Job::init()?.world())?);
    Ok(())
}

/// Returns what this rank has received.
pub(crate) fn greet(world: &Communicator) -> Result<String> {
    let mut port = world.express(64)?;
    let name = SourceName::new(world.rank() as u16).unwrap_or_default();
    for sender in &port.senders {
        sender.send(&ExpressMessage::new(name, 0, *b"hello"))?;
    }
    let mut names = Vec::new();
    for _ in 0..world.size() {
        let message = port.receiver.recv()?;
        names.push(format!("{} from {}", message.data().escape_ascii(), message.source()));
    }
    names.sort_unstable();
    Ok(format!("rank {} has {}", world.rank(), names.join(", ")))
}
