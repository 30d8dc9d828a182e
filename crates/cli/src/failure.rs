//! Reasons for which a command failed, and the exit status of each.

use service::ServiceError;
use std::path::PathBuf;

/// Failure of a command, with its message.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    Read { path: PathBuf, source: std::io::Error },
    /// A file cannot be written.
    #[error("cannot write {}: {source}; an earlier file of this name is unchanged", .path.display())]
    Write { path: PathBuf, source: std::io::Error },
    /// Standard output cannot be written.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] std::io::Error),
    /// A file does not follow its format.
    #[error("{}: {problem}", .path.display())]
    Malformed { path: PathBuf, problem: String },
    /// Graphs that the wanted format cannot hold.
    #[error("{}: {problem}", .path.display())]
    NotPortable { path: PathBuf, problem: String },
    /// A file that does not fit on this machine.
    #[error("{}: {problem}", .path.display())]
    TooLarge { path: PathBuf, problem: String },
    /// A schedule cannot be shown.
    #[error(transparent)]
    Schedule(#[from] crate::commands::schedule::ScheduleError),
    /// Results cannot be written or read.
    #[error(transparent)]
    Results(#[from] measure::results::ResultsError),
    /// The input of a command is its output, too.
    #[error("{}: this is also the file to read: name another one to write", .path.display())]
    SameFile { path: PathBuf },
    /// A file with results that cannot be read, or a directory with nothing else.
    #[error("{}", .0.join("\n"))]
    DamagedResults(Vec<String>),
    /// A directory without results.
    #[error("{}: no results of a measurement here: name a directory that `tradewind measure` wrote", .path.display())]
    NoResults { path: PathBuf },
    /// Parts of a profile with lines that are none.
    #[error("{}: {lines} lines cannot be read; the profile lacks them", .path.display())]
    DamagedProfile { path: PathBuf, lines: u64 },
    /// A directory without parts of a profile.
    #[error(
        "{}: no part of a profile here: start the ranks with TRADEWIND_TRACE set to this directory",
        .path.display()
    )]
    NoProfile { path: PathBuf },
    /// Parts of several jobs' profiles.
    #[error("{}: these parts are of jobs of different sizes: give each job a directory of its own", .path.display())]
    MixedProfile { path: PathBuf },
    /// The jobs of this node cannot be found.
    #[error(transparent)]
    Observe(ServiceError),
    /// The name server cannot run.
    #[error(transparent)]
    Names(#[from] service::names::StartError),
    /// A name cannot be published, or the name server cannot listen to other nodes.
    #[error(transparent)]
    Listen(#[from] service::names::PeerError),
    /// There is no secret for other nodes.
    #[error(
        "other nodes connect with a secret that both nodes have: name a file with it with --secret-file, or set \
         TRADEWIND_SECRET or TRADEWIND_SECRET_FILE (`(umask 077; openssl rand -hex 16 > FILE)`)"
    )]
    NoNamesSecret,
    /// The secret is unusable.
    #[error(transparent)]
    Secret(launch::store::Error),
    /// A variable of the environment is unusable.
    #[error(transparent)]
    Launch(launch::LaunchError),
    /// A decision table cannot be made.
    #[error("{0}: please report this")]
    Decisions(models::decision::TableError),
    /// A decision table cannot be kept.
    #[error(transparent)]
    Table(#[from] models::file::FileError),
    /// Measurements that were disturbed, where others that were not are kept.
    #[error(
        "noisy: {why}; {} and the parameters beside it are left as they are: tune again when less else runs on the machine",
        .path.display()
    )]
    Noisy { path: PathBuf, why: String },
    /// There is nowhere to keep a decision table.
    #[error("there is no place for the decision table: name a file with --out, or set HOME")]
    NoPlace,
    /// A machine's file lacks the parameters for a call.
    #[error("{}: has no parameters for a {query}: measure them with `tradewind measure plogp`", .path.display())]
    NoParameters { path: PathBuf, query: String },
    /// A part with other settings exists.
    #[error(
        "{file} was measured with another setting ({differences}) and is left as it is: --again measures it anew, --out \
         names another directory"
    )]
    OtherSetting { file: String, differences: String },
    /// There is no such core.
    #[error("core {core} of --map is not in this process's affinity mask: choose among {cores}")]
    Map { core: usize, cores: String },
    /// There is no such experiment.
    #[error("there is no experiment {0:?}: `tradewind measure --help` lists them")]
    NoExperiment(String),
    /// A rank of a job that this command has started for itself cannot go on.
    #[error(transparent)]
    Rank(#[from] tradewind::Error),
    /// A measurement between nodes in a job on one node.
    #[error(
        "all ranks of this job are on one node: messages between nodes need ranks on several, and those of one node are \
         measured without a launcher"
    )]
    OneNode,
    /// A command that starts ranks of its own, as ranks of a job.
    #[error(
        "this process is one of a job's ranks, and each of them would measure by itself: run the command once, without a \
         launcher"
    )]
    InJob,
    /// The ranks of a measurement between nodes have failed.
    #[error("the ranks on the nodes have failed (status {0}); their messages are above")]
    RanksOnNodes(i32),
    /// Nodes for a measurement cannot be made.
    #[error("cannot make nodes on this machine: {0}")]
    VirtualNodes(#[from] virtual_nodes::Error),
    /// The kernel engine cannot be had.
    #[error("no kernel engine here: {0}")]
    Kernel(#[from] kernel::LoadError),
    /// A measurement cannot go on.
    #[error(transparent)]
    Measurement(#[from] measure::Error),
    /// The nodes of a job are not in order.
    #[error("{0}")]
    Nodes(String),
    /// The library that is loaded before MPI programs is missing.
    #[error(
        "there is no libtradewind_mpi.so beside {}, nor in the directory `lib` next to it: copy the \
         library there; `cargo build --release -p tradewind-mpi` makes it", .command.display()
    )]
    NoMpiLibrary { command: PathBuf },
    /// The collectives of an MPI library cannot be measured.
    #[error(transparent)]
    TuneMpi(#[from] crate::commands::tune::mpi::error::TuneMpiError),
    /// A job cannot be run.
    #[error(transparent)]
    Job(#[from] ServiceError),
}

impl Failure {
    /// Returns true if standard output is a pipe that its reader has closed.
    pub(crate) fn is_closed_pipe(&self) -> bool {
        matches!(self, Failure::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe)
    }

    /// The exit status.
    pub(crate) fn status(&self) -> u8 {
        let Failure::Job(error) = self else { return 1 };
        match error {
            ServiceError::Spawn { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                127
            }
            ServiceError::Spawn { .. } => 126,
            _ => 125,
        }
    }
}

impl From<engine::Error> for Failure {
    fn from(error: engine::Error) -> Self {
        Failure::Job(error.into())
    }
}
