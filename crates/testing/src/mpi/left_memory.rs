//! Shared memory that killed MPI programs leave behind.
//!
//! A library names the segments of a job and removes the names when the job ends in order. Those of a
//! job with a killed rank, or of one that aborts, remain and take memory until the machine starts again.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Directory of POSIX shared memory.
const DIRECTORY: &str = "/dev/shm";

/// First letters of the names that MPICH and Intel MPI give their segments.
const PREFIXES: [&str; 2] = ["mpich_shm_", "Intel_MPI_"];

/// Removes the segments of MPI programs that were created since a time and that no process uses.
/// Those of jobs that run at the same time stay.
pub fn remove_left_memory(since: SystemTime) {
    let left = created(since);
    if left.is_empty() {
        return;
    }
    // Behind the listing: a process that has created a listed file has it open until it has mapped it,
    // and maps it until it ends or removes the name itself. So a file that neither look finds is left.
    let open = used(open_files);
    let mapped = used(mapped_files);
    for path in left.iter().filter(|path| !open.contains(*path) && !mapped.contains(*path)) {
        // Another test may have removed it.
        let _ = fs::remove_file(path);
    }
}

fn created(since: SystemTime) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(DIRECTORY) else { return Vec::new() };
    let is_new = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        let is_ours =
            PREFIXES.iter().any(|prefix| name.as_encoded_bytes().starts_with(prefix.as_bytes()));
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        is_ours && modified.is_ok_and(|modified| modified >= since)
    };
    entries.flatten().filter(is_new).map(|entry| entry.path()).collect()
}

/// Files in the directory that processes use, as `of_process` finds them. Processes of other users
/// hide theirs; their files cannot be removed either.
fn used(of_process: impl Fn(&Path) -> Vec<PathBuf>) -> HashSet<PathBuf> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let files = processes.flat_map(|process| of_process(&process.path()));
    files.filter(|file| file.starts_with(DIRECTORY)).collect()
}

fn open_files(process: &Path) -> Vec<PathBuf> {
    let descriptors = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    descriptors.flat_map(|descriptor| fs::read_link(descriptor.path())).collect()
}

fn mapped_files(process: &Path) -> Vec<PathBuf> {
    let maps = fs::read_to_string(process.join("maps")).unwrap_or_default();
    let paths = maps.lines().filter_map(|line| line.find(DIRECTORY).map(|at| &line[at..]));
    paths.map(PathBuf::from).collect()
}
