//! Messages between ranks that are processes on several nodes, some of which are killed.

use super::harness::{Hydra, Said};
use super::rank::say;
use super::{VICTIM, after_a_disconnection, nodes};
use rustix::process::{Signal, getpid, kill_process};
use tradewind::{Communicator, Error, Job, Pending, RecvRequest, Result, Source, Tag, wait_all};

testing::tests![
    needs(Nodes, Mpiexec):
    messages_of_all_lengths_pass_between_all_ranks,
    a_killed_rank_ends_the_messages_that_wait_for_it,
    a_vanished_node_ends_the_messages_that_wait_for_its_ranks,
    messages_of_ranks_that_have_left_arrive,
];
testing::tests![
    needs(Nodes, Mpiexec, Libfabric):
    messages_pass_through_libfabric,
];

/// The ranks carry the messages over their connections, or their node services do.
const ENGINES: [&str; 2] = ["direct", "agent"];

/// Within a record, of some records, beyond what is sent without a request.
const LENGTHS: [usize; 7] = [0, 8, 48, 5000, 100_000, 1 << 20, 8 << 20];

/// Bytes in a pattern whose length divides that of no piece of a message.
pub(super) fn bytes(seed: u32, length: usize) -> Vec<u8> {
    const PATTERN: usize = 4099;
    let pattern = (0..PATTERN).map(|place| (place * 31 + seed as usize * 7 + place / 251) as u8);
    let mut bytes = pattern.collect::<Vec<u8>>().repeat(length.div_ceil(PATTERN));
    bytes.truncate(length);
    bytes
}

fn all_of(ranks: u32, words: &str) -> Vec<Said> {
    (0..ranks).map(|rank| Said::new(rank, words)).collect()
}

fn messages_of_all_lengths_pass_between_all_ranks() {
    for ranks in [&[1, 1][..], &[2, 1, 1]] {
        let testbed = nodes(ranks.len());
        for engine in ENGINES {
            let job = Hydra::new(&testbed, ranks).variable("TRADEWIND_INTERNODE", engine);
            let said = job.program("messages").run();
            assert_eq!(said, all_of(ranks.iter().sum(), "all is right"), "{engine}, {ranks:?}");
        }
    }
}

fn messages_pass_through_libfabric() {
    let testbed = nodes(2);
    let library = testing::fabric::libraries().remove(0);
    let said = Hydra::new(&testbed, &[2, 1])
        .variable("TRADEWIND_NETWORK", "fabric:tcp")
        .variable("TRADEWIND_LIBFABRIC", &library.to_string_lossy())
        .program("messages")
        .run();
    assert_eq!(said, all_of(3, "all is right"));
}

/// Every rank exchanges messages of all lengths with every other one, in both orders of post and
/// arrival, and takes some from any rank.
pub(super) fn exchange() -> Result<()> {
    let job = Job::init()?;
    let world = job.world();
    let rank = world.rank();
    let others: Vec<u32> = (0..world.size()).filter(|other| *other != rank).collect();
    for (tag, length) in (0..).zip(LENGTHS) {
        let mine = bytes(rank + tag, length);
        let mut buffers: Vec<Vec<u8>> = others.iter().map(|_| vec![0; length + 3]).collect();
        let receives: Vec<RecvRequest<'_>> = buffers
            .iter_mut()
            .zip(&others)
            .map(|(buffer, from)| world.irecv(buffer, *from, tag))
            .collect::<Result<_>>()?;
        world.barrier()?;
        let sends = others.iter().map(|to| world.isend(&mine, *to, tag));
        let sends = sends.collect::<Result<Vec<_>>>()?;
        wait_all(receives)?;
        wait_all(sends)?;
        for (buffer, from) in buffers.iter().zip(&others) {
            assert!(buffer[..length] == bytes(from + tag, length), "{length} bytes of rank {from}");
        }
        // Unexpected, and in no order.
        let sends = others.iter().map(|to| world.isend(&mine, *to, tag));
        let sends = sends.collect::<Result<Vec<_>>>()?;
        world.barrier()?;
        let mut left = others.clone();
        while !left.is_empty() {
            let message = world.mprobe(Source::Any, Tag::Is(tag))?;
            let from = message.status().source();
            assert!(message.recv_vec::<u8>()? == bytes(from + tag, length), "{length} bytes");
            left.retain(|other| *other != from);
        }
        wait_all(sends)?;
    }
    world.barrier()?;
    say(rank, "all is right");
    Ok(())
}

fn a_killed_rank_ends_the_messages_that_wait_for_it() {
    let testbed = nodes(2);
    for engine in ENGINES {
        let job = Hydra::new(&testbed, &[2, 1]).option("-disable-auto-cleanup");
        let job = job.variable("TRADEWIND_INTERNODE", engine);
        let said = job.program("messages-beside-a-killed-rank").run();
        assert_eq!(said, [0, 1].map(|rank| Said::new(rank, "goes on")), "{engine}");
    }
}

/// Calls a test of a request until it is over.
pub(super) fn test_until_over(mut test: impl FnMut() -> Result<bool>) -> Result<()> {
    while !test()? {
        std::thread::yield_now();
    }
    Ok(())
}

pub(super) fn is_of_victim<T: std::fmt::Debug>(outcome: Result<T>) {
    let error = outcome.expect_err("the victim is dead");
    assert_eq!(error.failed_rank(), Some(VICTIM), "{error}");
}

/// Rank 0 has pending operations of all kinds with the victim, rank 1 begins one afterwards.
pub(super) fn beside_a_killed_rank() -> Result<()> {
    let job = Job::init()?;
    let world = job.world();
    let long = bytes(1, 8 << 20);
    world.barrier()?;
    match world.rank() {
        VICTIM => {
            world.send(&[7_u8], 0, 5)?;
            world.send(&long[..1 << 20], 0, 6)?;
            world.recv(&mut [0_u8], 0, 2)?;
            let _ = kill_process(getpid(), Signal::KILL);
        }
        0 => {
            let mut numbers = [[0_u8; 8]; 2];
            let [named, from_any] = &mut numbers;
            let named = world.irecv(named, VICTIM, 7)?;
            let from_any = world.irecv(from_any, Source::Any, 7)?;
            // Offered, and not requested.
            let offered = world.isend(&long, VICTIM, 0)?;
            let mut synchronous = world.issend(&[1_u8], VICTIM, 0)?;
            world.send(&[1_u8], VICTIM, 2)?;
            is_of_victim(named.wait());
            is_of_victim(from_any.wait());
            is_of_victim(offered.wait());
            is_of_victim(test_until_over(|| synchronous.test()));
            // Sent before it was killed, so they are there.
            let mut buffer = vec![0; 1 << 20];
            world.recv(&mut buffer[..1], VICTIM, 5)?;
            world.recv(&mut buffer, VICTIM, 6)?;
            assert!(buffer == long[..1 << 20]);
            is_of_victim(world.recv(&mut buffer, VICTIM, 6));
        }
        _ => is_of_victim(world.recv(&mut [0_u8; 8], VICTIM, 0)),
    }
    go_on(world)
}

/// The two ranks of the first node go on.
pub(super) fn go_on(world: &Communicator) -> Result<()> {
    let other = 1 - world.rank();
    let mine = bytes(3, 300_000);
    let mut theirs = vec![0; mine.len()];
    world.sendrecv(&mine, other, 5, &mut theirs, other, 5)?;
    assert!(theirs == mine);
    say(world.rank(), "goes on");
    Ok(())
}

fn a_vanished_node_ends_the_messages_that_wait_for_its_ranks() {
    let words = ["node 1 is unreachable", "goes on"];
    after_a_disconnection("messages-to-a-vanished-node", &words);
}

pub(super) fn to_a_vanished_node() -> Result<()> {
    let job = Job::init()?;
    let world = job.world();
    let rank = world.rank();
    world.barrier()?;
    let mut buffer = [0_u8; 8];
    let mut receive = world.irecv(&mut buffer, if rank == VICTIM { 0 } else { VICTIM }, 0)?;
    say(rank, "waits");
    let limit = std::time::Duration::from_secs(40);
    let error = Pending::wait_timeout(&mut receive, limit).expect_err("the node is gone");
    drop(receive);
    if rank != VICTIM {
        match &error {
            Error::NodeUnreachable { node, .. } => {
                say(rank, &format!("node {node} is unreachable"))
            }
            error => say(rank, &error.to_string()),
        }
        go_on(world)?;
    }
    Ok(())
}

fn messages_of_ranks_that_have_left_arrive() {
    let testbed = nodes(2);
    for engine in ENGINES {
        let job = Hydra::new(&testbed, &[1, 1]).variable("TRADEWIND_INTERNODE", engine);
        let said = job.program("messages-of-a-rank-that-leaves").run();
        assert_eq!(said, all_of(2, "all is right"), "{engine}");
    }
}

/// Rank 0 leaves at once; what it has sent, in whole or as an offer, arrives.
pub(super) fn of_a_rank_that_leaves() -> Result<()> {
    let job = Job::init()?;
    let world = job.world();
    if world.rank() == 0 {
        for length in LENGTHS {
            drop(world.isend(&bytes(1, length), 1, 0)?);
        }
    } else {
        for length in LENGTHS {
            let mut buffer = vec![0; length];
            world.recv(&mut buffer, 0, 0)?;
            assert!(buffer == bytes(1, length), "{length} bytes");
        }
        let error = world.recv(&mut [0_u8], 0, 0).expect_err("it leaves");
        assert_eq!(error.failed_rank(), Some(0), "{error}");
    }
    say(world.rank(), "all is right");
    Ok(())
}
