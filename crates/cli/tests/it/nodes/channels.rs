//! Channels between ranks that are processes on several nodes, one of which is killed or vanishes.

use super::harness::{Hydra, Said};
use super::rank::say;
use super::{VICTIM, after_a_disconnection, after_a_kill, nodes};
use rustix::process::{Signal, getpid, kill_process};
use tradewind::messages::{ChannelEnd, ChannelReceiver, ChannelSender, RecvError, SendError};
use tradewind::{Communicator, Job, Result};

testing::tests![
    needs(Nodes, Mpiexec):
    channels_carry_every_value_between_all_ranks,
    a_killed_rank_ends_its_channels_behind_its_values,
    a_vanished_node_ends_its_channels,
    what_a_rank_has_put_into_channels_outlives_it,
];

const EACH: u64 = 30_000;

fn channels_carry_every_value_between_all_ranks() {
    let testbed = nodes(3);
    let said = Hydra::new(&testbed, &[2, 1, 1]).program("channels").run();
    let expected: Vec<Said> = (0..4).map(|rank| Said::new(rank, "all is right")).collect();
    assert_eq!(said, expected);
}

/// A channel between each two ranks, all of them in use at once.
pub(super) fn exchange() -> Result<()> {
    let job = Job::init()?;
    let world = job.world();
    let (mut senders, mut receivers) = (Vec::new(), Vec::new());
    for (from, to) in (0..world.size()).flat_map(|from| (0..world.size()).map(move |to| (from, to)))
    {
        if from == to {
            continue;
        }
        match world.channel::<f64>(from, to, 64)? {
            Some(ChannelEnd::Sender(sender)) => senders.push((sender, 0_u64)),
            Some(ChannelEnd::Receiver(receiver)) => receivers.push((receiver, 0_u64)),
            None => {}
        }
    }
    while !senders.iter().all(|end| end.1 == EACH) || !receivers.iter().all(|end| end.1 == EACH) {
        for (sender, sent) in &mut senders {
            // A full channel must not delay the receives below.
            while *sent < EACH && sender.try_send(*sent as f64).is_ok() {
                *sent += 1;
            }
        }
        for (receiver, next) in &mut receivers {
            while let Ok(value) = receiver.try_recv() {
                assert_eq!(value, *next as f64);
                *next += 1;
            }
        }
        std::thread::yield_now();
    }
    drop(senders);
    for (mut receiver, _) in receivers {
        assert_eq!(receiver.recv(), Err(RecvError::Closed), "nothing follows");
    }
    world.barrier()?;
    say(world.rank(), "all is right");
    Ok(())
}

/// Channels from each other rank to the victim and back: one pair of ends on that rank, two on the
/// victim.
fn with_victim(world: &Communicator) -> Result<Vec<(ChannelSender<u64>, ChannelReceiver<u64>)>> {
    let mut pairs = Vec::new();
    for rank in [0, 1] {
        let ends = [world.channel(rank, VICTIM, 64)?, world.channel(VICTIM, rank, 64)?];
        let (mut sender, mut receiver) = (None, None);
        for end in ends.into_iter().flatten() {
            match end {
                ChannelEnd::Sender(end) => sender = Some(end),
                ChannelEnd::Receiver(end) => receiver = Some(end),
            }
        }
        pairs.extend(sender.zip(receiver));
    }
    Ok(pairs)
}

/// Waits at both channels until they report that the victim has failed.
fn wait_for_end(sender: &mut ChannelSender<u64>, receiver: &mut ChannelReceiver<u64>) {
    assert_eq!(receiver.recv(), Err(RecvError::RankExited { rank: VICTIM }));
    let error = (0..).find_map(|number| sender.send(number).err());
    assert_eq!(error, Some(SendError::RankExited { rank: VICTIM }));
}

fn a_killed_rank_ends_its_channels_behind_its_values() {
    after_a_kill("channels-beside-a-killed-rank", "rank 2 has failed");
}

/// Ranks 0 and 1 have channels with the victim, and with each other.
pub(super) fn beside_a_killed_rank() -> Result<()> {
    let job = Job::init()?;
    let world = job.world();
    let rank = world.rank();
    let mut ends = with_victim(world)?;
    let between = world.channel::<u64>(0, 1, 64)?;
    world.barrier()?;
    if rank == VICTIM {
        for (sender, _) in &mut ends {
            (0..1000).try_for_each(|number| sender.send(number))?;
        }
        let _ = kill_process(getpid(), Signal::KILL);
    }
    for (sender, receiver) in &mut ends {
        (0..1000)
            .for_each(|number| assert_eq!(receiver.recv(), Ok(number), "what it sent is first"));
        wait_for_end(sender, receiver);
    }
    match between {
        Some(ChannelEnd::Sender(mut sender)) => {
            (0..EACH).try_for_each(|number| sender.send(number))?;
        }
        Some(ChannelEnd::Receiver(mut receiver)) => {
            (0..EACH)
                .for_each(|number| assert_eq!(receiver.recv(), Ok(number), "this one goes on"));
        }
        None => {}
    }
    say(rank, "rank 2 has failed");
    Ok(())
}

fn a_vanished_node_ends_its_channels() {
    after_a_disconnection("channels-to-a-vanished-node", &["rank 2 has failed"]);
}

pub(super) fn to_a_vanished_node() -> Result<()> {
    let job = Job::init()?;
    let world = job.world();
    let rank = world.rank();
    let mut ends = with_victim(world)?;
    world.barrier()?;
    say(rank, "waits");
    for (sender, receiver) in &mut ends {
        if rank == VICTIM {
            // It finds the other node lost, too.
            let _ = receiver.recv();
        } else {
            wait_for_end(sender, receiver);
            say(rank, "rank 2 has failed");
        }
    }
    Ok(())
}

fn what_a_rank_has_put_into_channels_outlives_it() {
    let testbed = nodes(2);
    let said = Hydra::new(&testbed, &[1, 1]).program("channels-of-a-rank-that-leaves").run();
    let expected = [0, 1].map(|rank| Said::new(rank, "all is right"));
    assert_eq!(said, expected);
}

/// Rank 0 leaves with values in its channel that wait for credit.
pub(super) fn of_a_rank_that_leaves() -> Result<()> {
    const VALUES: u64 = 1 << 15;
    let job = Job::init()?;
    let world = job.world();
    match world.channel::<u64>(0, 1, VALUES)? {
        Some(ChannelEnd::Sender(mut sender)) => {
            (0..2 * VALUES).try_for_each(|number| sender.send(number))?;
            // Not closed, as if the process ended here.
            std::mem::forget(sender);
        }
        Some(ChannelEnd::Receiver(mut receiver)) => {
            (0..2 * VALUES).for_each(|number| assert_eq!(receiver.recv(), Ok(number)));
            assert_eq!(receiver.recv(), Err(RecvError::Closed));
        }
        None => {}
    }
    say(world.rank(), "all is right");
    Ok(())
}
