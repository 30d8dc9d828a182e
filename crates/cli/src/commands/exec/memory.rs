//! Asking for memory before anything starts: what a file needs, and what there is.

use super::messages;
use super::placement::{pattern_bytes, received_bytes};
use ::launch::environment::{ARENA_MIB, Environment, Lookup};
use engine::node::JobOptions;
use goal::graph::{Graph, Operation};
use shm::segment::Backing;
use std::path::{Path, PathBuf};

/// Private memory of a rank before it has read the file.
const PROCESS: u64 = 2 << 20;
/// Private memory of a rank for each operation of all ranks: the file's graphs, schedules and links
/// at once.
const OPERATION: u64 = 640;
/// Memory of the segment for each operation of a run: its counters with a small message, its places
/// in a list of work.
const COUNTERS: u64 = 2 * 64 + 32;
/// Memory of the segment that goes to runs beyond the first, at least.
const FURTHER_RUNS: u64 = 4 << 20;
/// Overhead of allocation and rounding, per rank.
const SLACK: u64 = 1 << 20;

/// Bytes that a file needs.
#[derive(Debug, PartialEq, Eq)]
struct Need {
    /// In each rank's part of the segment.
    parts: Vec<u64>,
    /// In the processes, of all ranks together.
    private: u64,
}

impl Need {
    fn of(graphs: &[Graph], eager_limit: u64) -> Self {
        let windows = messages::windows(graphs);
        let operations: u64 = graphs.iter().map(|graph| graph.vertices().len() as u64).sum();
        let mut parts: Vec<u64> = graphs
            .iter()
            .map(|graph| {
                let schedule = 128 * graph.vertices().len() as u64 + 4 * graph.edges().len() as u64;
                let buffers = received_bytes(graph).saturating_add(pattern_bytes(graph, windows));
                buffers.saturating_add(schedule).saturating_add(SLACK)
            })
            .collect();
        // What all ranks' runs share lies in the first rank's part.
        if let Some(first) = parts.first_mut() {
            let counters = COUNTERS * operations + 256 * graphs.len() as u64;
            let run = mail(graphs, eager_limit).saturating_add(counters);
            *first = first.saturating_add(run).saturating_add(run.max(FURTHER_RUNS));
        }
        Need { parts, private: graphs.len() as u64 * (PROCESS + OPERATION * operations) }
    }

    fn segment(&self) -> u64 {
        self.parts.iter().fold(0, |sum, part| sum.saturating_add(*part))
    }
}

/// Bytes in which messages wait for their receive.
fn mail(graphs: &[Graph], eager_limit: u64) -> u64 {
    let vertices = graphs.iter().flat_map(Graph::vertices);
    let waiting = vertices.filter_map(|entry| match &entry.operation {
        Operation::Send { data, .. } => data.bytes().filter(|bytes| *bytes <= eager_limit),
        _ => None,
    });
    waiting.fold(0, |sum, bytes| sum.saturating_add(bytes).saturating_add(64))
}

/// Makes the ranks' parts of the segment large enough, and checks that there is memory for
/// everything.
///
/// # Errors
/// Required memory, available memory, and the remedy.
pub(super) fn reserve(graphs: &[Graph], job: &mut JobOptions) -> Result<(), String> {
    let need = Need::of(graphs, job.eager_limit);
    let largest = need.parts.iter().copied().zip(0..).max_by_key(|(part, _)| *part);
    if let Some((part, rank)) = largest.filter(|(part, _)| *part > job.arena_bytes) {
        if Environment.get(ARENA_MIB).is_some() {
            return Err(format!(
                "rank {rank} needs {} of the segment and TRADEWIND_ARENA_MIB allows {}: set it to {} or unset it",
                size(part),
                size(job.arena_bytes),
                part.div_ceil(1 << 20),
            ));
        }
        // It is address space; memory is taken as it is used.
        job.arena_bytes = part;
    }
    compare(&need, &AvailableMemory::read(&job.backing), graphs.len())
}

fn compare(need: &Need, available: &AvailableMemory, ranks: usize) -> Result<(), String> {
    let segment = need.segment();
    let private = need.private;
    let (of_memory, of_directory) = match &available.directory {
        Some(_) => (private, segment),
        None => (segment.saturating_add(private), 0),
    };
    if let Some((directory, free)) =
        available.directory.as_ref().filter(|(_, free)| *free < of_directory)
    {
        return Err(format!(
            "its messages need {} and {} has {} left: set TRADEWIND_SEGMENT_DIR to a directory with more",
            size(segment),
            directory.display(),
            size(*free)
        ));
    }
    if let Some(memory) = available.memory.filter(|memory| *memory < of_memory) {
        return Err(format!(
            "it needs about {} of memory ({} for messages, {} in {ranks} processes) and {} are available: free some, or \
             run it on a larger machine",
            size(of_memory),
            size(segment),
            size(private),
            size(memory)
        ));
    }
    Ok(())
}

/// Available memory.
#[derive(Debug)]
struct AvailableMemory {
    /// Memory that is available without swapping, where the system reports it.
    memory: Option<u64>,
    /// Directory of the segment if it is not memory of its own, and the space there.
    directory: Option<(PathBuf, u64)>,
}

impl AvailableMemory {
    fn read(backing: &Backing) -> Self {
        let machine = std::fs::read_to_string("/proc/meminfo")
            .ok()
            .and_then(|text| field(&text, "MemAvailable:"));
        let memory = [machine.map(|kibibytes| kibibytes.saturating_mul(1024)), group_memory()]
            .into_iter()
            .flatten()
            .min();
        let directory = match backing {
            Backing::Memory => None,
            Backing::Directory(path) => rustix::fs::statvfs(path)
                .ok()
                .map(|about| (path.clone(), about.f_bavail.saturating_mul(about.f_frsize))),
        };
        AvailableMemory { memory, directory }
    }
}

/// Memory that the control groups of this process still allow, file pages that can be given back included
/// (cgroup v2).
fn group_memory() -> Option<u64> {
    let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?.to_owned();
    let root = Path::new("/sys/fs/cgroup");
    let available = Path::new(&own).ancestors().filter_map(|group| {
        let read = |name: &str| std::fs::read_to_string(root.join(group).join(name)).ok();
        let limit: u64 = read("memory.max")?.trim().parse().ok()?;
        let used: u64 = read("memory.current")?.trim().parse().ok()?;
        let pages = read("memory.stat").unwrap_or_default();
        let given_back = [field(&pages, "active_file"), field(&pages, "inactive_file")]
            .into_iter()
            .flatten()
            .sum();
        Some(limit.saturating_sub(used.saturating_sub(given_back)))
    });
    available.min()
}

/// The number behind a name at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        (words.next() == Some(name)).then(|| words.next()?.parse().ok()).flatten()
    })
}

/// Text of a number of bytes.
fn size(bytes: u64) -> String {
    let mebibytes = bytes as f64 / f64::from(1 << 20);
    match mebibytes {
        0.0..10.0 => format!("{mebibytes:.1} MiB"),
        10.0..10240.0 => format!("{mebibytes:.0} MiB"),
        _ => format!("{:.1} GiB", mebibytes / 1024.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange(bytes: u64) -> Vec<Graph> {
        let rank = |rank: u32| {
            format!("rank {rank} {{\nsend {bytes}b to {0}\nrecv {bytes}b from {0}\n}}\n", 1 - rank)
        };
        goal::text::read(&format!("num_ranks 2\n{}{}", rank(0), rank(1)))
            .expect("the text is right")
    }

    #[test]
    fn every_byte_that_is_received_counts() {
        let need = Need::of(&exchange(1 << 30), 4096);
        assert!(
            need.parts.iter().all(|part| (2 << 30..(2 << 30) + (8 << 20)).contains(part)),
            "{need:?}"
        );
        assert!(Need::of(&exchange(u64::MAX), 4096).segment() == u64::MAX, "it does not wrap");
    }

    #[test]
    fn what_is_missing_is_named() {
        let need = Need { parts: vec![3 << 30, 1 << 30], private: 6 << 20 };
        let available = |memory, directory| AvailableMemory { memory, directory };
        assert_eq!(compare(&need, &available(Some(5 << 30), None), 2), Ok(()));
        assert_eq!(compare(&need, &available(None, None), 2), Ok(()));
        let error =
            compare(&need, &available(Some(4 << 30), None), 2).expect_err("four do not suffice");
        let expected = "it needs about 4102 MiB of memory (4096 MiB for messages, 6.0 MiB in 2 processes) and 4096 MiB are \
                        available: free some, or run it on a larger machine";
        assert_eq!(error, expected);
        let shelf = Some((PathBuf::from("/shelf"), 1 << 30));
        let error = compare(&need, &available(Some(5 << 30), shelf), 2)
            .expect_err("the directory is too small");
        assert!(
            error.starts_with("its messages need 4096 MiB and /shelf has 1024 MiB left"),
            "{error}"
        );
    }

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "MemFree: 1 kB\nMemAvailable:  24 kB\n";
        assert_eq!(field(text, "MemAvailable:"), Some(24));
        assert_eq!(field(text, "Mem"), None);
    }
}
