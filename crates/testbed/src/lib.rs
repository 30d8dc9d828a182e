//! Hosts for tests, made of network namespaces.
//!
//! A [`Testbed`] is a few hosts on one Ethernet: each a network namespace with its own interface and addresses, joined
//! by a bridge or by a [`Relay`] of our own that loses, duplicates, reorders and damages frames. The machine's own network
//! is not touched. A namespace has no name, so nothing is left behind however the process ends; to look into one,
//! `nsenter --net=` takes [`Host::namespace`].
//!
//! It needs CAP_SYS_ADMIN and CAP_NET_ADMIN, and `ip` of iproute2. A test that cannot have them says so ([`or_skip`]).
//!
//! ```
//! # fn main() {
//! use std::net::UdpSocket;
//! use testbed::{Options, Testbed};
//!
//! let testbed = testbed::or_skip!(Testbed::new(2, Options { mtu: 9000, ..Options::default() }));
//! let [here, there] = testbed.hosts() else { unreachable!("two were asked for") };
//! let receiver = there.run(|| UdpSocket::bind((there.address(), 7000))).expect("nobody else is there");
//! let sender = here.run(|| UdpSocket::bind((here.address(), 0))).expect("nobody else is there");
//! sender.send_to(b"hello", (there.address(), 7000)).expect("the link is up");
//! let mut bytes = [0; 16];
//! assert_eq!(receiver.recv(&mut bytes).expect("it comes"), 5);
//! # }
//! ```

mod bridge;
mod error;
mod host;
mod namespace;
mod relay;
mod tap;

use bridge::Bridge;
pub use error::{Error, say_skipped};
pub use host::Host;
pub use relay::{Counts, Faults, Relay};
use std::time::{Duration, Instant};

/// How the hosts are joined.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Medium {
    /// veth pairs and a bridge: what the kernel makes of it, without losses.
    #[default]
    Bridge,
    /// TAP interfaces and a thread of this process between them: slower, and as bad as [`Faults`] ask for.
    Relay {
        /// What chance is drawn from.
        seed: u64,
    },
}

/// What a testbed is like.
#[derive(Clone, Debug)]
pub struct Options {
    /// Largest IP packet in bytes.
    pub mtu: u32,
    /// How the hosts are joined.
    pub medium: Medium,
}

impl Default for Options {
    /// A bridge, MTU 1500.
    fn default() -> Self {
        Options { mtu: 1500, medium: Medium::default() }
    }
}

/// Hosts on one Ethernet.
#[derive(Debug)]
pub struct Testbed {
    hosts: Vec<Host>,
    link: Link,
}

#[derive(Debug)]
enum Link {
    Bridge(Bridge),
    Relay(Relay),
}

/// The most hosts of a testbed.
pub const MAXIMUM_HOSTS: usize = 64;

impl Testbed {
    /// Makes hosts and joins them. They know each other's hardware addresses, so nothing is asked for on the way.
    ///
    /// # Errors
    /// When a right or a feature is missing ([`Error::is_lack`]), or the system refuses something.
    pub fn new(hosts: usize, options: Options) -> Result<Self, Error> {
        if !(1..=MAXIMUM_HOSTS).contains(&hosts) {
            return Err(Error::Hosts { hosts, limit: MAXIMUM_HOSTS });
        }
        let hosts: Vec<Host> = (0..hosts).map(Host::new).collect::<Result<_, _>>()?;
        let link = match options.medium {
            Medium::Bridge => Link::Bridge(Bridge::join(&hosts, options.mtu)?),
            Medium::Relay { seed } => Link::Relay(Relay::join(&hosts, options.mtu, seed)?),
        };
        for host in &hosts {
            host.set_up(&hosts)?;
        }
        let testbed = Testbed { hosts, link };
        testbed.hosts.iter().try_for_each(|host| testbed.await_link(host))?;
        Ok(testbed)
    }

    /// All hosts.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Pulls the cable of a host: its interface stays as it is, without a carrier.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn unplug(&self, host: usize) -> Result<(), Error> {
        self.set_port(host, false)
    }

    /// Plugs the cable in again and waits until the link is up.
    ///
    /// # Errors
    /// When the system refuses, or the link does not come up.
    pub fn plug(&self, host: usize) -> Result<(), Error> {
        self.set_port(host, true)?;
        self.await_link(&self.hosts[host])
    }

    /// What joins the hosts, if it is a relay.
    pub fn relay(&self) -> Option<&Relay> {
        match &self.link {
            Link::Bridge(_) => None,
            Link::Relay(relay) => Some(relay),
        }
    }

    fn set_port(&self, host: usize, up: bool) -> Result<(), Error> {
        match &self.link {
            Link::Bridge(bridge) => bridge.set_port(host, up),
            Link::Relay(relay) => relay.set_port(host, up),
        }
    }

    fn await_link(&self, host: &Host) -> Result<(), Error> {
        // A TAP interface that was never without a carrier says "unknown".
        await_that(host.number(), || Ok(host.read("operstate")?.trim() != "down"))?;
        match &self.link {
            Link::Bridge(bridge) => await_that(host.number(), || bridge.forwards(host.number())),
            Link::Relay(_) => Ok(()),
        }
    }
}

/// Waits until the kernel has noticed that a link is up, which it does a moment after it was told.
fn await_that(host: usize, up: impl Fn() -> Result<bool, Error>) -> Result<(), Error> {
    const PATIENCE: Duration = Duration::from_secs(10);
    let end = Instant::now() + PATIENCE;
    while !up()? {
        if Instant::now() > end {
            return Err(Error::Link { host, seconds: PATIENCE.as_secs() });
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
