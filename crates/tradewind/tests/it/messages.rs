//! Messages between the ranks of a job, on several rank counts: bulk connections; queues, Basic rings,
//! channels and windows are in modules.

mod append;
mod basic;
mod bulk;
mod channels;
mod ends;
pub(crate) mod mechanisms;
mod queues;
mod suite;
mod tag_on;
mod windows;

use ::queues::express::ExpressMessage;
use ::queues::id::SourceName;
use tradewind::{Communicator, Error, Result, local, local_nodes};

testing::tests![what_one_rank_cannot_create_is_refused_on_every_rank,];

/// Runs a job on one node, then with its ranks on several.
fn everywhere(ranks: u32, body: impl Fn(Communicator) -> Result<()> + Sync) -> Result<()> {
    local(ranks, &body)?;
    if ranks > 1 {
        local_nodes(&[1, ranks - 1], &body)?;
        local_nodes(&vec![1; ranks as usize], &body)?;
    }
    Ok(())
}

fn name(rank: u32) -> SourceName {
    SourceName::new(rank as u16).expect("few ranks")
}

fn word(number: u64) -> ExpressMessage {
    ExpressMessage::of_number(SourceName::default(), 0, number).expect("five bytes")
}

fn what_one_rank_cannot_create_is_refused_on_every_rank() {
    let outcome = everywhere(2, |world| {
        assert!(matches!(world.express(3), Err(Error::Message(_))), "no power of two");
        // On rank 0 alone it is too large; the other rank learns of it.
        let windows = world.windows(if world.rank() == 0 { u64::MAX } else { 8 });
        assert!(windows.is_err());
        world.barrier()
    });
    outcome.expect("the communicator goes on");
}
