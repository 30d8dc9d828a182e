//! Who is at the other end of a local socket, as the kernel tells it.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;

use super::BrokerError;

/// The credentials of the process at the other end, at the moment it connected or listened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its number; `None` if it lives in a process namespace that this process cannot see.
    pub pid: Option<u32>,
    /// Its effective user number.
    pub uid: u32,
    /// Its effective group number.
    pub gid: u32,
}

impl Peer {
    pub(super) fn of(socket: &OwnedFd) -> Result<Peer, Errno> {
        // Not rustix's call: its process number cannot be 0, which is what the kernel says for
        // another namespace.
        let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut length = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes, the size of `found`; any bits are a
        // valid `ucred`.
        let result = unsafe {
            let to = (&raw mut found).cast();
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
        let pid = u32::try_from(found.pid).ok().filter(|&pid| pid != 0);
        Ok(Peer { pid, uid: found.uid, gid: found.gid })
    }

    pub(super) fn check(self, ours: u32) -> Result<(), BrokerError> {
        if self.uid == ours {
            Ok(())
        } else {
            Err(BrokerError::OtherUser { theirs: self.uid, ours })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_own_user_may_enter() {
        let peer = Peer { pid: Some(1), uid: 1000, gid: 1000 };
        assert!(peer.check(1000).is_ok());
        assert!(matches!(peer.check(0), Err(BrokerError::OtherUser { theirs: 1000, ours: 0 })));
    }
}
