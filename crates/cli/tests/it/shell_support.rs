//! Completion scripts and manual pages, generated from the definition of the command.

use std::process::{Command, Output};

testing::tests![
    every_shell_has_a_completion_script_with_the_subcommands,
    every_subcommand_has_a_manual_page,
    a_misspelt_variable_is_reported_with_the_nearest_name,
];

fn tradewind(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tradewind"));
    command.args(arguments).output().expect("cargo has built the command")
}

fn every_shell_has_a_completion_script_with_the_subcommands() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = tradewind(&["completions", shell]);
        let script = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && script.contains("collectives"), "{shell}: {output:?}");
    }
}

fn every_subcommand_has_a_manual_page() {
    let directory = tempfile::tempdir().expect("a directory");
    let pages = directory.path().join("man1");
    let output = tradewind(&["completions", "--man", pages.to_str().expect("readable")]);
    assert!(output.status.success(), "{output:?}");
    for page in ["tradewind.1", "tradewind-run.1", "tradewind-measure.1"] {
        let page = std::fs::read_to_string(pages.join(page)).expect(page);
        assert!(page.contains(".TH"), "{page}");
    }
}

fn a_misspelt_variable_is_reported_with_the_nearest_name() {
    let output = Command::new(env!("CARGO_BIN_EXE_tradewind"))
        .args(["schedule", "bcast"])
        .env("TRADEWIND_NODE_TIMEOUTS", "3")
        .output()
        .expect("cargo has built the command");
    let warning = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{output:?}");
    assert!(warning.contains("TRADEWIND_NODE_TIMEOUTS is not known"), "{warning}");
    assert!(warning.contains("is TRADEWIND_NODE_TIMEOUT meant?"), "{warning}");
}
