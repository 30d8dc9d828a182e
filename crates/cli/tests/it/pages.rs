//! The pages name commands and options that exist, and the reference names every command.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

testing::tests![
    the_reference_names_every_command,
    command_lines_name_commands_and_options_that_exist,
];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The help text of a command, such as `measure all`.
fn help(command: &[&str]) -> String {
    let mut tradewind = Command::new(env!("CARGO_BIN_EXE_tradewind"));
    let output = tradewind.args(command).arg("--help").output().expect("cargo has built it");
    assert!(output.status.success(), "tradewind {} --help fails", command.join(" "));
    String::from_utf8(output.stdout).expect("help texts are UTF-8")
}

/// The names of the subcommands in a help text.
fn subcommands(help: &str) -> BTreeSet<String> {
    let list = help.split("Commands:\n").nth(1).unwrap_or_default();
    let lines = list.lines().take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The lines of blocks of code, and the pieces of code in lines.
fn code(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut in_block = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if in_block {
            pieces.push(line);
        } else {
            pieces.extend(line.split('`').skip(1).step_by(2));
        }
    }
    pieces
}

/// The words behind each `tradewind` in a piece of code, up to a program that it would start.
fn calls(piece: &str) -> Vec<Vec<&str>> {
    let mut calls = Vec::new();
    for (at, name) in piece.match_indices("tradewind ") {
        // A statement of Python names the module.
        if piece[..at].ends_with("import ") || piece[..at].ends_with("from ") {
            continue;
        }
        let rest = piece[at + name.len()..].split("tradewind ").next().unwrap_or_default();
        let words = rest.split([' ', ')', '|', ',']).filter(|word| !word.is_empty());
        calls.push(words.take_while(|word| !["--", "#", "&"].contains(word)).collect());
    }
    calls
}

fn the_reference_names_every_command() {
    let page = std::fs::read_to_string(workspace().join("docs/reference.md")).expect("a page");
    for command in subcommands(&help(&[])).iter().filter(|name| *name != "help") {
        let named = |end: &str| page.contains(&format!("`tradewind {command}{end}"));
        assert!(named("`") || named(" "), "docs/reference.md lacks `tradewind {command}`");
    }
}

/// The pages, and every source and script of the repository, with their text.
fn sources() -> Vec<(PathBuf, String)> {
    let list = Command::new("git").arg("-C").arg(workspace()).args(["ls-files", "-z"]).output();
    let list = list.expect("git lists the files").stdout;
    let names = String::from_utf8(list).expect("names are UTF-8");
    let is_text = |name: &&str| {
        let ends = [".md", ".py", ".toml", ".yml"];
        let is_source = name.ends_with(".rs") && !name.contains("/tests/");
        // The names that commands had before.
        let is_of_old_names = name.ends_with("cli/src/moved.rs");
        let is_script = name.starts_with("bench/") || ends.iter().any(|end| name.ends_with(end));
        !is_of_old_names && (is_source || is_script)
    };
    let read = |name: &str| {
        let path = workspace().join(name);
        let text = std::fs::read_to_string(&path).ok()?;
        // Released versions had other commands.
        Some((path, text.split("\n## [0.").next().unwrap_or_default().to_owned()))
    };
    names.split('\0').filter(is_text).filter_map(read).collect()
}

/// Checks every command line that stands in a page, a help text, a comment or a message.
fn command_lines_name_commands_and_options_that_exist() {
    let mut helps = BTreeMap::new();
    let mut commands = subcommands(&help(&[]));
    commands.extend(["completions", "internal"].map(str::to_owned));
    let mut checked = 0;
    for (path, text) in sources() {
        for call in code(&text).into_iter().flat_map(calls) {
            let path = path.display();
            let mut command: Vec<&str> = call.iter().take(1).copied().collect();
            if !command.iter().all(|name| name.bytes().all(|letter| letter.is_ascii_lowercase())) {
                continue;
            }
            let named = command.iter().all(|name| commands.contains(*name));
            assert!(named, "{path}: there is no command `tradewind {}`", call.join(" "));
            let mut text = helps.entry(command.join(" ")).or_insert_with(|| help(&command)).clone();
            if let Some(second) = call.get(1).filter(|second| subcommands(&text).contains(**second))
            {
                command.push(second);
                text = helps.entry(command.join(" ")).or_insert_with(|| help(&command)).clone();
            }
            let options = call.iter().filter_map(|word| word.strip_prefix("--"));
            for option in options.filter_map(|word| word.split(['=', '`', ':', ';']).next()) {
                let ends = [' ', '\n', '<', '=', '.'];
                let exists = ends.iter().any(|end| text.contains(&format!("--{option}{end}")));
                let call = call.join(" ");
                assert!(exists, "{path}: tradewind {call}: no --{option}");
                checked += 1;
            }
        }
    }
    assert!(checked > 0, "pages name options");
}
