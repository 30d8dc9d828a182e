//! Integration tests of the crate `tradewind`.

mod aborts;
mod any_length;
mod coherence;
mod collective_errors;
mod collectives;
mod conformance;
mod decisions;
mod element_types;
mod every_collective;
mod examples;
mod groups;
mod growth;
mod inputs_in_place;
mod job_kinds;
mod launched;
mod messages;
mod odd_ranks;
mod point_to_point;
mod requests;
mod several_nodes;
mod starts;
mod unattended;
mod unusual_collectives;

fn main() -> std::process::ExitCode {
    testing::run()
}
