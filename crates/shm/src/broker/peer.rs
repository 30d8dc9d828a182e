//! Credentials of the other end of a local socket, as reported by the kernel.

use super::error::BrokerError;
use rustix::io::Errno;
use std::os::fd::{AsRawFd, OwnedFd};

/// Credentials of the process at the other end, at the time it connected or listened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Process number; `None` if it lives in a process namespace that is not visible here.
    pub pid: Option<u32>,
    /// Effective user number.
    pub uid: u32,
    /// Effective group number.
    pub gid: u32,
}

impl Peer {
    pub(super) fn of(socket: &OwnedFd) -> Result<Peer, Errno> {
        // libc instead of rustix: the kernel reports process number 0 for another namespace, which
        // rustix's type excludes.
        let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut length = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes, the size of `credentials`, and
        // any bit pattern is a valid `ucred`.
        let result = unsafe {
            let to = (&raw mut credentials).cast();
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                to,
                &mut length,
            )
        };
        if result != 0 {
            let code = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
            return Err(Errno::from_raw_os_error(code));
        }
        let pid = u32::try_from(credentials.pid).ok().filter(|&pid| pid != 0);
        Ok(Peer { pid, uid: credentials.uid, gid: credentials.gid })
    }

    pub(super) fn check(self, ours: u32) -> Result<(), BrokerError> {
        if self.uid == ours {
            Ok(())
        } else {
            Err(BrokerError::OtherUser { pid: self.pid, theirs: self.uid, ours })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_users_are_refused() {
        let peer = Peer { pid: Some(1), uid: 1000, gid: 1000 };
        assert!(peer.check(1000).is_ok());
        assert!(matches!(
            peer.check(0),
            Err(BrokerError::OtherUser { pid: Some(1), theirs: 1000, ours: 0 })
        ));
    }
}
