//! Queues between ranks that are processes on several nodes, one of which is killed.

use super::harness::{Hydra, Said};
use super::rank::say;
use super::{VICTIM, after_a_kill, nodes};
use rustix::process::{Pid, Signal, getpid, kill_process};
use tradewind::messages::{
    CacheLineHeader, CacheLineMessage, ExpressMessage, OnePoll, RecvError, SendError, SourceName,
};
use tradewind::{Job, Result};

testing::tests![
    needs(Nodes, Mpiexec):
    queues_carry_every_message_between_all_ranks,
    a_killed_rank_ends_the_waits_at_its_queues_and_at_those_of_others,
    what_a_rank_has_put_into_queues_outlives_it,
    a_killed_node_service_ends_the_waits_for_other_nodes_only,
];

const EACH: u64 = 3000;

fn message(rank: u32, number: u64) -> ExpressMessage {
    let name = SourceName::new(rank as u16).unwrap_or_default();
    ExpressMessage::of_number(name, 0, number).expect("five bytes")
}

fn queues_carry_every_message_between_all_ranks() {
    let testbed = nodes(3);
    let said = Hydra::new(&testbed, &[2, 1, 1]).program("queues").run();
    let expected: Vec<Said> = (0..4).map(|rank| Said::new(rank, "all is right")).collect();
    assert_eq!(said, expected);
}

/// Every rank sends to all, and receives from all, by both kinds of queues.
pub(super) fn exchange() -> Result<()> {
    let job = Job::init()?;
    let world = job.world();
    let rank = world.rank();
    let mut words = world.express(64)?;
    let mut lines = world.cache_lines(64)?;
    let mut next = vec![[0; 2]; world.size() as usize];
    let mut sent = vec![[0; 2]; world.size() as usize];
    let is_over = |counts: &[[u64; 2]]| counts.iter().flatten().all(|count| *count == EACH);
    while !is_over(&next) || !is_over(&sent) {
        for (to, [words_sent, lines_sent]) in sent.iter_mut().enumerate() {
            if *words_sent < EACH {
                let is_sent = words.senders[to].try_send(&message(rank, *words_sent)).is_ok();
                *words_sent += u64::from(is_sent);
            }
            let source = SourceName::new(rank as u16).unwrap_or_default();
            let header = CacheLineHeader { source, handler: 0, tag: *lines_sent as u16 };
            let data = vec![*lines_sent as u8; *lines_sent as usize % 48];
            let line = CacheLineMessage::new(header, &data).expect("it fits");
            if *lines_sent < EACH {
                *lines_sent += u64::from(lines.senders[to].try_send(&line).is_ok());
            }
        }
        while let Some(word) = words.receiver.try_recv()? {
            let [next, _] = &mut next[usize::from(word.source().number())];
            assert_eq!(word.number(), *next);
            *next += 1;
        }
        while let Some(line) = lines.receiver.try_recv()? {
            let [_, next] = &mut next[usize::from(line.header().source.number())];
            assert_eq!(u64::from(line.header().tag), *next);
            assert_eq!(line.data(), vec![*next as u8; *next as usize % 48]);
            *next += 1;
        }
        std::thread::yield_now();
    }
    world.barrier()?;
    say(rank, "all is right");
    Ok(())
}

fn a_killed_rank_ends_the_waits_at_its_queues_and_at_those_of_others() {
    after_a_kill("queues-beside-a-killed-rank", "rank 2 has failed");
}

/// Rank 0 sends to the victim until its queue is full, rank 1 receives what the victim has sent.
pub(super) fn beside_a_killed_rank() -> Result<()> {
    let job = Job::init()?;
    let world = job.world();
    let rank = world.rank();
    let set = world.poll_set(2)?;
    let mut port = world.express(64)?;
    let first = world.express_in_set(64, &set, 0)?;
    let second = world.cache_lines_in_set(64, &set, 1)?;
    world.barrier()?;
    match rank {
        VICTIM => {
            (0..EACH).try_for_each(|number| port.senders[1].send(&message(rank, number)))?;
            let _ = kill_process(getpid(), Signal::KILL);
        }
        0 => {
            let mut numbers = 0..;
            let error = numbers.find_map(|number| port.senders[2].send(&message(0, number)).err());
            assert_eq!(error, Some(SendError::RankExited { rank: VICTIM }));
            say(rank, "rank 2 has failed");
        }
        _ => {
            for number in 0..EACH {
                assert_eq!(port.receiver.recv()?.number(), number, "what it sent comes first");
            }
            let error = port.receiver.recv().expect_err("nothing follows");
            assert_eq!(error, RecvError::RankExited { rank: VICTIM });
            drop(second);
            let mut members = [Some(first.receiver), None];
            let error = OnePoll::new(&set).poll_blocking(&mut members[..]);
            assert_eq!(error, Err(RecvError::RankExited { rank: VICTIM }));
            say(rank, "rank 2 has failed");
        }
    }
    Ok(())
}

fn what_a_rank_has_put_into_queues_outlives_it() {
    let testbed = nodes(2);
    let said = Hydra::new(&testbed, &[1, 1]).program("queues-of-a-rank-that-leaves").run();
    let expected = [0, 1].map(|rank| Said::new(rank, "all is right"));
    assert_eq!(said, expected);
}

/// Rank 0 leaves with messages in its queue that wait for credit.
pub(super) fn of_a_rank_that_leaves() -> Result<()> {
    let job = Job::init()?;
    let world = job.world();
    let mut port = world.express(1 << 15)?;
    if world.rank() == 0 {
        let all = 1 << 14;
        (0..all).try_for_each(|number| port.senders[1].send(&message(0, number)))?;
    } else {
        for number in 0..1 << 14 {
            assert_eq!(port.receiver.recv()?.number(), number);
        }
    }
    say(world.rank(), "all is right");
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
