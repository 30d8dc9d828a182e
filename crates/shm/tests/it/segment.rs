//! Segments and arenas that run out of memory report an error and never raise a signal.

use crate::child_process::{argument, child};
use rustix::process::{Resource, Rlimit, setrlimit};
use shm::arena::{Arena, ArenaError};
use shm::segment::{Backing, Offset, Segment, SegmentError};
use shm::shared::SharedBytes;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

testing::tests![
    exceeding_the_file_size_limit_is_an_error,
    a_directory_segment_leaves_no_file,
    a_missing_directory_is_named,
    memory_segments_cannot_shrink,
    invalid_sizes_and_offsets_are_errors,
    files_without_a_segment_are_refused,
    a_size_beyond_the_address_space_is_an_error,
];
testing::tests![needs(UserNamespaces): a_full_file_system_is_an_error];
testing::parts![child_with_a_file_size_limit, child_with_one_mebibyte,];

const MIB: u64 = 1 << 20;

fn exceeding_the_file_size_limit_is_an_error() {
    let directory = tempfile::tempdir().expect("a directory");
    let argument = directory.path().to_str().expect("a plain path");
    let ended =
        child("segment::child_with_a_file_size_limit", argument).output().expect("this program");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

/// Child process of `exceeding_the_file_size_limit_is_an_error`.
fn child_with_a_file_size_limit() {
    let directory = argument();
    setrlimit(Resource::Fsize, Rlimit { current: Some(MIB), maximum: Some(MIB) })
        .expect("lowering is allowed");
    // The file is one page longer than the segment.
    let page = rustix::param::page_size() as u64;
    for backing in [Backing::Memory, Backing::Directory(directory.into())] {
        let refused =
            Segment::create(64 * MIB - page, backing.clone()).expect_err("larger than the limit");
        assert!(
            matches!(refused, SegmentError::FileSizeLimit { needed, limit: MIB } if needed == 64 * MIB)
        );
        assert!(
            refused.to_string().contains("64 MiB") && refused.to_string().contains("ulimit"),
            "{refused}"
        );
        Segment::create(MIB - page, backing)
            .and_then(|segment| segment.commit(Offset(0), MIB - page))
            .expect("just the limit");
    }
}

fn a_full_file_system_is_an_error() {
    let directory = tempfile::tempdir().expect("a directory");
    // A tmpfs of one mebibyte, visible to the child only, in its own user and mount namespace.
    let in_small_tmpfs = |program: &Path| {
        let mut command = Command::new("unshare");
        command
            .args(["-rm", "sh", "-c", r#"mount -t tmpfs -o size=1m tmpfs "$0" && exec "$@""#])
            .arg(directory.path())
            .arg(program);
        command
    };
    let mut ended = testing::part_by("segment::child_with_one_mebibyte", in_small_tmpfs);
    let ended = ended.arg(directory.path()).output().expect("it ran a moment ago");
    let output = [ended.stdout, ended.stderr].concat();
    let output = String::from_utf8_lossy(&output);
    assert!(ended.status.success(), "{}: {output}", ended.status);
}

/// Child process of `a_full_file_system_is_an_error`.
fn child_with_one_mebibyte() {
    let directory = argument();
    let segment = Segment::create(64 * MIB, Backing::Directory(PathBuf::from(&directory)))
        .expect("it is sparse");
    let full = segment.commit(Offset(0), 64 * MIB).expect_err("64 MiB are not there");
    assert!(
        matches!(full, SegmentError::NoSpace { needed, left: Some(left), .. } if needed == 64 * MIB && left <= MIB)
    );
    let words = full.to_string();
    assert!(
        words.starts_with(&format!("the shared-memory file system at {directory} has ")),
        "{words}"
    );
    assert!(
        words.contains("of the 64 MiB needed") && words.contains("TRADEWIND_SEGMENT_DIR"),
        "{words}"
    );

    let arena = Arena::new(Arc::new(segment), 0..64 * MIB).expect("inside");
    let mut buffers = Vec::new();
    let full = loop {
        match arena.allocate(30_000, 64) {
            Ok(buffer) => buffers.push(buffer),
            Err(full) => break full,
        }
    };
    assert!(matches!(full, ArenaError::Segment(SegmentError::NoSpace { .. })), "{full}");
    assert!(
        buffers.len() >= 30,
        "a step that does not fit must not waste the remaining memory: {}",
        buffers.len()
    );
    for &buffer in &buffers {
        let bytes = arena.segment().at::<SharedBytes<30_000>>(buffer).expect("inside");
        // SAFETY: the arena allocated these bytes to this test only, and they are committed.
        unsafe { bytes.as_mut_ptr().write_bytes(1, 30_000) };
    }
    let used = arena.used();
    arena.free(buffers[0]).expect("its own");
    assert_eq!(arena.allocate(30_000, 64).expect("what was freed"), buffers[0]);
    assert_eq!(arena.used(), used, "the failed allocation left no trace");
}

fn a_directory_segment_leaves_no_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let backing = Backing::Directory(directory.path().to_owned());
    let segment = Segment::create(MIB, backing).expect("space for a page");
    assert_eq!(std::fs::read_dir(&directory).expect("a directory").count(), 0);
    assert_eq!(segment.bytes(), MIB);
}

fn a_missing_directory_is_named() {
    let refused = Segment::create(MIB, Backing::Directory("/no/such/directory".into()))
        .expect_err("it is missing");
    assert!(matches!(refused, SegmentError::Create { .. }));
    assert!(refused.to_string().contains("/no/such/directory"), "{refused}");
}

fn memory_segments_cannot_shrink() {
    let segment = Segment::create(MIB, Backing::Memory).expect("a page");
    assert!(rustix::fs::ftruncate(segment.as_fd(), 0).is_err());
    assert!(rustix::fs::ftruncate(segment.as_fd(), 2 * MIB).is_err());
    assert!(segment.is_sealed());
}

fn invalid_sizes_and_offsets_are_errors() {
    for bytes in [0, u64::MAX, 1 << 63] {
        assert!(
            matches!(Segment::create(bytes, Backing::Memory), Err(SegmentError::Size { .. })),
            "{bytes}"
        );
    }
    let segment = Segment::create(1, Backing::Memory).expect("a page");
    let end = segment.bytes();
    for (offset, length) in
        [(end, 1), (0, end + 1), (u64::MAX, 1), (u64::MAX, u64::MAX), (end - 3, 4)]
    {
        assert!(segment.bytes_ptr(Offset(offset), length).is_err(), "{offset} {length}");
        assert!(segment.commit(Offset(offset), length).is_err(), "{offset} {length}");
    }
    segment.bytes_ptr(Offset(end), 0).expect("nothing, at the end");
    segment.commit(Offset(end), 0).expect("nothing, at the end");
    let odd = segment.at::<shm::sync::AtomicU32>(Offset(2)).expect_err("misaligned");
    assert!(matches!(odd, SegmentError::Misaligned { alignment: 4, .. }));
    assert!(segment.slice_at::<shm::sync::AtomicU32>(Offset(0), usize::MAX).is_err());
}

fn files_without_a_segment_are_refused() {
    let file = tempfile::tempfile().expect("a file");
    let again = file.try_clone().expect("a descriptor");
    assert!(matches!(Segment::from_fd(file.into()), Err(SegmentError::Size { bytes: 0 })));
    again.set_len(rustix::param::page_size() as u64).expect("it grows");
    assert!(matches!(Segment::from_fd(again.into()), Err(SegmentError::Size { bytes: 0 })));
    let read_only = std::fs::File::open("/proc/self/exe").expect("this program");
    assert!(matches!(Segment::from_fd(read_only.into()), Err(SegmentError::Map { .. })));
}

fn a_size_beyond_the_address_space_is_an_error() {
    // 2^62 bytes fit an address's type but no machine's address space.
    let refused = Segment::create(1 << 62, Backing::Memory).expect_err("too large to map");
    assert!(matches!(refused, SegmentError::Create { .. } | SegmentError::Map { .. }), "{refused}");
}
