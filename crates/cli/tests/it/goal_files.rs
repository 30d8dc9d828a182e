//! `tradewind exec check` and `tradewind exec convert`, from outside.

use crate::command::{text, tradewind_of};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

testing::tests![
    every_problem_is_named_with_its_line,
    a_file_can_come_from_standard_input,
    text_becomes_binary_and_text_again,
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
    tradewind_of(arguments).output().expect("cargo has built the command")
}

fn on(command: &str, paths: &[&Path], options: &[&str]) -> Output {
    let paths: Vec<&str> = paths.iter().map(|path| path.to_str().expect("readable")).collect();
    tradewind(&[&["exec", command], &paths[..], options].concat())
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
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
