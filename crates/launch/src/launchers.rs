//! Launchers, by the variables that they set.

use crate::environment::{Lookup, NODE};
use crate::error::LaunchError;
use crate::process_manager::{ProcessManager, StoreAddress};

/// The variables of a launcher.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Launcher {
    /// A part of the node service's name: jobs of two launchers never meet.
    pub(crate) name: &'static str,
    pub(crate) rank: &'static str,
    pub(crate) ranks: &'static str,
    /// Variables without which the first two are another program's.
    with: &'static [&'static str],
    /// Number of ranks on this node: the first that is set counts.
    local_ranks: &'static [&'static str],
    /// Number of nodes: the first that is set counts.
    nodes: &'static [&'static str],
    /// Variables that together identify a job. If none is set, the launcher's own process does.
    pub(crate) job: &'static [&'static str],
    /// Ways to the other ranks: the first with all of its variables set counts.
    ways: &'static [Way],
}

/// A way to a key-value space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// PMI-1 through the descriptor in PMI_FD.
    Pmi,
    /// PMIx, if PMIX_RANK is set.
    Pmix,
    /// TCP, at MASTER_ADDR.
    Master,
    /// TCP, at the first host of a Slurm step.
    FirstHost,
}

/// The descriptor that leads to a process manager with PMI.
const PMI_FD: &str = "PMI_FD";
/// The port of such a process manager, if it accepts connections instead.
const PMI_PORT: &str = "PMI_PORT";
/// The variable of every launcher with PMIx.
const PMIX_RANK: &str = "PMIX_RANK";
const MASTER_RANK: &str = "RANK";
const MASTER_RANKS: &str = "WORLD_SIZE";
const MASTER_ADDRESS: &str = "MASTER_ADDR";
const MASTER_PORT: &str = "MASTER_PORT";

/// All launchers, by precedence. A launcher inside a step of Slurm sets its own variables in
/// addition to Slurm's, and its own are the right ones.
const LAUNCHERS: [Launcher; 7] = [
    Launcher {
        name: "torchrun",
        rank: MASTER_RANK,
        ranks: MASTER_RANKS,
        with: &["TORCHELASTIC_RUN_ID", MASTER_ADDRESS, MASTER_PORT],
        local_ranks: &["LOCAL_WORLD_SIZE"],
        nodes: &["GROUP_WORLD_SIZE"],
        // The first is "none" unless the user chooses another. A new attempt is a new job.
        job: &["TORCHELASTIC_RUN_ID", MASTER_ADDRESS, MASTER_PORT, "TORCHELASTIC_RESTART_COUNT"],
        ways: &[Way::Master],
    },
    Launcher {
        name: "openmpi",
        rank: "OMPI_COMM_WORLD_RANK",
        ranks: "OMPI_COMM_WORLD_SIZE",
        with: &[],
        local_ranks: &["OMPI_COMM_WORLD_LOCAL_SIZE"],
        nodes: &[],
        job: &["PMIX_NAMESPACE"],
        ways: &[Way::Pmix, Way::Master],
    },
    Launcher {
        name: "pmi",
        rank: "PMI_RANK",
        ranks: "PMI_SIZE",
        with: &[],
        // MPICH's and Intel's hydra; Cray PALS.
        local_ranks: &["MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"],
        nodes: &["SLURM_STEP_NUM_NODES", "FLUX_JOB_NNODES"],
        job: &["PMI_JOBID", "PMIX_NAMESPACE", "PALS_APID", "FLUX_JOB_ID"],
        ways: &[Way::Pmi, Way::Pmix, Way::Master],
    },
    Launcher {
        name: "jsm",
        rank: "JSM_NAMESPACE_RANK",
        ranks: "JSM_NAMESPACE_SIZE",
        with: &[],
        local_ranks: &[],
        nodes: &[],
        job: &["LSB_JOBID", "PMIX_NAMESPACE"],
        ways: &[Way::Pmix, Way::Master],
    },
    Launcher {
        name: "flux",
        rank: "FLUX_TASK_RANK",
        ranks: "FLUX_JOB_SIZE",
        with: &[],
        local_ranks: &[],
        nodes: &["FLUX_JOB_NNODES"],
        job: &["FLUX_JOB_ID"],
        ways: &[Way::Master],
    },
    Launcher {
        name: "slurm",
        rank: "SLURM_PROCID",
        // Not SLURM_NTASKS: a batch script has that too, though it is one process.
        ranks: "SLURM_STEP_NUM_TASKS",
        with: &[],
        local_ranks: &[],
        nodes: &["SLURM_STEP_NUM_NODES"],
        job: &["SLURM_JOB_ID", "SLURM_STEP_ID"],
        ways: &[Way::Pmix, Way::Master, Way::FirstHost],
    },
    Launcher {
        name: "master",
        rank: MASTER_RANK,
        ranks: MASTER_RANKS,
        // Other programs set RANK, too.
        with: &[MASTER_ADDRESS, MASTER_PORT],
        local_ranks: &["LOCAL_WORLD_SIZE"],
        nodes: &[],
        job: &[MASTER_ADDRESS, MASTER_PORT],
        ways: &[Way::Master],
    },
];

/// Variables that errors list if they are set, in addition to those of [`LAUNCHERS`].
const OTHERS: [&str; 8] = [
    PMI_FD,
    PMI_PORT,
    PMIX_RANK,
    "PMIX_NAMESPACE",
    "PALS_RANKID",
    "LOCAL_RANK",
    "SLURM_STEP_NODELIST",
    "SLURM_MPI_TYPE",
];

/// Launcher and rank, by the variables that are set.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Nothing,
    OneNode { launcher: &'static Launcher, rank: u32, ranks: u32 },
    ManyNodes { manager: ProcessManager, rank_variable: &'static str },
}

/// Returns the variables of launchers that are set, with their values: "PMI_RANK=1, PMI_SIZE=2".
pub fn seen(environment: &(impl Lookup + ?Sized)) -> String {
    let tabulated = LAUNCHERS.iter().flat_map(|launcher| {
        let Launcher { rank, ranks, with, local_ranks, nodes, job, .. } = launcher;
        [*rank, *ranks]
            .into_iter()
            .chain([*with, *local_ranks, *nodes, *job].into_iter().flatten().copied())
    });
    let mut names: Vec<&str> = Vec::new();
    for name in tabulated.chain(OTHERS) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let value = |name: &str| Some(format!("{name}={}", environment.get(name)?.to_string_lossy()));
    names.into_iter().filter_map(value).collect::<Vec<_>>().join(", ")
}

/// Finds the launcher of this process.
pub(crate) fn find(environment: &impl Lookup) -> Result<Found, LaunchError> {
    for launcher in &LAUNCHERS {
        let Some((rank, ranks)) = launcher.rank_of_ranks(environment)? else { continue };
        if rank >= ranks {
            return Err(LaunchError::RankTooLarge { seen: seen(environment), rank, ranks });
        }
        check_contradiction(environment, launcher, (rank, ranks))?;
        return launcher.place(environment, (rank, ranks));
    }
    if environment.text(PMI_PORT)?.is_some() {
        return Err(LaunchError::PmiPort);
    }
    // PMIx reveals the number of ranks only to its own library.
    if environment.number(PMIX_RANK)?.is_some() {
        return Ok(Found::ManyNodes { manager: ProcessManager::Pmix, rank_variable: PMIX_RANK });
    }
    check_master(environment)?;
    Ok(Found::Nothing)
}

/// Refuses a process to which two launchers have assigned different ranks. The rank of the outer
/// one would be taken by several processes.
fn check_contradiction(
    environment: &impl Lookup,
    launcher: &Launcher,
    (rank, ranks): (u32, u32),
) -> Result<(), LaunchError> {
    let [.., master] = &LAUNCHERS;
    match master.rank_of_ranks(environment)? {
        Some((other_rank, other_ranks))
            if launcher.rank != MASTER_RANK && (other_rank, other_ranks) != (rank, ranks) =>
        {
            let seen = seen(environment);
            Err(LaunchError::TwoLaunchers { seen, rank, ranks, other_rank, other_ranks })
        }
        _ => Ok(()),
    }
}

/// Refuses one of several ranks that has no address of rank 0: it must not run as a job of its own.
fn check_master(environment: &impl Lookup) -> Result<(), LaunchError> {
    // Other programs set these names, and some of them no numbers.
    let number = |name| environment.number(name).ok().flatten();
    let missing = [MASTER_ADDRESS, MASTER_PORT]
        .into_iter()
        .find(|name| environment.get(name).is_none_or(|value| value.is_empty()));
    match (number(MASTER_RANK), number(MASTER_RANKS), missing) {
        (Some(_), Some(ranks @ 2..), Some(missing)) => {
            Err(LaunchError::NoMaster { seen: seen(environment), ranks, missing })
        }
        _ => Ok(()),
    }
}

impl Launcher {
    /// Returns this rank and the number of ranks, if this launcher has set all of its variables.
    fn rank_of_ranks(&self, environment: &impl Lookup) -> Result<Option<(u32, u32)>, LaunchError> {
        let is_set = |name: &&str| environment.get(name).is_some_and(|value| !value.is_empty());
        if !self.with.iter().all(is_set) || ![self.rank, self.ranks].iter().all(is_set) {
            return Ok(None);
        }
        Ok(environment.number(self.rank)?.zip(environment.number(self.ranks)?))
    }

    /// Determines whether all ranks are on this node, and otherwise the way to the others.
    fn place(
        &'static self,
        environment: &impl Lookup,
        (rank, ranks): (u32, u32),
    ) -> Result<Found, LaunchError> {
        let manager = self.manager(environment, (rank, ranks))?;
        let first = |names: &[&'static str]| {
            names.iter().find_map(|name| environment.number(name).transpose()).transpose()
        };
        let here = first(self.local_ranks)?;
        let is_one_node = match (here, first(self.nodes)?) {
            (Some(here), _) => here == ranks,
            (None, Some(nodes)) => nodes == 1,
            (None, None) => ranks == 1,
        };
        // Ranks of one node may have different names for it, to simulate several.
        let is_named = environment.text(NODE)?.is_some();
        match manager {
            Some(manager) if is_named || !is_one_node => {
                Ok(Found::ManyNodes { manager, rank_variable: self.rank })
            }
            None if !is_one_node => Err(LaunchError::SeveralNodes {
                seen: seen(environment),
                here: here.map_or("an unknown number".into(), |here| here.to_string()),
                ranks,
            }),
            _ => Ok(Found::OneNode { launcher: self, rank, ranks }),
        }
    }

    fn manager(
        &self,
        environment: &impl Lookup,
        (rank, ranks): (u32, u32),
    ) -> Result<Option<ProcessManager>, LaunchError> {
        for way in self.ways {
            let manager = match way {
                Way::Pmi => environment.number(PMI_FD)?.map(|descriptor| ProcessManager::Pmi {
                    descriptor,
                    rank,
                    ranks,
                }),
                Way::Pmix => environment.number(PMIX_RANK)?.map(|_| ProcessManager::Pmix),
                Way::Master => StoreAddress::of_master(environment, MASTER_ADDRESS, MASTER_PORT)?
                    .map(|address| ProcessManager::Store { address, rank, ranks }),
                Way::FirstHost => StoreAddress::of_slurm(environment)?
                    .map(|address| ProcessManager::Store { address, rank, ranks }),
            };
            if manager.is_some() {
                return Ok(manager);
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    type Table<'a> = &'a [(&'a str, &'a str)];

    fn find_in(table: Table<'_>) -> Result<Found, LaunchError> {
        find(&table.iter().copied().collect::<HashMap<_, _>>())
    }

    /// The name of the launcher of a job on one node.
    fn one_node(table: Table<'_>) -> &'static str {
        match find_in(table) {
            Ok(Found::OneNode { launcher, .. }) => launcher.name,
            other => panic!("{table:?}: {other:?}"),
        }
    }

    fn manager(table: Table<'_>) -> ProcessManager {
        match find_in(table) {
            Ok(Found::ManyNodes { manager, .. }) => manager,
            other => panic!("{table:?}: {other:?}"),
        }
    }

    fn error(table: Table<'_>) -> String {
        match find_in(table) {
            Err(error) => error.to_string(),
            found => panic!("{table:?}: {found:?}"),
        }
    }

    const ELASTIC: [(&str, &str); 5] = [
        ("RANK", "3"),
        ("WORLD_SIZE", "4"),
        ("MASTER_ADDR", "first"),
        ("MASTER_PORT", "29500"),
        ("TORCHELASTIC_RUN_ID", "none"),
    ];

    #[test]
    fn ranks_on_other_nodes_are_found_by_pmi() {
        fn pmi(more: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
            [&[("PMI_RANK", "1"), ("PMI_SIZE", "4")], more].concat()
        }
        let by_pmi = |descriptor| ProcessManager::Pmi { descriptor, rank: 1, ranks: 4 };
        let hydra = |here| {
            let more = vec![("MPI_LOCALNRANKS", here), ("PMI_FD", "6")];
            pmi(&more)
        };
        assert_eq!(manager(&hydra("2")), by_pmi(6));
        assert_eq!(one_node(&hydra("4")), "pmi");
        let named = [&hydra("4")[..], &[(NODE, "a")]].concat();
        assert_eq!(manager(&named), by_pmi(6), "the others may have another name");
        assert_eq!(manager(&pmi(&[("SLURM_STEP_NUM_NODES", "2"), ("PMI_FD", "7")])), by_pmi(7));
        assert_eq!(manager(&pmi(&[("PMI_FD", "7")])), by_pmi(7), "no count: it is found out");
        assert_eq!(one_node(&pmi(&[("FLUX_JOB_NNODES", "1"), ("PMI_FD", "7")])), "pmi");
        assert!(matches!(
            find_in(&[("PMI_PORT", "a:99"), ("PMI_ID", "0")]),
            Err(LaunchError::PmiPort)
        ));
    }

    #[test]
    fn ranks_on_other_nodes_are_found_by_pmix() {
        let pmix = ("PMIX_RANK", "1");
        assert_eq!(manager(&[pmix]), ProcessManager::Pmix);
        let openmpi = |here| {
            let names =
                ["RANK", "SIZE", "LOCAL_SIZE"].map(|name| format!("OMPI_COMM_WORLD_{name}"));
            (names, here)
        };
        for (here, is_one) in [("4", true), ("2", false)] {
            let (names, here) = openmpi(here);
            let table = [(&*names[0], "1"), (&*names[1], "4"), (&*names[2], here), pmix];
            match is_one {
                true => assert_eq!(one_node(&table), "openmpi"),
                false => assert_eq!(manager(&table), ProcessManager::Pmix),
            }
        }
        let jsm = [("JSM_NAMESPACE_RANK", "1"), ("JSM_NAMESPACE_SIZE", "4"), pmix];
        assert_eq!(manager(&jsm), ProcessManager::Pmix);
        let slurm = [
            ("SLURM_PROCID", "1"),
            ("SLURM_STEP_NUM_TASKS", "4"),
            ("SLURM_STEP_NUM_NODES", "2"),
            ("SLURM_STEP_NODELIST", "a[1-2]"),
            pmix,
        ];
        assert_eq!(manager(&slurm), ProcessManager::Pmix);
    }

    #[test]
    fn without_a_process_manager_ranks_meet_at_the_first() {
        let ProcessManager::Store { address, rank: 3, ranks: 4 } = manager(&ELASTIC) else {
            panic!("{:?}", manager(&ELASTIC));
        };
        assert_eq!(address.hosts, [("first".to_owned(), 29501)], "beside the agent's port");
        assert!(address.rank_0_listens);
        assert!(matches!(manager(&ELASTIC[..4]), ProcessManager::Store { .. }));
        let here = [&ELASTIC[..], &[("LOCAL_WORLD_SIZE", "4")]].concat();
        assert_eq!(one_node(&here), "torchrun");
        let slurm = [
            ("SLURM_PROCID", "1"),
            ("SLURM_STEP_NUM_TASKS", "4"),
            ("SLURM_STEP_NUM_NODES", "2"),
            ("SLURM_STEP_NODELIST", "left,right"),
            ("SLURM_JOB_ID", "7"),
            ("SLURM_STEP_ID", "0"),
        ];
        let ProcessManager::Store { address, rank: 1, ranks: 4 } = manager(&slurm) else {
            panic!("{:?}", manager(&slurm));
        };
        assert_eq!(address.hosts[0].0, "left");
        let master = [&slurm[..], &ELASTIC[2..4]].concat();
        let ProcessManager::Store { address, .. } = manager(&master) else { panic!() };
        assert_eq!(address.hosts[0].0, "first", "the user's choice");
        let pals = [("PMI_RANK", "3"), ("PMI_SIZE", "4"), ("PMI_LOCAL_SIZE", "2")];
        let with_master = [&pals[..], &ELASTIC[2..4]].concat();
        assert!(matches!(manager(&with_master), ProcessManager::Store { rank: 3, .. }));
    }

    /// torchrun as one task of each node of a step: Slurm's rank is the agent's.
    #[test]
    fn the_inner_launcher_counts() {
        let outer = [
            ("SLURM_PROCID", "1"),
            ("SLURM_STEP_NUM_TASKS", "2"),
            ("SLURM_STEP_NUM_NODES", "2"),
            ("PMI_RANK", "1"),
            ("PMI_SIZE", "2"),
            ("PMI_FD", "5"),
        ];
        let table = [&outer[..], &ELASTIC].concat();
        assert!(matches!(manager(&table), ProcessManager::Store { rank: 3, ranks: 4, .. }));
        let unclear = [&outer[..], &ELASTIC[..4]].concat();
        let text = error(&unclear);
        assert!(text.contains("rank 1 of 2 and rank 3 of 4"), "{text}");
        assert!(text.contains("RANK=3") && text.contains("PMI_RANK=1"), "{text}");
    }

    #[test]
    fn a_misdetection_names_the_variables() {
        let pals = [("PMI_RANK", "1"), ("PMI_SIZE", "4"), ("PMI_LOCAL_SIZE", "2")];
        let text = error(&pals);
        for part in ["PMI_RANK=1", "PMI_LOCAL_SIZE=2", "2 of the job's 4 ranks", "MASTER_ADDR"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let unknown = error(&[("PMI_RANK", "1"), ("PMI_SIZE", "4")]);
        assert!(unknown.contains("an unknown number of the job's 4 ranks"), "{unknown}");
        let jsm = error(&[("JSM_NAMESPACE_RANK", "1"), ("JSM_NAMESPACE_SIZE", "4")]);
        assert!(jsm.contains("JSM_NAMESPACE_SIZE=4"), "{jsm}");
        let lonely = error(&ELASTIC[..3]);
        assert!(lonely.contains("RANK=3") && lonely.contains("MASTER_PORT is not set"), "{lonely}");
        let large = error(&[&[("RANK", "4")], &ELASTIC[1..]].concat());
        assert!(large.contains("no rank 4 in a job of 4 ranks"), "{large}");
        let port = error(&[&ELASTIC[..3], &[("MASTER_PORT", "99999"), ELASTIC[4]]].concat());
        assert!(port.contains("MASTER_PORT is \"99999\""), "{port}");
    }

    #[test]
    fn the_variables_of_other_programs_are_left_alone() {
        for table in [
            &[("RANK", "general")][..],
            &[("RANK", "3")],
            &[("RANK", "0"), ("WORLD_SIZE", "1")],
            &[("MASTER_ADDR", "a"), ("MASTER_PORT", "1")],
            &[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")],
        ] {
            assert_eq!(find_in(table).expect("a job of one rank"), Found::Nothing, "{table:?}");
        }
    }
}
