//! Launchers, by the variables that they set.

/// The variables of a launcher.
pub(crate) struct Launcher {
    /// A part of the node service's name: jobs of two launchers never meet.
    pub(crate) name: &'static str,
    pub(crate) rank: &'static str,
    pub(crate) ranks: &'static str,
    /// Number of ranks on this node, for launchers that set it.
    pub(crate) local_ranks: Option<&'static str>,
    /// Number of nodes, for launchers that set it.
    pub(crate) nodes: Option<&'static str>,
    /// Variables that together identify a job. If none is set, the launcher's own process does.
    pub(crate) job: &'static [&'static str],
    /// True if it offers its key-value space through the descriptor in PMI_FD.
    pub(crate) speaks_pmi: bool,
}

/// All launchers, by precedence: Open MPI under Slurm sets the variables of both, and its own are
/// the right ones.
pub(crate) const LAUNCHERS: [Launcher; 3] = [
    Launcher {
        name: "openmpi",
        rank: "OMPI_COMM_WORLD_RANK",
        ranks: "OMPI_COMM_WORLD_SIZE",
        local_ranks: Some("OMPI_COMM_WORLD_LOCAL_SIZE"),
        nodes: None,
        job: &["PMIX_NAMESPACE"],
        speaks_pmi: false,
    },
    Launcher {
        name: "pmi",
        rank: "PMI_RANK",
        ranks: "PMI_SIZE",
        local_ranks: Some("MPI_LOCALNRANKS"),
        nodes: Some("SLURM_STEP_NUM_NODES"),
        job: &["PMI_JOBID", "PMIX_NAMESPACE"],
        speaks_pmi: true,
    },
    Launcher {
        name: "slurm",
        rank: "SLURM_PROCID",
        // Not SLURM_NTASKS: a batch script has that too, though it is one process.
        ranks: "SLURM_STEP_NUM_TASKS",
        local_ranks: None,
        nodes: Some("SLURM_STEP_NUM_NODES"),
        job: &["SLURM_JOB_ID", "SLURM_STEP_ID"],
        speaks_pmi: false,
    },
];
