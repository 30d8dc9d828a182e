//! Waits at queues of ranks on several nodes that a killed rank or node service ends.

use super::harness::{Hydra, Said};
use super::rank::say;
use super::{VICTIM, after_a_kill, nodes};
use rustix::process::{Pid, Signal, getpid, kill_process};
use tradewind::messages::{ExpressMessage, OnePoll, RecvError, SendError, SourceName};
use tradewind::{Job, Result};

testing::tests![
    needs(Nodes, Mpiexec):
    a_killed_rank_ends_the_wait_at_a_set,
    a_killed_node_service_ends_the_waits_for_other_nodes_only,
];

fn message(rank: u32, number: u64) -> ExpressMessage {
    let name = SourceName::new(rank as u16).unwrap_or_default();
    ExpressMessage::of_number(name, 0, number).expect("five bytes")
}

fn a_killed_rank_ends_the_wait_at_a_set() {
    after_a_kill("set-beside-a-killed-rank", "rank 2 has failed");
}

/// Ranks 0 and 1 wait at a queue in a set; one of another kind was dropped.
pub(super) fn set_beside_a_killed_rank() -> Result<()> {
    let job = Job::init()?;
    let world = job.world();
    let set = world.poll_set(2)?;
    let first = world.express_in_set(64, &set, 0)?;
    drop(world.cache_lines_in_set(64, &set, 1)?);
    world.barrier()?;
    if world.rank() == VICTIM {
        let _ = kill_process(getpid(), Signal::KILL);
    }
    let mut members = [Some(first.receiver), None];
    let error = OnePoll::new(&set).poll_blocking(&mut members[..]);
    assert_eq!(error, Err(RecvError::RankExited { rank: VICTIM }));
    say(world.rank(), "rank 2 has failed");
    Ok(())
}

fn a_killed_node_service_ends_the_waits_for_other_nodes_only() {
    let testbed = nodes(2);
    let said = Hydra::new(&testbed, &[2, 1])
        .option("-disable-auto-cleanup")
        .program("queues-without-node-service")
        .run();
    let expected = [0, 1, 2].map(|rank| Said::new(rank, "all is right"));
    assert_eq!(said, expected);
}

/// Rank 0 kills the service of its node.
pub(super) fn without_node_service() -> Result<()> {
    let job = Job::init()?;
    let world = job.world();
    let rank = world.rank();
    let set = world.poll_set(1)?;
    let mut port = world.express(64)?;
    let in_set = world.express_in_set(64, &set, 0)?;
    world.barrier()?;
    if rank == 0 {
        let service = Pid::from_raw(job.service_process().cast_signed()).expect("it runs");
        kill_process(service, Signal::KILL).expect("it runs");
    }
    let error = port.receiver.recv().expect_err("no rank sends");
    let mut members = [Some(in_set.receiver)];
    let of_set = OnePoll::new(&set).poll_blocking(&mut members[..]);
    assert_eq!(of_set, Err(error));
    if rank == VICTIM {
        assert!(matches!(error, RecvError::RankExited { rank: 0 | 1 }), "{error}");
    } else {
        // No rank has failed.
        assert_eq!(error, RecvError::NodeServiceEnded);
        let mut numbers = 0..;
        let error = numbers.find_map(|number| port.senders[2].send(&message(0, number)).err());
        assert_eq!(error, Some(SendError::NodeServiceEnded));
        // Messages inside the node do not need the service.
        port.senders[1 - rank as usize].send(&message(rank, 7))?;
        while port.receiver.try_recv()? != Some(message(1 - rank, 7)) {
            std::thread::yield_now();
        }
    }
    say(rank, "all is right");
    Ok(())
}
