//! Segments that do not fit where they are to lie: an error says so, and nobody is killed by
//! touching them.

use crate::harness::{Finished, Line, TRADEWIND, this_test};
use std::process::Command;

/// Runs a job whose segment lies in a file system of this size, in namespaces of its own. `None` if
/// this system has no such namespaces for us.
fn run_in(size: &str, program: &str) -> Option<Finished> {
    let probe =
        Command::new("unshare").args(["--user", "--map-root-user", "--mount", "true"]).output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        println!(
            "skipped: this system does not let us make a file system of our own (unshare --user --mount)"
        );
        return None;
    }
    let directory = tempfile::tempdir().expect("a directory for temporary files");
    let directory = directory.path().to_str().expect("readable");
    let itself = this_test();
    let itself = itself.to_str().expect("cargo's paths are readable");
    let script = format!(
        "mount -t tmpfs -o size={size} none {directory} && export TRADEWIND_SEGMENT_DIR={directory} && \
         exec {TRADEWIND} run -n 4 --timeout 60 -- {itself} --exact rank::program --nocapture --quiet"
    );
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]);
    Some(Line::command(command).variable(crate::harness::PROGRAM, program).finish())
}

#[test]
fn a_segment_that_does_not_fit_is_refused_before_a_rank_is_started() {
    let Some(job) = run_in("64k", "much") else { return };
    assert_eq!(job.status, 125, "{job:?}");
    assert!(job.error.contains("tradewind: the shared-memory file system at"), "{job:?}");
    assert!(job.error.contains("TRADEWIND_SEGMENT_DIR"), "{job:?}");
    assert_eq!(job.said, []);
}

#[test]
fn buffers_that_do_not_fit_are_refused_before_they_are_touched() {
    let Some(job) = run_in("16m", "much") else { return };
    assert_eq!(job.status, 1, "no rank is ended by a signal: {job:?}");
    let told = |said: &&crate::harness::Said| {
        said.is("error") && said.words.contains(&"TRADEWIND_SEGMENT_DIR".to_owned())
    };
    assert!(job.said.iter().any(|said| told(&said)), "{job:?}");
}
