//! Contents of the program's maps that describe the job and its nodes.

use super::headers::{Endpoint, Peer, Stream};
use super::packet::{Key, WINDOW};
use bytemuck::{Pod, Zeroable};
use std::net::IpAddr;
use std::time::Duration;

/// Default time after which a node that leaves requests unanswered is unreachable.
pub const NODE_TIMEOUT: Duration = Duration::from_millis(4350);
/// Number of requests with doubling intervals, and the time of the last one: `REQUEST_DOUBLINGS` of
/// the program.
const DOUBLINGS: (u32, Duration) = (9, Duration::from_micros(127_500));
/// Interval of the requests after that.
const INTERVAL: Duration = Duration::from_millis(128);

/// Returns the number of requests within a time to a node that answers none of them: after so many
/// it is unreachable.
///
/// ```
/// use kernel::wire::{NODE_TIMEOUT, requests_within};
///
/// assert_eq!(requests_within(NODE_TIMEOUT), 42);
/// assert!(requests_within(2 * NODE_TIMEOUT) > 70);
/// ```
pub fn requests_within(timeout: Duration) -> u32 {
    let (requests, time) = DOUBLINGS;
    let rest = timeout.saturating_sub(time).as_millis().div_ceil(INTERVAL.as_millis());
    // The limit is beyond any useful time-out and within the counter of the program.
    requests + u32::try_from(rest).unwrap_or(u32::MAX).min(1 << 24)
}

/// Description of a job for the program of one node.
#[derive(Clone, Debug)]
pub struct JobSetup {
    /// Number of the job.
    pub job: u64,
    /// Key of the job.
    pub key: Key,
    /// Number of this node.
    pub node: u32,
    /// Endpoint of each node, this one included: all IPv4 or all IPv6.
    pub endpoints: Vec<Endpoint>,
    /// Index of the interface to the other nodes.
    pub interface: u32,
    /// True if that interface is one end of a veth pair with its other end in another network
    /// namespace, as in containers. Packets can then be sent at the other end.
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

/// Returns the names and lengths of the maps that have elements for each node, for
/// [`aya::EbpfLoader::map_max_entries`].
pub fn map_lengths(nodes: u32) -> [(&'static str, u32); 3] {
    [("peers", nodes), ("streams", nodes), ("kept_packets", nodes * WINDOW as u32)]
}

impl JobSetup {
    /// Returns the contents of the program's maps: name of the map, index of the element, value.
    ///
    /// # Panics
    /// This node is not among the nodes.
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
