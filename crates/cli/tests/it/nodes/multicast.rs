//! A multicast to ranks on another node, one of which is killed.

use super::harness::{Hydra, Said};
use super::nodes;
use super::rank::say;
use rustix::process::{Signal, getpid, kill_process};
use tradewind::messages::{
    CacheLineHeader, MessageError, RecvError, SendError, TagOnError, TagOnPort, WindowError,
};
use tradewind::{Error, Job, Result};

testing::tests![
    needs(Nodes, Mpiexec):
    a_multicast_reaches_the_others_when_one_of_its_receivers_is_killed,
];

/// The receiver of a multicast that is killed.
const KILLED: &str = "TRADEWIND_TEST_KILLED";
/// Number of data of a multicast before it holds some, and behind the report of its end.
const BEFORE: u32 = 100;
const BEHIND: u32 = 200;
/// Number of data that it holds.
const HELD: usize = 3;
/// Note of the last data.
const LAST: &[u8] = b"last";

/// Ranks 1 to 3 are on the second node. Rank 1 has the memory for the data of all three.
fn a_multicast_reaches_the_others_when_one_of_its_receivers_is_killed() {
    for killed in [2, 1] {
        let testbed = nodes(2);
        // A name for each rank, because Hydra kills what it has started by one name together.
        let said = Hydra::new(&testbed, &[1, 1, 1, 1])
            .option("-disable-auto-cleanup")
            .variable(KILLED, &killed.to_string())
            .program("multicast-to-a-killed-rank")
            .run();
        let others = [0, 1, 2, 3].into_iter().filter(|rank| *rank != killed);
        let expected: Vec<Said> = others.map(|rank| Said::new(rank, "goes on")).collect();
        assert_eq!(said, expected, "rank {killed} is killed");
    }
}

/// Rank 0 sends numbered data to the others, one of which is killed while it holds some, and has
/// not received others. Ends with data behind the report of the kill.
pub(super) fn multicast_to_a_killed_rank() -> Result<()> {
    let killed = std::env::var(KILLED).ok().and_then(|rank| rank.parse().ok());
    let killed: u32 = killed.expect("the test sets it");
    let job = Job::init()?;
    let world = job.world();
    // One more than the killed rank holds: it gets another one before the sender has none.
    let port = world.tag_on(16, HELD as u64 + 1, 1000)?;
    world.barrier()?;
    match world.rank() {
        0 => multicast(&port, killed)?,
        rank => receive_multicast(port, rank, killed)?,
    }
    say(world.rank(), "goes on");
    Ok(())
}

fn multicast(port: &TagOnPort, killed: u32) -> Result<()> {
    let mut reported = None;
    for number in 0_u32.. {
        let mut buffer = port.pool.take()?;
        buffer.fill(number as u8);
        buffer[..4].copy_from_slice(&number.to_le_bytes());
        let data = buffer.finish(1000);
        let is_last = reported.is_some_and(|reported| number == reported + BEHIND);
        let note = if is_last { LAST } else { &[] };
        let sent = port.sender.send(&data, &[1, 2, 3], CacheLineHeader::default(), note);
        match sent {
            Ok(()) => assert_eq!(reported, None, "it was reported before"),
            Err(
                TagOnError::Send(SendError::RankExited { rank })
                | TagOnError::Land(WindowError::RankExited { rank }),
            ) if rank == killed => _ = reported.get_or_insert(number),
            Err(other) => return Err(other.into()),
        }
        if is_last {
            break;
        }
    }
    Ok(())
}

fn receive_multicast(mut port: TagOnPort, rank: u32, killed: u32) -> Result<()> {
    let mut held = Vec::new();
    let mut next = 0;
    loop {
        let message = match port.receiver.recv() {
            // The killed rank might have sent, too. What others send still arrives.
            Err(Error::Message(MessageError::Recv(RecvError::RankExited { rank })))
                if rank == killed =>
            {
                std::thread::yield_now();
                continue;
            }
            other => other?,
        };
        let (begin, rest) = message.data.split_first_chunk().expect("1000 bytes");
        assert_eq!(u32::from_le_bytes(*begin), next, "each once, in order");
        assert!(rest.iter().all(|byte| *byte == next as u8), "whole");
        next += 1;
        if message.note() == LAST {
            return Ok(());
        }
        if rank == killed && next > BEFORE {
            held.push(message);
        }
        if held.len() == HELD {
            let _ = kill_process(getpid(), Signal::KILL);
        }
    }
}
