//! Descriptors inherited from the parent process, identified by their number.

use rustix::fd::BorrowedFd;
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{OwnedFd, RawFd};

/// Lowest descriptor number above standard input, output and error.
const FIRST: RawFd = 3;

/// Duplicates an inherited descriptor. From then on this process's children inherit neither the
/// original nor the duplicate.
///
/// The number comes from the environment and cannot be verified. If it belongs to another file, the
/// duplicate refers to that file; the original stays open either way.
///
/// ```
/// use std::os::fd::AsRawFd;
///
/// # fn main() -> std::io::Result<()> {
/// let file = std::fs::File::open("/dev/null")?;
/// let handle = shm::inherited::adopt(file.as_raw_fd())?;
/// assert_ne!(handle.as_raw_fd(), file.as_raw_fd());
/// assert!(shm::inherited::adopt(-1).is_err());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Returns an error when there is no such descriptor, or when the descriptor table is full.
pub fn adopt(number: RawFd) -> Result<OwnedFd> {
    if number < 0 {
        return Err(Error::new(ErrorKind::InvalidInput, "a descriptor number cannot be negative"));
    }
    // SAFETY: the number is not -1. It is borrowed only for the calls below, which fail if no file
    // is open under it, and which do not read, write or close it.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    fcntl_setfd(borrowed, FdFlags::CLOEXEC)?;
    Ok(fcntl_dupfd_cloexec(borrowed, FIRST)?)
}

/// Keeps every descriptor of this process but standard input, output and error from the programs
/// that it executes.
///
/// ```
/// let file = std::fs::File::open("/dev/null")?;
/// shm::inherited::keep_to_this_process()?;
/// let flags = rustix::io::fcntl_getfd(&file)?;
/// assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
/// Returns an error when `/proc` is not mounted.
pub fn keep_to_this_process() -> Result<()> {
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let name = entry?.file_name();
        let Some(number) = name.to_str().and_then(|name| name.parse::<RawFd>().ok()) else {
            continue;
        };
        if number >= FIRST {
            // SAFETY: the number is not -1. It is borrowed only for this call, which fails if
            // another thread has closed it, and which does not read, write or close it.
            let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
            let _ = fcntl_setfd(borrowed, FdFlags::CLOEXEC);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_descriptor_number_is_an_error() {
        assert!(adopt(1 << 20).is_err());
    }
}
