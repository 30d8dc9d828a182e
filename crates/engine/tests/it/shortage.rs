//! Memory that runs out, and what goes on afterwards.

use engine::Error;
use engine::argument::Argument;
use engine::communicator::Communicator;
use engine::flat::{FlatCollective, Pattern};
use engine::node::{EngineKind, JobOptions, Node};
use engine::signature::{CallKind, Signature};
use goal::arithmetic::{Arithmetic, DataType};
use std::sync::Arc;

const ARENA_BYTES: u64 = 1 << 20;

fn barrier() -> FlatCollective {
    let call = Signature::new(CallKind::Barrier, 0, 0);
    FlatCollective::new(Pattern::Barrier, 0, call)
}

fn sum(bytes: u64) -> FlatCollective {
    let arithmetic = Some((Arithmetic::Add, DataType::U64));
    let call = Signature::new(CallKind::Allreduce, bytes, 0);
    FlatCollective { arithmetic, ..FlatCollective::new(Pattern::Reduce, bytes, call) }
}

/// Runs on two ranks with little memory.
fn two_ranks(body: impl Fn(Arc<Communicator>) -> Result<(), Error> + Sync) -> Result<(), Error> {
    let options = JobOptions { arena_bytes: ARENA_BYTES, ..JobOptions::new(2, EngineKind::Peers) };
    let node = Node::create(&options)?;
    let members = [node.join(0)?, node.join(1)?];
    std::thread::scope(|scope| {
        let body = &body;
        let ranks =
            members.map(|member| scope.spawn(move || body(Communicator::world(Arc::new(member))?)));
        ranks.into_iter().try_for_each(|rank| rank.join().expect("no rank panics"))
    })
}

/// One in every element; gives the sum.
fn add_up(communicator: &Arc<Communicator>, bytes: u64) -> Result<u64, Error> {
    let ones: Vec<u8> =
        std::iter::repeat_n(1u64.to_le_bytes(), bytes as usize / 8).flatten().collect();
    let mut result = vec![0; bytes as usize];
    let arguments = [Argument::input(&ones), Argument::output(bytes)];
    communicator.run_flat(&sum(bytes), &arguments, &mut [&mut [], &mut result])?;
    let first: [u8; 8] = result[..8].try_into().expect("eight bytes");
    assert!(result.chunks_exact(8).all(|element| element == first));
    Ok(u64::from_le_bytes(first))
}

#[test]
fn what_is_too_large_for_all_leaves_the_communicator_usable() -> Result<(), Error> {
    two_ranks(|communicator| {
        for _ in 0..100 {
            assert!(add_up(&communicator, 2 * ARENA_BYTES).is_err());
            communicator.run_flat(&barrier(), &[], &mut [])?;
            assert_eq!(add_up(&communicator, 4096)?, 2);
        }
        Ok(())
    })
}

#[test]
fn what_one_rank_has_no_room_for_can_be_tried_again() -> Result<(), Error> {
    two_ranks(|communicator| {
        const BYTES: u64 = 200 << 10;
        for round in 0..20 {
            if communicator.rank() == round % 2 {
                // Everything that is left, in pieces.
                let mut hoard = Vec::new();
                for piece in [256 << 10, 64 << 10, 4096, 64] {
                    while let Ok(taken) = communicator.allocate(piece) {
                        hoard.push(taken);
                    }
                }
                // Later it has a room from before.
                if round == 0 {
                    assert!(add_up(&communicator, BYTES).is_err(), "there is no room");
                }
                drop(hoard);
            }
            assert_eq!(add_up(&communicator, BYTES)?, 2);
            communicator.run_flat(&barrier(), &[], &mut [])?;
        }
        Ok(())
    })
}

#[test]
fn starts_that_wait_for_memory_end_in_order_or_in_an_error_of_their_own() -> Result<(), Error> {
    two_ranks(|communicator| {
        const BYTES: u64 = 90 << 10;
        let data = vec![0; BYTES as usize];
        let arguments = [Argument::input(&data), Argument::output(BYTES)];
        // More than there are slots for: some wait in the queue.
        let mut pending = Vec::new();
        for _ in 0..8 {
            pending.push(communicator.start_flat(&sum(BYTES), &arguments)?);
        }
        let too_large = vec![0; 2 * ARENA_BYTES as usize];
        let large = [Argument::input(&too_large), Argument::output(2 * ARENA_BYTES)];
        // Refused at once if the others are complete by now and have left their slots, queued
        // otherwise.
        let started = communicator.start_flat(&sum(2 * ARENA_BYTES), &large);
        for mut run in pending {
            let mut result = vec![1; BYTES as usize];
            // The queued one that can never start is none of this run's business.
            run.wait(None)?;
            run.collect(&mut [&mut [], &mut result])?;
            assert!(result.iter().all(|byte| *byte == 0));
        }
        let told = started.and_then(|queued| Ok(queued.wait(None)?));
        assert!(matches!(told, Err(Error::Arena(_))), "{told:?}");
        Ok(())
    })
}
