//! The state of a socket that only an ioctl returns.

use rustix::ioctl::{Getter, ioctl};
use rustix::net::getpeername;
use std::os::fd::BorrowedFd;

/// The request SIOCOUTQ of `linux/sockios.h`, which has the number of TIOCOUTQ.
const SIOCOUTQ: u32 = 0x5411;

/// Returns the number of bytes that were written to a TCP socket and that the other side's system
/// has not acknowledged; 0 if the connection has ended.
#[expect(unsafe_code, reason = "an ioctl is unsafe, because its number decides what it accesses")]
pub fn unacknowledged(socket: BorrowedFd<'_>) -> u64 {
    // The count of a connection that was reset stays as it was. Such a connection has no other end.
    if getpeername(socket).is_err() {
        return 0;
    }
    // SAFETY: SIOCOUTQ writes one int (tcp(7)), and the getter provides the place for one.
    let count = unsafe { ioctl(socket, Getter::<SIOCOUTQ, i32>::new()) };
    count.map_or(0, |count| u64::from(count.unsigned_abs()))
}
