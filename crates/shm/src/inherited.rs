//! Descriptors that this process has from the one that started it, known by their number alone.

use rustix::fd::BorrowedFd;
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{OwnedFd, RawFd};

/// The lowest number of a descriptor that is not standard input, output or error.
const FIRST: RawFd = 3;

/// Another handle of what an inherited descriptor refers to. From now on this process's children
/// inherit neither.
///
/// The number is taken on trust, as it comes from the environment. If it belongs to something else,
/// that is what the handle refers to; the number itself stays whoever's it is.
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
/// When there is no such descriptor, or no room for another one.
pub fn adopt(number: RawFd) -> Result<OwnedFd> {
    if number < 0 {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            "the number of a descriptor is not below 0",
        ));
    }
    // SAFETY: the number is not -1, and it is only borrowed for the calls below, which fail if
    // nothing is open under it. Nothing is read, written or closed by it.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    fcntl_setfd(borrowed, FdFlags::CLOEXEC)?;
    Ok(fcntl_dupfd_cloexec(borrowed, FIRST)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_under_which_nothing_is_open_is_an_error() {
        assert!(adopt(1 << 20).is_err());
    }
}
