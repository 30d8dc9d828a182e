//! Ranks that are stopped, leave, or are killed while their connections hold no more.

use super::harness::{Hydra, Said};
use super::messages::{bytes, go_on, is_of_victim, test_until_over};
use super::rank::say;
use super::{VICTIM, nodes};
use rustix::process::{Pid, Signal, getpid, kill_process};
use std::path::Path;
use std::time::{Duration, Instant};
use tradewind::{Communicator, Job, Result, Source, Tag};

testing::tests![
    needs(Nodes, Mpiexec):
    a_rank_leaves_beside_one_that_reads_nothing,
    a_killed_sender_with_a_full_connection_is_named,
    a_killed_receiver_with_a_full_connection_is_named,
    a_rank_that_is_killed_within_long_messages_is_named,
];

/// More messages of [`MEBIBYTE`] than connection, queue and credit take.
const MANY: usize = 12;
const MEBIBYTE: usize = 1 << 20;

/// Tags of messages that fill connections, and of those between the ranks that direct the test.
const FILL: u32 = 1;
const SHORT: u32 = 2;
const BEGIN: u32 = 3;
const READY: u32 = 4;
/// Tag that no message has.
const NEVER: u32 = 99;

fn kill_this_process() {
    let _ = kill_process(getpid(), Signal::KILL);
}

/// The processes of all ranks.
fn processes(world: &Communicator) -> Result<Vec<u32>> {
    let mut processes = vec![0; world.size() as usize];
    world.allgather(&[std::process::id()], &mut processes)?;
    Ok(processes)
}

fn signal(process: u32, signal: Signal) {
    let process = Pid::from_raw(process as i32).expect("a process");
    kill_process(process, signal).expect("a process of this user");
}

fn a_rank_leaves_beside_one_that_reads_nothing() {
    let testbed = nodes(2);
    let said = Hydra::new(&testbed, &[1, 1])
        .variable("TRADEWIND_INTERNODE", "direct")
        .variable("TRADEWIND_NODE_TIMEOUT", "1")
        .program("leaves-beside-a-silent-rank")
        .run();
    assert_eq!(said, [Said::new(0, "leaves"), Said::new(1, "is alone")]);
}

/// Rank 1 makes no call that reads until rank 0 has left, with more for it than the connection
/// holds: collectives, and messages behind them.
pub(super) fn leave_beside_a_silent_rank() -> Result<()> {
    let job = Job::init()?;
    let world = job.world();
    let processes = processes(world)?;
    if world.rank() == 0 {
        let mut buffers = vec![bytes(1, 120_000); 64];
        for buffer in &mut buffers {
            drop(world.ibcast(buffer, 0)?);
        }
        for number in 0..MANY {
            drop(world.isend(&bytes(number as u32, MEBIBYTE), 1, FILL)?);
        }
        say(0, "leaves");
        return Ok(());
    }
    let process = format!("/proc/{}", processes[0]);
    let end = Instant::now() + Duration::from_secs(30);
    while Path::new(&process).exists() && Instant::now() < end {
        std::thread::yield_now();
    }
    say(1, if Path::new(&process).exists() { "is not alone" } else { "is alone" });
    Ok(())
}

/// Runs a program in which the victim is killed.
fn run(program: &str) {
    let testbed = nodes(2);
    let job = Hydra::new(&testbed, &[2, 1]).option("-disable-auto-cleanup");
    let said = job.variable("TRADEWIND_INTERNODE", "direct").program(program).run();
    assert_eq!(said, [0, 1].map(|rank| Said::new(rank, "goes on")));
}

fn a_killed_sender_with_a_full_connection_is_named() {
    run("messages-of-a-killed-sender");
}

/// Rank 0 is stopped while the victim sends more than the connection holds, and is killed.
pub(super) fn of_a_killed_sender() -> Result<()> {
    let job = Job::init()?;
    let world = job.world();
    let processes = processes(world)?;
    let long = bytes(7, 8 * MEBIBYTE);
    match world.rank() {
        VICTIM => {
            world.recv(&mut [0_u8], 1, BEGIN)?;
            let messages: Vec<_> = (0..MANY).map(|one| bytes(one as u32, MEBIBYTE)).collect();
            let mut requests = Vec::new();
            for message in &messages {
                requests.push(world.isend(message, 0, FILL)?);
            }
            assert!(!requests.last_mut().expect("some").test()?, "rank 0 takes nothing");
            kill_this_process();
        }
        0 => {
            let mut numbers = [[0_u8; 8]; 2];
            let [named, from_any] = &mut numbers;
            let mut named = world.irecv(named, VICTIM, NEVER)?;
            let from_any = world.irecv(from_any, Source::Any, NEVER)?;
            let offered = world.isend(&long, VICTIM, 0)?;
            let mut synchronous = world.issend(&[1_u8], VICTIM, 0)?;
            world.send(&[1_u8], 1, READY)?;
            world.recv(&mut [0_u8], 1, BEGIN)?;
            // What the systems have taken of it is there, in order.
            let mut buffer = vec![0; MEBIBYTE];
            let error = 'all: {
                for number in 0..MANY {
                    buffer.fill(0);
                    match world.recv(&mut buffer, VICTIM, FILL) {
                        Ok(_) => assert!(buffer == bytes(number as u32, MEBIBYTE), "{number}"),
                        Err(error) => break 'all Err(error),
                    }
                }
                Ok(())
            };
            is_of_victim(error);
            is_of_victim(test_until_over(|| named.test()));
            is_of_victim(from_any.wait());
            is_of_victim(offered.wait());
            is_of_victim(test_until_over(|| synchronous.test()));
            is_of_victim(world.mprobe(VICTIM, NEVER).map(drop));
        }
        _ => {
            world.recv(&mut [0_u8], 0, READY)?;
            signal(processes[0], Signal::STOP);
            world.send(&[1_u8], VICTIM, BEGIN)?;
            let outcome = world.recv(&mut [0_u8], VICTIM, NEVER);
            signal(processes[0], Signal::CONT);
            is_of_victim(outcome);
            world.send(&[1_u8], 0, BEGIN)?;
        }
    }
    go_on(world)
}

fn a_killed_receiver_with_a_full_connection_is_named() {
    run("messages-for-a-killed-receiver");
}

/// The victim is stopped while rank 0 sends it more than the connection holds, and waits for it in
/// several threads; then it is killed.
pub(super) fn for_a_killed_receiver() -> Result<()> {
    let job = Job::init()?;
    let world = job.world();
    let processes = processes(world)?;
    let long = bytes(7, 8 * MEBIBYTE);
    match world.rank() {
        VICTIM => {
            world.send(&[1_u8], 1, READY)?;
            // No such message comes.
            world.recv(&mut [0_u8], 1, NEVER)?;
        }
        0 => {
            world.recv(&mut [0_u8], 1, BEGIN)?;
            let messages: Vec<_> = (0..MANY).map(|one| bytes(one as u32, MEBIBYTE)).collect();
            let mut requests = Vec::new();
            for message in &messages {
                requests.push(world.isend(message, VICTIM, FILL)?);
            }
            while world.try_send(&[1_u8; 64], VICTIM, SHORT)? {}
            let waits: [&(dyn Fn() -> Result<()> + Sync); 5] = [
                &|| world.send(&long, VICTIM, 0),
                &|| world.ssend(&[1_u8], VICTIM, 0),
                &|| world.recv(&mut [0_u8; 8], VICTIM, 0).map(drop),
                &|| world.probe(VICTIM, Tag::Any).map(drop),
                &|| world.sendrecv(&long, VICTIM, 0, &mut [0_u8], VICTIM, 0).map(drop),
            ];
            std::thread::scope(|scope| {
                let threads: Vec<_> = waits.into_iter().map(|wait| scope.spawn(wait)).collect();
                world.send(&[1_u8], 1, READY).expect("rank 1 lives");
                for thread in threads {
                    is_of_victim(thread.join().expect("no panic"));
                }
            });
            // The first ones have left this rank.
            let outcomes: Vec<_> = requests.into_iter().map(|request| request.wait()).collect();
            let lost = outcomes.into_iter().filter(|outcome| outcome.is_err());
            assert!(lost.map(is_of_victim).count() > 0, "the victim has taken nothing");
        }
        _ => {
            world.recv(&mut [0_u8], VICTIM, READY)?;
            signal(processes[VICTIM as usize], Signal::STOP);
            let mut buffer = [0_u8; 8];
            let pending = world.irecv(&mut buffer, VICTIM, NEVER)?;
            world.send(&[1_u8], 0, BEGIN)?;
            world.recv(&mut [0_u8], 0, READY)?;
            signal(processes[VICTIM as usize], Signal::KILL);
            is_of_victim(pending.wait());
            is_of_victim(world.send(&long, VICTIM, 0));
        }
    }
    go_on(world)
}

fn a_rank_that_is_killed_within_long_messages_is_named() {
    run("killed-within-long-messages");
}

/// Rank 0 and the victim send each other long messages in pieces, which a few tests cannot
/// complete.
pub(super) fn killed_within_long_messages() -> Result<()> {
    const LONG: usize = 64 * MEBIBYTE;
    let job = Job::init()?;
    let world = job.world();
    let other = match world.rank() {
        0 => VICTIM,
        VICTIM => 0,
        _ => {
            is_of_victim(world.recv(&mut [0_u8], VICTIM, NEVER));
            return go_on(world);
        }
    };
    let mine = bytes(1, LONG);
    let mut theirs = vec![0; LONG];
    let mut receive = world.irecv(&mut theirs, other, 0)?;
    let mut send = world.isend(&mine, other, 0)?;
    if world.rank() == VICTIM {
        // The parts are on their way.
        while world.iprobe(0, SHORT)?.is_none() {}
        for _ in 0..3 {
            receive.test()?;
            send.test()?;
        }
        kill_this_process();
    }
    world.send(&[1_u8], VICTIM, SHORT)?;
    is_of_victim(receive.wait_timeout(Duration::from_secs(40)));
    is_of_victim(send.wait());
    go_on(world)
}
