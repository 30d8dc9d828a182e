//! Descriptors inherited from the parent process, identified by their number.

use rustix::fd::BorrowedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

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

/// Moves a descriptor above those of standard input, output and error, which a program may have
/// closed and use all the same.
///
/// ```
/// use std::os::fd::AsRawFd;
///
/// # fn main() -> std::io::Result<()> {
/// let file = std::fs::File::open("/dev/null")?;
/// assert!(shm::inherited::above_standard(file.into())?.as_raw_fd() > 2);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// If the limit on open files permits no such number.
pub fn above_standard(descriptor: OwnedFd) -> rustix::io::Result<OwnedFd> {
    match descriptor.as_raw_fd() {
        ..FIRST => fcntl_dupfd_cloexec(&descriptor, FIRST),
        _ => Ok(descriptor),
    }
}

/// The numbers of standard input, output and error, as far as they are free, kept from descriptors
/// that this process opens meanwhile: a program that has closed standard error may write to its
/// number all the same.
#[derive(Debug)]
pub struct StandardNumbers {
    _occupied: Vec<OwnedFd>,
}

/// Occupies the free numbers below those of other descriptors as long as the value lives.
///
/// ```
/// let _occupied = shm::inherited::occupy_standard_numbers();
/// ```
pub fn occupy_standard_numbers() -> StandardNumbers {
    let open = || rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok();
    let is_standard = |descriptor: &OwnedFd| descriptor.as_raw_fd() < FIRST;
    StandardNumbers { _occupied: std::iter::from_fn(open).take_while(is_standard).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_descriptor_number_is_an_error() {
        assert!(adopt(1 << 20).is_err());
    }
}
