//! Runner of tests: names, filters, panics, ignored tests and parts.

use std::process::{Command, Output};

testing::tests![
    names_are_module_paths,
    a_filter_selects_tests,
    a_panic_is_a_failure_with_its_message,
    a_slow_test_is_ignored_with_its_reason,
    a_part_is_a_process_of_its_own,
    a_test_as_a_part_fails_with_its_message,
    an_unknown_part_is_named,
];
testing::tests![a_failure_on_demand];
testing::tests![slow("an example for this test"): a_slow_test];
testing::parts![prints_its_arguments];

/// Variable with which [`a_failure_on_demand`] fails.
const FAIL: &str = "TESTING_FAILURE";

/// Runs this binary again.
fn run(arguments: &[&str]) -> Output {
    let program = std::env::current_exe().expect("/proc is mounted");
    let mut command = Command::new(program);
    command.args(arguments).env(FAIL, "1").env_remove("RUST_BACKTRACE");
    command.output().expect("this program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn names_are_module_paths() {
    let output = text(&run(&["--list"]).stdout);
    assert!(output.contains("runner::names_are_module_paths: test\n"), "{output}");
    assert!(!output.contains("prints_its_arguments"), "{output}");
}

fn a_filter_selects_tests() {
    let output = run(&["--exact", "runner::names_are_module_paths"]);
    assert!(output.status.success());
    assert!(text(&output.stdout).contains("1 passed; 0 failed; 0 ignored"));
}

fn a_failure_on_demand() {
    assert!(std::env::var_os(FAIL).is_none(), "the message of the failure");
}

fn a_slow_test() {}

fn a_panic_is_a_failure_with_its_message() {
    let output = run(&["--exact", "runner::a_failure_on_demand"]);
    assert_eq!(output.status.code(), Some(101));
    let stdout = text(&output.stdout);
    assert!(stdout.contains("the message of the failure"), "{stdout}");
    assert!(stdout.contains("tests/it/runner.rs"), "{stdout}");
    assert_eq!(text(&output.stderr), "", "the list of failures contains the message");
}

fn a_slow_test_is_ignored_with_its_reason() {
    let output = run(&["--exact", "runner::a_slow_test"]);
    assert!(output.status.success());
    let stdout = text(&output.stdout);
    let line = "ignored: 1 test runs only with --ignored: an example for this test\n";
    assert!(stdout.contains(line), "{stdout}");
}

fn prints_its_arguments() {
    let arguments: Vec<String> = std::env::args().skip(3).collect();
    println!("{}", arguments.join("+"));
}

fn a_part_is_a_process_of_its_own() {
    let mut command = testing::part("runner::prints_its_arguments");
    let output = command.args(["one", "two"]).output().expect("this program runs");
    assert!(output.status.success());
    assert_eq!(text(&output.stdout), "one+two\n");
}

fn a_test_as_a_part_fails_with_its_message() {
    let output = run(&["--part", "runner::a_failure_on_demand"]);
    assert_eq!(output.status.code(), Some(101));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("the message of the failure"), "{stderr}");
    assert!(run(&["--part", "runner::a_slow_test"]).status.success());
}

fn an_unknown_part_is_named() {
    let output = run(&["--part", "runner::absent"]);
    assert!(!output.status.success());
    let stderr = text(&output.stderr);
    assert!(stderr.contains("no part runner::absent"), "{stderr}");
    assert!(stderr.contains("runner::prints_its_arguments"), "{stderr}");
}
