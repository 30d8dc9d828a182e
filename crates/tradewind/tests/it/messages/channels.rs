//! Channels and pipelines, on one node and several.

use super::everywhere;
use tradewind::messages::{ChannelEnd, RecvError, SendError, Value};
use tradewind::{Communicator, Error, Result};

testing::tests![
    a_pipeline_of_channels_carries_every_value_in_order,
    every_rank_has_its_place_in_a_pipeline,
    channels_carry_every_value_of_every_type,
    channels_that_cannot_be_made_are_refused_on_every_rank,
    a_full_channel_stops_its_own_sender_only,
    an_end_that_is_closed_is_reported_behind_the_last_value,
    an_end_that_is_dropped_at_once_is_closed_for_the_other_one,
    a_channel_of_a_rank_that_has_left_is_closed,
    channels_that_are_closed_return_their_memory,
];

fn a_pipeline_of_channels_carries_every_value_in_order() {
    const VALUES: u64 = 5000;
    for ranks in [2, 3, 5] {
        everywhere(ranks, |world| {
            let mut from = None;
            let mut to = None;
            for rank in 1..world.size() {
                match world.channel::<u64>(rank - 1, rank, 16)? {
                    Some(ChannelEnd::Sender(sender)) => to = Some(sender),
                    Some(ChannelEnd::Receiver(receiver)) => from = Some(receiver),
                    None => {}
                }
            }
            for value in 0..VALUES {
                let square = value * value;
                let hops = u64::from(world.rank());
                if let Some(receiver) = &mut from {
                    assert_eq!(receiver.recv()?, square + hops - 1);
                }
                if let Some(sender) = &mut to {
                    sender.send(square + hops)?;
                }
            }
            world.barrier()
        })
        .expect("the job succeeds");
    }
}

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
    let count = if seed == 0 { 1000 } else { 20_000 };
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

fn a_full_channel_stops_its_own_sender_only() {
    everywhere(3, |world| {
        let slow = world.channel::<u64>(0, 1, 64)?;
        let fast = world.channel::<u64>(0, 2, 64)?;
        match (slow, fast) {
            (Some(ChannelEnd::Sender(mut slow)), Some(ChannelEnd::Sender(mut fast))) => {
                let short = std::time::Duration::from_millis(50);
                let mut sent = 0;
                let error = loop {
                    match slow.send_timeout(sent, short) {
                        Ok(()) => sent += 1,
                        Err(error) => break error,
                    }
                    assert!(sent < 1 << 20, "a receiver that is behind stops its sender");
                };
                assert_eq!(error, SendError::Timeout);
                (0..100_000).try_for_each(|number| fast.send(number))?;
                // Only now does rank 1 receive.
                world.barrier()?;
                slow.send(sent)?;
            }
            (Some(ChannelEnd::Receiver(mut slow)), None) => {
                world.barrier()?;
                let mut next = 0;
                while let Ok(number) = slow.recv() {
                    assert_eq!(number, next);
                    next += 1;
                }
                assert!(next > 64, "{next} have arrived");
            }
            (None, Some(ChannelEnd::Receiver(mut fast))) => {
                for number in 0..100_000 {
                    assert_eq!(fast.recv()?, number);
                }
                world.barrier()?;
            }
            other => panic!("{other:?}"),
        }
        world.barrier()
    })
    .expect("the job succeeds");
}

fn an_end_that_is_closed_is_reported_behind_the_last_value() {
    everywhere(2, |world| {
        for count in [0, 1, 100_000_u64] {
            let end = world.channel::<u64>(0, 1, 16)?;
            match end {
                Some(ChannelEnd::Sender(mut sender)) => {
                    (0..count).try_for_each(|number| sender.send(number))?;
                }
                Some(ChannelEnd::Receiver(mut receiver)) => {
                    (0..count).for_each(|number| assert_eq!(receiver.recv(), Ok(number)));
                    assert_eq!(receiver.recv(), Err(RecvError::Closed));
                    assert_eq!(receiver.try_recv(), Err(RecvError::Closed));
                }
                None => {}
            }
            match world.channel::<u64>(0, 1, 16)? {
                Some(ChannelEnd::Sender(mut sender)) => {
                    let mut sends = (0..).map(|number| sender.send(number));
                    let error = sends.find_map(std::result::Result::err);
                    assert_eq!(error, Some(SendError::Closed));
                }
                Some(ChannelEnd::Receiver(mut receiver)) if count > 0 => {
                    assert_eq!(receiver.recv(), Ok(0));
                }
                other => drop(other),
            }
            world.barrier()?;
        }
        Ok(())
    })
    .expect("the job succeeds");
}

/// The other rank may still be about to connect.
fn an_end_that_is_dropped_at_once_is_closed_for_the_other_one() {
    everywhere(2, |world| {
        for _ in 0..200 {
            match world.channel::<u64>(0, 1, 16)? {
                Some(ChannelEnd::Sender(mut sender)) => {
                    let error = (0..).find_map(|number| sender.send(number).err());
                    assert_eq!(error, Some(SendError::Closed));
                }
                other => drop(other),
            }
            match world.channel::<u64>(0, 1, 16)? {
                Some(ChannelEnd::Receiver(mut receiver)) => {
                    assert_eq!(receiver.recv(), Err(RecvError::Closed));
                }
                other => drop(other),
            }
        }
        world.barrier()
    })
    .expect("the job succeeds");
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

fn channels_that_are_closed_return_their_memory() {
    everywhere(2, |world| {
        const ROUNDS: u64 = 200;
        let before = world.allocated_bytes();
        let ring = 8 << 14;
        for round in 0..ROUNDS {
            let mut end = world.channel::<u64>(0, 1, 1 << 14)?;
            match &mut end {
                Some(ChannelEnd::Sender(sender)) => sender.send(round)?,
                Some(ChannelEnd::Receiver(receiver)) => assert_eq!(receiver.recv()?, round),
                None => {}
            }
        }
        // The agents close their ends a little later.
        let used = world.allocated_bytes() - before;
        assert!(used < ROUNDS / 2 * ring, "{used} bytes");
        world.barrier()
    })
    .expect("the job succeeds");
}
