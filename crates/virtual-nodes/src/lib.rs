//! Several nodes on one machine, for measurements and tests.
//!
//! [`VirtualNodes`] are network namespaces on one Ethernet. Each node has an interface of its own
//! with an IPv4 and an IPv6 address; a bridge, or another [`Link`], joins them. The network of the
//! machine itself does not change. The namespaces have no names, so nothing is left behind even if
//! the process is killed. `nsenter --net=` with the path [`Node::namespace`] enters one, and an
//! [`Entrance`] is a program that does so for launchers. With [`VirtualNodes::with_rate`] the links
//! have a speed, so that a transfer takes time in which cores are free.
//!
//! Requirements: CAP_SYS_ADMIN, CAP_NET_ADMIN, `ip` of iproute2 and, for a speed, its `tc`. Without
//! them, [`VirtualNodes::new`] returns an error for which [`Error::is_missing_requirement`] holds.
//!
//! ```no_run
//! use std::net::UdpSocket;
//! use virtual_nodes::VirtualNodes;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let nodes = VirtualNodes::new(2, 9000)?;
//! let first = &nodes.nodes()[0];
//! let second = &nodes.nodes()[1];
//! let receiver = second.run(|| UdpSocket::bind((second.address(), 7000)))?;
//! let sender = first.run(|| UdpSocket::bind((first.address(), 0)))?;
//! sender.send_to(b"hello", (second.address(), 7000))?;
//! let mut bytes = [0; 16];
//! assert_eq!(receiver.recv(&mut bytes)?, 5);
//! # Ok(())
//! # }
//! ```

mod bridge;
mod entrance;
mod error;
mod link;
mod namespace;
mod node;
mod rate;

use bridge::Bridge;
pub use entrance::Entrance;
pub use error::Error;
pub use link::Link;
pub use node::Node;
pub use rate::{LinkRate, RateError};
use std::time::{Duration, Instant};

/// Largest number of nodes.
pub const MAXIMUM_NODES: usize = 64;

/// Nodes on one Ethernet.
#[derive(Debug)]
pub struct VirtualNodes {
    nodes: Vec<Node>,
    link: Box<dyn Link>,
}

impl VirtualNodes {
    /// Creates nodes and joins them by veth pairs and a bridge. `mtu` is the size of the largest IP
    /// packet in bytes.
    ///
    /// # Errors
    /// A right or a feature is missing ([`Error::is_missing_requirement`]), the number of nodes is
    /// not within 1 to [`MAXIMUM_NODES`], or the system refuses a step.
    pub fn new(count: usize, mtu: u32) -> Result<Self, Error> {
        Self::with_rate(count, mtu, None)
    }

    /// Creates nodes as [`new`](Self::new) does. Each node's link has this rate in each direction:
    /// packets of the node pass a token bucket, packets of the bridge to the node another one.
    /// Answers of the kernel engine inside a node pass only the one of the bridge.
    ///
    /// # Errors
    /// As [`new`](Self::new); `tc` or the kernel's token bucket is missing
    /// ([`Error::is_missing_requirement`]).
    pub fn with_rate(count: usize, mtu: u32, rate: Option<LinkRate>) -> Result<Self, Error> {
        Self::with_link(count, |nodes| {
            let bridge = Bridge::join(nodes, mtu)?;
            if let Some(rate) = rate {
                bridge.limit(nodes, rate, mtu)?;
            }
            Ok(Box::new(bridge))
        })
    }

    /// Creates nodes and joins them by the link that `join` returns. `join` must create the
    /// interface [`Node::interface`] in each node, with [`Node::hardware_address`].
    ///
    /// The neighbour tables of the nodes contain each other's hardware addresses, so no ARP traffic
    /// mixes with the traffic of the program.
    ///
    /// # Errors
    /// As [`new`](Self::new), and those of `join`.
    pub fn with_link(
        count: usize,
        join: impl FnOnce(&[Node]) -> Result<Box<dyn Link>, Error>,
    ) -> Result<Self, Error> {
        if !(1..=MAXIMUM_NODES).contains(&count) {
            return Err(Error::Nodes { nodes: count, limit: MAXIMUM_NODES });
        }
        let nodes: Vec<Node> = (0..count).map(Node::new).collect::<Result<_, _>>()?;
        let link = join(&nodes)?;
        for node in &nodes {
            node.set_up(&nodes)?;
        }
        let joined = VirtualNodes { nodes, link };
        joined.nodes.iter().try_for_each(|node| joined.await_link(node))?;
        Ok(joined)
    }

    /// Returns all nodes, by number.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Unplugs the cable of a node: its interface stays configured, without a carrier.
    ///
    /// # Errors
    /// The system refuses the change.
    pub fn unplug(&self, node: usize) -> Result<(), Error> {
        self.link.set_carrier(node, false)
    }

    /// Plugs the cable of a node in again and waits until its link is up.
    ///
    /// # Errors
    /// The system refuses the change, or the link does not come up.
    pub fn plug(&self, node: usize) -> Result<(), Error> {
        self.link.set_carrier(node, true)?;
        self.await_link(&self.nodes[node])
    }

    fn await_link(&self, node: &Node) -> Result<(), Error> {
        // A TAP interface that never lost its carrier reports "unknown", not "up".
        await_state(node.number(), || Ok(node.read("operstate")?.trim() != "down"))?;
        await_state(node.number(), || self.link.is_forwarding(node.number()))
    }
}

/// Waits for a link state, which the kernel updates shortly after the change that causes it.
fn await_state(node: usize, is_up: impl Fn() -> Result<bool, Error>) -> Result<(), Error> {
    const LIMIT: Duration = Duration::from_secs(10);
    let end = Instant::now() + LIMIT;
    while !is_up()? {
        if Instant::now() > end {
            return Err(Error::Link { node, seconds: LIMIT.as_secs() });
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
