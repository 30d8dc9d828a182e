//! Origin of the file under a segment: anonymous memory or a directory.

use super::error::SegmentError;
use rustix::fs::{CWD, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Description of anonymous memory in error messages.
const MEMORY: &str = "the memory of this machine";

/// Origin of a segment's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backing {
    /// Anonymous memory (memfd): independent of any file system, sealed against a change of size.
    Memory,
    /// An unnamed file in this directory, on a tmpfs or any file system that can reserve space.
    Directory(PathBuf),
}

impl Backing {
    /// Creates the file, `bytes` long and without pages, and its description for error messages.
    pub(super) fn create(&self, bytes: u64) -> Result<(OwnedFd, String), SegmentError> {
        let place = match self {
            Backing::Memory => MEMORY.to_owned(),
            Backing::Directory(directory) => describe_directory(directory),
        };
        check_limit(bytes)?;
        let created = match self {
            Backing::Memory => memory_file(bytes).and_then(|file| {
                // Without seals a holder of the descriptor could shorten the file, and accesses of
                // all other processes would raise SIGBUS.
                rustix::fs::fcntl_add_seals(
                    &file,
                    SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL,
                )?;
                Ok(file)
            }),
            Backing::Directory(directory) => directory_file(directory, bytes),
        };
        match created {
            Ok(file) => Ok((file, place)),
            Err(source) => Err(SegmentError::Create { place, source: source.into() }),
        }
    }
}

/// Creates anonymous memory that its creator seals after mapping it.
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
    // Creating a file longer than this limit raises SIGXFSZ, which kills the process.
    match getrlimit(Resource::Fsize).current.filter(|&limit| limit < bytes) {
        Some(limit) => Err(SegmentError::FileSizeLimit { needed: bytes, limit }),
        None => Ok(()),
    }
}

fn memory_file(bytes: u64) -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 do not support NOEXEC_SEAL; later ones may require it (sysctl
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
        // The file system lacks unnamed files (ISDIR: so does the kernel): create a named file and
        // unlink it.
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => named_then_unlinked(directory, flags, mode)?,
        other => other?,
    };
    rustix::fs::ftruncate(&file, bytes)?;
    Ok(file)
}

fn named_then_unlinked(directory: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!(".tradewind-segment-{}-{number}", std::process::id()));
        // EXCL and NOFOLLOW: in a directory writable by others, an existing name belongs to another
        // process.
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

/// Describes a file received as a descriptor.
pub(super) fn describe(file: &OwnedFd) -> String {
    match std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())) {
        Ok(path) if path.starts_with("/memfd:tradewind-segment") => MEMORY.to_owned(),
        Ok(path) => format!("the segment {}", path.display()),
        Err(_) => "the segment that was passed to this process".to_owned(),
    }
}

/// Returns the available bytes of the file system under `file`, if it has a fixed size.
pub(super) fn available_bytes(file: impl AsFd) -> Option<u64> {
    let status = rustix::fs::fstatvfs(file).ok().filter(|status| status.f_blocks != 0)?;
    Some(status.f_bavail.saturating_mul(status.f_frsize))
}
