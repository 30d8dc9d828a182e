//! Functions of a test binary that run as processes of their own.

use crate::entry::{Part, Test};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Option of the command line, before the name of the part.
const OPTION: &str = "--part";

/// Returns a command that runs a registered part in a process of its own.
///
/// `name` is the path of the function, such as `jobs::child` (`concat!(module_path!(), "::child")`
/// is accepted as well). Arguments and variables may be added: the part finds its arguments behind
/// the first three of `std::env::args`. The process ends successfully when the function returns.
///
/// # Panics
/// No part of this name is registered.
pub fn part(name: &str) -> Command {
    part_by(name, |program| Command::new(program))
}

/// Like [`part`], with a command that `start` creates for the test binary, for example in the
/// network namespace of a virtual node.
///
/// # Panics
/// No part of this name is registered.
pub fn part_by(name: &str, start: impl FnOnce(&Path) -> Command) -> Command {
    let part = find(name).unwrap_or_else(|| panic!("no part {name} is registered: {}", names()));
    let mut command = start(&program());
    command.args([OPTION, self::name(part.path)]);
    command
}

/// Returns a command that runs a test in a process of its own.
pub(crate) fn test_as_part(test: &Test) -> Command {
    let mut command = Command::new(program());
    command.args([OPTION, name(test.path)]);
    command
}

fn program() -> PathBuf {
    std::env::current_exe().expect("a process can read the path of its program")
}

/// Runs the part or the test that the command line names, if it names one.
pub(crate) fn run_part() -> Option<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() != Some(OPTION) {
        return None;
    }
    let wanted = arguments.next().unwrap_or_default();
    let test = || inventory::iter::<Test>.into_iter().find(|test| name(test.path) == wanted);
    let Some(run) = find(&wanted).map(|part| part.run).or_else(|| Some(test()?.run)) else {
        eprintln!("no part {wanted} is registered: {}", names());
        return Some(ExitCode::FAILURE);
    };
    run();
    Some(ExitCode::SUCCESS)
}

/// Returns a path without the name of the crate.
pub(crate) fn name(path: &'static str) -> &'static str {
    path.split_once("::").map_or(path, |(_, name)| name)
}

fn find(wanted: &str) -> Option<&'static Part> {
    let mut parts = inventory::iter::<Part>.into_iter();
    parts.find(|part| part.path == wanted || name(part.path) == wanted)
}

fn names() -> String {
    let mut names: Vec<&str> =
        inventory::iter::<Part>.into_iter().map(|part| name(part.path)).collect();
    names.sort_unstable();
    names.join(", ")
}
