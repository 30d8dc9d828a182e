//! The ends of queues: exits of ranks, dropped ends, and memory.

use super::{everywhere, word};
use queues::express::ExpressMessage;
use queues::one_poll::OnePoll;
use std::sync::atomic::{AtomicU32, Ordering};
use tradewind::messages::{RecvError, SendError};
use tradewind::{Communicator, Error, Result, local, local_nodes};

testing::tests![
    waiting_for_ranks_that_have_left_is_an_error,
    a_rank_that_panics_ends_the_receives_of_all_nodes,
    a_receiver_that_is_dropped_closes_its_queue,
    the_memory_of_ports_that_outlive_their_communicator_is_used_again,
    ports_beyond_the_memory_of_the_node_service_are_refused,
    a_wait_for_several_queues_ends_when_their_senders_have_left,
];

fn waiting_for_ranks_that_have_left_is_an_error() {
    everywhere(3, |world| {
        let mut words = world.express(16)?;
        let mut lines = world.cache_lines(16)?;
        if world.rank() != 1 {
            words.senders[1].send(&ExpressMessage::default())?;
            return Ok(());
        }
        for _ in 0..2 {
            assert_eq!(
                words.receiver.recv(),
                Ok(ExpressMessage::default()),
                "what they sent comes first"
            );
        }
        let gone = |rank: u32| rank == 0 || rank == 2;
        assert!(matches!(words.receiver.recv(), Err(RecvError::RankExited { rank }) if gone(rank)));
        assert!(matches!(lines.receiver.recv(), Err(RecvError::RankExited { rank }) if gone(rank)));
        // They have dropped their receivers before they have left.
        let refused = std::iter::repeat_with(|| words.senders[2].send(&ExpressMessage::default()))
            .find(|sent| sent.is_err());
        assert_eq!(refused, Some(Err(SendError::Closed)));
        let refused = std::iter::repeat_with(|| lines.senders[0].send(&Default::default()))
            .find(|sent| sent.is_err());
        assert_eq!(refused, Some(Err(SendError::Closed)));
        Ok(())
    })
    .expect("the job succeeds");
}

/// The waiting ranks may still hear from each other, but not from the one that panics.
fn a_rank_that_panics_ends_the_receives_of_all_nodes() {
    for guilty in 0..3 {
        for nodes in [&[3][..], &[1, 2], &[1, 1, 1]] {
            let ended = AtomicU32::new(0);
            let body = |world: Communicator| {
                let mut words = world.express(16)?;
                let mut lines = world.cache_lines(16)?;
                assert_ne!(world.rank(), guilty, "it is the guilty one");
                let failed = RecvError::RankExited { rank: guilty };
                assert_eq!(words.receiver.recv(), Err(failed));
                assert_eq!(lines.receiver.recv().err(), Some(failed));
                ended.fetch_add(1, Ordering::Relaxed);
                Ok(())
            };
            let outcome = match nodes {
                [one] => local(*one, body),
                several => local_nodes(several, body),
            };
            let error = outcome.expect_err("a rank has panicked");
            assert!(matches!(error, Error::Panicked { rank, .. } if rank == guilty), "{error}");
            assert_eq!(ended.into_inner(), 2, "ranks of nodes {nodes:?}");
        }
    }
}

/// All ranks are there.
#[derive(Debug)]
struct Present;

impl shm::liveness::RankLiveness for Present {
    fn exited(&self) -> Option<shm::liveness::PeerExit> {
        None
    }
}

fn a_receiver_that_is_dropped_closes_its_queue() {
    everywhere(3, |world| {
        let port = world.express(64)?;
        let mut other = world.express(64)?;
        if world.rank() == 1 {
            // A further check replaces none.
            let again = port.receiver.clone().watching(std::sync::Arc::new(Present));
            drop(port.receiver);
            // It is open as long as a clone receives.
            port.senders[1].try_send(&word(0))?;
            other.senders.iter().try_for_each(|sender| sender.send(&word(1)))?;
            drop(again);
        }
        // Another rank's may come before it.
        let mut numbers = vec![other.receiver.recv()?.number()];
        assert_eq!(
            std::iter::repeat_with(|| port.senders[1].send(&word(2))).find(|sent| sent.is_err()),
            Some(Err(SendError::Closed))
        );
        // Nothing else is.
        other.senders.iter().try_for_each(|sender| sender.send(&word(3)))?;
        for _ in 0..world.size() {
            numbers.push(other.receiver.recv()?.number());
        }
        numbers.sort_unstable();
        assert_eq!(numbers, [1, 3, 3, 3]);
        world.barrier()
    })
    .expect("the job succeeds");
}

/// Opens and drops ports of 8192 bytes many times, in a bounded number of bytes.
fn memory_is_used_again(open: impl Fn(&Communicator) -> Result<()> + Sync) {
    everywhere(3, |world| {
        (0..20).try_for_each(|_| open(&world))?;
        let used = world.allocated_bytes();
        (0..200).try_for_each(|_| open(&world))?;
        // Some may still be open at other ranks, and in the agent.
        let more = world.allocated_bytes().saturating_sub(used);
        assert!(more < 50 * 8192, "{more} bytes");
        world.barrier()
    })
    .expect("the job succeeds");
}

fn the_memory_of_ports_that_outlive_their_communicator_is_used_again() {
    memory_is_used_again(|world| {
        let other = world.dup()?;
        let port = other.express(1024)?;
        drop(other);
        drop(port);
        Ok(())
    });
}

fn ports_beyond_the_memory_of_the_node_service_are_refused() {
    local_nodes(&[1, 2], |world| {
        let mut ports = Vec::new();
        if let Some(part) = world.split((world.rank() < 2).then_some(0), 0)? {
            let error = loop {
                match part.express(2) {
                    Ok(port) => ports.push(port),
                    Err(error) => break error.to_string(),
                }
            };
            assert!(error.contains("268435456"), "{error}");
            assert!(ports.len() > 3000, "{}", ports.len());
        }
        // Rank 2 has memory left, and fails with the others.
        let error = world.express(2).expect_err("ranks 0 and 1 have none left");
        let is_of_other = matches!(error, Error::CreationFailed { rank: 0, .. });
        assert_eq!(is_of_other, world.rank() == 2, "{error}");
        world.barrier()?;
        let kept = ports.pop();
        // The others are dropped, and all ranks go on.
        ports.clear();
        world.barrier()?;
        let mut next = world.express(2)?;
        let other = 1 - world.rank().min(1) as usize;
        if let Some(mut port) = kept {
            port.senders[other].send(&word(1))?;
            assert_eq!(port.receiver.recv()?.number(), 1);
        }
        next.senders[world.rank() as usize].send(&word(2))?;
        assert_eq!(next.receiver.recv()?.number(), 2);
        world.barrier()
    })
    .expect("the job succeeds");
}

fn a_wait_for_several_queues_ends_when_their_senders_have_left() {
    everywhere(2, |world| {
        let set = world.poll_set(2)?;
        let first = world.express_in_set(64, &set, 0)?;
        let second = world.express_in_set(64, &set, 1)?;
        if world.rank() == 0 {
            second.senders[1].send(&word(5))?;
            return Ok(());
        }
        let mut members = [Some(first.receiver), Some(second.receiver)];
        let mut poll = OnePoll::new(&set);
        assert_eq!(poll.poll_blocking(&mut members[..]), Ok((1, word(5))));
        let gone = RecvError::RankExited { rank: 0 };
        assert_eq!(poll.poll_blocking(&mut members[..]), Err(gone));
        Ok(())
    })
    .expect("the job succeeds");
}
