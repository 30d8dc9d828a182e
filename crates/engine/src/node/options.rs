//! Options of a job on its node.

use crate::node::decisions::Decisions;
use goal::limits;
use shm::segment::Backing;

/// Assignment of the operations of a schedule to processes.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EngineKind {
    /// Cooperative progress: the process that completes an operation also runs the operations that
    /// it enables, for any rank of the node.
    Peers = 0,
    /// In-call progress: each rank runs its own operations, inside its own calls. This is the usual
    /// design of MPI libraries, and serves as the baseline.
    Caller = 1,
}

impl EngineKind {
    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            EngineKind::Peers => "peers",
            EngineKind::Caller => "caller",
        }
    }
}

impl std::fmt::Display for EngineKind {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name())
    }
}

impl std::str::FromStr for EngineKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [EngineKind::Peers, EngineKind::Caller]
            .into_iter()
            .find(|kind| kind.name() == text)
            .ok_or_else(|| format!("there is no engine {text:?}: choose peers or caller"))
    }
}

/// Layout of a job on its node.
#[derive(Clone, Debug)]
pub struct JobOptions {
    /// Number of ranks.
    pub ranks: u32,
    /// Assignment of operations to processes.
    pub engine: EngineKind,
    /// Address space of each rank's part of the segment, in bytes. Pages are allocated on first
    /// use.
    pub arena_bytes: u64,
    /// Number of cores that the ranks share. With more ranks than cores, waiting ranks do not spin.
    pub cores: u32,
    /// Source of the segment's memory.
    pub backing: Backing,
    /// True if operations of kind `calc` end immediately.
    pub skip_calc: bool,
    /// Longest message of a schedule, in bytes, that is sent before its receive is posted.
    pub eager_limit: u64,
    /// Length in bytes from which two ranks that exchange messages read each other's private memory;
    /// messages in one direction are read from four times this length on. `u64::MAX` if no rank
    /// reads another's. `None` lets the job's creator measure whether that is fast.
    pub single_copy: Option<u64>,
    /// Selection of algorithms, for all ranks.
    pub decisions: Option<Decisions>,
}

impl JobOptions {
    /// Returns the default options for `ranks` ranks: anonymous memory, 4 GiB of address space for
    /// each rank, the cores that this process may use, and no decisions.
    pub fn new(ranks: u32, engine: EngineKind) -> Self {
        JobOptions {
            ranks,
            engine,
            arena_bytes: 4 << 30,
            cores: (shm::process::allowed_cores().len() as u32).max(1),
            backing: Backing::Memory,
            skip_calc: false,
            eager_limit: limits::EAGER_ON_NODE,
            single_copy: None,
            decisions: None,
        }
    }
}
