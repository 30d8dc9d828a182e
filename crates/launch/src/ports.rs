//! The ports at which a job listens.

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV6, TcpListener};
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Number of connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// Listens at a port of all addresses of this node, IPv4 and IPv6, whatever the system's default
/// for sockets of IPv6 is (`net.ipv6.bindv6only`). With port 0 the kernel chooses the port.
///
/// # Errors
/// If the port is in use, or the system refuses.
///
/// ```
/// use std::net::TcpStream;
///
/// # fn main() -> std::io::Result<()> {
/// let listener = launch::ports::listen_everywhere(0)?;
/// let port = listener.local_addr()?.port();
/// TcpStream::connect(("127.0.0.1", port))?;
/// # Ok(())
/// # }
/// ```
pub fn listen_everywhere(port: u16) -> std::io::Result<TcpListener> {
    match listen_with_both(port) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => Err(error),
        // A node without IPv6.
        Err(_) => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)),
        listener => listener,
    }
}

fn listen_with_both(port: u16) -> std::io::Result<TcpListener> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET6, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_ipv6_v6only(&socket, false)?;
    bind(&socket, &SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0))?;
    listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// Ports at which the processes of a job may listen; the kernel chooses without a range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports(Option<RangeInclusive<u16>>);

impl FromStr for Ports {
    type Err = ();

    /// Parses `7000-7999`, or one port.
    fn from_str(text: &str) -> Result<Self, ()> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |text: &str| text.trim().parse().map_err(|_| ());
        let (first, last): (u16, u16) = (port(first)?, port(last)?);
        (first != 0 && first <= last).then_some(Ports(Some(first..=last))).ok_or(())
    }
}

impl Ports {
    /// Number of ports; `None` without a range.
    pub fn count(&self) -> Option<usize> {
        self.0.as_ref().map(ExactSizeIterator::len)
    }

    /// Returns the first port of the range; `None` without a range.
    pub fn first(&self) -> Option<u16> {
        self.at(0)
    }

    /// Returns the first and the last port of the range; `None` without a range.
    pub fn bounds(&self) -> Option<(u16, u16)> {
        self.0.as_ref().map(|range| (*range.start(), *range.end()))
    }

    /// Returns the port at this position of the range, counted round it; `None` without a range.
    pub(crate) fn at(&self, position: u32) -> Option<u16> {
        let range = self.0.as_ref()?;
        let offset = position as usize % range.len();
        range.clone().nth(offset)
    }

    /// Calls `bind` with the ports of the range until one is free, or with 0 without a range.
    ///
    /// # Errors
    /// The error of the last call; the text names the range if all ports are in use.
    ///
    /// ```
    /// use launch::ports::Ports;
    /// use std::net::TcpListener;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// let ports: Ports = "47100-47199".parse().expect("a range");
    /// let listener = ports.bind(|port| TcpListener::bind(("127.0.0.1", port)))?;
    /// assert!((47100..=47199).contains(&listener.local_addr()?.port()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn bind<T>(&self, bind: impl Fn(u16) -> std::io::Result<T>) -> std::io::Result<T> {
        let Some(range) = &self.0 else { return bind(0) };
        for port in range.clone() {
            match bind(port) {
                Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                bound => return bound,
            }
        }
        let first = range.start();
        let last = range.end();
        let text =
            format!("all ports of TRADEWIND_PORTS ({first}-{last}) are in use: widen the range");
        Err(std::io::Error::new(ErrorKind::AddrInUse, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn ranges_are_parsed() {
        let ports = |text: &str| text.parse::<Ports>();
        assert_eq!(ports("7000-7001"), Ok(Ports(Some(7000..=7001))));
        assert_eq!(ports("7000"), Ok(Ports(Some(7000..=7000))));
        for wrong in ["", "0", "0-5", "9-8", "70000", "a-b", "1-2-3", "-1"] {
            assert_eq!(ports(wrong), Err(()), "{wrong}");
        }
        assert_eq!(ports("7000-7002").map(|ports| ports.at(5)), Ok(Some(7002)));
        assert_eq!(Ports::default().at(5), None);
    }

    #[test]
    fn ports_in_use_are_skipped_and_the_exhausted_range_is_named() {
        let held = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = held.local_addr().expect("it is bound").port();
        let bind = |ports: &str| {
            let ports: Ports = ports.parse().expect("a range");
            ports.bind(|port| TcpListener::bind(("127.0.0.1", port)))
        };
        let error = bind(&port.to_string()).expect_err("in use").to_string();
        assert!(error.contains(&format!("TRADEWIND_PORTS ({port}-{port})")), "{error}");
        let next = bind(&format!("{port}-{}", port.saturating_add(50))).expect("one is free");
        assert_ne!(next.local_addr().expect("it is bound").port(), port);
    }
}
