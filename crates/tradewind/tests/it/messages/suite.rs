//! Every mechanism in the suite of all mechanisms, on one node and between nodes.

use super::mechanisms::{QUEUES, Rank, all};
use testing::mechanism::{
    Mechanism, carries_all_between_all, closes_for_senders, closes_for_the_receiver,
    full_stops_its_own_senders_only, gives_what_precedes_an_exit, outlives_its_senders,
    uses_memory_again,
};
use tradewind::{local, local_nodes};

testing::tests![
    carry_everything_between_all_ranks,
    when_full_stop_their_own_senders_only,
    dropped_are_closed_for_all_senders,
    closed_senders_are_reported_behind_their_last_message,
    messages_before_an_exit_are_received_before_it_is_reported,
    what_a_rank_has_put_in_outlives_it,
    memory_of_dropped_ones_is_used_again,
];

/// Runs a property of mechanisms on one node of three ranks, and on several nodes.
fn everywhere(
    mechanisms: impl Iterator<Item = Mechanism<Rank>>,
    nodes: &[&[u32]],
    property: impl Fn(&Rank, &Mechanism<Rank>) + Sync,
) {
    for mechanism in mechanisms {
        let body = |world| {
            property(&Rank(world), &mechanism);
            Ok(())
        };
        let name = mechanism.name;
        for ranks in [&[3][..]].iter().chain(nodes) {
            let outcome = match ranks {
                [one] => local(*one, body),
                several => local_nodes(several, body),
            };
            outcome.unwrap_or_else(|error| panic!("{name}, nodes of {ranks:?} ranks: {error}"));
        }
    }
}

/// Placements of three ranks.
const NODES: [&[u32]; 3] = [&[1, 2], &[2, 1], &[1, 1, 1]];

fn carry_everything_between_all_ranks() {
    let placements: &[&[u32]] = &[&[1], &[1, 2], &[2, 1], &[2, 2], &[1, 1, 1, 1]];
    everywhere(all(), placements, |job, mechanism| carries_all_between_all(job, mechanism, 100));
}

fn when_full_stop_their_own_senders_only() {
    everywhere(all(), &NODES, full_stops_its_own_senders_only);
}

fn dropped_are_closed_for_all_senders() {
    everywhere(all(), &NODES, |job, mechanism| closes_for_senders(job, mechanism, 20));
}

fn closed_senders_are_reported_behind_their_last_message() {
    let mechanisms = || QUEUES.into_iter().filter(|mechanism| mechanism.reports_closed_senders);
    everywhere(mechanisms(), &NODES, closes_for_the_receiver);
}

fn messages_before_an_exit_are_received_before_it_is_reported() {
    let property = |job: &_, mechanism: &_| gives_what_precedes_an_exit(job, mechanism, 500);
    everywhere(QUEUES.into_iter(), &NODES, property);
}

fn what_a_rank_has_put_in_outlives_it() {
    everywhere(QUEUES.into_iter(), &[&[1, 1], &[1, 2]], |job, mechanism| {
        outlives_its_senders(job, std::slice::from_ref(mechanism));
    });
}

fn memory_of_dropped_ones_is_used_again() {
    everywhere(all(), &[&[1, 2], &[1, 1, 1]], uses_memory_again);
}
