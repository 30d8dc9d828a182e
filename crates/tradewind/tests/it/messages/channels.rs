//! Channels and pipelines, on one node and several.

use super::everywhere;
use tradewind::messages::{ChannelEnd, RecvError, SendError, Value};
use tradewind::{Communicator, Error, Result};

testing::tests![
    every_rank_has_its_place_in_a_pipeline,
    channels_carry_every_value_of_every_type,
    channels_that_cannot_be_made_are_refused_on_every_rank,
    a_channel_of_a_rank_that_has_left_is_closed,
];

/// The first rank has no previous one, the last no next one, with any number of ranks.
fn every_rank_has_its_place_in_a_pipeline() {
    for ranks in [1, 2, 5] {
        everywhere(ranks, |world| {
            let mut pipeline = world.pipeline::<u64>(16)?;
            assert_eq!(pipeline.previous.is_none(), world.rank() == 0);
            assert_eq!(pipeline.next.is_none(), world.rank() + 1 == ranks);
            for value in 0..1000 {
                let before =
                    pipeline.previous.as_mut().map_or(Ok(value), |previous| previous.recv())?;
                assert_eq!(before, value + u64::from(world.rank()));
                pipeline.next.as_mut().map_or(Ok(()), |next| next.send(before + 1))?;
            }
            world.barrier()
        })
        .expect("the job succeeds");
    }
}

/// Sends the values of a generator through a channel of this type, and compares.
fn carries_values<T: Value + PartialEq + std::fmt::Debug>(
    world: &Communicator,
    seed: u64,
    value: impl Fn(u64) -> T,
) -> Result<()> {
    let end = world.channel::<T>(0, world.size() - 1, 1 + 100 * seed)?;
    let count = if seed == 0 { 1000 } else { 5000 };
    // Equal values in a row change no word of some slots.
    let random = |number: u64| (seed + number / 3).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    match end {
        Some(ChannelEnd::Sender(mut sender)) => {
            (0..count).try_for_each(|number| sender.send(value(random(number))))?;
        }
        Some(ChannelEnd::Receiver(mut receiver)) => {
            for number in 0..count {
                assert_eq!(receiver.recv()?, value(random(number)), "number {number}");
            }
            assert_eq!(receiver.recv(), Err(RecvError::Closed), "nothing follows");
        }
        None => {}
    }
    Ok(())
}

fn channels_carry_every_value_of_every_type() {
    everywhere(3, |world| {
        for seed in 0..3 {
            carries_values(&world, seed, |bits| bits as u32)?;
            carries_values(&world, seed, |bits| bits)?;
            carries_values(&world, seed, |_| 0_u64)?;
            carries_values(&world, seed, |bits| f64::from(bits as u32))?;
            carries_values(&world, seed, |bits| [bits, 0, 1, 2, 3, 4, 5, bits >> 60])?;
            carries_values(&world, seed, |bits| [bits as u8; 64])?;
        }
        world.barrier()
    })
    .expect("the job succeeds");
}

fn channels_that_cannot_be_made_are_refused_on_every_rank() {
    let outcome = everywhere(2, |world| {
        assert!(matches!(world.channel::<f64>(1, 1, 16), Err(Error::Argument { .. })), "to itself");
        assert!(
            matches!(world.channel::<f64>(0, 2, 16), Err(Error::Argument { .. })),
            "to no rank"
        );
        assert!(world.channel::<f64>(0, 1, 0).is_err(), "for nothing");
        let of_other_type = match world.rank() {
            0 => world.channel::<f64>(0, 1, 16).err(),
            _ => world.channel::<u64>(0, 1, 16).err(),
        };
        assert!(world.rank() == 1 || of_other_type.is_some(), "the types differ");
        world.barrier()
    });
    outcome.expect("the communicator goes on");
}

fn a_channel_of_a_rank_that_has_left_is_closed() {
    everywhere(2, |world| {
        let forth = world.channel::<u64>(0, 1, 16)?;
        let back = world.channel::<u64>(1, 0, 16)?;
        world.barrier()?;
        let (Some(ChannelEnd::Sender(mut sender)), Some(ChannelEnd::Receiver(mut receiver))) =
            (forth, back)
        else {
            return Ok(());
        };
        assert_eq!(receiver.recv(), Err(RecvError::Closed));
        let error = (0..).find_map(|number| sender.send(number).err());
        assert_eq!(error, Some(SendError::Closed));
        Ok(())
    })
    .expect("the job succeeds");
}
