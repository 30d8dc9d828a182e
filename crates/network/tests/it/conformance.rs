//! The agent engine against the suite that every engine must pass: over memory, with hardly any
//! memory for early messages, and over TCP.

use crate::jobs::{Agents, Direct, Wires};
use network::agent::Limits;
use testing::conformance::Capabilities;

testing::tests![
    a_node_for_each_rank_conforms,
    two_ranks_on_each_node_conform,
    nodes_with_little_memory_conform,
    tcp_conforms,
    tcp_with_two_ranks_on_each_node_conforms,
    ranks_that_execute_their_own_runs_conform,
];

fn a_node_for_each_rank_conforms() {
    testing::conformance::run_suite(&Agents::new(1, Wires::Memory));
}

fn two_ranks_on_each_node_conform() {
    testing::conformance::run_suite(&Agents::new(2, Wires::Memory));
}

fn nodes_with_little_memory_conform() {
    for (eager_limit, unexpected_bytes, unexpected_messages, in_place) in
        [(0, 0, 0, u64::MAX), (1 << 30, 64, 1, 1), (100, 1000, 5, 1)]
    {
        let limits = Limits { eager_limit, unexpected_bytes, unexpected_messages, in_place };
        let mut engine = Agents::new(1, Wires::Memory);
        engine.limits = limits;
        engine.capabilities = Capabilities { random_programs: 24, ..Capabilities::default() };
        testing::conformance::run_suite(&engine);
    }
}

fn tcp_conforms() {
    testing::conformance::run_suite(&Agents::new(1, Wires::Tcp));
}

fn tcp_with_two_ranks_on_each_node_conforms() {
    let mut engine = Agents::new(2, Wires::Tcp);
    engine.limits = engine.limits.with_in_place(1);
    engine.capabilities = Capabilities { random_programs: 24, ..Capabilities::default() };
    testing::conformance::run_suite(&engine);
}

fn ranks_that_execute_their_own_runs_conform() {
    let capabilities = Capabilities { random_programs: 64, ..Capabilities::default() };
    testing::conformance::run_suite(&Direct { capabilities });
}
