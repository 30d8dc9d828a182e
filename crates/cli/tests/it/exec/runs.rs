//! Files that run.

use crate::command::text;
use crate::exec::files::{EVERYTHING, flood, ring};
use crate::exec::harness::{Folder, exec, report, tradewind};
use serde_json::json;
use std::io::Write;
use std::process::Stdio;

testing::tests![
    every_byte_arrives_with_every_engine,
    a_computation_takes_its_time_or_none,
    more_ranks_than_cores_are_normal,
    wildcards_take_every_message_once,
    binary_files_and_standard_input_run_too,
    a_file_whose_name_looks_like_an_option_is_a_file,
    ranks_without_operations_are_ranks,
];

fn every_byte_arrives_with_every_engine() {
    let folder = Folder::new();
    let path = folder.file("everything.goal", EVERYTHING);
    for engine in ["peers", "caller"] {
        for options in [
            &["--calc", "skip"][..],
            &["--calc", "spin"],
            &["--eager-bytes", "0"],
            &["--eager-bytes", "1000000"],
        ] {
            let report = report(&path, &[&["--engine", engine], options].concat());
            assert_eq!(report["verified"], true, "{engine} {options:?}");
            assert_eq!(report["engine"], engine);
            assert_eq!(report["ranks"], 5);
            assert_eq!(report["operations"], 22);
            assert_eq!(report["messages"], 9);
            assert_eq!(report["bytes"], 300_000 + 64 + 9 + 5000 + 5000 + 9 + 200_000 + 1);
            assert_eq!(
                report["nics"],
                json!([{"nic": 0, "operations": 15}, {"nic": 1, "operations": 3}])
            );
            assert_eq!(report["file"], path.to_str().expect("readable"));
        }
    }
}

fn a_computation_takes_its_time_or_none() {
    let folder = Folder::new();
    let path = folder
        .file("calc.goal", "num_ranks 2\nrank 0 {\ncalc 3000000\ncalc 2000000\n}\nrank 1 {\n}\n");
    let seconds = |options: &[&str]| report(&path, options)["seconds"].as_f64().expect("a number");
    // One cpu does one thing at a time.
    assert!(seconds(&[]) >= 0.005);
    let skipped = report(&path, &["--calc", "skip"]);
    assert_eq!((&skipped["calc"], &skipped["verified"]), (&json!("skip"), &json!(true)));
}

fn more_ranks_than_cores_are_normal() {
    let folder = Folder::new();
    let path = folder.file("ring.goal", ring(24, 4, 6000));
    let report = report(&path, &[]);
    assert_eq!((&report["verified"], &report["messages"]), (&json!(true), &json!(96)));
}

/// Messages that begin alike, of which each receive may take any.
fn wildcards_take_every_message_once() {
    let folder = Folder::new();
    for (messages, bytes) in [(150, 1), (100, 40), (4, 50_000)] {
        let path = folder.file("flood.goal", flood(4, messages, bytes));
        for engine in ["peers", "caller"] {
            let report = report(&path, &["--engine", engine]);
            assert_eq!(
                (&report["verified"], &report["messages"]),
                (&json!(true), &json!(3 * messages))
            );
        }
    }
}

fn binary_files_and_standard_input_run_too() {
    let folder = Folder::new();
    let (source, binary) =
        (folder.file("everything.goal", EVERYTHING), folder.path("everything.bin"));
    let converted = tradewind()
        .args(["exec", "convert"])
        .args([&source, &binary])
        .output()
        .expect("cargo has built the command");
    assert!(converted.status.success(), "{converted:?}");
    assert_eq!(report(&binary, &["--calc", "skip"])["operations"], 22);

    let mut child = tradewind()
        .args(["exec", "-", "--calc", "skip"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("cargo has built the command");
    child
        .stdin
        .take()
        .expect("it was asked for")
        .write_all(EVERYTHING.as_bytes())
        .expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stdout).contains("every byte"), "{output:?}");
}

fn a_file_whose_name_looks_like_an_option_is_a_file() {
    let folder = Folder::new();
    folder.file("--help", "num_ranks 1\nrank 0 {\ncalc 1\n}\n");
    let mut command = tradewind();
    command.current_dir(folder.path("")).args(["exec", "--format", "json", "--", "--help"]);
    let output = command.output().expect("cargo has built the command");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stdout).contains("\"operations\": 1"), "{output:?}");
}

fn ranks_without_operations_are_ranks() {
    let folder = Folder::new();
    let output = exec(
        &folder.file("empty.goal", "num_ranks 3\nrank 0 {\n}\nrank 1 {\n}\nrank 2 {\n}\n"),
        &[],
    );
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}
