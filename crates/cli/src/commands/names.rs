//! `tradewind names`: the names that programs have published on this node.

use crate::format::Format;
use launch::LaunchError;
use launch::environment::Environment;
use launch::process_manager::shared_secret;
use launch::store::{self, SharedSecret};
use names::{NameEntry, default_name, listen, published};
use serde::Serialize;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

/// Lists the names that programs of this user have published on this node.
///
/// A program publishes a name with `Job::publish`, and others connect with it by `Job::connect`.
/// For each name: the process, since when, the number of connections that send to it, and how full
/// the fullest of their rings is.
///
/// With --listen, programs of this user on other nodes can connect with those names, as NAME@HOST or
/// NAME@HOST:PORT, as long as this command runs. Both nodes need the same secret, in
/// TRADEWIND_SECRET or in a file.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Let other nodes connect, at this address of this node: IP or IP:PORT [default port: the first
    /// free one of TRADEWIND_PORTS, otherwise 7411].
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    listen: Option<(IpAddr, Option<u16>)>,

    /// File with the secret [default: TRADEWIND_SECRET, or the file in TRADEWIND_SECRET_FILE].
    #[arg(long, value_name = "FILE", requires = "listen")]
    secret_file: Option<PathBuf>,
}

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

pub(crate) fn execute(arguments: &Arguments, format: Format) -> anyhow::Result<ExitCode> {
    if let Some((ip, port)) = arguments.listen {
        return serve_other_nodes(ip, port, arguments.secret_file.as_deref(), format);
    }
    let names: Vec<Published> =
        published(&default_name())?.into_iter().map(Published::of).collect();
    format.print(|| table(&names), &names)?;
    Ok(ExitCode::SUCCESS)
}

/// The address at which the name server listens.
#[derive(Serialize)]
struct ListeningAt {
    address: SocketAddr,
}

/// Lets other nodes connect until this command or the name server ends.
fn serve_other_nodes(
    ip: IpAddr,
    port: Option<u16>,
    secret_file: Option<&Path>,
    format: Format,
) -> anyhow::Result<ExitCode> {
    let secret = match secret_file {
        Some(file) => SharedSecret::read(file.as_os_str())?,
        None => shared_secret(&Environment).map_err(|error| match error {
            LaunchError::Store(store::Error::NoSecret) => anyhow::anyhow!(
                "other nodes connect with a secret that both nodes have: name a file with it with --secret-file, or set \
                 TRADEWIND_SECRET or TRADEWIND_SECRET_FILE (`(umask 077; openssl rand -hex 16 > FILE)`)"
            ),
            error => error.into(),
        })?,
    };
    let itself = std::env::current_exe()?;
    let listening = listen(ip, port, &secret, &itself)?;
    let address = listening.address();
    let text = || format!("other nodes connect with NAME@{address} while this command runs");
    format.print(text, &ListeningAt { address })?;
    listening.wait();
    eprintln!("tradewind: the name server has ended");
    Ok(ExitCode::FAILURE)
}

/// Parses an address with or without a port.
fn address(text: &str) -> Result<(IpAddr, Option<u16>), String> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok((address.ip(), Some(address.port())));
    }
    let ip = text.parse().map_err(|_| "it is no IP address, with or without a port")?;
    Ok((ip, None))
}

impl Published {
    fn of(entry: NameEntry) -> Published {
        let since = SystemTime::UNIX_EPOCH + Duration::from_secs(entry.since);
        Published {
            name: entry.name,
            pid: entry.pid,
            program: program_of(entry.pid).unwrap_or_default(),
            seconds: since.elapsed().unwrap_or_default().as_secs(),
            connections: entry.connections,
            fullest_percent: entry.fullest,
        }
    }
}

/// Returns the name of a process's program; `None` if there is no such process.
pub(super) fn program_of(pid: u32) -> Option<String> {
    let program = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
    // A program chooses its name, and could control the terminal with it.
    Some(String::from_utf8_lossy(&program).trim_end().chars().map(printable).collect())
}

fn printable(letter: char) -> char {
    if letter.is_control() { '?' } else { letter }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_programs_do_not_control_the_terminal() {
        assert_eq!("a\x1b[2Jb\u{9b}c".chars().map(printable).collect::<String>(), "a?[2Jb?c");
    }
}
