//! Names that a launcher publishes for its job, before any process of the job runs.
//!
//! The launcher adds the program and stays its owner; the key that admits a process to it goes to
//! the ranks in a variable. The first rank that publishes the name opens the program with the key. A
//! client that connects earlier waits at the name server for that.

use crate::owner::ProgramOwner;
use crate::peer_error::PeerError;
use crate::port::Port;
use crate::process::{SERVER_TIMEOUT, add_program, default_name, starter};
use crate::target::check_name;
use crate::wire::{NameError, ProgramKey, Refusal};
use launch::environment::{Environment, Lookup, SERVE};
use shm::broker::{BrokerError, connect};
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

/// Names published for the processes of a job that this process starts. Dropping it withdraws those
/// that no process of the job has published.
#[derive(Debug)]
pub struct ReservedNames {
    owners: Vec<(String, ProgramOwner)>,
}

impl ReservedNames {
    /// Publishes names on this node for processes that get [`variable`](Self::variable). `command`
    /// is the `tradewind` command that starts the name server, unless `TRADEWIND_COMMAND` names one.
    ///
    /// # Errors
    /// Those of [`publish`](super::publish); none of the names is then published.
    pub fn publish(names: &[String], command: &Path) -> Result<ReservedNames, PeerError> {
        let reserve = |name: &String| {
            let name = check_name(name)?;
            let owner = add_program(&default_name(), name, || starter(Some(command)))?;
            Ok((name.to_owned(), owner))
        };
        let owners = names.iter().map(reserve).collect::<Result<_, PeerError>>()?;
        Ok(ReservedNames { owners })
    }

    /// Returns the variable with which a process publishes the names, and its value.
    pub fn variable(&self) -> (OsString, OsString) {
        let entries: Vec<String> =
            self.owners.iter().map(|(name, owner)| format!("{name}={}", owner.key())).collect();
        (SERVE.into(), entries.join(",").into())
    }
}

/// Returns the key to a name that the launcher of this process has published for its job.
fn key_of(name: &str, reserved: &str) -> Option<ProgramKey> {
    let entries = reserved.split(',').filter_map(|entry| entry.split_once('='));
    entries.filter(|(reserved, _)| *reserved == name).find_map(|(_, key)| key.parse().ok())
}

/// Opens the program of a name that the launcher of this process has published for its job. `None`
/// if it has not, or if its name server has ended: the name is then published anew.
pub(crate) fn open(server: &str, name: &str) -> Result<Option<Port>, PeerError> {
    let Some(reserved) = Environment.get(SERVE) else { return Ok(None) };
    let Some(key) = key_of(name, &reserved.to_string_lossy()) else { return Ok(None) };
    // Without a server the call would wait for one to start.
    if let Err(BrokerError::NoService { .. }) = connect(server, Duration::ZERO) {
        return Ok(None);
    }
    match Port::open(server, name, key, SERVER_TIMEOUT) {
        Ok(port) => Ok(Some(port)),
        Err(NameError::Refused { refusal, action }) => match refusal {
            Refusal::UnknownProgram | Refusal::WrongKey => Ok(None),
            Refusal::Taken { pid } => Err(PeerError::Taken { name: name.to_owned(), pid }),
            refusal => Err(NameError::Refused { action, refusal }.into()),
        },
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_by_name() {
        let key = ProgramKey::new([7; 16]);
        let reserved = format!("a={key},b=x,c,=1,solver={key}");
        for name in ["a", "solver"] {
            assert_eq!(key_of(name, &reserved), Some(key));
        }
        for name in ["b", "c", "", "x", "olver"] {
            assert_eq!(key_of(name, &reserved).filter(|_| !name.is_empty()), None, "{name}");
        }
        assert_eq!(key_of("a", ""), None);
    }
}
