//! Conformance suite of all engines for the program in the kernel. The nodes are network
//! namespaces.

use crate::world::{World, without_computations};
use goal::compile::compile;
use goal::graph::Graph;
use network::backend::Backend;
use proptest::collection::vec;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use testing::conformance::random::{Program, compare_with_reference, lay_out, plans};
use testing::conformance::{Engine, vectors};

testing::tests![needs(Nodes, Bpf):
    one_node_with_one_rank,
    one_node_with_six_ranks,
    two_nodes_with_one_rank_each,
    two_nodes_with_two_ranks_each,
    four_nodes,
    eight_nodes,
];

/// Number of random programs of a world, unless `TRADEWIND_RANDOM_PROGRAMS` contains another.
fn random_programs() -> u32 {
    std::env::var("TRADEWIND_RANDOM_PROGRAMS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(200)
}

fn conforms(nodes: usize, ranks_per_node: usize, mtu: u32) {
    let world = World::new(nodes, ranks_per_node, mtu);
    run_vectors(&world);
    run_random_programs(&world);
}

/// All vectors pass, except for those that are too large: the engine must refuse them.
fn run_vectors(world: &World) {
    let mut failures = Vec::new();
    let mut refused = Vec::new();
    for vector in
        vectors::all().into_iter().filter(|vector| vector.is_within(&world.capabilities()))
    {
        if are_admitted(world, &vector.program) {
            failures.extend(vector.run(world).err().map(|text| format!("{}: {text}", vector.name)));
        } else {
            refused.push(vector.name);
        }
    }
    assert!(failures.is_empty(), "{} fails {failures:#?}", world.name());
    refused.retain(|name| !name.contains("1048579 bytes") && !name.contains("20,000"));
    assert!(refused.is_empty(), "too large, or of an unknown kind: {refused:?}");
}

/// Returns true if the engine supports all ranks' parts of a program.
fn are_admitted(world: &World, program: &[Graph]) -> bool {
    let is_admitted =
        |graph| compile(&graph).is_ok_and(|schedule| world.ranks[0].supports(&schedule));
    program.iter().map(without_computations).all(is_admitted)
}

/// Compares many concurrent random programs with the reference.
fn run_random_programs(world: &World) {
    const AT_ONCE: usize = 16;
    let config = Config {
        cases: random_programs().div_ceil(AT_ONCE as u32),
        failure_persistence: None,
        max_shrink_iters: 200,
        ..Config::default()
    };
    let outcome =
        TestRunner::new(config).run(&vec(plans(&world.capabilities()), AT_ONCE), |plans| {
            let programs =
                plans.iter().map(lay_out).filter(|program| are_admitted(world, &program.graphs));
            let programs: Vec<Program> = programs.collect();
            let found = world.run_at_once(programs.clone());
            programs.iter().zip(found).try_for_each(|(program, found)| {
                let found = found.map_err(|failure| failure.to_string());
                found
                    .and_then(|rounds| compare_with_reference(program, &rounds))
                    .map_err(TestCaseError::fail)
            })
        });
    if let Err(difference) = outcome {
        panic!("{}: {difference}", world.name());
    }
}

fn one_node_with_one_rank() {
    conforms(1, 1, 1500);
}

fn one_node_with_six_ranks() {
    conforms(1, 6, 1500);
}

fn two_nodes_with_one_rank_each() {
    conforms(2, 1, 1500);
}

fn two_nodes_with_two_ranks_each() {
    conforms(2, 2, 9000);
}

fn four_nodes() {
    conforms(4, 1, 9000);
}

fn eight_nodes() {
    conforms(8, 1, 1500);
}
