//! The suite accepts the reference and detects engines with defects.

use goal::graph::Graph;
use std::panic::{AssertUnwindSafe, catch_unwind};
use testing::conformance::reference::{ReferenceEngine, evaluate};
use testing::conformance::{Capabilities, Engine, Failure, Round, RoundOutcome, run_suite};

testing::tests![
    reference_passes,
    wrong_byte_is_named,
    missing_fault_is_named,
    failure_is_reported,
    random_programs_find_defects,
];

fn reference_passes() {
    run_suite(&ReferenceEngine);
}

/// Reference engine with a defect.
struct Defective<F> {
    name: &'static str,
    defect: F,
}

impl<F: Fn(usize, RoundOutcome) -> Result<RoundOutcome, Failure>> Engine for Defective<F> {
    fn name(&self) -> &str {
        self.name
    }

    fn capabilities(&self) -> Capabilities {
        ReferenceEngine.capabilities()
    }

    fn run(&self, program: &[Graph], inputs: &[Round]) -> Result<Vec<RoundOutcome>, Failure> {
        (0..)
            .zip(inputs)
            .map(|(round, inputs)| (self.defect)(round, evaluate(program, inputs)?))
            .collect()
    }
}

fn report(engine: &dyn Engine) -> String {
    let panic = catch_unwind(AssertUnwindSafe(|| run_suite(engine)))
        .expect_err("the suite must notice the defect");
    *panic.downcast::<String>().expect("the suite panics with a report")
}

fn wrong_byte_is_named() {
    let flip = |round, mut outcome: RoundOutcome| {
        if let (1, Some(byte)) =
            (round, outcome.buffers.last_mut().and_then(|rank| rank.last_mut()?.last_mut()))
        {
            *byte ^= 1;
        }
        Ok(outcome)
    };
    let report = report(&Defective { name: "flips a bit", defect: flip });
    assert!(report.contains("the engine `flips a bit` fails"), "{report}");
    assert!(
        report.contains("messages: exchange of 9 bytes: round 1, rank 1, buffer 1: byte 8 is"),
        "{report}"
    );
}

fn missing_fault_is_named() {
    let forget = |_, outcome: RoundOutcome| Ok(RoundOutcome { faults: Vec::new(), ..outcome });
    let report = report(&Defective { name: "forgets faults", defect: forget });
    assert!(report.contains("fails 2 of"), "{report}");
    assert!(report.contains("no division by zero is reported"), "{report}");
}

fn failure_is_reported() {
    let give_up = |round, outcome| {
        if round == 2 { Err(Failure::Stuck("no rank advances".into())) } else { Ok(outcome) }
    };
    let report = report(&Defective { name: "gives up", defect: give_up });
    assert!(report.contains("the program does not end: no rank advances"), "{report}");
}

/// A defect that no vector detects: it needs a program of several ranks with more operations on one
/// of them than any vector has.
fn random_programs_find_defects() {
    struct Rare;
    impl Engine for Rare {
        fn name(&self) -> &str {
            "rarely wrong"
        }
        fn capabilities(&self) -> Capabilities {
            Capabilities { random_programs: 256, ..ReferenceEngine.capabilities() }
        }
        fn run(&self, program: &[Graph], inputs: &[Round]) -> Result<Vec<RoundOutcome>, Failure> {
            let mut outcomes = ReferenceEngine.run(program, inputs)?;
            let buffers = program
                .iter()
                .all(|graph| graph.buffers().len() == 3 && graph.vertices().len() > 3);
            if buffers && let Some(byte) = outcomes[1].buffers[0][1].first_mut() {
                *byte ^= 0x80;
            }
            Ok(outcomes)
        }
    }
    let report = report(&Rare);
    assert!(report.contains("fails a random program (again with PROPTEST_RNG_SEED="), "{report}");
    assert!(report.contains("round 1, rank 0, buffer 1: byte 0"), "{report}");
}
