//! Shared memory that killed MPI programs leave.

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};
use testing::mpi::remove_left_memory;

testing::tests![segments_that_no_process_uses_are_removed];

/// Removes its file at the end, also of a test that fails.
struct Segment(PathBuf);

impl Segment {
    fn create(name: &str) -> (Segment, File) {
        let path = PathBuf::from(format!("/dev/shm/{name}_{}", std::process::id()));
        let file = File::create(&path).expect("there is shared memory");
        (Segment(path), file)
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Removes segments until this one is gone: a process that another test is starting has the files of
/// this one open for a moment.
fn is_removed(segment: &Segment, since: SystemTime) -> bool {
    let end = Instant::now() + Duration::from_secs(60);
    while segment.0.exists() && Instant::now() < end {
        remove_left_memory(since);
    }
    !segment.0.exists()
}

fn segments_that_no_process_uses_are_removed() {
    // File times are those of the last tick of the kernel's clock.
    let since = SystemTime::now() - Duration::from_secs(1);
    let (left, _) = Segment::create("mpich_shm_left");
    let (open, file) = Segment::create("mpich_shm_open");
    let (foreign, _) = Segment::create("other_shm_left");
    // So old that no other test on this machine removes it.
    let (old, old_file) = Segment::create("mpich_shm_old");
    old_file.set_modified(SystemTime::UNIX_EPOCH).expect("its own file");
    drop(old_file);
    assert!(is_removed(&left, since));
    assert!(open.0.exists() && foreign.0.exists() && old.0.exists());
    drop(file);
    assert!(is_removed(&open, since));
}
