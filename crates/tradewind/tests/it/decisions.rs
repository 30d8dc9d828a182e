//! The decision table of a job: used when it belongs to this machine, else one line says why not
//! and the built-in rules hold.
//!
//! The table's place is a variable of the environment, so each case runs in a process of its own.

use collectives::{Algorithm, Choice, Collective};
use models::decision::{DecisionTable, Range, Row, Times};
use models::file::FileKind;
use models::machine::Fingerprint;
use std::path::Path;
use std::process::Output;
use tradewind::{CallForm, Communicator, Op, Reason, Result};

testing::tests![
    a_table_of_this_machine_is_gone_by_in_silence,
    without_a_table_rules_hold_in_silence,
    a_table_that_is_no_use_is_one_line_and_rules_hold,
    a_table_with_gaps_is_gone_by_where_it_says_something,
    new_decisions_are_said_once,
    what_is_forced_is_said_to_be,
    ranks_that_see_different_things_go_by_the_same,
    what_runs_is_explained_where_sizes_differ_and_where_results_are_folded,
];
testing::parts![choose];

/// Runs [`choose`] in a process with this variable set, and perhaps another.
fn child(decisions: Option<&Path>, more: Option<(&str, &str)>) -> Output {
    run("decisions::choose", decisions, more)
}

/// Runs a part in a process with this variable set, and perhaps another.
fn run(part: &str, decisions: Option<&Path>, more: Option<(&str, &str)>) -> Output {
    let mut command = testing::part(part);
    command
        .env_remove("TRADEWIND_DECISIONS")
        .env_remove("TRADEWIND_EXPLAIN")
        .env("XDG_CONFIG_HOME", "/nonexistent");
    if let Some(path) = decisions {
        command.env("TRADEWIND_DECISIONS", path);
    }
    if let Some((name, value)) = more {
        command.env(name, value);
    }
    command.output().expect("a test can be run again")
}

/// Lines about decisions on standard error.
fn said(output: &Output) -> Vec<String> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    text.lines().filter(|line| line.starts_with("tradewind: ")).map(str::to_owned).collect()
}

/// What the child found out, line by line.
fn found(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Logger of the child: warnings on standard error.
struct StandardError;

impl log::Log for StandardError {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        eprintln!("tradewind: {}", record.args());
    }

    fn flush(&self) {}
}

/// Prints the algorithms that are chosen, and checks the results of the collectives.
fn choose() {
    static LOGGER: StandardError = StandardError;
    log::set_logger(&LOGGER).expect("the first logger");
    log::set_max_level(log::LevelFilter::Warn);
    tradewind::local(4, |world| {
        for elements in [1, 100, 3000] {
            reduce(&world, elements)?;
        }
        world.barrier()?;
        let half = world.split(Some(world.rank() % 2), 0)?;
        if world.rank() == 0 {
            for bytes in [8, 800, 24_000] {
                let explanation = world.explain(Collective::Allreduce, bytes);
                println!("\n{}: {}\n{explanation}", bytes, explanation.algorithm);
                let is_open =
                    matches!(explanation.reason, Reason::Decision(_) | Reason::UnusableTable(_));
                assert!(is_open, "{explanation}");
            }
            println!(
                "of two: {}",
                half.map_or("none", |half| half
                    .explain(Collective::Allreduce, 800)
                    .algorithm
                    .name())
            );
        }
        Ok(())
    })
    .expect("every rank chooses alike");
}

fn reduce(world: &Communicator, elements: usize) -> Result<()> {
    let (mine, mut sum) = (vec![f64::from(world.rank()); elements], vec![0.0; elements]);
    let request = world.iallreduce(&mine, &mut sum, Op::Sum)?;
    let explained = request.explain().map(|explanation| explanation.algorithm);
    assert_eq!(
        explained,
        Some(world.explain(Collective::Allreduce, 8 * elements as u64).algorithm)
    );
    request.wait()?;
    assert_eq!(sum, vec![6.0; elements]);
    let mut last = vec![0.0; elements];
    world.allreduce(&mine, &mut last, Op::Sum)?;
    assert_eq!(sum, last);
    Ok(())
}

/// Joins up to 63 bytes, then a ring, then recursive doubling; nothing about other operations
/// unless the table is whole.
fn table(fingerprint: Fingerprint, whole: bool) -> DecisionTable {
    let range = |from, to, algorithm| Range {
        from,
        to,
        plan: Choice::of(algorithm),
        engine: None,
        at: from,
        time: Times::predicted(1.0),
        runner_up: None,
    };
    let row = |form: CallForm, operation: Collective| {
        let ranges = match operation {
            Collective::Allreduce => vec![
                range(0, Some(64), Algorithm::Join),
                range(64, Some(4096), Algorithm::Ring),
                range(4096, None, Algorithm::RecursiveDoubling),
            ],
            _ => vec![range(0, None, Algorithm::Join)],
        };
        Row { operation, form, ranks: 4, ranks_per_node: 4, error: None, disturbed: None, ranges }
    };
    let operations =
        Collective::ALL.iter().filter(|operation| whole || **operation == Collective::Allreduce);
    let both = |operation: &Collective| {
        CallForm::ALL.iter().map(|form| row(*form, *operation)).collect::<Vec<_>>()
    };
    DecisionTable::new(fingerprint, operations.flat_map(both).collect())
        .expect("a table that can be")
}

fn here() -> Fingerprint {
    models::machine::Topology::here().fingerprint().clone()
}

/// A file with this table.
fn kept(table: &DecisionTable) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    table.write(file.path()).expect("space for a table");
    file
}

const BY_TABLE: [&str; 4] = ["8: join", "800: ring", "24000: recursive-doubling", "of two: ring"];
const BY_RULES: [&str; 4] = ["8: join", "800: join", "24000: join", "of two: join"];

fn assert_found(output: &Output, lines: [&str; 4]) {
    let found = found(output);
    for line in lines {
        assert!(found.lines().any(|other| other == line), "no {line:?} in\n{found}");
    }
}

fn a_table_of_this_machine_is_gone_by_in_silence() {
    let file = kept(&table(here(), true));
    let output = child(Some(file.path()), None);
    assert_eq!(said(&output), [""; 0]);
    assert_found(&output, BY_TABLE);
    let table = format!("(table: {})", file.path().display());
    assert!(found(&output).contains(&table), "{}", found(&output));
}

fn without_a_table_rules_hold_in_silence() {
    for decisions in [None, Some(Path::new(""))] {
        let output = child(decisions, None);
        assert_eq!(said(&output), [""; 0]);
        assert_found(&output, BY_RULES);
    }
}

fn a_table_that_is_no_use_is_one_line_and_rules_hold() {
    let whole = table(here(), true);
    let text =
        String::from_utf8(whole.to_bytes().expect("a table can be written")).expect("JSON is text");
    let foreign = Fingerprint { cores: 4095, ..here() };
    let version = format!("\"version\": {}", FileKind::DECISION_TABLE.version);
    let files = [
        ("damaged", text[..text.len() / 2].to_owned()),
        ("older tradewind", text.replacen(&version, "\"version\": 1", 1)),
        (
            "another machine",
            String::from_utf8(table(foreign, true).to_bytes().expect("as above"))
                .expect("JSON is text"),
        ),
        ("damaged", String::new()),
    ];
    for (what, content) in files {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), content).expect("space for a table");
        let output = child(Some(file.path()), None);
        let said = said(&output);
        assert!(
            said.len() == 1 && said[0].contains(what) && said[0].contains("tradewind tune"),
            "{what}: {said:?}"
        );
        assert!(said[0].contains(&file.path().display().to_string()), "{said:?}");
        assert_found(&output, BY_RULES);
        // An explanation has the same reason as the warning, which a program may not print.
        let reason = said[0].trim_start_matches("tradewind: ");
        assert!(found(&output).contains(reason), "{}", found(&output));
    }
    let output = child(Some(Path::new("/nonexistent/table.json")), None);
    assert!(
        said(&output)[0].contains("/nonexistent/table.json: cannot be read"),
        "{:?}",
        said(&output)
    );
    assert_found(&output, BY_RULES);
}

fn a_table_with_gaps_is_gone_by_where_it_says_something() {
    let file = kept(&table(here(), false));
    let output = child(Some(file.path()), None);
    let said = said(&output);
    assert!(said.len() == 1 && said[0].contains("no row for barrier, and 9 gaps more"), "{said:?}");
    assert_found(&output, BY_TABLE);
}

fn new_decisions_are_said_once() {
    let file = kept(&table(here(), true));
    let output = child(Some(file.path()), Some(("TRADEWIND_EXPLAIN", "1")));
    let said = said(&output);
    let of_ring = |line: &&String| {
        line.contains("tradewind: allreduce of 800 bytes among 4 ranks: ring, peers engine")
    };
    assert_eq!(said.iter().filter(of_ring).count(), 1, "{said:?}");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("decision table, row for 4 ranks, 4 a node, 64 to 4095 bytes"), "{text}");
    assert_found(&output, BY_TABLE);
}

fn what_is_forced_is_said_to_be() {
    let algorithms = tradewind::Algorithms::default()
        .with(Collective::Bcast, Algorithm::Binomial)
        .expect("there is one");
    tradewind::local(2, |world| {
        let explanation = world.with_algorithms(algorithms).explain(Collective::Bcast, 100);
        assert_eq!(
            (explanation.algorithm, explanation.reason),
            (Algorithm::Binomial, Reason::Forced)
        );
        Ok(())
    })
    .expect("nothing is run");
}

/// Ranks that would decide differently, were they to decide for themselves: the first to ask
/// settles it, and all see the same bytes, whatever lies where they would look.
fn ranks_that_see_different_things_go_by_the_same() {
    use engine::Decisions;
    use engine::node::{EngineKind, JobOptions, Node};
    let bytes = table(here(), true).to_bytes().expect("a table can be written");
    let decisions = Decisions { path: "of/the/job.json".into(), content: Ok(bytes) };
    let usual = JobOptions::new(2, EngineKind::Peers);
    let options = JobOptions { decisions: Some(decisions.clone()), ..usual };
    let node = Node::create(&options).expect("space for a segment");
    let other = Node::open(node.segment().clone()).expect("it is a job's");
    assert_eq!(node.decisions().expect("they lie there"), Some(decisions.clone()));
    assert_eq!(other.decisions().expect("they lie there"), Some(decisions));
    assert!(!other.settle_decisions(false));
    assert!(!node.settle_decisions(true));
}

fn what_runs_is_explained_where_sizes_differ_and_where_results_are_folded() {
    let algorithms = tradewind::Algorithms::default()
        .with(Collective::Alltoall, Algorithm::Bruck)
        .expect("there is one");
    tradewind::local(2, |world| {
        let world = world.with_algorithms(algorithms);
        let mut got = [0u8; 2];
        let request = world.ialltoallv(&[1u8, 2], &[1, 1], &mut got, &[1, 1])?;
        let explanation = request.explain().expect("an alltoallv has algorithms");
        assert_eq!(
            (explanation.algorithm, explanation.reason),
            (Algorithm::Join, Reason::UnknownSizes)
        );
        request.wait()?;
        let mut sum = [0u64; 1];
        let request = world.ireduce_scatter(
            &[1u64; 2],
            &mut sum,
            &[1, 1],
            tradewind::fold(|left, right| *left += right),
        )?;
        assert_eq!(
            request.explain().map(|explanation| explanation.algorithm),
            Some(Algorithm::RotatedDirect)
        );
        request.wait()?;
        let mut sum = [0u64; 3];
        let request = world.ireduce_scatter_block(
            &[1u64; 6],
            &mut sum,
            tradewind::fold(|left, right| *left += right),
        )?;
        let explanation = request.explain().expect("an alltoall brings the contributions");
        let found = (explanation.operation, explanation.bytes, explanation.algorithm);
        assert_eq!(found, (Collective::Alltoall, 24, Algorithm::Bruck));
        request.wait()?;
        assert_eq!(sum, [2; 3]);
        Ok(())
    })
    .expect("it is run");
}
