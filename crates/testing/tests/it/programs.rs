//! Validity of the suite's own programs: the checker accepts them, even if every message waits for
//! its receive.

use goal::check::{GlobalOptions, global};
use proptest::prelude::*;
use testing::conformance::{Expected, vectors};

testing::tests![vectors_are_in_order, names_are_unique, random_programs_are_in_order,];

fn vectors_are_in_order() {
    for vector in
        vectors::all().iter().filter(|vector| !matches!(vector.expected, Expected::SizesDiffer(_)))
    {
        if let Err(problems) = global(&vector.program, &GlobalOptions { eager_limit: 0 }) {
            panic!("{}:\n{}", vector.name, goal::check::list(&problems));
        }
    }
}

fn names_are_unique() {
    let mut names: Vec<String> = vectors::all().into_iter().map(|vector| vector.name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    fn random_programs_are_in_order(plan in testing::conformance::random::any_plans()) {
        let program = testing::conformance::random::lay_out(&plan);
        let checked = global(&program.graphs, &GlobalOptions { eager_limit: 0 });
        prop_assert_eq!(checked.map_err(|problems| goal::check::list(&problems)), Ok(()));
    }
}
