//! `tradewind report` on directories of results: what is written, and what is said of files that
//! cannot be read.

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
    a_damaged_part_is_named_and_the_others_are_drawn,
    damaged_results_alone_make_no_page,
    how_far_two_machines_lie_apart_is_said,
];

const PART: &str = r#"{"format": "tradewind measurement", "version": 2, "content": {
    "name": "barrier", "title": "Barrier & <more>", "complete": true, "figures": [{
        "name": "f", "title": "Time", "x": {"label": "ranks", "unit": "", "scale": "linear"},
        "y": {"label": "time", "unit": "µs", "scale": "linear"},
        "series": [{"name": "</script>", "role": "measured", "points": [{"x": 2, "median": 0.5}, {"x": 4, "median": null}]}]
    }]
}}"#;

fn tradewind(arguments: &[&str], directory: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tradewind"));
    command.args(arguments).current_dir(directory).output().expect("the command can be started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A place with two directories of results.
fn place() -> tempfile::TempDir {
    let place = tempfile::tempdir().expect("a directory");
    for name in ["here", "there"] {
        fs::create_dir(place.path().join(name)).expect("a directory");
        fs::write(place.path().join(name).join("barrier.json"), PART).expect("a file");
    }
    place
}

fn the_page_lies_in_the_directory() {
    let place = place();
    let output = tradewind(&["report", "here"], place.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "here/report.html: 1 part\n");
    let page = fs::read_to_string(place.path().join("here/report.html")).expect("the page");
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("Barrier &amp; &lt;more&gt;"));
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

fn a_damaged_part_is_named_and_the_others_are_drawn() {
    let place = place();
    fs::write(place.path().join("here/memory.json"), &PART[..100]).expect("a file");
    fs::write(
        place.path().join("here/machine.json"),
        r#"{"format": "tradewind machine", "version": 1}"#,
    )
    .expect("a file");
    fs::write(
        place.path().join("here/other.json"),
        r#"{"format": "tradewind decision table", "version": 2}"#,
    )
    .expect("a file");
    let output = tradewind(&["report", "here"], place.path());
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.contains("memory.json:")
            && said.contains("machine.json: has version 1")
            && !said.contains("other.json"),
        "{said}"
    );
    let page = fs::read_to_string(place.path().join("here/report.html")).expect("the page");
    assert!(page.contains("Could not be read") && page.contains("Barrier &amp; &lt;more&gt;"));
}

fn damaged_results_alone_make_no_page() {
    let place = place();
    for name in ["machine.json", "barrier.json"] {
        let directory = place.path().join(format!("with-{name}"));
        fs::create_dir(&directory).expect("a directory");
        fs::write(directory.join(name), &PART[..100]).expect("a file");
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
