//! `tradewind names`: the names that programs have published on this node.

use crate::failure::Failure;
use crate::format::Format;
use serde::Serialize;
use service::names::{JobEntry, default_name, published};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

/// Lists the names that programs of this user have published on this node.
///
/// A program publishes a name with `Job::publish`, and others connect with it by `Job::connect`.
/// For each name: the process, since when, the number of connections that send to it, and how full
/// the fullest of their rings is.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}

/// A published name.
#[derive(Debug, Serialize)]
struct Published {
    name: String,
    pid: u32,
    /// The program; empty if the process has ended at this moment.
    program: String,
    /// Time since the publication in seconds.
    seconds: u64,
    connections: u32,
    /// Occupied part of the fullest ring in percent.
    fullest_percent: u32,
}

pub(crate) fn execute(_: &Arguments, format: Format) -> Result<ExitCode, Failure> {
    let names: Vec<Published> =
        published(&default_name())?.into_iter().map(Published::of).collect();
    format.print(|| table(&names), &names)?;
    Ok(ExitCode::SUCCESS)
}

impl Published {
    fn of(job: JobEntry) -> Published {
        let program = std::fs::read_to_string(format!("/proc/{}/comm", job.pid));
        let since = SystemTime::UNIX_EPOCH + Duration::from_secs(job.since);
        Published {
            name: job.name,
            pid: job.pid,
            program: program.unwrap_or_default().trim().to_owned(),
            seconds: since.elapsed().unwrap_or_default().as_secs(),
            connections: job.connections,
            fullest_percent: job.fullest,
        }
    }
}

fn table(names: &[Published]) -> String {
    if names.is_empty() {
        return "no program of this user has published a name on this node".to_owned();
    }
    let width = names.iter().map(|entry| entry.name.len()).max().unwrap_or(0).max(4);
    let mut lines = vec![format!(
        "{:width$}  {:>8}  {:15}  {:>9}  {:>11}  {:>7}",
        "name", "process", "program", "published", "connections", "fullest"
    )];
    for entry in names {
        let Published { name, pid, program, seconds, connections, fullest_percent } = entry;
        let age = duration(*seconds);
        lines.push(format!(
            "{name:width$}  {pid:>8}  {program:15}  {age:>9}  {connections:>11}  {fullest_percent:>5} %"
        ));
    }
    lines.join("\n")
}

/// Formats a time as hours, minutes and seconds.
fn duration(seconds: u64) -> String {
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}
