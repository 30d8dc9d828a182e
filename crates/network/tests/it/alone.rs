//! Tests of properties of the whole process, each in a process of its own.

use std::process::Command;

const VARIABLE: &str = "NETWORK_TEST_ALONE";

/// Runs the test of this name in a process of its own. Returns true there, where the test is to do
/// its work.
///
/// # Panics
/// If the test fails there.
pub(crate) fn is_alone(test: &str) -> bool {
    if std::env::var_os(VARIABLE).is_some() {
        return true;
    }
    let status = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", test, "--nocapture"])
        .env(VARIABLE, "yes")
        .status()
        .expect("this program can be started");
    assert!(status.success(), "{test} failed in its own process");
    false
}
