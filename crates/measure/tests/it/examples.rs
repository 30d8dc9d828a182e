//! Examples: their functions run on ranks that are threads.
#![expect(
    clippy::duplicate_mod,
    reason = "the examples are programs of their own that share a module"
)]

#[allow(dead_code, reason = "the example's main and its printing are not called")]
#[path = "../../examples/banded_solve/main.rs"]
mod banded_solve;
#[allow(dead_code, reason = "the example's main and its printing are not called")]
#[path = "../../examples/early_message.rs"]
mod early_message;
#[allow(dead_code, reason = "the example's main and its printing are not called")]
#[path = "../../examples/sparse_solve.rs"]
mod sparse_solve;

use clap::Parser;
use tradewind::{Communicator, Result};

testing::tests![
    every_version_of_the_banded_solve_equals_the_serial_one,
    early_messages_arrive_by_every_mechanism,
    sparse_solves_equal_the_serial_one,
    no_solves_and_no_ranks_are_refused,
];

/// Runs ranks while no other test has any.
fn local(ranks: u32, body: impl Fn(Communicator) -> Result<()> + Sync) -> Result<()> {
    let _cores = crate::cores();
    tradewind::local(ranks, body)
}

/// One row, fewer rows than a queue holds, more of them; every version.
fn every_version_of_the_banded_solve_equals_the_serial_one() {
    for ranks in [2, 3, 4] {
        for rows in [1, 7, 100] {
            let line = format!("banded_solve --rows {rows} --rounds 2 --solves 3 --capacity 16");
            let arguments = banded_solve::Arguments::parse_from(line.split_whitespace());
            local(ranks, |world| {
                let solved = banded_solve::measure_all(&world, &arguments)?;
                assert_eq!(solved.len(), 4, "every version was measured");
                for row in solved {
                    assert_eq!(row.wrong, 0, "{:?}: {ranks} ranks, {rows} rows", row.version);
                }
                Ok(())
            })
            .expect("the system is solved");
        }
    }
}

fn early_messages_arrive_by_every_mechanism() {
    let arguments = |line: &str| early_message::Arguments::parse_from(line.split_whitespace());
    let few = arguments("early_message --delays 0,3 --rounds 2 --messages 5");
    for ranks in [2, 3, 4] {
        local(ranks, |world| {
            let rows = early_message::measure_all(&world, &few)?;
            assert_eq!(rows.len(), 10, "five mechanisms, two delays");
            assert!(rows.iter().all(|row| row.wrong == 0), "{rows:?}");
            Ok(())
        })
        .expect("the messages arrive");
    }
    let error = local(1, |world| early_message::measure_all(&world, &few).map(drop))
        .expect_err("one rank cannot send");
    assert!(error.to_string().contains("two ranks"), "{error}");
}

/// Also more ranks than rows.
fn sparse_solves_equal_the_serial_one() {
    for ranks in [1, 2, 3, 4] {
        for (unknowns, chunk) in [(1, 1), (3, 1), (100, 1), (100, 7), (100, 1000)] {
            let line = format!("sparse_solve --unknowns {unknowns} --chunk {chunk} --solves 3");
            let arguments = sparse_solve::Arguments::parse_from(line.split_whitespace());
            local(ranks, |world| {
                let rows = sparse_solve::measure_all(&world, &arguments)?;
                assert_eq!(rows.len(), 2, "both versions");
                assert!(rows.iter().all(|row| row.wrong == 0), "{ranks} ranks, {line}: {rows:?}");
                let is_divided = ranks > 1 && unknowns > chunk;
                assert!(rows.iter().all(|row| (row.fetches > 0) == is_divided), "{rows:?}");
                Ok(())
            })
            .expect("the system is solved");
        }
    }
}

/// Zero is refused where it would measure nothing.
fn no_solves_and_no_ranks_are_refused() {
    for line in ["--unknowns 0", "--solves 0", "--chunk 0", "--threads 0"] {
        let line = format!("sparse_solve {line}");
        let error =
            sparse_solve::Arguments::try_parse_from(line.split_whitespace()).expect_err(&line);
        assert_eq!(error.kind(), clap::error::ErrorKind::ValueValidation, "{line}");
    }
}
