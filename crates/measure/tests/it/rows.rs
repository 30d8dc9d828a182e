//! The file of rows: what is written is read again, and damage costs the step that it hits and
//! nothing else.

use measure::rows::{
    Cores, Exchange, FILE, Load, Measurements, Pairs, Pattern, Quantity, Row, RowsError, RunFile,
    What,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

testing::tests![
    rows_are_read_as_they_were_written,
    a_file_that_is_cut_off_anywhere_keeps_its_whole_steps,
    any_bytes_are_an_error_or_rows_that_can_be,
    an_impossible_row_is_named_with_its_line_and_costs_its_step,
    a_damaged_line_of_a_step_costs_that_step,
    a_damaged_line_of_a_run_costs_that_run,
    a_new_run_without_a_whole_step_replaces_none,
    a_run_goes_on_behind_a_cut,
    a_new_run_replaces_the_earlier_one_with_its_first_step,
    runs_that_are_open_at_the_same_time_keep_their_rows_apart,
    another_version_is_refused_and_left_alone,
    another_setting_is_refused_with_the_differences,
];

const STEPS: u64 = 4;

fn setting(effort: &str) -> BTreeMap<String, String> {
    [("effort".to_owned(), effort.to_owned())].into()
}

fn row(time: f64) -> Row {
    let times = vec![time, 2.0 * time];
    let row = Row::new("trial", What::Computation, Quantity::Alone, 2, times);
    Row { bytes: 8, machine: "a machine, 2 cores".to_owned(), ..row }
}

fn open(directory: &Path, again: bool) -> RunFile {
    RunFile::open(directory, "trial", setting("full"), STEPS, again).expect("it can be opened")
}

/// A directory with a whole run, of which step n has n + 1 rows.
fn whole_run() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let mut file = open(directory.path(), false);
    for step in 0..STEPS {
        let rows = (0..=step).map(|number| row((10 * step + number + 1) as f64)).collect();
        let notes = if step == 2 { vec!["noted".to_owned()] } else { Vec::new() };
        file.add(step, rows, notes).expect("there is space");
    }
    directory
}

fn read(directory: &Path) -> Measurements {
    Measurements::read(directory).expect("it is a file of rows")
}

fn rows_are_read_as_they_were_written() {
    let directory = whole_run();
    let there = read(directory.path());
    assert!(there.problems.is_empty(), "{:?}", there.problems);
    let run = there.run("trial").expect("it is there");
    assert_eq!((run.done(), run.is_complete(), run.rows().count()), (STEPS, true, 10));
    assert_eq!((run.notes(), &run.setting), (vec!["noted".to_owned()], &setting("full")));
    assert_eq!(run, open(directory.path(), false).run());
    proptest!(|(times in prop::collection::vec(0.0..1e9_f64, 1..9), load in 0.0..=1.0_f64)| {
        let load = Some(Load { others: load, stolen: 1.0 - load });
        let pairs = Pairs::Matching(vec![1, 0]);
        let what = What::Exchange(Exchange::posted(pairs, Pattern::AtOnce));
        let cores = Some(Cores::Bound(vec![0, 3]));
        let one = Row { what, times, load, cores, processor: Some(-0.5), ..row(1.0) };
        prop_assert_eq!(one.check(), Ok(()));
        let text = serde_json::to_string(&one).expect("numbers and names");
        prop_assert_eq!(serde_json::from_str::<Row>(&text).expect("a row"), one);
    });
}

fn a_file_that_is_cut_off_anywhere_keeps_its_whole_steps() {
    let directory = whole_run();
    let path = directory.path().join(FILE);
    let bytes = fs::read(&path).expect("it is there");
    let first_line = bytes.iter().position(|byte| *byte == b'\n').expect("lines") + 1;
    for end in first_line..bytes.len() {
        let cut = Measurements::of_bytes(&path, &bytes[..end]).expect("the first line is whole");
        let is_at_end_of_line = bytes[end - 1] == b'\n';
        assert_eq!(cut.problems.len(), usize::from(!is_at_end_of_line), "at {end}");
        let lines = bytes[..end].iter().filter(|byte| **byte == b'\n').count();
        for problem in &cut.problems {
            let words = problem.to_string();
            let place = format!("{FILE}:{}: is cut off", lines + 1);
            assert!(words.contains(&place) && words.lines().count() == 1, "{words}");
        }
        let Some(run) = cut.run("trial") else { continue };
        let whole = bytes[..end].split(|byte| *byte == b'\n').rev().skip(1);
        let closed = whole.filter(|line| line.starts_with(b"{\"step\"")).count();
        assert_eq!(run.done(), closed as u64, "at {end}");
    }
}

fn any_bytes_are_an_error_or_rows_that_can_be() {
    let directory = whole_run();
    let path = directory.path().join(FILE);
    let bytes = fs::read(&path).expect("it is there");
    proptest!(|(noise in prop::collection::vec(any::<u8>(), 0..200))| {
        let _ = Measurements::of_bytes(&path, &noise);
    });
    let length = bytes.len();
    proptest!(|(changes in prop::collection::vec((0..length, any::<u8>()), 1..4))| {
        let mut damaged = bytes.clone();
        changes.iter().for_each(|(at, byte)| damaged[*at] = *byte);
        let Ok(there) = Measurements::of_bytes(&path, &damaged) else { return Ok(()) };
        for run in &there.runs {
            prop_assert!(run.done() <= run.steps && run.rows().all(|row| row.check().is_ok()));
        }
        // What is damaged is named, or was a change of a value to another one that can be.
        let kept: usize = there.runs.iter().map(|run| run.rows().count()).sum();
        prop_assert!(kept <= 10 && there.problems.iter().all(|problem| problem.kept == kept));
    });
}

/// The subject of a row between these pairs.
fn exchange(pairs: serde_json::Value) -> serde_json::Value {
    serde_json::json!({
        "exchange": {"pairs": pairs, "pattern": "round-trip", "receive": "posted"}
    })
}

fn an_impossible_row_is_named_with_its_line_and_costs_its_step() {
    for (field, value, expected) in [
        ("times", serde_json::json!([1.0, -3.0]), "`times` has -3"),
        ("times", serde_json::json!([]), "`times` is empty"),
        ("times", serde_json::json!([null]), "is damaged"),
        ("ranks", serde_json::json!(0), "0 ranks on 1 nodes"),
        ("nodes", serde_json::json!(3), "2 ranks on 3 nodes"),
        ("ranks_per_node", serde_json::json!(3), "3 of them on the first"),
        ("calls", serde_json::json!(0), "`calls` is 0"),
        ("unattended", serde_json::json!(1.5), "1.5 is no share"),
        ("load", serde_json::json!({"others": -0.1, "stolen": 0.0}), "-0.1 is no share"),
        ("experiment", serde_json::json!(""), "`experiment` is empty"),
        ("algorithm", serde_json::json!("no such one"), "is damaged"),
        ("chosen_by", serde_json::json!(["table"]), "`chosen_by` is there without"),
        ("surplus", serde_json::json!(1), "is damaged"),
        ("node_of_rank", serde_json::json!([0]), "2 ranks have a node each"),
        ("cores", serde_json::json!({"bound": [3]}), "2 ranks are bound to one each"),
        ("cores", serde_json::json!({"shared": 0}), "`cores` are 0"),
        ("what", exchange(serde_json::json!({"matching": [1]})), "`matching` is [1]"),
        ("what", exchange(serde_json::json!({"matching": [1, 2]})), "`matching` is [1, 2]"),
        ("what", exchange(serde_json::json!("circle")), "is damaged"),
    ] {
        let directory = whole_run();
        let path = directory.path().join(FILE);
        let text = fs::read_to_string(&path).expect("it is there");
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        // The first row of the second step: behind two heads, a row and its step.
        let mut line: serde_json::Value = serde_json::from_str(&lines[4]).expect("a row");
        line["row"][field] = value;
        lines[4] = line.to_string();
        fs::write(&path, lines.join("\n") + "\n").expect("there is space");
        let there = read(directory.path());
        let words: Vec<String> = there.problems.iter().map(ToString::to_string).collect();
        let [words] = words.as_slice() else { panic!("{field}: {words:?}") };
        assert!(words.contains(&format!("{FILE}:5: ")) && words.contains(expected), "{words}");
        assert!(words.contains("the other 9 rows of the file are kept"), "{words}");
        let run = there.run("trial").expect("it is there");
        assert_eq!((run.done(), run.first_missing()), (STEPS - 1, Some(1)), "{field}");
        // The step is measured again.
        let mut file = open(directory.path(), false);
        file.add(1, vec![row(7.0)], Vec::new()).expect("there is space");
        let run = read(directory.path()).run("trial").cloned().expect("it is there");
        assert!(run.is_complete() && run.rows().count() == 9, "{field}");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let error = open(directory.path(), false).add(0, vec![row(-1.0)], Vec::new());
    assert!(matches!(error, Err(RowsError::Impossible(_))), "{error:?}");
    assert!(!directory.path().join(FILE).exists(), "nothing of it is kept");
}

/// Damages the line that begins so, the one of this number among such.
fn damage(directory: &Path, begin: &str, number: usize) {
    let path = directory.join(FILE);
    let text = fs::read_to_string(&path).expect("it is there");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let mut such = lines.iter_mut().filter(|line| line.starts_with(begin));
    let line = such.nth(number).expect("such a line");
    line.truncate(line.len() - 3);
    fs::write(&path, lines.join("\n") + "\n").expect("there is space");
}

fn a_damaged_line_of_a_step_costs_that_step() {
    let directory = whole_run();
    damage(directory.path(), "{\"step\"", 1);
    let there = read(directory.path());
    assert_eq!(there.problems.len(), 1, "{:?}", there.problems);
    let run = there.run("trial").expect("it is there");
    let rows_of_third = run.found.get(&2).map(|step| (step.whole, step.rows.len()));
    assert_eq!((run.done(), run.first_missing(), rows_of_third), (3, Some(1), Some((true, 3))));
}

fn a_damaged_line_of_a_run_costs_that_run() {
    let directory = whole_run();
    let before = read(directory.path()).runs;
    let mut again = open(directory.path(), true);
    (0..2).for_each(|step| again.add(step, vec![row(9.0)], Vec::new()).expect("there is space"));
    damage(directory.path(), "{\"run\"", 1);
    let there = read(directory.path());
    assert_eq!(there.runs, before, "the steps of the damaged run are none of the earlier one");
    let problems: Vec<String> = there.problems.iter().map(ToString::to_string).collect();
    assert_eq!(problems.len(), 3, "{problems:?}");
    assert!(problems[1..].iter().all(|words| words.contains("is a step of no run")));
    // Its number is not given again.
    open(directory.path(), true).add(0, vec![row(4.0)], Vec::new()).expect("there is space");
    assert_eq!(read(directory.path()).run("trial").map(|run| run.done()), Some(1));
}

fn a_new_run_without_a_whole_step_replaces_none() {
    let directory = whole_run();
    open(directory.path(), true).add(0, vec![row(9.0)], Vec::new()).expect("there is space");
    damage(directory.path(), "{\"row\"", 10);
    let there = read(directory.path());
    assert!(there.run("trial").expect("it is there").is_complete());
}

fn a_run_goes_on_behind_a_cut() {
    let directory = whole_run();
    let path = directory.path().join(FILE);
    let text = fs::read_to_string(&path).expect("it is there");
    // In the middle of the second row of step 1.
    let end = text.match_indices('\n').nth(4).expect("a row").0 + 30;
    fs::write(&path, &text[..end]).expect("there is space");
    let mut file = open(directory.path(), false);
    assert_eq!((file.run().done(), file.problems().len()), (1, 1));
    for step in 1..STEPS {
        file.add(step, vec![row(100.0)], Vec::new()).expect("there is space");
    }
    let there = read(directory.path());
    assert!(there.problems.is_empty(), "the cut line is gone: {:?}", there.problems);
    let run = there.run("trial").expect("it is there");
    assert!(run.is_complete());
    let first: Vec<f64> = run.rows().map(|row| row.times[0]).collect();
    assert_eq!(first, [1.0, 100.0, 100.0, 100.0], "a step that was cut off counts once");
}

fn a_new_run_replaces_the_earlier_one_with_its_first_step() {
    let directory = whole_run();
    let mut file = open(directory.path(), true);
    assert_eq!(read(directory.path()).run("trial").map(|run| run.done()), Some(STEPS));
    file.add(0, vec![row(5.0)], Vec::new()).expect("there is space");
    let there = read(directory.path());
    assert_eq!(there.run("trial").map(|run| (run.done(), run.rows().count())), Some((1, 1)));
}

fn runs_that_are_open_at_the_same_time_keep_their_rows_apart() {
    let directory = tempfile::tempdir().expect("a directory");
    let names = ["first", "second"];
    let opened = names.map(|name| RunFile::open(directory.path(), name, setting("full"), 2, false));
    let mut files = opened.map(|file| file.expect("it can be opened"));
    for step in 0..2 {
        for (file, time) in files.iter_mut().zip([1.0, 2.0]) {
            file.add(step, vec![row(time)], Vec::new()).expect("there is space");
        }
    }
    let there = read(directory.path());
    assert!(there.problems.is_empty(), "{:?}", there.problems);
    for (name, time) in names.into_iter().zip([1.0, 2.0]) {
        let run = there.run(name).expect("it is there");
        assert!(run.is_complete() && run.rows().all(|one| *one == row(time)), "{name}");
    }
}

fn another_version_is_refused_and_left_alone() {
    for (line, expected) in [
        (r#"{"format":{"name":"tradewind measurements","version":9}}"#, "version 9"),
        (r#"{"format":{"name":"another","version":1}}"#, "\"another\" file"),
        (r#"{"step":{"run":1,"number":0,"rows":0}}"#, "no `format`"),
        ("not JSON", "no file of measurements"),
    ] {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(FILE);
        let mut file =
            OpenOptions::new().create(true).append(true).open(&path).expect("a new file");
        writeln!(file, "{line}").expect("there is space");
        let error = Measurements::read(directory.path()).expect_err("it is refused").to_string();
        let place = format!("{FILE}:1: ");
        assert!(error.contains(&place) && error.contains(expected), "{error}");
        let opened = RunFile::open(directory.path(), "trial", setting("full"), STEPS, true);
        assert!(opened.is_err(), "nothing is added to it");
        assert_eq!(fs::read_to_string(&path).expect("it is there").trim_end(), line);
    }
}

fn another_setting_is_refused_with_the_differences() {
    let directory = whole_run();
    let open = |setting, steps| RunFile::open(directory.path(), "trial", setting, steps, false);
    let error = open(setting("quick"), STEPS).expect_err("another effort").to_string();
    assert!(error.contains("effort full there, quick now") && error.contains("--again"), "{error}");
    let error = open(setting("full"), STEPS + 1).expect_err("more steps").to_string();
    assert!(error.contains("4 steps there, 5 now"), "{error}");
}
