//! Messages between the ranks of a job, on several rank counts: bulk connections; queues, Basic rings,
//! channels and windows are in modules.

mod append;
mod basic;
mod channels;
mod ends;
mod queues;
mod windows;

use ::queues::bulk::DEFAULT_STAGING_BYTES;
use ::queues::express::ExpressMessage;
use ::queues::id::SourceName;
use tradewind::messages::{BulkEnd, BulkError};
use tradewind::{Communicator, Error, Result, local, local_nodes};

testing::tests![
    what_one_rank_cannot_create_is_refused_on_every_rank,
    a_bulk_link_carries_messages_of_any_length_one_way,
    what_is_dropped_at_once_is_closed_for_the_other_ranks,
];

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

fn a_bulk_link_carries_messages_of_any_length_one_way() {
    local(3, |world| {
        let mut end = world.bulk(2, 0, DEFAULT_STAGING_BYTES)?;
        for length in [0, 1, 8, 5000, 1 << 20] {
            let message: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
            match &mut end {
                Some(BulkEnd::Sender(sender)) => _ = sender.send(&message)?,
                Some(BulkEnd::Receiver(receiver)) => {
                    let mut buffer = vec![255; length];
                    assert_eq!(receiver.recv(&mut buffer)?.bytes, length);
                    assert!(buffer == message, "{length} bytes");
                }
                None => assert_eq!(world.rank(), 1),
            }
        }
        let error = world.bulk(1, 1, DEFAULT_STAGING_BYTES).expect_err("a link has two ends");
        assert!(error.to_string().contains("two ranks"), "{error}");
        world.barrier()
    })
    .expect("the job succeeds");
}

/// The other rank may still be about to connect.
fn what_is_dropped_at_once_is_closed_for_the_other_ranks() {
    local(2, |world| {
        for _ in 0..200 {
            match world.bulk(1, 0, 4096)? {
                Some(BulkEnd::Sender(mut sender)) => {
                    let error = sender.send(&[1; 10_000]).expect_err("no rank receives");
                    assert!(matches!(error, BulkError::Closed { .. }), "{error}");
                }
                other => drop(other),
            }
        }
        world.barrier()
    })
    .expect("the job succeeds");
}
