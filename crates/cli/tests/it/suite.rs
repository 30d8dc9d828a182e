//! `tradewind measure EXPERIMENT` on real processes: what is kept, what a signal leaves, what the
//! next run makes of it. Never how long anything takes.

use crate::command::text;
use measure::experiments::queues::QueueRow;
use measure::results::Part;
use measure::rows::{FILE, Measurements};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

testing::tests![
    a_part_is_kept_with_its_tables_and_not_measured_twice,
    programs_read_the_parts,
    what_is_cut_off_is_kept_and_gone_on_with,
    a_part_that_is_there_in_part_is_completed,
    rows_that_are_damaged_or_cut_off_are_measured_again,
    what_was_measured_otherwise_is_left_alone,
    ranks_of_a_job_do_not_measure_by_themselves,
    what_cannot_be_read_or_written_is_named,
    what_cannot_be_kept_any_more_ends_the_measurement,
    one_core_is_enough_for_what_it_is_enough_for,
    queues_keep_their_rows_and_show_them_as_before,
    everything_is_made_one_after_the_other,
    tuning_names_the_table_and_no_file_that_is_gone,
];

fn command(out: &Path, arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tradewind"));
    command.arg("measure").args(arguments.split_whitespace()).arg("--out").arg(out);
    command
}

fn tradewind(out: &Path, arguments: &str) -> Output {
    command(out, arguments).output().expect("the command can be started")
}

fn place() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

/// The part of this name.
fn part(out: &Path, name: &str) -> Part {
    let all = Measurements::read(out).expect("rows are whole");
    let part = measure::experiments::parts(&all).into_iter().find(|part| part.name == name);
    part.unwrap_or_else(|| panic!("there is no {name}"))
}

fn a_part_is_kept_with_its_tables_and_not_measured_twice() {
    let place = place();
    let output = tradewind(place.path(), "barrier --quick");
    let (said, shown) = (text(&output.stderr), text(&output.stdout));
    assert!(output.status.success(), "{said}");
    assert!(shown.contains("Barrier on 2^d ranks") && shown.contains(FILE), "{shown}");
    let measured = part(place.path(), "barrier");
    assert!(measured.complete && measured.setting["effort"] == "quick");
    for file in ["barrier-time.csv", "barrier-fits.csv", "summary-table-1.csv"] {
        assert!(place.path().join(file).is_file(), "{file}");
    }
    let mut report = Command::new(env!("CARGO_BIN_EXE_tradewind"));
    let drawn =
        report.arg("report").arg(place.path()).output().expect("the command can be started");
    // The summary would be of more experiments, none of which was interrupted.
    assert!(text(&drawn.stdout).ends_with("report.html: 2 parts\n"), "{}", text(&drawn.stdout));
    let again = tradewind(place.path(), "barrier --quick");
    assert!(
        again.status.success() && text(&again.stderr).contains("is complete"),
        "{}",
        text(&again.stderr)
    );
    assert_eq!(part(place.path(), "barrier"), measured, "nothing was measured");
    let anew = tradewind(place.path(), "barrier --quick --again");
    assert!(anew.status.success(), "{}", text(&anew.stderr));
    assert_ne!(part(place.path(), "barrier"), measured, "clocks never give the same times twice");
}

fn programs_read_the_parts() {
    let place = place();
    let output = tradewind(place.path(), "contention --quick --format json");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let parts: Vec<Part> = serde_json::from_slice(&output.stdout).expect("parts and nothing else");
    assert_eq!(parts, [part(place.path(), "contention")]);
}

/// A signal while ranks measure: it is sent when a step more is on the disk than before. Returns
/// the exit status and what was said.
fn interrupt(out: &Path, signal: Signal) -> (i32, String) {
    let kept = out.join(FILE);
    let before = fs::read(&kept).ok();
    // Matchings are many steps in one job.
    let mut child = command(out, "matchings")
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("it can be started");
    while fs::read(&kept).ok() == before {
        assert!(
            child.try_wait().expect("it is ours").is_none(),
            "it ended before anything was kept"
        );
        std::thread::yield_now();
    }
    let pid = Pid::from_raw(child.id().cast_signed()).expect("a process");
    kill_process(pid, signal).expect("it still measures");
    let output = child.wait_with_output().expect("it is ours");
    let said = text(&output.stderr);
    (output.status.code().unwrap_or_else(|| panic!("it was killed: {said}")), said)
}

fn what_is_cut_off_is_kept_and_gone_on_with() {
    let place = place();
    let mut done = 0;
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let (status, said) = interrupt(place.path(), signal);
        assert_eq!(status, code, "{said}");
        assert!(
            said.contains("interrupted") && said.contains("the same command goes on"),
            "{said}"
        );
        assert!(
            done == 0 || said.contains(&format!("goes on behind {done} of 256 steps")),
            "{said}"
        );
        let partial = part(place.path(), "matchings");
        assert!(!partial.complete && partial.steps_done > done, "{} steps", partial.steps_done);
        let kept = format!("{} of 256 steps of matchings are kept", partial.steps_done);
        assert!(said.contains(&kept), "{kept:?} is missing from {said}");
        assert_eq!(
            partial.table("matchings").map(|table| table.rows.len() as u64),
            Some(partial.steps_done)
        );
        done = partial.steps_done;
    }
}

fn a_part_that_is_there_in_part_is_completed() {
    let place = place();
    let whole = tradewind(place.path(), "matchings --quick");
    assert!(whole.status.success(), "{}", text(&whole.stderr));
    let before = part(place.path(), "matchings");
    // As an interruption after three steps leaves it: two heads, and three rows and an end for each.
    let path = place.path().join(FILE);
    let lines = fs::read_to_string(&path).expect("rows");
    let cut: String = lines.split_inclusive('\n').take(2 + 3 * 4).collect();
    fs::write(&path, cut).expect("there is space");
    let rest = tradewind(place.path(), "matchings --quick");
    assert!(rest.status.success(), "{}", text(&rest.stderr));
    assert!(text(&rest.stderr).contains("goes on behind 3 of 8 steps"), "{}", text(&rest.stderr));
    let completed = part(place.path(), "matchings");
    let rows =
        |part: &Part| part.table("matchings").map(|table| table.rows.clone()).unwrap_or_default();
    assert!(completed.complete && rows(&completed).len() == 8);
    assert_eq!(rows(&completed)[..3], rows(&before)[..3], "what was there is kept");
    let drawn = |part: &Part| rows(part).iter().map(|row| row[1].clone()).collect::<Vec<_>>();
    assert_eq!(drawn(&completed), drawn(&before), "the same matchings from every process");
}

fn rows_that_are_damaged_or_cut_off_are_measured_again() {
    let place = place();
    let path = place.path().join(FILE);
    let whole = tradewind(place.path(), "overlap --quick");
    assert!(whole.status.success(), "{}", text(&whole.stderr));
    assert!(text(&whole.stdout).contains("measurements.jsonl"), "{}", text(&whole.stdout));
    let rows = fs::read_to_string(&path).expect("rows");
    let lines: Vec<&str> = rows.lines().collect();
    assert_eq!(lines.len(), 2 + 18 * 5, "two heads, and four rows and an end for each step");
    // A time of the first step cannot be, and the last step is cut off.
    let impossible = lines[2].replacen("\"times\":[", "\"times\":[-1.0,", 1);
    let damaged = rows.replacen(lines[2], &impossible, 1);
    let last = lines[lines.len() - 1].len();
    fs::write(&path, &damaged[..damaged.len() - last - 10]).expect("there is space");
    let rest = tradewind(place.path(), "overlap --quick");
    let said = text(&rest.stderr);
    assert!(rest.status.success(), "{said}");
    for words in [
        &format!("{FILE}:3: cannot be: `times` has -1"),
        &format!("{FILE}:{}: is cut off", lines.len() - 1),
        "goes on behind 16 of 18 steps",
    ] {
        assert!(said.contains(words), "{words:?} is missing from {said}");
    }
    let completed = Measurements::read(place.path()).expect("rows");
    let run = completed.run("overlap").expect("it is there");
    assert!(run.is_complete() && run.rows().count() == 18 * 4);
    let again = tradewind(place.path(), "overlap --quick");
    assert!(text(&again.stderr).contains("is complete"), "{}", text(&again.stderr));
    fs::write(&path, "{\"format\":{\"name\":\"tradewind measurements\",\"version\":7}}\n")
        .expect("there is space");
    let refused = tradewind(place.path(), "overlap --quick");
    let said = text(&refused.stderr);
    assert_eq!((refused.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains(&format!("{FILE}:1: has version 7")), "{said}");
}

fn ranks_of_a_job_do_not_measure_by_themselves() {
    let place = place();
    let table = place.path().join("table.json");
    let table = table.to_str().expect("readable");
    let out = place.path().join("results");
    let out = out.to_str().expect("readable");
    for line in [
        ["tune", "--quick", "--out", table],
        ["measure", "progress", "--out", out],
        ["measure", "placement", "--out", out],
        ["measure", "queues", "--out", out],
    ] {
        let this = env!("CARGO_BIN_EXE_tradewind");
        let mut command = Command::new(this);
        command.args(["run", "-n", "2", "--", this]).args(line);
        let output = command.output().expect("the command can be started");
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains("without a launcher"), "{said}");
        assert!(fs::read_dir(place.path()).expect("it is there").next().is_none(), "{said}");
    }
}

fn what_was_measured_otherwise_is_left_alone() {
    let place = place();
    assert!(tradewind(place.path(), "placement --quick").status.success());
    let before = fs::read(place.path().join(FILE)).expect("it is there");
    let core = shm::process::allowed_cores()[0];
    for arguments in
        ["placement".to_owned(), format!("placement --quick --map {core}"), "all".to_owned()]
    {
        let output = tradewind(place.path(), &arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments}: {said}");
        assert!(
            said.contains("another setting") && said.contains("--again") && said.contains("--out"),
            "{said}"
        );
        assert_eq!(fs::read(place.path().join(FILE)).ok(), Some(before.clone()), "{arguments}");
    }
}

fn what_cannot_be_read_or_written_is_named() {
    let place = place();
    let path = place.path().join(FILE);
    fs::write(&path, "{\"format\": \"tradewind measure").expect("there is space");
    let output = tradewind(place.path(), "barrier --quick");
    let said = text(&output.stderr);
    assert!(
        output.status.code() == Some(1)
            && said.contains(&format!("{FILE}:1: is no file of measurements"))
            && said.contains("remove it"),
        "{said}"
    );
    assert!(
        fs::read_to_string(&path).is_ok_and(|text| text.starts_with("{\"format\"")),
        "it is left as it is"
    );
    fs::remove_file(&path).expect("it is there");

    assert!(tradewind(place.path(), "barrier --quick").status.success());
    let rows = fs::read_to_string(&path).expect("rows");
    fs::write(&path, rows + "{\n").expect("there is space");
    let output = tradewind(place.path(), "barrier --quick --again");
    assert!(output.status.success(), "damage does not interfere: {}", text(&output.stderr));
    let notes = part(place.path(), "summary").notes;
    assert!(notes.iter().any(|note| note.contains(FILE) && note.contains("damaged")), "{notes:?}");

    let file = place.path().join("a-file");
    fs::write(&file, "").expect("there is space");
    let output = tradewind(&file.join("below"), "barrier --quick");
    let said = text(&output.stderr);
    assert!(
        output.status.code() == Some(1) && said.contains("a-file/below") && said.contains("--out"),
        "{said}"
    );

    let output = tradewind(place.path(), "barrier --quick --again --map 4095");
    let said = text(&output.stderr);
    assert!(
        output.status.code() == Some(1) && said.contains("4095") && said.contains("--map"),
        "{said}"
    );
}

fn what_cannot_be_kept_any_more_ends_the_measurement() {
    // A directory in the file's place stands for a disk that is full: no figure can be written.
    let place = place();
    fs::create_dir(place.path().join("barrier-time.csv")).expect("there is space");
    let output = tradewind(place.path(), "barrier --quick --again");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("barrier-time.csv: cannot be written")
            && said.contains("choose another directory"),
        "{said}"
    );
    assert!(place.path().join("barrier-time.csv").is_dir(), "what was there is unchanged");
}

fn one_core_is_enough_for_what_it_is_enough_for() {
    let place = place();
    let core = shm::process::allowed_cores()[0];
    let notes = [("pingpong", "More ranks than cores"), ("contention", "The chain says nothing")];
    for (name, expected) in notes {
        let output = tradewind(place.path(), &format!("{name} --quick --map {core}"));
        assert!(output.status.success(), "{name}: {}", text(&output.stderr));
        let part = part(place.path(), name);
        assert!(part.notes.iter().any(|note| note.contains(expected)), "{name}: {:?}", part.notes);
    }
}

fn queues_keep_their_rows_and_show_them_as_before() {
    let place = place();
    let arguments = "queues --mechanisms wide,bulk --sizes 8,48 --threads 1 --row-ms 1";
    let output = tradewind(place.path(), arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("Medians over the rounds"), "{}", text(&output.stdout));
    let kept = part(place.path(), "queues");
    assert!(kept.complete && kept.setting["mechanisms"] == "wide,bulk");
    assert_eq!(kept.table("rows").map(|table| table.rows.len()), Some(4));
    let rows = Measurements::read(place.path()).expect("rows are whole");
    let rows = QueueRow::all(rows.run("queues").expect("it is there"));
    assert_eq!(rows.len(), 4);
    let again = tradewind(place.path(), &format!("{arguments} --format json"));
    let report: serde_json::Value = serde_json::from_slice(&again.stdout).expect("one report");
    let shown: Vec<QueueRow> = serde_json::from_value(report["rows"].clone()).expect("rows");
    assert_eq!(shown, rows, "what was kept is shown");
    let other =
        tradewind(place.path(), "queues --mechanisms wide --sizes 8 --threads 1 --row-ms 1");
    assert_eq!(other.status.code(), Some(1), "{}", text(&other.stderr));
}

fn everything_is_made_one_after_the_other() {
    let place = place();
    let output = tradewind(place.path(), "all --quick");
    assert!(output.status.success(), "{}", text(&output.stderr));
    for name in measure::experiments::EXPERIMENTS.iter().map(|entry| entry.name()) {
        assert!(part(place.path(), name).complete, "{name}");
    }
    assert!(part(place.path(), "summary").tables.iter().all(|table| !table.rows.is_empty()));
}

fn tuning_names_the_table_and_no_file_that_is_gone() {
    let place = place();
    let table = place.path().join("table.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tradewind"));
    let output = command.args(["tune", "--quick", "--ranks", "2", "--out"]).arg(&table).output();
    let output = output.expect("the command can be started");
    let (shown, said) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && table.is_file(), "{said}");
    assert!(said.contains("table.json"), "{said}");
    assert!(!shown.contains(".csv") && !shown.contains("decisions.json"), "{shown}");
}
