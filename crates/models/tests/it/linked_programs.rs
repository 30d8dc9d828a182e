//! Programs of every algorithm, linked as the engine links them.

use collectives::{Choice, Collective, GraphSpec};
use models::simulation::{Constants, Curve, KNOTS, bounds, linked, run};
use std::num::{NonZeroU32, NonZeroU64};

const CONSTANTS: Constants = Constants {
    start: 1.0,
    operation: 0.5,
    crossing: 0.25,
    switch: 2.0,
    copy: Curve([0.1; KNOTS.len()]),
    fetch: Curve([0.05; KNOTS.len()]),
    combine: 1e-4,
};

/// Every algorithm of every operation, short and long messages: each process comes to its end,
/// at a time that is no shorter than the bounds. A step that nothing sets going would leave its
/// rank waiting for ever, at time zero.
#[test]
fn every_program_comes_to_its_end() {
    for operation in Collective::ALL {
        for (ranks, bytes) in [(2, 8), (3, 100), (4, 5000), (5, 20_000), (8, 100_000)] {
            let call = GraphSpec { root: ranks - 1, ..linked::call(*operation, ranks, bytes) };
            for algorithm in operation.algorithms() {
                let segment_bytes = NonZeroU64::new(4096);
                let plan = Choice { segment_bytes, ..Choice::of(*algorithm) };
                let Ok(program) = linked::program(&call, &plan) else { continue };
                for cores in [1, 2, 8] {
                    let time = run(&program, cores, &CONSTANTS).microseconds;
                    let bounds = bounds(&program, cores, &CONSTANTS);
                    assert!(
                        time >= bounds.work - 1e-6,
                        "{call:?} by {plan} on {cores}: {time} below {bounds:?}"
                    );
                    assert!(
                        time >= bounds.chain - 1e-6,
                        "{call:?} by {plan} on {cores}: {time} below {bounds:?}"
                    );
                }
            }
        }
    }
}

/// Otherwise formulas of ranks that work for themselves would predict it, beside simulations of the
/// other algorithms.
#[test]
fn every_algorithm_has_a_program() {
    for operation in Collective::ALL {
        for algorithm in operation.algorithms() {
            let segment_bytes = NonZeroU64::new(32).filter(|_| algorithm.is_segmented());
            let degree = NonZeroU32::new(2).filter(|_| algorithm.has_degree());
            let plan = Choice { segment_bytes, degree, ..Choice::of(*algorithm) };
            let program = linked::program(&linked::call(*operation, 4, 64), &plan);
            assert!(program.is_ok(), "{operation} by {plan}: {program:?}");
        }
    }
}
