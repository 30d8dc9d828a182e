//! Network interfaces of this node.

pub(crate) mod pair;

use crate::error::LoadError;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Network interface of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name.
    pub name: String,
    /// Ethernet address.
    pub hardware_address: [u8; 6],
    /// Size of its largest IP packet.
    pub mtu: u32,
}

/// Returns the names of the Ethernet interfaces of this node that have an address.
///
/// # Errors
/// The system does not list them.
pub fn ethernet_interfaces() -> Result<Vec<String>, LoadError> {
    let system = |source| LoadError::System { what: "listing the network interfaces", source };
    let addresses = if_addrs::get_if_addrs().map_err(system)?;
    let mut names: Vec<String> = addresses.into_iter().map(|address| address.name).collect();
    names.sort();
    names.dedup();
    names.retain(|name| Interface::named(name).is_ok());
    Ok(names)
}

/// Kind of interfaces with Ethernet headers (`ARPHRD_ETHER`).
const ETHERNET: u16 = 1;

impl Interface {
    /// Returns the interface of this name.
    ///
    /// # Errors
    /// There is none, or it is not an Ethernet.
    ///
    /// ```
    /// let missing = kernel::Interface::named("no-such-one");
    /// assert!(matches!(missing, Err(kernel::LoadError::NoInterface { .. })));
    /// ```
    pub fn named(name: &str) -> Result<Self, LoadError> {
        let socket = any_socket()?;
        let missing = |_| LoadError::NoInterface { name: name.to_owned() };
        let hardware = ask(socket.as_fd(), name, libc::SIOCGIFHWADDR).map_err(missing)?;
        let mtu = ask(socket.as_fd(), name, libc::SIOCGIFMTU).map_err(missing)?;
        // A socket address: the family, here the kind of interface, and the bytes of the address
        // behind it.
        let [k0, k1, a, b, c, d, e, f, ..] = hardware;
        if u16::from_ne_bytes([k0, k1]) != ETHERNET {
            return Err(LoadError::NoEthernet { name: name.to_owned() });
        }
        let [m0, m1, m2, m3, ..] = mtu;
        let mtu = u32::from_ne_bytes([m0, m1, m2, m3]);
        Ok(Interface { name: name.to_owned(), hardware_address: [a, b, c, d, e, f], mtu })
    }

    /// Returns the number of the interface of this name.
    pub(crate) fn number(name: &str) -> Result<u32, LoadError> {
        let missing = |_| LoadError::NoInterface { name: name.to_owned() };
        rustix::net::netdevice::name_to_index(any_socket()?, name).map_err(missing)
    }
}

/// Opens a socket: queries about interfaces work on any socket.
fn any_socket() -> Result<OwnedFd, LoadError> {
    rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)
        .map_err(|errno| LoadError::System { what: "opening a socket", source: errno.into() })
}

/// Queries the system about an interface; the answer is the union behind the name (netdevice(7)).
fn ask(socket: BorrowedFd<'_>, name: &str, request: libc::Ioctl) -> io::Result<[u8; 24]> {
    #[repr(C)]
    struct Question {
        name: [u8; libc::IFNAMSIZ],
        answer: [u8; 24],
    }
    let mut question = Question { name: [0; libc::IFNAMSIZ], answer: [0; 24] };
    if name.len() >= libc::IFNAMSIZ || name.contains('\0') {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    question.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: these requests read the name, which ends with a zero byte, and write at most the 24
    // bytes of the union behind it; the structure has the size and layout of the system's `ifreq`,
    // and the pointer is used during the call only.
    let outcome = unsafe { libc::ioctl(socket.as_raw_fd(), request, &raw mut question) };
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(question.answer) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_no_ethernet() {
        assert!(matches!(
            Interface::named("lo"),
            Err(LoadError::NoEthernet { .. } | LoadError::NoInterface { .. })
        ));
        assert!(Interface::named("a name that is far too long for an interface").is_err());
    }
}
