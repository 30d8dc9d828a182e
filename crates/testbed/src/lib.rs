//! Nodes for tests, made of network namespaces.
//!
//! A [`Testbed`] is a few nodes on one Ethernet: each a network namespace with its own interface
//! and addresses, joined by a bridge or by a [`Relay`] of our own that loses, duplicates, reorders
//! and damages frames. The machine's own network is not touched. A namespace has no name, so
//! nothing is left behind however the process ends; to look into one, `nsenter --net=` takes
//! [`Node::namespace`].
//!
//! It needs CAP_SYS_ADMIN and CAP_NET_ADMIN, and `ip` of iproute2. A test that cannot have them
//! says so ([`or_skip`]).
//!
//! ```
//! # fn main() {
//! use std::net::UdpSocket;
//! use testbed::{Options, Testbed};
//!
//! let testbed = testbed::or_skip!(Testbed::new(2, Options { mtu: 9000, ..Options::default() }));
//! let [here, there] = testbed.nodes() else { unreachable!("two were asked for") };
//! let receiver = there.run(|| UdpSocket::bind((there.address(), 7000))).expect("nobody else is there");
//! let sender = here.run(|| UdpSocket::bind((here.address(), 0))).expect("nobody else is there");
//! sender.send_to(b"hello", (there.address(), 7000)).expect("the link is up");
//! let mut bytes = [0; 16];
//! assert_eq!(receiver.recv(&mut bytes).expect("it comes"), 5);
//! # }
//! ```

mod bridge;
mod error;
mod namespace;
mod node;
mod relay;
mod tap;

use bridge::Bridge;
pub use error::{Error, say_skipped};
pub use node::Node;
pub use relay::{Counts, Faults, Relay};
use std::time::{Duration, Instant};

/// How the nodes are joined.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Medium {
    /// veth pairs and a bridge: what the kernel makes of it, without losses.
    #[default]
    Bridge,
    /// TAP interfaces and a thread of this process between them: slower, and as bad as [`Faults`]
    /// ask for.
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
    /// How the nodes are joined.
    pub medium: Medium,
}

impl Default for Options {
    /// A bridge, MTU 1500.
    fn default() -> Self {
        Options { mtu: 1500, medium: Medium::default() }
    }
}

/// Nodes on one Ethernet.
#[derive(Debug)]
pub struct Testbed {
    nodes: Vec<Node>,
    link: Link,
}

#[derive(Debug)]
enum Link {
    Bridge(Bridge),
    Relay(Relay),
}

/// The most nodes of a testbed.
pub const MAXIMUM_NODES: usize = 64;

impl Testbed {
    /// Makes nodes and joins them. They know each other's hardware addresses, so nothing is asked
    /// for on the way.
    ///
    /// # Errors
    /// When a right or a feature is missing ([`Error::is_lack`]), or the system refuses something.
    pub fn new(nodes: usize, options: Options) -> Result<Self, Error> {
        if !(1..=MAXIMUM_NODES).contains(&nodes) {
            return Err(Error::Nodes { nodes, limit: MAXIMUM_NODES });
        }
        let nodes: Vec<Node> = (0..nodes).map(Node::new).collect::<Result<_, _>>()?;
        let link = match options.medium {
            Medium::Bridge => Link::Bridge(Bridge::join(&nodes, options.mtu)?),
            Medium::Relay { seed } => Link::Relay(Relay::join(&nodes, options.mtu, seed)?),
        };
        for node in &nodes {
            node.set_up(&nodes)?;
        }
        let testbed = Testbed { nodes, link };
        testbed.nodes.iter().try_for_each(|node| testbed.await_link(node))?;
        Ok(testbed)
    }

    /// All nodes.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Pulls the cable of a node: its interface stays as it is, without a carrier.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn unplug(&self, node: usize) -> Result<(), Error> {
        self.set_port(node, false)
    }

    /// Plugs the cable in again and waits until the link is up.
    ///
    /// # Errors
    /// When the system refuses, or the link does not come up.
    pub fn plug(&self, node: usize) -> Result<(), Error> {
        self.set_port(node, true)?;
        self.await_link(&self.nodes[node])
    }

    /// What joins the nodes, if it is a relay.
    pub fn relay(&self) -> Option<&Relay> {
        match &self.link {
            Link::Bridge(_) => None,
            Link::Relay(relay) => Some(relay),
        }
    }

    fn set_port(&self, node: usize, up: bool) -> Result<(), Error> {
        match &self.link {
            Link::Bridge(bridge) => bridge.set_port(node, up),
            Link::Relay(relay) => relay.set_port(node, up),
        }
    }

    fn await_link(&self, node: &Node) -> Result<(), Error> {
        // A TAP interface that was never without a carrier says "unknown".
        await_that(node.number(), || Ok(node.read("operstate")?.trim() != "down"))?;
        match &self.link {
            Link::Bridge(bridge) => await_that(node.number(), || bridge.forwards(node.number())),
            Link::Relay(_) => Ok(()),
        }
    }
}

/// Waits until the kernel has noticed that a link is up, which it does a moment after it was told.
fn await_that(node: usize, up: impl Fn() -> Result<bool, Error>) -> Result<(), Error> {
    const PATIENCE: Duration = Duration::from_secs(10);
    let end = Instant::now() + PATIENCE;
    while !up()? {
        if Instant::now() > end {
            return Err(Error::Link { node, seconds: PATIENCE.as_secs() });
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
