//! Messages between the ranks of a job, on several rank counts: windows and bulk connections; queues,
//! Basic rings and channels are in modules.

mod basic;
mod channels;
mod ends;
mod queues;

use ::queues::bulk::DEFAULT_STAGING_BYTES;
use ::queues::express::ExpressMessage;
use ::queues::id::SourceName;
use tradewind::messages::{BulkEnd, BulkError, WindowError};
use tradewind::{Communicator, Error, Op, Result, local, local_nodes};

testing::tests![
    windows_are_worked_on_from_afar,
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

fn windows_are_worked_on_from_afar() {
    for ranks in [1, 2, 4] {
        local(ranks, |world| {
            let windows = world.windows(8 * u64::from(world.size()) + 8)?;
            for (index, window) in windows.all.iter().enumerate() {
                window.put_value(
                    8 * u64::from(world.rank()),
                    u64::from(world.rank()) << 8 | index as u64,
                )?;
                window.accumulate_value(Op::Sum.into(), 8 * u64::from(world.size()), 1u64)?;
            }
            world.barrier()?;
            let own = windows.own.local();
            for rank in 0..u64::from(world.size()) {
                assert_eq!(own.get_value::<u64>(8 * rank)?, rank << 8 | u64::from(world.rank()));
            }
            assert_eq!(own.get_value::<u64>(8 * u64::from(world.size()))?, u64::from(world.size()));
            world.barrier()
        })
        .expect("the job succeeds");
    }
}

fn what_one_rank_cannot_create_is_refused_on_every_rank() {
    let outcome = local(2, |world| {
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
            let windows = world.windows(8)?;
            if world.rank() == 0 {
                drop(windows);
            } else {
                let mut reads = std::iter::repeat_with(|| windows.all[0].get_value::<u64>(0));
                let error = reads.find_map(std::result::Result::err);
                assert!(matches!(error, Some(WindowError::Withdrawn { .. })), "{error:?}");
            }
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
