//! The environment variables of tradewind.
//!
//! [`VARIABLES`] lists all of them. [`warn_of_misspelt`] logs a warning for each variable of the
//! environment that begins with `TRADEWIND_` and is not in the list.

use crate::error::LaunchError;
use crate::ports::Ports;
use std::ffi::OsString;
use std::fmt::Write;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

/// A variable: its name, the kind of its value, its default and its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Name of the variable.
    pub name: &'static str,
    /// Kind of its value.
    pub kind: &'static str,
    /// Value that applies if it is not set.
    pub default: &'static str,
    /// Meaning, in a sentence.
    pub meaning: &'static str,
}

macro_rules! variables {
    ($($constant:ident = $name:literal, $kind:literal, $default:literal, $meaning:literal;)*) => {
        $(#[doc = $meaning] pub const $constant: &str = $name;)*

        /// All variables, by topic.
        pub const VARIABLES: &[Variable] = &[$(
            Variable { name: $name, kind: $kind, default: $default, meaning: $meaning },
        )*];
    };
}

variables! {
    ENGINE = "TRADEWIND_ENGINE", "`peers` or `caller`", "`peers`",
        "Progress of collectives within a node: by any rank of the node, or only in calls of the rank itself.";
    INTERNODE = "TRADEWIND_INTERNODE", "`kernel`, `direct`, `ranks` or `agent`", "the kernel engine where all nodes have it",
        "Engine of collectives between nodes: `kernel` for those it supports, which is an error where it is missing; `direct` for none in the kernel; `ranks` for all in the ranks themselves, nonblocking ones of several steps or above 1 MiB, too; `agent` for all in the node service, blocking ones too.";
    NETWORK = "TRADEWIND_NETWORK", "`tcp`, `fabric`, `fabric:PROVIDER` or `auto`", "`tcp`",
        "Network between node services: TCP, or libfabric with any provider or the named one, which is an error where it is missing; `+read` or `+messages` behind the provider's name selects whether long messages are read from the sender's memory or sent; `auto` takes the network that `tradewind tune` has measured to be the fastest between these nodes, and TCP where it has not.";
    LIBFABRIC = "TRADEWIND_LIBFABRIC", "path", "libfabric.so.1 of the system",
        "The library libfabric, version 1.17 or later.";
    INTERFACE = "TRADEWIND_INTERFACE", "name or range", "the fastest that was measured, else chosen from the routes",
        "Network that leads to the other nodes: an interface, or a range of addresses such as 10.1.0.0/16.";
    NODE = "TRADEWIND_NODE", "text", "by kernel namespaces",
        "Name of this node, if several are simulated on one machine.";
    NODE_TIMEOUT = "TRADEWIND_NODE_TIMEOUT", "seconds", "15 (agent), 4.35 (kernel engine)",
        "Time without a response after which another node counts as unreachable, and the longest time that leaving a job takes; less than 1 counts as 1.";
    PMI_VERSION = "TRADEWIND_PMI", "1 or 2", "the first that the process manager speaks",
        "Version of PMI.";
    PMIX = "TRADEWIND_PMIX", "path", "the launcher's library, then the system's",
        "The library libpmix.so.2 of PMIx, for launchers that speak it.";
    SECRET = "TRADEWIND_SECRET", "text", "not set",
        "Secret of the job, the same for all ranks, where they exchange their addresses over TCP, and of programs on different nodes that meet by name: 16 characters or more.";
    SECRET_FILE = "TRADEWIND_SECRET_FILE", "path", "not set",
        "File with that secret.";
    PORTS = "TRADEWIND_PORTS", "range", "chosen by the kernel",
        "TCP and UDP ports at which node services, ranks and name servers listen for those of other nodes, such as 7000-7999.";
    START_TIMEOUT = "TRADEWIND_START_TIMEOUT", "seconds", "60",
        "Time that a rank waits for the other ranks to start.";
    COMMAND = "TRADEWIND_COMMAND", "path", "`tradewind` in PATH",
        "The `tradewind` command, which other launchers' ranks start as their node service.";
    TRACE = "TRADEWIND_TRACE", "directory", "no profile",
        "Directory into which the ranks write a profile.";
    EXPLAIN = "TRADEWIND_EXPLAIN", "1", "off",
        "Prints the algorithm of each collective and the reason for it.";
    DECISIONS = "TRADEWIND_DECISIONS", "path", "the user's file",
        "File with the measured decisions between algorithms; empty for none.";
    SEGMENT_DIR = "TRADEWIND_SEGMENT_DIR", "directory", "anonymous memory",
        "Directory of the file with the memory that the ranks of a node share.";
    ARENA_MIB = "TRADEWIND_ARENA_MIB", "number", "4096",
        "Address space of each rank's part of the shared memory, in MiB.";
    EAGER_BYTES = "TRADEWIND_EAGER_BYTES", "number", "4096",
        "Length of the longest message within a node that is sent before its receive is posted, in bytes.";
    SINGLE_COPY = "TRADEWIND_SINGLE_COPY", "number", "measured when the job starts",
        "Length in bytes from which two ranks of a node that exchange messages read each other's private memory, in one copy. Four times this length applies to messages in one direction, and to blocks that the sender copies for itself as well; 0 for never.";
    MPI = "TRADEWIND_MPI", "`off`", "on",
        "With `off`, the library that is loaded before an MPI program leaves all calls to the MPI library.";
    MPI_ONLY = "TRADEWIND_MPI_ONLY", "list", "all nonblocking and persistent collectives, and blocking ones by the table of `tradewind tune --mpi`",
        "Collectives of an MPI program that run on tradewind, such as `iallreduce,allreduce_init,allreduce`; `all` adds every blocking one. The value of rank 0 counts.";
    MPI_REPORT = "TRADEWIND_MPI_REPORT", "1", "off",
        "Prints at the end of an MPI program which collectives ran on tradewind.";
    SERVICE = "TRADEWIND_SERVICE", "name", "set by `tradewind run`",
        "Name of the node service.";
    RANK = "TRADEWIND_RANK", "number", "set by the launcher",
        "Number of this rank, from 0.";
    SIZE = "TRADEWIND_SIZE", "number", "set by the launcher",
        "Number of ranks.";
    JOB = "TRADEWIND_JOB", "text", "set by the launcher",
        "Distinguishes the job from other jobs of the same user, if no launcher does.";
    STORE = "TRADEWIND_STORE", "addresses", "set by `tradewind run --nodes`",
        "Hosts and ports at which the ranks exchange their addresses, with commas.";
    SERVE = "TRADEWIND_SERVE", "list", "set by `tradewind run --serve`",
        "Names that are published for the job, each with the key that admits a rank to it.";
    CORE = "TRADEWIND_CORE", "number", "set by `tradewind run`",
        "Core that the rank binds itself to.";
}

/// The table of all variables in Markdown.
pub fn markdown() -> String {
    let mut table = String::from("| Variable | Value | Default | Meaning |\n|---|---|---|---|\n");
    for Variable { name, kind, default, meaning } in VARIABLES {
        // Writing to a string cannot fail.
        let _ = writeln!(table, "| `{name}` | {kind} | {default} | {meaning} |");
    }
    table
}

/// Variables of this process that begin with `TRADEWIND_` and are unknown, each with the nearest
/// known one. Those of tests and benchmarks (`TRADEWIND_TEST_…`, `TRADEWIND_BENCH_…`,
/// `TRADEWIND_REQUIRE_TOOLS`) are not reported.
pub fn misspelt() -> Vec<(String, &'static str)> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    names.filter_map(|name| nearest_if_unknown(&name).map(|nearest| (name, nearest))).collect()
}

/// Logs a warning for each misspelt variable.
pub fn warn_of_misspelt() {
    for (name, nearest) in misspelt() {
        log::warn!("the variable {name} is not known and has no effect; is {nearest} meant?");
    }
}

fn nearest_if_unknown(name: &str) -> Option<&'static str> {
    let is_ours = name.starts_with("TRADEWIND_")
        && !name.starts_with("TRADEWIND_TEST")
        && !name.starts_with("TRADEWIND_BENCH")
        && name != "TRADEWIND_REQUIRE_TOOLS";
    let is_known = VARIABLES.iter().any(|variable| variable.name == name);
    let nearest = VARIABLES.iter().min_by_key(|variable| distance(variable.name, name))?;
    (is_ours && !is_known).then_some(nearest.name)
}

/// The number of insertions, deletions and substitutions between two names (Levenshtein, 1966).
fn distance(left: &str, right: &str) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (done, one) in left.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = done + 1;
        for (column, other) in right.bytes().enumerate() {
            let substituted = diagonal + usize::from(one != other);
            diagonal = row[column + 1];
            row[column + 1] = substituted.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[right.len()]
}

/// The value of [`START_TIMEOUT`] if it is not set.
const DEFAULT_START_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest time of a variable, 30 years: the end of a longer one may be none that the clock can
/// show.
const LONGEST_TIME: Duration = Duration::from_secs(1_000_000_000);

/// The value of [`INTERNODE`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InternodeEngine {
    /// The kernel engine where all nodes have it, and the agent.
    #[default]
    Any,
    /// The kernel engine, which all nodes must have.
    Kernel,
    /// The agent, and direct connections between the ranks for blocking collectives.
    Direct,
    /// Direct connections between the ranks for all collectives, and the agent for the rest.
    Ranks,
    /// The agent alone.
    Agent,
}

/// The value of [`NETWORK`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NetworkChoice {
    /// TCP.
    #[default]
    Tcp,
    /// libfabric with this provider; any for an empty name.
    Fabric(String),
    /// The fastest network that was measured, otherwise TCP.
    Auto,
}

/// The file with the measured decisions between algorithms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionsFile {
    /// Its path.
    pub path: PathBuf,
    /// The path is from [`DECISIONS`], so the file must exist.
    pub is_named: bool,
}

/// A source of variables: the environment, or a table in a test.
pub trait Lookup {
    /// The value of a variable, if it is set.
    fn get(&self, name: &str) -> Option<OsString>;

    /// The number in a variable, if it is set.
    ///
    /// # Errors
    /// If the value is no number.
    fn number(&self, name: &'static str) -> Result<Option<u32>, LaunchError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.to_str().and_then(|text| text.trim().parse().ok()) {
            Some(number) => Ok(Some(number)),
            None => Err(LaunchError::Variable { name, value, expected: "a number from 0 on" }),
        }
    }

    /// The text in a variable, if it is set and not empty.
    ///
    /// # Errors
    /// If the value is no text.
    fn text(&self, name: &'static str) -> Result<Option<String>, LaunchError> {
        match self.get(name).filter(|value| !value.is_empty()) {
            None => Ok(None),
            Some(value) => match value.into_string() {
                Ok(text) => Ok(Some(text)),
                Err(value) => Err(LaunchError::Variable { name, value, expected: "readable text" }),
            },
        }
    }

    /// The engine between nodes.
    ///
    /// # Errors
    /// If the value is no engine's name.
    fn internode_engine(&self) -> Result<InternodeEngine, LaunchError> {
        match self.text(INTERNODE)?.as_deref() {
            None => Ok(InternodeEngine::Any),
            Some("kernel") => Ok(InternodeEngine::Kernel),
            Some("direct") => Ok(InternodeEngine::Direct),
            Some("ranks") => Ok(InternodeEngine::Ranks),
            Some("agent") => Ok(InternodeEngine::Agent),
            Some(other) => {
                let value = other.into();
                let expected = "kernel, direct, ranks or agent";
                Err(LaunchError::Variable { name: INTERNODE, value, expected })
            }
        }
    }

    /// The network between node services.
    ///
    /// # Errors
    /// If the value is none of the table's.
    fn network(&self) -> Result<NetworkChoice, LaunchError> {
        let Some(text) = self.text(NETWORK)? else { return Ok(NetworkChoice::Tcp) };
        match text.split_once(':').unwrap_or((&text, "")) {
            ("tcp", "") => Ok(NetworkChoice::Tcp),
            ("auto", "") => Ok(NetworkChoice::Auto),
            ("fabric", provider) => Ok(NetworkChoice::Fabric(provider.to_owned())),
            _ => {
                let expected = "tcp, fabric, fabric:PROVIDER or auto";
                Err(LaunchError::Variable { name: NETWORK, value: text.into(), expected })
            }
        }
    }

    /// Ports at which the processes of the job listen.
    ///
    /// # Errors
    /// If the value is no range.
    fn ports(&self) -> Result<Ports, LaunchError> {
        let Some(text) = self.text(PORTS)? else { return Ok(Ports::default()) };
        let expected = "a range of ports such as 7000-7999";
        text.parse().map_err(|()| LaunchError::Variable {
            name: PORTS,
            value: text.into(),
            expected,
        })
    }

    /// The time in a variable, if it is set.
    ///
    /// # Errors
    /// If the value is no number of seconds, or more than 30 years.
    fn seconds(&self, name: &'static str) -> Result<Option<Duration>, LaunchError> {
        let Some(value) = self.get(name).filter(|value| !value.is_empty()) else { return Ok(None) };
        let seconds = value.to_str().and_then(|text| text.trim().parse::<f64>().ok());
        let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        match time.filter(|time| *time <= LONGEST_TIME) {
            Some(time) => Ok(Some(time)),
            None => Err(LaunchError::Variable { name, value, expected: "a number of seconds" }),
        }
    }

    /// Returns the number in a variable, if it is set. `expected` describes the range.
    ///
    /// # Errors
    /// Returns an error if the value is no number of the range.
    fn number_within(
        &self,
        name: &'static str,
        range: RangeInclusive<u64>,
        expected: &'static str,
    ) -> Result<Option<u64>, LaunchError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let number = value.to_str().and_then(|text| text.parse().ok());
        match number.filter(|number| range.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(LaunchError::Variable { name, value, expected }),
        }
    }

    /// Returns the directory of the shared memory's file, if it is set.
    fn segment_directory(&self) -> Option<PathBuf> {
        self.get(SEGMENT_DIR).map(PathBuf::from)
    }

    /// Returns the address space of a rank's part of the shared memory in bytes, if it is set.
    ///
    /// # Errors
    /// Returns an error if the value is no number of MiB.
    fn arena_bytes(&self) -> Result<Option<u64>, LaunchError> {
        let mib = self.number_within(ARENA_MIB, 1..=1 << 24, "a number from 1 to 16777216")?;
        Ok(mib.map(|mib| mib << 20))
    }

    /// Returns the length of the longest eager message within a node, if it is set.
    ///
    /// # Errors
    /// Returns an error if the value is no number of bytes.
    fn eager_bytes(&self) -> Result<Option<u64>, LaunchError> {
        self.number_within(EAGER_BYTES, 0..=1 << 30, "a number from 0 to 1073741824")
    }

    /// Returns the length from which a rank reads another rank's private memory, if it is set;
    /// `u64::MAX` for never.
    ///
    /// # Errors
    /// Returns an error if the value is no number of bytes.
    fn single_copy(&self) -> Result<Option<u64>, LaunchError> {
        let bytes = self.number_within(SINGLE_COPY, 0..=u64::MAX, "a number of bytes, or 0")?;
        Ok(bytes.map(|bytes| if bytes == 0 { u64::MAX } else { bytes }))
    }

    /// Returns the file of decisions: the value of [`DECISIONS`], with an empty value for no file;
    /// otherwise `tradewind/decisions.json` under `XDG_CONFIG_HOME`, or under `.config` in the home
    /// directory.
    fn decisions_file(&self) -> Option<DecisionsFile> {
        if let Some(named) = self.get(DECISIONS) {
            let is_set = !named.is_empty();
            return is_set.then(|| DecisionsFile { path: named.into(), is_named: true });
        }
        let set = |name: &str| self.get(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let base = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")))?;
        let path = base.join("tradewind").join("decisions.json");
        Some(DecisionsFile { path, is_named: false })
    }

    /// Returns the file of blocking collectives of MPI libraries, beside that of decisions.
    fn mpi_table_file(&self) -> Option<PathBuf> {
        Some(self.decisions_file()?.path.with_file_name("mpi.json"))
    }

    /// Time to wait for the other ranks.
    ///
    /// # Errors
    /// If the value is no number of seconds, or zero.
    fn start_timeout(&self) -> Result<Duration, LaunchError> {
        match self.seconds(START_TIMEOUT)? {
            Some(Duration::ZERO) => Err(LaunchError::Variable {
                name: START_TIMEOUT,
                value: self.get(START_TIMEOUT).unwrap_or_default(),
                expected: "a number of seconds above 0",
            }),
            time => Ok(time.unwrap_or(DEFAULT_START_TIMEOUT)),
        }
    }

    /// Time without a response of another node, if it is set. At least a second: a busy machine may
    /// not respond for so long.
    ///
    /// # Errors
    /// If the value is no number of seconds.
    fn node_timeout(&self) -> Result<Option<Duration>, LaunchError> {
        Ok(self.seconds(NODE_TIMEOUT)?.map(|time| time.max(Duration::from_secs(1))))
    }
}

/// The environment of this process.
#[derive(Clone, Copy, Debug)]
pub struct Environment;

impl Lookup for Environment {
    fn get(&self, name: &str) -> Option<OsString> {
        std::env::var_os(name)
    }
}

#[cfg(test)]
impl Lookup for std::collections::HashMap<&str, &str> {
    fn get(&self, name: &str) -> Option<OsString> {
        self.get(name).map(|value| OsString::from(*value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn a_value_that_is_no_number_is_named() {
        let table = HashMap::from([(RANK, "one")]);
        let error = table.number(RANK).expect_err("not a number");
        assert_eq!(
            error.to_string(),
            "TRADEWIND_RANK is \"one\", it must be a number from 0 on: change it or unset it"
        );
        assert!(table.number(SIZE).expect("not set").is_none());
    }

    #[test]
    fn lengths_lie_within_their_limits() {
        let table = HashMap::from([(ARENA_MIB, "0"), (EAGER_BYTES, "64")]);
        assert_eq!(
            table.arena_bytes().expect_err("too small").to_string(),
            "TRADEWIND_ARENA_MIB is \"0\", it must be a number from 1 to 16777216: \
             change it or unset it"
        );
        assert_eq!(table.eager_bytes().expect("a number"), Some(64));
        let table = HashMap::from([(ARENA_MIB, "2")]);
        assert_eq!(table.arena_bytes().expect("a number"), Some(2 << 20));
        assert_eq!(table.eager_bytes().expect("not set"), None);
    }

    #[test]
    fn the_file_of_decisions_is_named_or_the_users() {
        let file = |pairs: &[(&'static str, &'static str)]| {
            let table: HashMap<&str, &str> = pairs.iter().copied().collect();
            table.decisions_file().map(|file| (file.path, file.is_named))
        };
        let home = ("HOME", "/home/me");
        assert_eq!(file(&[(DECISIONS, "a.json"), home]), Some(("a.json".into(), true)));
        assert_eq!(file(&[(DECISIONS, ""), home]), None);
        let usual = "/home/me/.config/tradewind/decisions.json";
        assert_eq!(file(&[home]), Some((usual.into(), false)));
        let base = ("XDG_CONFIG_HOME", "/etc/me");
        assert_eq!(file(&[base, home]), Some(("/etc/me/tradewind/decisions.json".into(), false)));
        assert_eq!(file(&[]), None);
    }

    #[test]
    fn the_engine_between_nodes_has_a_known_name() {
        let wanted = |word| HashMap::from([(INTERNODE, word)]).internode_engine();
        assert_eq!(wanted("kernel").expect("it is known"), InternodeEngine::Kernel);
        assert_eq!(wanted("direct").expect("it is known"), InternodeEngine::Direct);
        assert_eq!(wanted("ranks").expect("it is known"), InternodeEngine::Ranks);
        assert_eq!(wanted("agent").expect("it is known"), InternodeEngine::Agent);
        assert_eq!(wanted("").expect("it is empty"), InternodeEngine::Any);
        let error = wanted("kernal").expect_err("there is no such engine").to_string();
        let expected =
            format!("{INTERNODE} is \"kernal\", it must be kernel, direct, ranks or agent");
        assert!(error.starts_with(&expected), "{error}");
    }

    #[test]
    fn the_network_between_nodes_has_a_known_name() {
        let wanted = |word| HashMap::from([(NETWORK, word)]).network();
        assert_eq!(wanted("tcp").expect("it is known"), NetworkChoice::Tcp);
        assert_eq!(wanted("auto").expect("it is known"), NetworkChoice::Auto);
        let named = NetworkChoice::Fabric("tcp;ofi_rxm".into());
        assert_eq!(wanted("fabric:tcp;ofi_rxm").expect("it is known"), named);
        assert_eq!(wanted("fabric").expect("it is known"), NetworkChoice::Fabric(String::new()));
        for wrong in ["infiniband", "tcp:eth0", "auto:tcp"] {
            let error = wanted(wrong).expect_err("there is no such network").to_string();
            assert!(error.contains(wrong) && error.contains("fabric:PROVIDER"), "{error}");
        }
    }

    #[test]
    fn the_start_timeout_is_in_seconds() {
        let timeout = |text| HashMap::from([(START_TIMEOUT, text)]).start_timeout();
        assert_eq!(timeout("0.25").expect("a quarter of a second"), Duration::from_millis(250));
        for wrong in ["-1", "0", "soon", "1e19", "1e300"] {
            assert!(timeout(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_node_timeout_is_a_second_at_least() {
        let timeout =
            |text| HashMap::from([(NODE_TIMEOUT, text)]).node_timeout().expect("it is a number");
        assert_eq!(
            ["0", "90.5"].map(timeout),
            [1000, 90_500].map(|time| Some(Duration::from_millis(time)))
        );
        assert_eq!(HashMap::new().node_timeout().expect("it is not set"), None);
    }

    #[test]
    fn the_nearest_name_is_suggested_for_a_misspelt_one() {
        assert_eq!(nearest_if_unknown("TRADEWIND_RANKS"), Some(RANK));
        assert_eq!(nearest_if_unknown("TRADEWIND_NODE_TIME_OUT"), Some(NODE_TIMEOUT));
        assert_eq!(nearest_if_unknown("TRADEWIND_NODE"), None, "it is known");
        assert_eq!(nearest_if_unknown("OMPI_RANKS"), None, "it is another program's");
    }

    #[test]
    fn every_variable_is_listed_once() {
        let mut names: Vec<&str> = VARIABLES.iter().map(|variable| variable.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), VARIABLES.len());
        assert_eq!(markdown().lines().count(), 2 + VARIABLES.len());
    }
}
