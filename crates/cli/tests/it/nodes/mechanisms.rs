//! Every mechanism between ranks that are processes on several nodes, one of which is killed or
//! vanishes.

#[path = "../../../../tradewind/tests/it/messages/mechanisms.rs"]
mod all;

use super::harness::{Hydra, Said};
use super::rank::say;
use super::{VICTIM, after_a_disconnection, after_a_kill, nodes};
use all::{QUEUES, Rank};
use rustix::process::{Signal, getpid, kill_process};
use testing::mechanism::{
    Job as _, beside_a_killed_rank, beside_a_vanished_node, carries_all_between_all,
    outlives_its_senders,
};
use tradewind::{Job, Result};

testing::tests![
    needs(Nodes, Mpiexec):
    mechanisms_carry_everything_between_all_ranks,
    a_killed_rank_ends_every_mechanism_behind_what_it_sent,
    a_vanished_node_ends_every_mechanism,
    what_a_rank_has_put_into_a_mechanism_outlives_it,
];

fn rank_of(job: &Job) -> Result<Rank> {
    job.world().dup().map(Rank)
}

fn mechanisms_carry_everything_between_all_ranks() {
    let testbed = nodes(3);
    let said = Hydra::new(&testbed, &[2, 1, 1]).program("mechanisms").run();
    let expected: Vec<Said> = (0..4).map(|rank| Said::new(rank, "all is right")).collect();
    assert_eq!(said, expected);
}

pub(super) fn exchange() -> Result<()> {
    let job = Job::init()?;
    let rank = rank_of(&job)?;
    all::all().for_each(|mechanism| carries_all_between_all(&rank, &mechanism, 500));
    say(rank.rank(), "all is right");
    Ok(())
}

fn a_killed_rank_ends_every_mechanism_behind_what_it_sent() {
    after_a_kill("mechanisms-beside-a-killed-rank", "rank 2 has failed");
}

pub(super) fn with_a_killed_rank() -> Result<()> {
    let job = Job::init()?;
    let rank = rank_of(&job)?;
    beside_a_killed_rank(&rank, &QUEUES, (VICTIM, 500), || {
        let _ = kill_process(getpid(), Signal::KILL);
    });
    say(rank.rank(), "rank 2 has failed");
    Ok(())
}

fn a_vanished_node_ends_every_mechanism() {
    after_a_disconnection("mechanisms-to-a-vanished-node", &["rank 2 has failed"]);
}

pub(super) fn to_a_vanished_node() -> Result<()> {
    let job = Job::init()?;
    let rank = rank_of(&job)?;
    beside_a_vanished_node(&rank, &QUEUES, VICTIM, || say(rank.rank(), "waits"));
    say(rank.rank(), "rank 2 has failed");
    Ok(())
}

fn what_a_rank_has_put_into_a_mechanism_outlives_it() {
    let testbed = nodes(2);
    let said = Hydra::new(&testbed, &[1, 1]).program("mechanisms-of-a-rank-that-leaves").run();
    assert_eq!(said, [0, 1].map(|rank| Said::new(rank, "all is right")));
}

pub(super) fn of_a_rank_that_leaves() -> Result<()> {
    let job = Job::init()?;
    let rank = rank_of(&job)?;
    outlives_its_senders(&rank, &QUEUES);
    say(rank.rank(), "all is right");
    Ok(())
}
