//! Names that a launcher publishes for its job, before any process of the job runs.
//!
//! The launcher adds the job of the name and stays its owner; the key that admits a process to it
//! goes to the ranks in a variable. The first rank that publishes the name registers with the key.
//! A client that connects earlier waits at the name server until that rank opens its port.

use super::open_job::SERVER_TIMEOUT;
use super::peer_error::PeerError;
use super::process::{add_published_job, default_name};
use super::target::check_name;
use launch::environment::{Environment, Lookup, SERVE};
use queues::names::{JobKey, JobOwner, NameError, Refusal};
use queues::port::{Identity, NameClient, PortError};
use shm::broker::{BrokerError, connect};
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

/// Names published for the processes of a job that this process starts. Dropping it withdraws those
/// that no process of the job has published.
#[derive(Debug)]
pub struct ReservedNames {
    owners: Vec<(String, JobOwner)>,
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
            Ok((name.to_owned(), add_published_job(name, Some(command))?))
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
fn key_of(name: &str, reserved: &str) -> Option<JobKey> {
    let entries = reserved.split(',').filter_map(|entry| entry.split_once('='));
    entries.filter(|(reserved, _)| *reserved == name).find_map(|(_, key)| key.parse().ok())
}

/// Registers as the process of a name that the launcher of this process has published for its job.
/// `None` if it has not, or if its name server has ended: the name is then published anew.
pub(super) fn register(name: &str) -> Result<Option<NameClient>, PeerError> {
    let Some(reserved) = Environment.get(SERVE) else { return Ok(None) };
    let Some(key) = key_of(name, &reserved.to_string_lossy()) else { return Ok(None) };
    let server = default_name();
    // Without a server the registration would wait for one to start.
    if let Err(BrokerError::NoService { .. }) = connect(&server, Duration::ZERO) {
        return Ok(None);
    }
    match NameClient::register(&server, &Identity::new(name, 0, key), SERVER_TIMEOUT) {
        Ok(client) => Ok(Some(client)),
        Err(PortError::Names(NameError::Refused { refusal, .. })) => match refusal {
            Refusal::UnknownJob | Refusal::WrongKey => Ok(None),
            Refusal::ProcessTaken { pid } => Err(PeerError::Taken { name: name.to_owned(), pid }),
            refusal => {
                Err(NameError::Refused { action: format!("publish {name}"), refusal }.into())
            }
        },
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_by_name() {
        let key = JobKey::new([7; 16]);
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
