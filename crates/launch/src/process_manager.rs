//! The way from a rank to the key-value space of its job.

use crate::environment::{Lookup, PMIX, SECRET, SECRET_FILE, STORE};
use crate::error::{LaunchError, system};
use crate::key_values::{KeyValueSpace, StoreSpace};
use crate::pmi::{self, Descriptor};
use crate::pmix;
use crate::store::{self, Client, Server, SharedSecret};
use std::time::Duration;

/// The way to a key-value space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessManager {
    /// PMI-1.
    Pmi {
        /// Descriptor that leads to the process manager.
        descriptor: u32,
        /// This rank.
        rank: u32,
        /// Number of ranks.
        ranks: u32,
    },
    /// PMIx: the library returns the rank and the number of ranks.
    Pmix,
    /// A key-value space over TCP.
    Store {
        /// Its address.
        address: StoreAddress,
        /// This rank.
        rank: u32,
        /// Number of ranks.
        ranks: u32,
    },
}

/// Address of a key-value space over TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreAddress {
    /// Hosts and ports of the server; all but one may be another node's.
    pub hosts: Vec<(String, u16)>,
    /// Variables from which they are.
    pub origin: String,
    /// True if rank 0 is the server.
    pub rank_0_listens: bool,
}

/// A connection with a key-value space.
pub struct Opened {
    /// The space.
    pub space: Box<dyn KeyValueSpace>,
    /// This rank.
    pub rank: u32,
    /// Number of ranks.
    pub ranks: u32,
}

/// First of the ports for steps of Slurm, above those that Linux assigns by default.
const SLURM_PORTS: u16 = 61_000;
const SLURM_PORT_COUNT: u32 = 4000;

impl StoreAddress {
    /// Returns the address in TRADEWIND_STORE.
    pub(crate) fn of_variable(environment: &impl Lookup) -> Result<Self, LaunchError> {
        let text = environment.text(STORE)?.unwrap_or_default();
        let host = |part: &str| {
            let (host, port) = part.rsplit_once(':')?;
            let host = host.trim_start_matches('[').trim_end_matches(']');
            Some((host.to_owned(), port.parse().ok().filter(|port| *port != 0)?))
        };
        let hosts: Option<Vec<_>> = text.split(',').map(host).collect();
        let hosts = hosts.ok_or_else(|| LaunchError::Variable {
            name: STORE,
            value: text.into(),
            expected: "hosts with ports, with commas between them",
        })?;
        Ok(StoreAddress { hosts, origin: STORE.into(), rank_0_listens: false })
    }

    /// Returns the address in two variables, if both are set. The port is the next one: the port
    /// itself belongs to the launcher, or to the program.
    pub(crate) fn of_master(
        environment: &impl Lookup,
        address: &'static str,
        port: &'static str,
    ) -> Result<Option<Self>, LaunchError> {
        let Some(host) = environment.text(address)? else { return Ok(None) };
        let range = "a port from 1 to 65534";
        let Some(number) = environment.number_within(port, 1..=65_534, range)? else {
            return Ok(None);
        };
        // The range above ends one below the largest port, so that the next one exists.
        Ok(Some(StoreAddress {
            hosts: vec![(host, number as u16 + 1)],
            origin: format!("{address}, {port} + 1"),
            rank_0_listens: true,
        }))
    }

    /// Returns the address for a step of Slurm: the host of rank 0, which is the step's first one.
    /// The port follows from the numbers of the job and of the step.
    pub(crate) fn of_slurm(environment: &impl Lookup) -> Result<Option<Self>, LaunchError> {
        let number = |name| Ok::<_, LaunchError>(environment.number(name)?.unwrap_or(0));
        let job = number("SLURM_JOB_ID")?;
        let step = number("SLURM_STEP_ID")?;
        let Some(list) = environment.text("SLURM_STEP_NODELIST")? else { return Ok(None) };
        // Consecutive steps of one job have different ports, and so have most jobs of a node.
        let number = job.wrapping_mul(37).wrapping_add(step);
        let port = SLURM_PORTS + (number % SLURM_PORT_COUNT) as u16;
        let port = environment.ports()?.at(number).unwrap_or(port);
        Ok(Some(StoreAddress {
            hosts: vec![(first_host(&list), port)],
            origin: "first host of SLURM_STEP_NODELIST, port by SLURM_JOB_ID and SLURM_STEP_ID"
                .into(),
            rank_0_listens: true,
        }))
    }
}

/// Returns the first host of a list of Slurm: `node[03-07,9],login` is `node03` and others.
fn first_host(list: &str) -> String {
    let end = list.find([',', '[']).unwrap_or(list.len());
    let (name, rest) = list.split_at(end);
    let Some(inside) = rest.strip_prefix('[') else { return name.to_owned() };
    let number = inside.split([',', '-', ']']).next().unwrap_or_default();
    let behind = inside.split_once(']').map_or("", |(_, behind)| behind);
    // A name may have several brackets: `rack[1-2]n[1-8]`.
    format!("{name}{number}{}", first_host(behind))
}

impl ProcessManager {
    /// Connects with the key-value space. `launcher` is the process of the launcher, if known;
    /// `limit` the time for each step.
    ///
    /// # Errors
    /// If the process manager or rank 0 cannot be reached, or refuses this process.
    pub fn open(
        &self,
        environment: &impl Lookup,
        launcher: Option<u32>,
        limit: Duration,
    ) -> Result<Opened, LaunchError> {
        match self {
            ProcessManager::Pmi { descriptor, rank, ranks } => {
                // A number that is no descriptor's results in an error of the adoption.
                let number = i32::try_from(*descriptor).unwrap_or(-1);
                let inherited = shm::inherited::adopt(number)
                    .map_err(system("use the descriptor in PMI_FD"))?;
                let space = pmi::Client::open(Descriptor::new(inherited, limit))?;
                Ok(Opened { space: Box::new(space), rank: *rank, ranks: *ranks })
            }
            ProcessManager::Pmix => {
                let client = pmix::Client::open(&pmix_search(environment, launcher), limit)?;
                // These numbers index tables later, and the library is not part of this program.
                let (rank, ranks) = client.rank_of_ranks();
                if rank >= ranks {
                    let seen = format!("PMIx: rank {rank} of {ranks}");
                    return Err(LaunchError::RankTooLarge { seen, rank, ranks });
                }
                Ok(Opened { space: Box::new(client), rank, ranks })
            }
            ProcessManager::Store { address, rank, ranks } => {
                let secret = shared_secret(environment)?;
                let StoreAddress { hosts, origin, rank_0_listens } = address;
                let server = match hosts.first() {
                    Some((host, port)) if *rank_0_listens && *rank == 0 => {
                        Some(Server::start((host, *port), origin, secret.clone(), *ranks, limit)?)
                    }
                    _ => None,
                };
                // Rank 0 reaches its own server where it listens, even if the name leads elsewhere.
                let own = server.as_ref().map(|server| vec![server.local_host()]);
                let hosts = own.as_ref().unwrap_or(hosts);
                let client = Client::connect(hosts, origin, &secret, (*rank, *ranks), limit)?;
                let space = Box::new(StoreSpace { client, server });
                Ok(Opened { space, rank: *rank, ranks: *ranks })
            }
        }
    }
}

/// Returns the secret in TRADEWIND_SECRET, or in the file that TRADEWIND_SECRET_FILE names.
///
/// # Errors
/// If neither is set, the file cannot be read, or the secret is too short.
pub fn shared_secret(environment: &impl Lookup) -> Result<SharedSecret, LaunchError> {
    let set = |name| environment.get(name).filter(|value| !value.is_empty());
    match (set(SECRET), set(SECRET_FILE)) {
        (Some(text), _) => Ok(SharedSecret::new(&text.to_string_lossy(), SECRET)?),
        (None, Some(path)) => Ok(SharedSecret::read(&path)?),
        (None, None) => Err(store::Error::NoSecret.into()),
    }
}

/// Returns the directions to the library of PMIx.
pub fn pmix_search(environment: &impl Lookup, launcher: Option<u32>) -> pmix::Search {
    let set = |name| environment.get(name).filter(|value| !value.is_empty());
    let prefixes = ["PMIX_PREFIX", "OPAL_PREFIX"].into_iter().filter_map(set).collect();
    pmix::Search { named: set(PMIX), prefixes, launcher }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn the_first_host_of_a_list_is_found() {
        for (list, first) in [
            ("left", "left"),
            ("left,right", "left"),
            ("node[03-07,9],login", "node03"),
            ("node[1,5-6].site", "node1.site"),
            ("rack[1-2]n[08-10]", "rack1n08"),
        ] {
            assert_eq!(first_host(list), first);
        }
    }

    #[test]
    fn the_variable_of_the_secret_precedes_the_file() {
        let text = "0123456789abcdef";
        let both = HashMap::from([(SECRET, text), (SECRET_FILE, "/nowhere")]);
        let expected = SharedSecret::new(text, SECRET).expect("long enough");
        assert_eq!(shared_secret(&both).expect("it is set"), expected);
        let empty = HashMap::from([(SECRET, "")]);
        let error = shared_secret(&empty).expect_err("there is none").to_string();
        assert!(error.contains(SECRET) && error.contains(SECRET_FILE), "{error}");
    }

    #[test]
    fn steps_of_a_job_have_different_ports() {
        let port = |job, step| {
            let table = HashMap::from([
                ("SLURM_JOB_ID", job),
                ("SLURM_STEP_ID", step),
                ("SLURM_STEP_NODELIST", "a[1-2]"),
            ]);
            StoreAddress::of_slurm(&table).expect("numbers").expect("a list").hosts[0].1
        };
        assert_ne!(port("7", "0"), port("7", "1"));
        assert_ne!(port("7", "0"), port("8", "0"));
        assert!((61_000..65_000).contains(&port("4294967295", "4294967290")));
    }
}
