//! Where the file under a segment comes from: anonymous memory or a directory.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{CWD, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::SegmentError;

/// Words for the place of anonymous memory.
const MEMORY: &str = "the memory of this machine";

/// What a segment's file is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backing {
    /// Anonymous memory (memfd): no file system to fill up, sealed against a change of size.
    Memory,
    /// A nameless file in this directory: a tmpfs with a size of its own, or any file system that
    /// reserves space.
    Directory(PathBuf),
}

impl Backing {
    /// Makes the file, `bytes` long and empty of pages, and the words that name its place in
    /// messages.
    pub(super) fn create(&self, bytes: u64) -> Result<(OwnedFd, String), SegmentError> {
        let place = match self {
            Backing::Memory => MEMORY.to_owned(),
            Backing::Directory(directory) => describe_directory(directory),
        };
        check_limit(bytes)?;
        let made = match self {
            Backing::Memory => memory_file(bytes).and_then(|file| {
                // Whoever got the descriptor could otherwise shorten the file under the feet of all
                // others: SIGBUS.
                rustix::fs::fcntl_add_seals(
                    &file,
                    SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL,
                )?;
                Ok(file)
            }),
            Backing::Directory(directory) => directory_file(directory, bytes),
        };
        match made {
            Ok(file) => Ok((file, place)),
            Err(source) => Err(SegmentError::Create { place, source: source.into() }),
        }
    }
}

/// Anonymous memory whose creator seals it when it has mapped it.
pub(super) fn unsealed_memory(bytes: u64) -> Result<(OwnedFd, String), SegmentError> {
    check_limit(bytes)?;
    match memory_file(bytes) {
        Ok(file) => Ok((file, MEMORY.to_owned())),
        Err(source) => {
            Err(SegmentError::Create { place: MEMORY.to_owned(), source: source.into() })
        }
    }
}

fn check_limit(bytes: u64) -> Result<(), SegmentError> {
    // Making a file longer than this limit raises SIGXFSZ, which kills. So ask first.
    match getrlimit(Resource::Fsize).current.filter(|&limit| limit < bytes) {
        Some(limit) => Err(SegmentError::FileSizeLimit { needed: bytes, limit }),
        None => Ok(()),
    }
}

fn memory_file(bytes: u64) -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 do not know NOEXEC_SEAL; later ones may insist on it (sysctl
    // vm.memfd_noexec).
    let file = match rustix::fs::memfd_create("tradewind-segment", flags | MemfdFlags::NOEXEC_SEAL)
    {
        Err(Errno::INVAL) => rustix::fs::memfd_create("tradewind-segment", flags)?,
        other => other?,
    };
    rustix::fs::ftruncate(&file, bytes)?;
    Ok(file)
}

fn directory_file(directory: &Path, bytes: u64) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let file = match rustix::fs::openat(CWD, directory, flags | OFlags::TMPFILE, mode) {
        // The file system has no nameless files (ISDIR: the kernel does not either): make a name
        // and take it away.
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => named_then_nameless(directory, flags, mode)?,
        other => other?,
    };
    rustix::fs::ftruncate(&file, bytes)?;
    Ok(file)
}

fn named_then_nameless(directory: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!(".tradewind-segment-{}-{number}", std::process::id()));
        // EXCL and NOFOLLOW: in a directory that others may write to, a name that exists is not
        // ours.
        let exclusive = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        match rustix::fs::openat(CWD, &path, exclusive, mode) {
            Ok(file) => return rustix::fs::unlink(&path).map(|()| file),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
    }
}

fn describe_directory(directory: &Path) -> String {
    // TMPFS_MAGIC of linux/magic.h.
    const TMPFS: u64 = 0x0102_1994;
    let is_tmpfs =
        rustix::fs::statfs(directory).is_ok_and(|status| status.f_type.cast_unsigned() == TMPFS);
    let kind = if is_tmpfs { "shared-memory file system" } else { "file system" };
    format!("the {kind} at {}", directory.display())
}

/// Words for a file that came as a descriptor.
pub(super) fn describe(file: &OwnedFd) -> String {
    match std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())) {
        Ok(path) if path.starts_with("/memfd:tradewind-segment") => MEMORY.to_owned(),
        Ok(path) => format!("the segment {}", path.display()),
        Err(_) => "the segment that was passed to this process".to_owned(),
    }
}

/// The bytes that the file system under `file` still has, if it has a size at all.
pub(super) fn room_left(file: &OwnedFd) -> Option<u64> {
    let status = rustix::fs::fstatvfs(file).ok().filter(|status| status.f_blocks != 0)?;
    Some(status.f_bavail.saturating_mul(status.f_frsize))
}
