//! Segments beyond the space of their file system: an error reports it, and no rank is killed by
//! touching them.

use crate::jobs::harness::{Finished, Line, TRADEWIND, this_test};
use std::process::Command;

testing::tests![
    needs(UserNamespaces):
    a_segment_that_does_not_fit_is_refused_before_a_rank_is_started,
    buffers_that_do_not_fit_are_refused_before_they_are_touched,
];

/// Runs a job whose segment lies in a file system of this size, in namespaces of its own.
fn run_in(size: &str, program: &str) -> Finished {
    let directory = tempfile::tempdir().expect("a directory for temporary files");
    let directory = directory.path().to_str().expect("readable");
    let itself = this_test();
    let itself = itself.to_str().expect("cargo's paths are readable");
    let script = format!(
        "mount -t tmpfs -o size={size} none {directory} && export TRADEWIND_SEGMENT_DIR={directory} && \
         exec {TRADEWIND} run -n 4 --timeout 60 -- {itself} --part jobs::rank::program"
    );
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]);
    Line::command(command).variable(crate::jobs::harness::PROGRAM, program).finish()
}

fn a_segment_that_does_not_fit_is_refused_before_a_rank_is_started() {
    let job = run_in("64k", "much");
    assert_eq!(job.status, 125, "{job:?}");
    assert!(job.error.contains("tradewind: the shared-memory file system at"), "{job:?}");
    assert!(job.error.contains("TRADEWIND_SEGMENT_DIR"), "{job:?}");
    assert_eq!(job.said, []);
}

fn buffers_that_do_not_fit_are_refused_before_they_are_touched() {
    let job = run_in("16m", "much");
    assert_eq!(job.status, 1, "no rank is ended by a signal: {job:?}");
    let told = |said: &&crate::jobs::harness::Said| {
        said.is("error") && said.words.contains(&"TRADEWIND_SEGMENT_DIR".to_owned())
    };
    assert!(job.said.iter().any(|said| told(&said)), "{job:?}");
}
