//! `tradewind exec check` and `tradewind exec convert`, from outside.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

testing::tests![
    a_good_file_has_nothing_wrong,
    every_problem_is_named_with_its_line,
    check_decides_as_exec_whether_operations_wait_for_each_other,
    check_says_when_no_eager_limit_helps,
    malformed_files_are_problems_and_missing_files_are_failures,
    a_file_can_come_from_standard_input,
    text_becomes_binary_and_text_again,
    what_cannot_be_converted_leaves_the_output_alone,
    a_file_is_not_converted_in_place,
    a_full_disk_is_reported,
    a_link_stays_a_link_and_rights_stay_as_they_were,
    unread_output_is_a_failure_and_no_panic,
];

const GOOD: &str = "num_ranks 2\nrank 0 {\na: send 8b to 1 tag 7\nb: calc 100\nb requires a\n}\nrank 1 {\nrecv 8b from 0 tag 7\n}\n";
/// A message without a receive, a receive without a message, and operations that wait for each
/// other.
const BAD: &str = "num_ranks 2\nrank 0 {\nsend 8b to 1\na: calc 1\nb: calc 2\na requires b\nb requires a\n}\nrank 1 {\nrecv 8b from 0 tag 3\n}\n";

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Folder(tempfile::tempdir().expect("a directory for temporary files"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).expect("a file of our own");
        path
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).expect("our own directory");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

fn tradewind(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tradewind"));
    command.args(arguments).stdin(Stdio::null()).output().expect("cargo has built the command")
}

fn on(command: &str, paths: &[&Path], options: &[&str]) -> Output {
    let paths: Vec<&str> = paths.iter().map(|path| path.to_str().expect("readable")).collect();
    tradewind(&[&["exec", command], &paths[..], options].concat())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn a_good_file_has_nothing_wrong() {
    let folder = Folder::new();
    let output = on("check", &[&folder.file("good.goal", GOOD)], &[]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(
        text(&output.stdout)
            .ends_with("3 operations on 2 ranks, nothing wrong with every eager limit\n"),
        "{output:?}"
    );
}

fn every_problem_is_named_with_its_line() {
    let folder = Folder::new();
    let path = folder.file("bad.goal", BAD);
    let output = on("check", &[&path], &[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let lines = text(&output.stdout);
    for part in ["line 3", "line 10", "wait for each other"] {
        assert!(lines.contains(part), "{part} in {lines}");
    }
    assert!(
        lines.lines().all(|line| line.starts_with(path.to_str().expect("readable"))),
        "{lines}"
    );
    let report = json(&on("check", &[&path], &["--format", "json"]));
    assert_eq!(report["ranks"], 2);
    assert_eq!(report["operations"], 4);
    assert_eq!(report["problems"].as_array().expect("a list").len(), lines.lines().count());
}

/// A file in which both ranks execute the first operation before the second one, with this many
/// bytes.
fn crossed(first: &str, second: &str, bytes: u64) -> String {
    let operation = |name: &str, other: u32| match name {
        "send" => format!("send {bytes}b to {other}"),
        _ => format!("recv {bytes}b from {other}"),
    };
    let rank = |rank: u32| {
        let (first, second) = (operation(first, 1 - rank), operation(second, 1 - rank));
        format!("rank {rank} {{\na: {first}\nb: {second}\nb requires a\n}}\n")
    };
    format!("num_ranks 2\n{}{}", rank(0), rank(1))
}

/// The limit is that of a run: the option, the variable, or 4096 bytes.
fn check_decides_as_exec_whether_operations_wait_for_each_other() {
    let folder = Folder::new();
    let path = folder.file("exchange.goal", crossed("send", "recv", 5000));
    let cases = [(None, None, false), (Some("4999"), None, false), (Some("5000"), None, true)];
    for (option, variable, runs) in cases.into_iter().chain([(None, Some("5000"), true)]) {
        for command in [&["exec", "check"][..], &["exec"]] {
            let mut job = Command::new(env!("CARGO_BIN_EXE_tradewind"));
            job.args(command).arg(&path).env_remove("TRADEWIND_EAGER_BYTES");
            option.map(|bytes| job.args(["--eager-bytes", bytes]));
            variable.map(|bytes| job.env("TRADEWIND_EAGER_BYTES", bytes));
            let output = job.output().expect("cargo has built the command");
            assert_eq!(output.status.success(), runs, "{command:?} {option:?}: {output:?}");
            let way_out = "set the eager limit to 5000 bytes or more";
            let said = text(&output.stdout) + &text(&output.stderr);
            assert_eq!(said.contains(way_out), !runs, "{command:?} {option:?}: {said}");
        }
    }
    let output = on("check", &[&path], &["--eager-bytes", "5000"]);
    assert!(text(&output.stdout).contains("with eager limits from 5000 bytes on"), "{output:?}");
    let report = json(&on("check", &[&path], &["--format", "json"]));
    assert_eq!(report["least_eager_bytes"], 5000, "{report}");
}

fn check_says_when_no_eager_limit_helps() {
    let folder = Folder::new();
    let path = folder.file("answers.goal", crossed("recv", "send", 8));
    for limit in ["0", "18446744073709551615"] {
        let output = on("check", &[&path], &["--eager-bytes", limit]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = text(&output.stdout);
        for part in ["with every eager limit", "rank 0", "rank 1", "line 4"] {
            assert!(said.contains(part), "{part} in {said}");
        }
    }
    let report = json(&on("check", &[&path], &["--format", "json"]));
    assert!(report["least_eager_bytes"].is_null(), "{report}");
}

fn malformed_files_are_problems_and_missing_files_are_failures() {
    let folder = Folder::new();
    let output =
        on("check", &[&folder.file("wrong.goal", "num_ranks 1\nrank 0 {\nsend 8 to 0\n}\n")], &[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stdout).contains("line 3, column 8"), "{output:?}");
    let cut = folder.file("cut.bin", [&4223u64.to_le_bytes()[..], &[1, 0]].concat());
    let output = on("check", &[&cut], &["--format", "json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        json(&output)["problems"][0].as_str().expect("words").contains("cut off"),
        "{output:?}"
    );
    let output = on("check", &[&folder.path("missing.goal")], &[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).starts_with("tradewind: cannot read "), "{output:?}");
}

fn a_file_can_come_from_standard_input() {
    let folder = Folder::new();
    let file = std::fs::File::open(folder.file("good.goal", GOOD)).expect("it is there");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tradewind"));
    let output = command
        .args(["exec", "check", "-"])
        .stdin(file)
        .output()
        .expect("cargo has built the command");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

fn text_becomes_binary_and_text_again() {
    let folder = Folder::new();
    let first = folder.file("first.goal", GOOD);
    let (binary, second, third) =
        (folder.path("a.bin"), folder.path("b.goal"), folder.path("c.unknown"));
    for (from, to) in [(&first, &binary), (&binary, &second), (&second, &third)] {
        let output = on("convert", &[from, to], &[]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
    let read = |path: &Path| std::fs::read(path).expect("it was written");
    assert_eq!(read(&binary)[..8], 4223u64.to_le_bytes());
    assert_eq!(read(&binary), read(&third), "text becomes binary where the name says nothing");
    assert!(text(&read(&second)).starts_with("num_ranks 2\n"));
    let report = json(&on("convert", &[&first, &binary], &["--format", "json"]));
    assert_eq!(
        (&report["from"], &report["to"], &report["operations"]),
        (&"text".into(), &"binary".into(), &3.into())
    );
    assert_eq!(report["bytes"], read(&binary).len());
    assert_eq!(
        folder.names(),
        ["a.bin", "b.goal", "c.unknown", "first.goal"],
        "nothing else is left"
    );
}

fn what_cannot_be_converted_leaves_the_output_alone() {
    let folder = Folder::new();
    let output = folder.file("out.bin", "what was there");
    let wrong = folder.file("wrong.goal", "num_ranks");
    let converted = on("convert", &[&wrong, &output], &[]);
    assert_eq!(converted.status.code(), Some(1), "{converted:?}");
    assert_eq!(std::fs::read(&output).expect("it is there"), b"what was there");
}

fn a_file_is_not_converted_in_place() {
    let folder = Folder::new();
    let good = folder.file("good.goal", GOOD);
    let link = folder.path("link.goal");
    std::os::unix::fs::symlink(&good, &link).expect("our own directory");
    let name = good.file_name().expect("it has a name");
    for other in [good.clone(), link, folder.path(".").join(name)] {
        let output = on("convert", &[&good, &other], &[]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(text(&output.stderr).contains("name another one to write"), "{output:?}");
        assert_eq!(std::fs::read_to_string(&good).expect("it is there"), GOOD);
    }
}

fn a_full_disk_is_reported() {
    let folder = Folder::new();
    let good = folder.file("good.goal", GOOD);
    let output = on("convert", &[&good, Path::new("/dev/full")], &[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        text(&output.stderr).contains("tradewind: cannot write /dev/full: No space left on device"),
        "{output:?}"
    );
}

fn a_link_stays_a_link_and_rights_stay_as_they_were() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    let good = folder.file("good.goal", GOOD);
    let target = folder.file("target.bin", "");
    std::fs::set_permissions(&target, PermissionsExt::from_mode(0o640)).expect("our own file");
    let link = folder.path("link.bin");
    std::os::unix::fs::symlink(&target, &link).expect("our own directory");
    assert_eq!(on("convert", &[&good, &link], &[]).status.code(), Some(0));
    assert!(std::fs::symlink_metadata(&link).expect("it is there").is_symlink());
    let about = std::fs::metadata(&target).expect("it is there");
    assert!(about.len() > 0);
    assert_eq!(about.permissions().mode() & 0o777, 0o640);
}

fn unread_output_is_a_failure_and_no_panic() {
    let folder = Folder::new();
    let good = folder.file("good.goal", GOOD);
    let mut command = Command::new(env!("CARGO_BIN_EXE_tradewind"));
    command.args(["exec", "check", good.to_str().expect("readable")]);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
    let output = command.stdout(full).output().expect("cargo has built the command");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        text(&output.stderr).starts_with("tradewind: cannot write to standard output"),
        "{output:?}"
    );
}
