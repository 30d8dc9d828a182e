//! The way out of a system call that the system refuses to this process.

use std::io::Error;

/// Returns the end of the text of an error: where the system refuses a call altogether, as sandboxes
/// let it do, or the process has too many open files, what helps; nothing for other errors.
///
/// ```
/// let refused = std::io::Error::from_raw_os_error(libc::EPERM);
/// assert!(shm::refusal::way_out(&refused).contains("sandbox"));
/// let full = std::io::Error::from_raw_os_error(libc::ENOSPC);
/// assert_eq!(shm::refusal::way_out(&full), "");
/// ```
pub fn way_out(error: &Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EAFNOSUPPORT) => {
            "; a sandbox, such as a seccomp filter, must permit the call"
        }
        Some(libc::ENOSYS) => {
            "; a sandbox, such as a seccomp filter, must permit the call, and a tool that emulates \
             calls, such as valgrind, must know it: use a newer version of that"
        }
        Some(libc::EMFILE) => "; raise the limit of open files (`ulimit -n`)",
        _ => "",
    }
}
