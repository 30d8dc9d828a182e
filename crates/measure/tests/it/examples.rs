//! Examples: their functions run on ranks that are threads.
#![expect(
    clippy::duplicate_mod,
    reason = "the examples are programs of their own that share a module"
)]

#[allow(dead_code, reason = "the example's main and its printing are not called")]
#[path = "../../examples/banded_solve/main.rs"]
mod banded_solve;
#[allow(dead_code, reason = "the example's main and its printing are not called")]
#[path = "../../examples/early_message/main.rs"]
mod early_message;
#[allow(dead_code, reason = "the example's main and its printing are not called")]
#[path = "../../examples/sparse_solve/main.rs"]
mod sparse_solve;

use clap::Parser;
use tradewind::{Communicator, Result};

testing::tests![
    every_version_of_the_banded_solve_equals_the_serial_one,
    early_messages_arrive_by_every_mechanism,
    sparse_solves_of_a_grid_equal_the_serial_one,
    what_a_sparse_solve_fetches_is_what_its_pattern_says,
    factors_without_fill_in_are_what_they_are_by_hand,
    sparse_solves_of_files_equal_the_serial_one,
    a_file_that_is_no_system_is_refused_with_reasons,
    no_rounds_and_no_ranks_are_refused,
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

/// Solves on so many ranks by every version, and compares with the serial solution.
fn assert_sparse_solve(ranks: u32, line: &str) {
    let line = format!("sparse_solve --rounds 2 --solves 3 {line}");
    let arguments = sparse_solve::Arguments::parse_from(line.split_whitespace());
    let input = arguments.read().expect("there is a matrix");
    local(ranks, |world| {
        let rows = sparse_solve::measure_all(&world, &arguments, &input)?;
        let wrong: Vec<_> = rows.iter().map(|row| (row.version, row.wrong)).collect();
        assert!(
            wrong.len() == 3 && wrong.iter().all(|(_, wrong)| *wrong == 0),
            "{ranks} ranks, {line}: {wrong:?}"
        );
        Ok(())
    })
    .expect("the system is solved");
}

/// Also more ranks than rows, and a matrix without an element below the diagonal.
fn sparse_solves_of_a_grid_equal_the_serial_one() {
    for ranks in [1, 2, 3, 4] {
        for grid in [1, 2, 9] {
            for mapping in ["block", "cyclic", "cyclic --chunk 4"] {
                assert_sparse_solve(ranks, &format!("--grid {grid} --rows {mapping}"));
            }
        }
    }
}

/// The number of values that are sent, and of levels, follows from the matrix.
fn what_a_sparse_solve_fetches_is_what_its_pattern_says() {
    let arguments =
        sparse_solve::Arguments::parse_from(["sparse_solve", "--grid", "4", "--rounds", "1"]);
    let input = arguments.read().expect("there is a matrix");
    local(2, |world| {
        for row in sparse_solve::measure_all(&world, &arguments, &input)? {
            let fetches = if row.version == sparse_solve::Version::Serial { 0 } else { 4 };
            assert_eq!(
                (row.fetches, row.levels),
                (fetches, 7),
                "the last line of the upper half; diagonals of a square"
            );
        }
        Ok(())
    })
    .expect("the system is solved");
}

/// The factors of a tridiagonal matrix and of the Laplacian of four points, by hand.
fn factors_without_fill_in_are_what_they_are_by_hand() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let lines = ["3 3 5", "1 1 4", "2 1 -1", "2 2 4", "3 2 -1", "3 3 4"].map(str::to_owned);
    let file = matrix_file(&directory, "integer symmetric", &lines);
    let first_column = |line: &str, expected: &[f64]| {
        let arguments = sparse_solve::Arguments::parse_from(line.split_whitespace());
        let triangle = arguments.read().expect("there is a matrix").triangle;
        let (mut side, mut solution) = (vec![0.0; triangle.rows()], vec![0.0; triangle.rows()]);
        side[0] = 1.0;
        triangle.solve(&side, &mut solution);
        let is_near =
            solution.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-15);
        assert!(solution.len() == expected.len() && is_near, "{solution:?}, not {expected:?}");
    };
    first_column(&format!("sparse_solve --matrix {file}"), &[1.0, 0.25, 0.25 * 4.0 / 15.0]);
    // The element that joins the second and the third point would be fill-in.
    first_column("sparse_solve --grid 2", &[1.0, 0.25, 0.25, 0.5 / 3.75]);
}

/// A file with these lines below its header.
fn matrix_file(directory: &tempfile::TempDir, kind: &str, lines: &[String]) -> String {
    let path = directory.path().join("matrix.mtx");
    let text = format!("%%MatrixMarket matrix coordinate {kind}\n{}\n", lines.join("\n"));
    std::fs::write(&path, text).expect("a file in the temporary directory");
    path.display().to_string()
}

/// Random patterns.
fn sparse_solves_of_files_equal_the_serial_one() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut state = 1_u64;
    for round in 0..4 {
        let rows = 40;
        let mut lines = Vec::new();
        for row in 1..=rows {
            for column in 1..row {
                // Knuth's generator for 64 bits; one element in eight is there.
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                if state >> 61 == 0 {
                    lines.push(format!("{row} {column} {}", (state >> 32) % 100));
                }
            }
            lines.push(format!("{row} {row} {}", 50 + row));
        }
        lines.insert(0, format!("{rows} {rows} {}", lines.len()));
        // Integers are read too, and a symmetric matrix is factorised.
        let kind =
            ["real general", "integer general", "real symmetric", "integer symmetric"][round];
        let file = matrix_file(&directory, kind, &lines);
        for ranks in [2, 3, 4] {
            assert_sparse_solve(ranks, &format!("--rows cyclic --matrix {file}"));
            assert_sparse_solve(ranks, &format!("--rows block --part lower --matrix {file}"));
        }
    }
}

fn a_file_that_is_no_system_is_refused_with_reasons() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let cases = [
        ("real general", vec!["2 2 2", "1 1 1.0", "2 two 3.0"], "4:3"),
        ("real general", vec!["2 2 2", "1 1 1.0", "5 2 3.0"], "out of bounds"),
        ("real general", vec!["2 2 3", "1 1 1.0", "2 2 3.0"], "3 entries required"),
        ("pattern general", vec!["1 1 1", "1 1"], "give a matrix of real or integer"),
        ("real general", vec!["1 2 1", "1 1 1.0"], "1 rows and 2 columns"),
        ("real general", vec!["99999999999 99999999999 1", "1 1 1.0"], "cannot hold"),
        ("real general", vec!["1 1 99999999999", "1 1 1.0"], "cannot hold"),
        ("real general", vec!["99999999999999999999 1 1", "1 1 1.0"], "cannot hold"),
        ("real general", vec!["1 1 1", "99999999999999999999 1 1.0"], "out of bounds"),
        ("real general", vec!["0 0 0"], "no rows"),
        ("real symmetric", vec!["2 2 2", "1 1 1.0", "2 2 inf"], "row 2, column 2 is inf"),
        ("real general", vec!["1 1 1", "1 1 1e999"], "row 1, column 1 is inf"),
        (
            "real general",
            vec!["2 2 4", "1 1 1e-300", "1 2 1", "2 1 1e300", "2 2 1"],
            "row 2 has an element that became inf",
        ),
        (
            "real general",
            vec!["2 2 2", "1 1 1.0", "2 1 3.0"],
            "row 2 has nothing on the main diagonal",
        ),
        ("real general", vec!["2 2 3", "1 1 1.0", "1 2 1", "2 1 3.0"], "row 2 has no pivot"),
    ];
    for (kind, lines, reason) in cases {
        let lines: Vec<_> = lines.into_iter().map(str::to_owned).collect();
        let file = matrix_file(&directory, kind, &lines);
        let arguments = sparse_solve::Arguments::parse_from(["sparse_solve", "--matrix", &file]);
        let error = arguments.read().expect_err("it cannot be solved");
        assert!(error.contains(&file) && error.contains(reason), "{error}");
    }
    let arguments =
        sparse_solve::Arguments::parse_from(["sparse_solve", "--matrix", "no such file"]);
    let error = arguments.read().expect_err("there is no file");
    assert!(error.starts_with("cannot read no such file"), "{error}");
}

/// Zero is refused where it would measure nothing.
fn no_rounds_and_no_ranks_are_refused() {
    for line in ["--rounds 0", "--solves 0", "--chunk 0", "--threads 0"] {
        let line = format!("sparse_solve {line}");
        let error =
            sparse_solve::Arguments::try_parse_from(line.split_whitespace()).expect_err(&line);
        assert_eq!(error.kind(), clap::error::ErrorKind::ValueValidation, "{line}");
    }
}
