//! Tells a loaded program about the nodes.

use super::network::{Endpoint, Peer, Stream};
use super::packet::{Key, WINDOW};
use bytemuck::{Pod, Zeroable};
use std::net::IpAddr;
use std::time::Duration;

/// How long a node may leave requests unanswered, unless somebody says otherwise.
pub const USUAL_PATIENCE: Duration = Duration::from_millis(4350);
/// The last of the requests that follow each other ever more slowly, and when it is sent:
/// `ASK_DOUBLINGS` of the program.
const DOUBLINGS: (u32, Duration) = (9, Duration::from_micros(127_500));
/// Between two requests from then on.
const INTERVAL: Duration = Duration::from_millis(128);

/// How many requests are sent within a time to a node that answers none of them: after so many it
/// is unreachable.
///
/// ```
/// use kernel::wire::{USUAL_PATIENCE, requests_within};
///
/// assert_eq!(requests_within(USUAL_PATIENCE), 42);
/// assert!(requests_within(2 * USUAL_PATIENCE) > 70);
/// ```
pub fn requests_within(patience: Duration) -> u32 {
    let (requests, when) = DOUBLINGS;
    let rest = patience.saturating_sub(when).as_millis().div_ceil(INTERVAL.as_millis());
    // More than anybody waits for; the program counts up to there.
    requests + u32::try_from(rest).unwrap_or(u32::MAX).min(1 << 24)
}

/// A job's nodes as one of them sees them.
#[derive(Clone, Debug)]
pub struct Description {
    /// The number of the job.
    pub job: u64,
    /// Its secret.
    pub key: Key,
    /// The number of this node.
    pub node: u32,
    /// Where each node takes packets, this one included: all IPv4 or all IPv6.
    pub endpoints: Vec<Endpoint>,
    /// The number of the interface through which this node reaches the others.
    pub interface: u32,
    /// Whether that is one end of a pair whose other end is in another network namespace, as
    /// containers have it: then a packet may begin its way there.
    pub leaves_at_peer: bool,
}

/// `struct wire` of the program.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Wire {
    job: u64,
    node: u32,
    nodes: u32,
    interface: u32,
    port: [u8; 2],
    protocol: [u8; 2],
    address: [u8; 16],
    leaves_at_peer: u32,
    reserved: u32,
}

/// Maps whose lengths depend on the number of nodes, with the elements that they need for so many:
/// what [`aya::EbpfLoader::map_max_entries`] wants to know before loading.
pub fn map_lengths(nodes: u32) -> [(&'static str, u32); 3] {
    [("peers", nodes), ("streams", nodes), ("kept_packets", nodes * WINDOW as u32)]
}

impl Description {
    /// What the program's maps hold: name of the map, number of the element, value.
    ///
    /// # Panics
    /// When this node is not among the nodes.
    pub fn map_values(&self) -> Vec<(&'static str, u32, Vec<u8>)> {
        let own = self.endpoints[self.node as usize];
        let mut address = [0; 16];
        let protocol = match own.address {
            IpAddr::V4(own) => {
                address[..4].copy_from_slice(&own.octets());
                [0x08, 0x00]
            }
            IpAddr::V6(own) => {
                address = own.octets();
                [0x86, 0xdd]
            }
        };
        let wire = Wire {
            job: self.job,
            node: self.node,
            nodes: self.endpoints.len() as u32,
            interface: self.interface,
            port: own.port.to_be_bytes(),
            protocol,
            address,
            leaves_at_peer: self.leaves_at_peer.into(),
            reserved: 0,
        };
        let mut values = vec![("wires", 0, bytemuck::bytes_of(&wire).to_vec())];
        for (node, endpoint) in (0..).zip(&self.endpoints) {
            let stream = Stream { job: self.job, key: self.key, here: self.node, there: node };
            values.push((
                "peers",
                node,
                bytemuck::bytes_of(&Peer::new(&own, endpoint, stream)).to_vec(),
            ));
        }
        values
    }
}

const _: () = assert!(size_of::<Wire>() == 48);
