//! Messages between real processes: their memory is read through the kernel or not at all, and they
//! are killed.

use super::{bytes, reference};
use crate::launched;
use service::launcher::Outcome;
use std::process::Command;
use tradewind::{Communicator, Error, Exit, Job, Result, Source};

testing::tests![
    random_messages_between_processes_match_as_in_the_reference,
    a_killed_sender_ends_the_operations_that_wait_for_it,
    a_killed_receiver_ends_the_operations_that_wait_for_it,
];
testing::parts![
    rank_exchanges,
    rank_exchanges_without_access,
    rank_beside_a_killed_sender,
    rank_beside_a_killed_receiver,
];

/// The rank that is killed.
const VICTIM: u32 = 2;

const LONG: usize = 300_000;

/// Starts three ranks that run a part of this module.
fn ranks_of(part: &str) -> (Outcome, Vec<u32>) {
    launched::ranks_of(3, &format!("{}::{part}", module_path!()))
}

fn run(body: impl FnOnce(&Communicator) -> Result<()>) {
    let job = Job::init().expect("started by the launcher");
    body(job.world()).expect("the rank succeeds");
    println!("finished");
}

fn kill_this_process() -> ! {
    let _ = Command::new("sh").args(["-c", "kill -9 $PPID"]).status();
    unreachable!("this process is killed");
}

fn random_messages_between_processes_match_as_in_the_reference() {
    for part in ["rank_exchanges", "rank_exchanges_without_access"] {
        let (outcome, finished) = ranks_of(part);
        assert_eq!((outcome.failed, finished), (None, vec![0, 1, 2]));
    }
}

fn exchange(world: &Communicator) -> Result<()> {
    (0..3).try_for_each(|seed| reference::exchange(world, seed, 40))
}

fn rank_exchanges() {
    run(exchange);
}

fn rank_exchanges_without_access() {
    testing::forbid_process_memory();
    run(exchange);
}

fn is_of_victim<T: std::fmt::Debug>(outcome: Result<T>) {
    let error = outcome.expect_err("the victim is dead");
    assert_eq!(error.failed_rank(), Some(VICTIM), "{error}");
    assert!(matches!(error, Error::RankFailed { how: Exit::Killed(9), .. }), "{error}");
}

/// The two other ranks go on, with messages of all kinds.
fn go_on(world: &Communicator) -> Result<()> {
    let other = 1 - world.rank();
    for length in [8, 10_000, LONG] {
        let (mine, mut theirs) = (bytes(length, length), vec![0; length]);
        world.sendrecv(&mine, other, 5, &mut theirs, other, 5)?;
        assert!(theirs == mine);
    }
    Ok(())
}

fn a_killed_sender_ends_the_operations_that_wait_for_it() {
    let (outcome, finished) = ranks_of("rank_beside_a_killed_sender");
    assert_eq!(outcome.failed.map(|(rank, _)| rank), Some(VICTIM));
    assert_eq!((outcome.ended, finished), (vec![], vec![0, 1]));
}

fn rank_beside_a_killed_sender() {
    run(|world| {
        let long = bytes(1, LONG);
        let mut buffer = vec![0; LONG];
        match world.rank() {
            VICTIM => {
                let _first = world.isend(&long, 0, 0)?;
                let _second = world.isend(&long, 0, 0)?;
                world.send(&[1_u8], 0, 1)?;
                world.recv(&mut buffer, 0, 2)?;
                kill_this_process();
            }
            0 => {
                world.recv(&mut buffer, VICTIM, 1)?;
                let mut others = [[0_u8; 8]; 2];
                let [named, from_any] = &mut others;
                let named = world.irecv(named, VICTIM, 7)?;
                let from_any = world.irecv(from_any, Source::Any, 7)?;
                world.send(&[1_u8], VICTIM, 2)?;
                is_of_victim(named.wait());
                is_of_victim(from_any.wait());
                // Offered by a process that is dead.
                is_of_victim(world.recv(&mut buffer, VICTIM, 0));
                is_of_victim(world.recv(&mut buffer, Source::Any, 0));
            }
            _ => is_of_victim(world.recv(&mut buffer, VICTIM, 0)),
        }
        go_on(world)
    });
}

fn a_killed_receiver_ends_the_operations_that_wait_for_it() {
    let (outcome, finished) = ranks_of("rank_beside_a_killed_receiver");
    assert_eq!(outcome.failed.map(|(rank, _)| rank), Some(VICTIM));
    assert_eq!((outcome.ended, finished), (vec![], vec![0, 1]));
}

fn rank_beside_a_killed_receiver() {
    run(|world| {
        let long = bytes(1, LONG);
        match world.rank() {
            VICTIM => {
                world.recv(&mut [0_u8], 0, 2)?;
                kill_this_process();
            }
            0 => {
                let offered = world.isend(&long, VICTIM, 0)?;
                let mut synchronous = world.issend(&[1_u8], VICTIM, 0)?;
                drop(world.isend(&long, VICTIM, 0)?);
                world.send(&[1_u8], VICTIM, 2)?;
                is_of_victim(offered.wait());
                is_of_victim(loop {
                    match synchronous.test() {
                        Ok(false) => std::thread::yield_now(),
                        other => break other,
                    }
                });
            }
            _ => is_of_victim(world.send(&long, VICTIM, 0)),
        }
        go_on(world)
    });
}
