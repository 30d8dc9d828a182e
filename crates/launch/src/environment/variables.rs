//! The list of the environment variables, and variables that resemble one of it.

use crate::edit_distance::distance;
use std::fmt::Write;

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
    INTERNODE = "TRADEWIND_INTERNODE", "`kernel`, `direct`, `ranks` or `agent`", "the kernel engine where all nodes have it, else by the number of cores",
        "Backends between nodes. `kernel`: the BPF program is required. `direct`: no collective in the kernel, and those of one step in the ranks on any number of cores. `ranks`: all collectives in the ranks. `agent`: all collectives and messages in the node services.";
    NETWORK = "TRADEWIND_NETWORK", "`tcp`, `fabric`, `fabric:PROVIDER` or `auto`", "`tcp`",
        "Network between node services: TCP, or libfabric with any provider or the named one. `+read` behind the name reads long messages from the sender's memory, `+messages` sends them. `auto`: the fastest that `tradewind tune` has measured, else TCP.";
    LIBFABRIC = "TRADEWIND_LIBFABRIC", "path", "libfabric.so.1 of the system",
        "The library libfabric, version 1.17 or later.";
    INTERFACE = "TRADEWIND_INTERFACE", "name or range", "the fastest that was measured, else chosen from the routes",
        "Network that leads to the other nodes: an interface, or a range of addresses such as 10.1.0.0/16.";
    NODE = "TRADEWIND_NODE", "text", "by kernel namespaces",
        "Name of this node, if several are simulated on one machine.";
    NODE_TIMEOUT = "TRADEWIND_NODE_TIMEOUT", "seconds", "15 (agent), 4.35 (kernel engine)",
        "Time without a response after which another node counts as unreachable, and the longest time that leaving a job takes; less than 1 counts as 1.";
    PMIX = "TRADEWIND_PMIX", "path", "the launcher's library, then the system's",
        "The library libpmix.so.2 of PMIx, for launchers that use it.";
    SECRET = "TRADEWIND_SECRET", "text", "not set",
        "Secret of a job whose ranks exchange their addresses over TCP, and of programs on different nodes that meet by name: 16 characters or more.";
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
        "Longest message of a schedule on one node that is sent before its receive is posted, in bytes.";
    SINGLE_COPY = "TRADEWIND_SINGLE_COPY", "number", "measured when the job starts",
        "Shortest exchange between ranks of a node, in bytes, that copies directly between private memories. Messages in one direction need four times this length. 0 for never.";
    MPI = "TRADEWIND_MPI", "`on` or `off`", "on",
        "With `off`, or an unknown value, the library that is loaded before an MPI program leaves all calls to the MPI library.";
    MPI_ONLY = "TRADEWIND_MPI_ONLY", "list", "those that are faster on tradewind, by a built-in rule or the table of `tradewind tune --mpi`",
        "Collectives of an MPI program that run on tradewind, such as `iallreduce,allreduce_init,allreduce`, at every length; `nonblocking` stands for all nonblocking and persistent ones, `all` for every one. The value of rank 0 counts.";
    MPI_REPORT = "TRADEWIND_MPI_REPORT", "1", "off",
        "Prints at the end of an MPI program which collectives ran on tradewind.";
    JOB = "TRADEWIND_JOB", "text", "not set",
        "Distinguishes the job from other jobs of the same user, if no launcher does.";
    SERVICE = "TRADEWIND_SERVICE", "name", "set by `tradewind run`",
        "Name of the node service.";
    RANK = "TRADEWIND_RANK", "number", "set by the launcher",
        "Number of this rank, from 0.";
    SIZE = "TRADEWIND_SIZE", "number", "set by the launcher",
        "Number of ranks.";
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

#[cfg(test)]
mod tests {
    use super::*;

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
