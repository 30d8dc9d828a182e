//! Detection of the launcher, and of this process's rank and job.
//!
//! A rank that takes itself for a job of one succeeds, with wrong results. So the variables of each
//! launcher lead to the other ranks, or to an error that names the variables. The innermost launcher
//! counts; where the variables of two contradict each other, neither does.

use crate::environment::{JOB, Lookup, RANK, SERVICE, SIZE, STORE};
use crate::error::LaunchError;
pub use crate::launchers::seen as variables_seen;
use crate::launchers::{self, Found};
use crate::process_manager::{ProcessManager, StoreAddress};
use crate::service_name::service_name;
use std::io::{BufRead, BufReader, Read};

/// The way in which this process was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Launch {
    /// Without a launcher: a job of one rank.
    Single,
    /// By `tradewind run`, which is the node service.
    Run {
        /// Name of the node service.
        service: String,
        /// This rank.
        rank: u32,
        /// Number of ranks.
        ranks: u32,
    },
    /// By another launcher, with all ranks on one node. The first rank starts the node service.
    OneNode {
        /// Name of the node service.
        name: String,
        /// This rank.
        rank: u32,
        /// Number of ranks.
        ranks: u32,
        /// Process of the launcher, if known.
        launcher: Option<u32>,
    },
    /// With ranks that may be on several nodes and find each other through a key-value space.
    ManyNodes {
        /// The way to the key-value space.
        manager: ProcessManager,
        /// Process of the launcher, if known.
        launcher: Option<u32>,
    },
}

/// Detects how this process was started, from its environment.
///
/// # Errors
/// If the variables contradict each other or are incomplete; if the ranks are on several nodes and
/// the launcher has no key-value space. The error names the variables.
pub fn detect(environment: &impl Lookup) -> Result<Launch, LaunchError> {
    let rank = environment.number(RANK)?;
    let ranks = environment.number(SIZE)?;
    let service = environment.text(SERVICE)?;
    let job = environment.text(JOB)?;
    let store = environment.text(STORE)?;
    let (rank, ranks) = match (rank, ranks) {
        (Some(rank), Some(ranks)) => (rank, ranks),
        (Some(_), None) => return Err(LaunchError::Incomplete { present: RANK, missing: SIZE }),
        (None, Some(_)) => return Err(LaunchError::Incomplete { present: SIZE, missing: RANK }),
        (None, None) if service.is_some() => {
            return Err(LaunchError::Incomplete { present: SERVICE, missing: RANK });
        }
        (None, None) if store.is_some() => {
            return Err(LaunchError::Incomplete { present: STORE, missing: RANK });
        }
        (None, None) => return detect_launcher(environment),
    };
    // These variables count before those of other launchers: `tradewind run` may itself have been
    // started by one, and its ranks inherit the variables of that.
    match (service, store, job) {
        (Some(service), ..) => Ok(Launch::Run { service, rank, ranks }),
        (None, Some(_), _) => {
            let address = StoreAddress::of_variable(environment)?;
            let manager = ProcessManager::Store { address, rank, ranks };
            Ok(Launch::ManyNodes { manager, launcher: launcher_process(RANK) })
        }
        (None, None, Some(job)) => {
            Ok(Launch::OneNode { name: service_name("job", &job), rank, ranks, launcher: None })
        }
        (None, None, None) => Err(LaunchError::Incomplete { present: RANK, missing: JOB }),
    }
}

fn detect_launcher(environment: &impl Lookup) -> Result<Launch, LaunchError> {
    match launchers::find(environment)? {
        Found::Nothing => Ok(Launch::Single),
        Found::ManyNodes { manager, rank_variable } => {
            Ok(Launch::ManyNodes { manager, launcher: launcher_process(rank_variable) })
        }
        Found::OneNode { launcher, rank, ranks } => {
            let process = launcher_process(launcher.rank);
            let parts: Vec<String> = launcher
                .job
                .iter()
                .filter_map(|name| environment.text(name).transpose())
                .collect::<Result<_, _>>()?;
            let job = if parts.is_empty() {
                let pid = process
                    .ok_or(LaunchError::Incomplete { present: launcher.rank, missing: JOB })?;
                // The system reuses numbers of processes; with the time of its start, the number
                // belongs to one launcher only.
                let started = shm::process::start_time(pid)?;
                format!("{pid}-{}", started.0)
            } else {
                parts.join(".")
            };
            let name = service_name(launcher.name, &job);
            Ok(Launch::OneNode { name, rank, ranks, launcher: process })
        }
    }
}

/// The process that has assigned this one its rank: the nearest ancestor without a rank. Wrapper
/// scripts between the two have the rank in their environment.
fn launcher_process(rank_variable: &str) -> Option<u32> {
    let mut process = parent(std::process::id())?;
    while process > 1 && has_variable(process, rank_variable) {
        process = parent(process)?;
    }
    Some(process)
}

fn parent(pid: u32) -> Option<u32> {
    let status = std::fs::File::open(format!("/proc/{pid}/status")).ok()?;
    // As bytes: the line with the name of the program need not be UTF-8.
    let mut lines = BufReader::new(status).split(b'\n').map_while(Result::ok);
    let line = lines.find(|line| line.starts_with(b"PPid:"))?;
    std::str::from_utf8(&line[b"PPid:".len()..]).ok()?.trim().parse().ok()
}

/// Returns true if a process is known to have been started with this variable.
fn has_variable(pid: u32, name: &str) -> bool {
    let mut environment = Vec::new();
    let read = std::fs::File::open(format!("/proc/{pid}/environ"))
        .and_then(|mut file| file.read_to_end(&mut environment));
    let sets = |entry: &[u8]| {
        entry.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.starts_with(b"="))
    };
    // The environment of another user's process cannot be read: such a process is no wrapper of a
    // rank, but the launcher.
    read.is_ok() && environment.split(|byte| *byte == 0).any(sets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn find_in(table: &[(&str, &str)]) -> Result<Launch, LaunchError> {
        detect(&table.iter().copied().collect::<HashMap<_, _>>())
    }

    #[test]
    fn a_process_without_a_launcher_is_a_job_of_its_own() {
        assert_eq!(find_in(&[]).expect("nothing to misunderstand"), Launch::Single);
    }

    #[test]
    fn our_own_launcher_comes_first() {
        let table =
            [(RANK, "1"), (SIZE, "4"), (SERVICE, "socket"), ("PMI_RANK", "7"), ("PMI_SIZE", "9")];
        let expected = Launch::Run { service: "socket".into(), rank: 1, ranks: 4 };
        assert_eq!(find_in(&table).expect("complete"), expected);
    }

    #[test]
    fn half_a_pair_is_an_error_that_names_the_other_half() {
        for (table, missing) in [
            (&[(RANK, "0")][..], SIZE),
            (&[(SIZE, "2")], RANK),
            (&[(RANK, "0"), (SIZE, "2")], JOB),
            (&[(SERVICE, "socket")], RANK),
            (&[(STORE, "a:1")], RANK),
        ] {
            let error = find_in(table).expect_err("incomplete").to_string();
            assert!(error.contains(&format!("{missing} is not")), "{error}");
        }
    }

    #[test]
    fn ranks_of_one_job_agree_on_a_name_and_jobs_do_not() {
        let name = |job: &str, rank: &str| match find_in(&[(RANK, rank), (SIZE, "2"), (JOB, job)]) {
            Ok(Launch::OneNode { name, .. }) => name,
            other => panic!("{other:?}"),
        };
        let long = "x".repeat(500);
        assert_eq!(name("a", "0"), name("a", "1"));
        assert_ne!(name("a", "0"), name("b", "0"));
        assert_eq!(name(&long, "0"), name(&long, "1"));
        assert_ne!(name(&long, "0"), name(&"x".repeat(501), "0"));
        assert!(name(&long, "0").len() < 108, "the name of a socket");
    }

    #[test]
    fn ranks_of_one_launcher_agree_on_a_name() {
        let pmi = [("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("MPI_LOCALNRANKS", "2")];
        let Ok(Launch::OneNode { name, rank: 1, ranks: 2, launcher: Some(_) }) = find_in(&pmi)
        else {
            panic!("{:?}", find_in(&pmi));
        };
        assert!(name.contains("-pmi-"), "{name}");
        let slurm = [
            ("SLURM_PROCID", "0"),
            ("SLURM_STEP_NUM_TASKS", "8"),
            ("SLURM_STEP_NUM_NODES", "1"),
            ("SLURM_JOB_ID", "77"),
            ("SLURM_STEP_ID", "3"),
        ];
        let Ok(Launch::OneNode { name, rank: 0, ranks: 8, .. }) = find_in(&slurm) else { panic!() };
        assert!(name.ends_with("-slurm-77.3"), "{name}");
    }

    #[test]
    fn ranks_of_several_nodes_have_the_address_of_a_store() {
        let table = [(RANK, "1"), (SIZE, "4"), (STORE, "a:7000,[fd00::1]:7001")];
        let Ok(Launch::ManyNodes { manager: ProcessManager::Store { address, .. }, .. }) =
            find_in(&table)
        else {
            panic!("{:?}", find_in(&table));
        };
        assert_eq!(address.hosts, [("a".to_owned(), 7000), ("fd00::1".to_owned(), 7001)]);
        assert!(!address.rank_0_listens);
        let wrong = [(RANK, "1"), (SIZE, "4"), (STORE, "a")];
        let error = find_in(&wrong).expect_err("no port").to_string();
        assert!(error.contains(STORE), "{error}");
    }

    #[test]
    fn the_launcher_is_an_ancestor_without_the_rank() {
        let launcher =
            launcher_process("TRADEWIND_NO_SUCH_VARIABLE").expect("this test has a parent");
        assert_eq!(Some(launcher), parent(std::process::id()));
    }
}
