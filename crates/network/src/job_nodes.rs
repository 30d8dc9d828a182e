//! The nodes of a job as their node services see them: addresses, ranks and the job's key.

use crate::error::Error;
use crate::node_map::NodeMap;
use crate::node_network::NodeNetwork;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// A secret of one job. It authorises connections to the job's node services.
pub type Key = [u8; 16];

/// The endpoint of a node's kernel engine, at the node's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelEndpoint {
    /// Ethernet address of the interface.
    pub hardware_address: [u8; 6],
    /// UDP port.
    pub port: u16,
    /// Length of the longest IP packet that the interface takes.
    pub mtu: u32,
}

/// The endpoints of a node service. As text, they are the address at which it listens; behind an @,
/// the endpoint of its kernel engine if it has one; and behind a #, its network in hexadecimal digits
/// if that is not TCP.
///
/// ```
/// use network::job_nodes::ServiceEndpoint;
///
/// let both: ServiceEndpoint = "10.0.0.1:4000@02:00:00:00:00:01/7199/1500".parse().expect("both are in order");
/// assert_eq!(both.kernel.expect("there is one").port, 7199);
/// assert_eq!("10.0.0.1:4000".parse().map(|place: ServiceEndpoint| place.kernel), Ok(None));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceEndpoint {
    /// Address at which it listens.
    pub address: SocketAddr,
    /// Endpoint of its kernel engine.
    pub kernel: Option<KernelEndpoint>,
    /// Its network.
    pub network: NodeNetwork,
}

/// A text that is no endpoint of a node service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an address with a port, optionally with the endpoint of a kernel engine behind it")]
pub struct EndpointError;

impl fmt::Display for KernelEndpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.hardware_address;
        write!(
            formatter,
            "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}/{}/{}",
            self.port, self.mtu
        )
    }
}

impl FromStr for KernelEndpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let mut parts = text.split('/');
        let (Some(hardware), Some(port), Some(mtu), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(EndpointError);
        };
        let bytes = hardware
            .split(':')
            .map(|byte| u8::from_str_radix(byte, 16))
            .collect::<Result<Vec<_>, _>>();
        let hardware_address =
            bytes.ok().and_then(|bytes| bytes.try_into().ok()).ok_or(EndpointError)?;
        let (port, mtu) =
            (port.parse().map_err(|_| EndpointError)?, mtu.parse().map_err(|_| EndpointError)?);
        Ok(KernelEndpoint { hardware_address, port, mtu })
    }
}

impl fmt::Display for ServiceEndpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.address)?;
        if let Some(kernel) = self.kernel {
            write!(formatter, "@{kernel}")?;
        }
        if self.network == NodeNetwork::default() {
            return Ok(());
        }
        // Digits only: PMI uses spaces and semicolons for itself.
        formatter.write_str("#")?;
        self.network.encode().iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl FromStr for ServiceEndpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let (text, network) = match text.split_once('#') {
            None => (text, NodeNetwork::default()),
            Some((text, digits)) => {
                let bytes = from_digits(digits).ok_or(EndpointError)?;
                (text, NodeNetwork::decode(&bytes).ok_or(EndpointError)?)
            }
        };
        let (address, kernel) =
            text.split_once('@').map_or((text, None), |(address, rest)| (address, Some(rest)));
        let kernel = kernel.map(str::parse).transpose()?;
        Ok(ServiceEndpoint {
            address: address.parse().map_err(|_| EndpointError)?,
            kernel,
            network,
        })
    }
}

/// Reads two hexadecimal digits for each byte.
fn from_digits(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let byte = |[high, low]: &[u8; 2]| Some(digit(*high)? << 4 | digit(*low)?);
    pairs.iter().map(byte).collect::<Option<_>>().filter(|_| rest.is_empty())
}

/// The nodes of a job, as one rank of each node passes them to its node service. The same on all
/// nodes except for `node`.
#[derive(Clone, PartialEq, Eq)]
pub struct JobNodes {
    /// The job's secret, made by one rank with [`random_key`] and passed to the others.
    pub key: Key,
    /// Number of this node.
    pub node: u32,
    /// Address of each node's service.
    pub addresses: Vec<SocketAddr>,
    /// Endpoint of each node's kernel engine; empty if any node has none.
    pub kernel_endpoints: Vec<KernelEndpoint>,
    /// Network of each node.
    pub networks: Vec<NodeNetwork>,
    /// The node of each rank.
    pub nodes: NodeMap,
}

/// Makes a secret of random bytes.
///
/// # Errors
/// If the system has no random bytes.
pub fn random_key() -> Result<Key, Error> {
    let what = "cannot get random bytes from the system";
    shm::random::bytes()
        .map_err(|error| Error::System { what: what.into(), why: error.to_string() })
}

/// Omits the key: secrets do not belong into logs.
impl fmt::Debug for JobNodes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let JobNodes { key: _, node, addresses, kernel_endpoints, networks, nodes } = self;
        let mut shown = formatter.debug_struct("JobNodes");
        shown
            .field("node", node)
            .field("addresses", addresses)
            .field("kernel_endpoints", kernel_endpoints)
            .field("networks", networks);
        shown.field("nodes", nodes).finish_non_exhaustive()
    }
}

impl JobNodes {
    /// Encodes it for the way from a rank to its node service.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.key.to_vec();
        bytes.extend_from_slice(&self.node.to_le_bytes());
        bytes.extend_from_slice(&(self.addresses.len() as u32).to_le_bytes());
        for address in &self.addresses {
            let ip = match address.ip() {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            let scope = if let SocketAddr::V6(address) = address { address.scope_id() } else { 0 };
            bytes.extend_from_slice(&ip.octets());
            bytes.extend_from_slice(&address.port().to_le_bytes());
            bytes.extend_from_slice(&scope.to_le_bytes());
        }
        bytes.extend_from_slice(&(self.kernel_endpoints.len() as u32).to_le_bytes());
        for kernel in &self.kernel_endpoints {
            bytes.extend_from_slice(&kernel.hardware_address);
            bytes.extend_from_slice(&kernel.port.to_le_bytes());
            bytes.extend_from_slice(&kernel.mtu.to_le_bytes());
        }
        for network in &self.networks {
            let encoded = network.encode();
            bytes.extend_from_slice(&(encoded.len() as u16).to_le_bytes());
            bytes.extend_from_slice(&encoded);
        }
        for rank in 0..self.nodes.ranks() {
            bytes.extend_from_slice(&self.nodes.of(rank).unwrap_or(0).to_le_bytes());
        }
        bytes
    }

    /// Decodes it; `None` if the bytes are invalid.
    pub fn decode(bytes: &[u8]) -> Option<JobNodes> {
        let (key, rest) = bytes.split_first_chunk::<16>()?;
        let (node, rest) = rest.split_first_chunk()?;
        let (count, rest) = rest.split_first_chunk()?;
        let node = u32::from_le_bytes(*node);
        let count = u32::from_le_bytes(*count) as usize;
        let (listed, rest) = rest.split_at_checked(count.checked_mul(22)?)?;
        let (kernel_endpoints, rest) = rest.split_first_chunk()?;
        let kernel_endpoints = u32::from_le_bytes(*kernel_endpoints) as usize;
        let (described, ranks) = rest.split_at_checked(kernel_endpoints.checked_mul(12)?)?;
        let kernel = |bytes: &[u8; 12]| {
            let [a, b, c, d, e, f, p0, p1, m0, m1, m2, m3] = *bytes;
            KernelEndpoint {
                hardware_address: [a, b, c, d, e, f],
                port: u16::from_le_bytes([p0, p1]),
                mtu: u32::from_le_bytes([m0, m1, m2, m3]),
            }
        };
        let kernel_endpoints: Vec<KernelEndpoint> =
            described.as_chunks().0.iter().map(kernel).collect();
        let address = |bytes: &[u8; 22]| {
            let (ip, rest) = bytes.split_first_chunk::<16>()?;
            let (port, scope) = rest.split_first_chunk::<2>()?;
            let ip = Ipv6Addr::from(*ip);
            let port = u16::from_le_bytes(*port);
            Some(match ip.to_ipv4_mapped() {
                Some(ip) => SocketAddr::from((Ipv4Addr::from(ip.octets()), port)),
                None => std::net::SocketAddrV6::new(
                    ip,
                    port,
                    0,
                    u32::from_le_bytes(scope.try_into().ok()?),
                )
                .into(),
            })
        };
        let addresses = listed.as_chunks().0.iter().map(address).collect::<Option<Vec<_>>>()?;
        let mut rest = ranks;
        let mut networks = Vec::new();
        for _ in 0..count {
            let (length, behind) = rest.split_first_chunk()?;
            let length = usize::from(u16::from_le_bytes(*length));
            let (encoded, behind) = behind.split_at_checked(length)?;
            networks.push(NodeNetwork::decode(encoded)?);
            rest = behind;
        }
        let (ranks, left) = rest.as_chunks::<4>();
        let nodes = NodeMap::new(ranks.iter().map(|node| u32::from_le_bytes(*node)));
        let kernel_endpoints_fit =
            kernel_endpoints.is_empty() || kernel_endpoints.len() == addresses.len();
        let fits = kernel_endpoints_fit
            && left.is_empty()
            && nodes.count() as usize == addresses.len()
            && node < nodes.count();
        fits.then_some(JobNodes { key: *key, node, addresses, kernel_endpoints, networks, nodes })
    }
}
