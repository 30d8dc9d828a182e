//! Detection of the launcher, and of this process's rank and job.

use crate::environment::{JOB, Lookup, NODE, RANK, SERVICE, SIZE};
use crate::error::LaunchError;
use crate::launchers::{LAUNCHERS, Launcher};
use crate::secret::{Purpose, Secret};
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
    /// By another launcher, with ranks on several nodes and a key-value space.
    ManyNodes {
        /// Descriptor that leads to the process manager.
        descriptor: u32,
        /// This rank.
        rank: u32,
        /// Number of ranks.
        ranks: u32,
        /// Process of the launcher, if known.
        launcher: Option<u32>,
    },
}

/// The descriptor that leads to a process manager with PMI.
const PMI_FD: &str = "PMI_FD";
/// The port of such a process manager, if it accepts connections instead.
const PMI_PORT: &str = "PMI_PORT";

/// The variable of every launcher that speaks PMIx.
const PMIX_RANK: &str = "PMIX_RANK";

/// Detects how this process was started, from its environment.
///
/// # Errors
/// If the variables contradict each other or are incomplete; if the ranks are on several nodes and
/// the launcher has no key-value space.
pub fn detect(environment: &impl Lookup) -> Result<Launch, LaunchError> {
    let rank = environment.number(RANK)?;
    let ranks = environment.number(SIZE)?;
    let service = environment.text(SERVICE)?;
    let job = environment.text(JOB)?;
    let pair = match (rank, ranks) {
        (Some(rank), Some(ranks)) => Some((rank, ranks)),
        (Some(_), None) => return Err(LaunchError::Incomplete { present: RANK, missing: SIZE }),
        (None, Some(_)) => return Err(LaunchError::Incomplete { present: SIZE, missing: RANK }),
        (None, None) => None,
    };
    match (pair, service, job) {
        (Some((rank, ranks)), Some(service), _) => Ok(Launch::Run { service, rank, ranks }),
        (Some((rank, ranks)), None, Some(job)) => {
            Ok(Launch::OneNode { name: service_name("job", &job), rank, ranks, launcher: None })
        }
        (Some(_), None, None) => Err(LaunchError::Incomplete { present: RANK, missing: JOB }),
        (None, Some(_), _) => Err(LaunchError::Incomplete { present: SERVICE, missing: RANK }),
        (None, None, _) => detect_launcher(environment),
    }
}

fn detect_launcher(environment: &impl Lookup) -> Result<Launch, LaunchError> {
    for launcher in &LAUNCHERS {
        let Some(rank) = environment.number(launcher.rank)? else { continue };
        let Some(ranks) = environment.number(launcher.ranks)? else { continue };
        let process = launcher_process(launcher.rank);
        let named = environment.text(NODE)?.is_some();
        if let (Some(descriptor), true) = (environment.number(PMI_FD)?, launcher.speaks_pmi)
            && (named || launcher.check_one_node(environment, ranks).is_err())
        {
            return Ok(Launch::ManyNodes { descriptor, rank, ranks, launcher: process });
        }
        launcher.check_one_node(environment, ranks)?;
        let parts: Vec<String> = launcher
            .job
            .iter()
            .filter_map(|name| environment.text(name).transpose())
            .collect::<Result<_, _>>()?;
        let job = if parts.is_empty() {
            let pid =
                process.ok_or(LaunchError::Incomplete { present: launcher.rank, missing: JOB })?;
            let started = shm::process::start_time(pid)?;
            format!("{pid}-{}", started.0)
        } else {
            parts.join(".")
        };
        return Ok(Launch::OneNode {
            name: service_name(launcher.name, &job),
            rank,
            ranks,
            launcher: process,
        });
    }
    if environment.text(PMI_PORT)?.is_some() {
        return Err(LaunchError::PmiPort);
    }
    // PMIx reveals the number of ranks only to its own library. One of many ranks must not run as
    // a job of its own.
    match environment.number(PMIX_RANK)? {
        Some(_) => Err(LaunchError::Incomplete { present: PMIX_RANK, missing: SIZE }),
        None => Ok(Launch::Single),
    }
}

impl Launcher {
    fn check_one_node(&self, environment: &impl Lookup, ranks: u32) -> Result<(), LaunchError> {
        let number =
            |name: Option<&'static str>| name.map_or(Ok(None), |name| environment.number(name));
        match (number(self.local_ranks)?, number(self.nodes)?) {
            (Some(here), _) if here != ranks => {
                Err(LaunchError::SeveralNodes { here: here.to_string(), ranks })
            }
            (None, Some(2..)) => Err(LaunchError::SeveralNodes { here: "only some".into(), ranks }),
            _ => Ok(()),
        }
    }
}

/// The name of the node service of one of a job's nodes. Every process of the machine can read it,
/// so it must not reveal the secret.
pub fn name_on_node(secret: &Secret, node: u32) -> String {
    let [first, second] = secret.derive_both(Purpose::ServiceName);
    service_name("nodes", &format!("{first:016x}{second:016x}-{node}"))
}

/// The name of a job's service: every rank finds it by itself, other jobs and other users get
/// another.
fn service_name(launcher: &str, job: &str) -> String {
    let user = rustix::process::geteuid().as_raw();
    let readable = job.len() <= 64 && job.bytes().all(|byte| byte.is_ascii_graphic());
    let job = if readable { job.to_owned() } else { format!("{:032x}", digest(job.as_bytes())) };
    format!("tradewind-{user}-{launcher}-{job}")
}

/// The Fowler–Noll–Vo hash (FNV-1a, 128 bits): the same in every build, unlike the standard
/// library's. It shortens names that are no secrets: the hash does not hide them.
fn digest(bytes: &[u8]) -> u128 {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(BASIS, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME))
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
            [(RANK, "1"), (SIZE, "4"), (SERVICE, "door"), ("PMI_RANK", "7"), ("PMI_SIZE", "9")];
        let expected = Launch::Run { service: "door".into(), rank: 1, ranks: 4 };
        assert_eq!(find_in(&table).expect("complete"), expected);
    }

    #[test]
    fn half_a_pair_is_an_error_that_names_the_other_half() {
        for (table, missing) in [
            (&[(RANK, "0")][..], SIZE),
            (&[(SIZE, "2")], RANK),
            (&[(RANK, "0"), (SIZE, "2")], JOB),
            (&[(SERVICE, "door")], RANK),
            (&[(PMIX_RANK, "3")], SIZE),
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

    /// The names of two secrets that differ in any one bit differ in about half of their bits.
    #[test]
    fn the_name_of_a_service_does_not_reveal_the_secret() {
        let word = |secret: u128| {
            let name = name_on_node(&Secret::new(secret.to_le_bytes()), 7);
            let digits = name
                .strip_suffix("-7")
                .and_then(|name| name.rsplit('-').next())
                .expect("the word, the node");
            u128::from_str_radix(digits, 16).expect("hexadecimal")
        };
        let secret = 0x0123_4567_89ab_cdef_0011_2233_4455_6677_u128;
        let before = word(secret);
        for bit in 0..128 {
            let changed = (before ^ word(secret ^ 1 << bit)).count_ones();
            assert!(
                (32..=96).contains(&changed),
                "bit {bit} of the secret changes {changed} bits of the name"
            );
        }
        let secret = Secret::new([1; 16]);
        assert_ne!(name_on_node(&secret, 0), name_on_node(&secret, 1));
    }

    #[test]
    fn launchers_are_recognised_by_their_variables() {
        let pmi = [("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("MPI_LOCALNRANKS", "2")];
        let Ok(Launch::OneNode { name, rank: 1, ranks: 2, launcher: Some(_) }) = find_in(&pmi)
        else {
            panic!("{:?}", find_in(&pmi));
        };
        assert!(name.contains("-pmi-"), "{name}");
        let slurm = [
            ("SLURM_PROCID", "0"),
            ("SLURM_STEP_NUM_TASKS", "8"),
            ("SLURM_JOB_ID", "77"),
            ("SLURM_STEP_ID", "3"),
        ];
        let Ok(Launch::OneNode { name, rank: 0, ranks: 8, .. }) = find_in(&slurm) else { panic!() };
        assert!(name.ends_with("-slurm-77.3"), "{name}");
    }

    #[test]
    fn ranks_on_other_nodes_are_found_by_pmi() {
        let hydra =
            [("PMI_RANK", "1"), ("PMI_SIZE", "4"), ("MPI_LOCALNRANKS", "2"), ("PMI_FD", "6")];
        let Ok(Launch::ManyNodes { descriptor: 6, rank: 1, ranks: 4, launcher: Some(_) }) =
            find_in(&hydra)
        else {
            panic!("{:?}", find_in(&hydra));
        };
        let slurm =
            [("PMI_RANK", "0"), ("PMI_SIZE", "2"), ("SLURM_STEP_NUM_NODES", "2"), ("PMI_FD", "7")];
        assert!(matches!(find_in(&slurm), Ok(Launch::ManyNodes { descriptor: 7, .. })));
        let one_node =
            [("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("MPI_LOCALNRANKS", "2"), ("PMI_FD", "6")];
        assert!(matches!(find_in(&one_node), Ok(Launch::OneNode { .. })), "as ever");
        let named = [&one_node[..], &[(NODE, "a")]].concat();
        assert!(
            matches!(find_in(&named), Ok(Launch::ManyNodes { .. })),
            "the others may have another name"
        );
        let without = [("PMI_RANK", "1"), ("PMI_SIZE", "4"), ("MPI_LOCALNRANKS", "2")];
        assert!(matches!(find_in(&without), Err(LaunchError::SeveralNodes { .. })));
        assert!(matches!(
            find_in(&[("PMI_PORT", "here:99"), ("PMI_ID", "0")]),
            Err(LaunchError::PmiPort)
        ));
    }

    #[test]
    fn ranks_on_other_nodes_are_refused() {
        let openmpi = [
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_SIZE", "8"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
        ];
        let error = find_in(&openmpi).expect_err("two nodes").to_string();
        assert!(error.contains("4 of the job's 8 ranks"), "{error}");
        let slurm =
            [("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "8"), ("SLURM_STEP_NUM_NODES", "2")];
        assert!(find_in(&slurm).is_err());
    }

    #[test]
    fn the_launcher_is_an_ancestor_without_the_rank() {
        let launcher =
            launcher_process("TRADEWIND_NO_SUCH_VARIABLE").expect("this test has a parent");
        assert_eq!(Some(launcher), parent(std::process::id()));
    }
}
