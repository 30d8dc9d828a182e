//! `tradewind report` on directories of results: what is written, and what is said of files that
//! cannot be read.

use crate::command::text;
use measure::rows::FILE;
use models::machine::Fingerprint;
use models::machine::PairClass;
use models::machine_file::{Engine, Machine};
use models::parameters::Parameters;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

testing::tests![
    the_page_lies_in_the_directory,
    two_directories_are_drawn_over_each_other,
    damaged_lines_are_named_and_the_others_are_drawn,
    damaged_results_alone_make_no_page,
    how_far_two_machines_lie_apart_is_said,
];

const ROWS: &str = r#"{"format":{"name":"tradewind measurements","version":1}}
{"run":{"id":1,"name":"barrier","setting":{},"steps":1}}
{"row":{"experiment":"barrier","what":{"collective":"barrier"},"quantity":"alone","algorithm":"join","ranks":2,"nodes":1,"ranks_per_node":2,"bytes":0,"machine":"a machine","times":[0.5]}}
{"row":{"experiment":"barrier","what":{"collective":"barrier"},"quantity":"alone","algorithm":"join","ranks":4,"nodes":1,"ranks_per_node":4,"bytes":0,"machine":"a machine","times":[0.75]}}
{"step":{"run":1,"number":0,"rows":2,"notes":["Barrier & </script>"]}}
"#;

fn tradewind(arguments: &[&str], directory: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tradewind"));
    command.args(arguments).current_dir(directory).output().expect("the command can be started")
}

/// A place with two directories of results.
fn place() -> tempfile::TempDir {
    let place = tempfile::tempdir().expect("a directory");
    for name in ["here", "there"] {
        fs::create_dir(place.path().join(name)).expect("a directory");
        fs::write(place.path().join(name).join(FILE), ROWS).expect("a file");
    }
    place
}

fn the_page_lies_in_the_directory() {
    let place = place();
    let output = tradewind(&["report", "here"], place.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "here/report.html: 2 parts\n");
    let page = fs::read_to_string(place.path().join("here/report.html")).expect("the page");
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("Barrier &amp; &lt;/script&gt;"));
    // The one address is the name of a kind of element.
    assert!(
        !page.replace("http://www.w3.org/2000/svg", "").contains("http"),
        "nothing is asked of the network"
    );
}

fn two_directories_are_drawn_over_each_other() {
    let place = place();
    let output = tradewind(&["report", "here", "--compare", "there", "--out", "-"], place.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let page = text(&output.stdout);
    assert!(
        page.contains("here over there") && page.contains("curve measured hue-1 other"),
        "{page}"
    );
}

fn damaged_lines_are_named_and_the_others_are_drawn() {
    let place = place();
    let damaged = format!("{ROWS}{{\"row\":7}}\n");
    fs::write(place.path().join("here").join(FILE), damaged).expect("a file");
    fs::write(
        place.path().join("here/machine.json"),
        r#"{"format": "tradewind machine", "version": 1}"#,
    )
    .expect("a file");
    let output = tradewind(&["report", "here"], place.path());
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.contains("measurements.jsonl:6: ") && said.contains("machine.json: has version 1"),
        "{said}"
    );
    let page = fs::read_to_string(place.path().join("here/report.html")).expect("the page");
    assert!(page.contains("Could not be read") && page.contains("Barrier &amp; &lt;/script&gt;"));
}

fn damaged_results_alone_make_no_page() {
    let place = place();
    for name in ["machine.json", FILE] {
        let directory = place.path().join(format!("with-{name}"));
        fs::create_dir(&directory).expect("a directory");
        fs::write(directory.join(name), &ROWS[..40]).expect("a file");
        let directory = directory.to_str().expect("readable");
        let output = tradewind(&["report", directory], place.path());
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        assert!(said.contains(name), "{said}");
        assert!(!Path::new(directory).join("report.html").exists(), "{said}");
    }
}

fn how_far_two_machines_lie_apart_is_said() {
    let place = place();
    for (name, gap) in [("here", 1.0), ("there", 3.0)] {
        let mut machine = Machine::new(Fingerprint::default());
        let network = Parameters::linear(1.0, (0.2, 0.0), (0.2, 0.0), (gap, 0.0)).expect("times");
        machine.engine_mut(Engine::Caller).classes.insert(PairClass::SameSocket, network);
        machine.write(&place.path().join(name).join("machine.json")).expect("a file");
    }
    let output = tradewind(&["report", "here", "--compare", "there"], place.path());
    let said = text(&output.stdout);
    assert!(said.contains("apart in the median of 7 values"), "{said}{}", text(&output.stderr));
    assert!(said.contains("L 0.0 %, g 100.0 %, or 0.0 %, os 0.0 %"), "{said}");
}
