//! What the node services of a job must know to find and to trust each other.

use crate::carrier::Error;
use crate::nodes::Nodes;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// A secret of one job. Whoever has it may connect to the job's node services.
pub type Key = [u8; 16];

/// Where the kernel engine of a node takes packets, at the node's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Station {
    /// The Ethernet address of the interface.
    pub hardware_address: [u8; 6],
    /// The UDP port.
    pub port: u16,
    /// The longest IP packet that the interface takes.
    pub mtu: u32,
}

/// Where the node service of a node can be reached, in one line of text: the address at which it
/// listens, and behind an @ the station of its kernel engine, if it has one.
///
/// ```
/// use network::invitation::Listening;
///
/// let both: Listening = "10.0.0.1:4000@02:00:00:00:00:01/7199/1500".parse().expect("both are in order");
/// assert_eq!(both.station.expect("there is one").port, 7199);
/// assert_eq!("10.0.0.1:4000".parse().map(|place: Listening| place.station), Ok(None));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listening {
    /// Where it listens.
    pub address: SocketAddr,
    /// Its kernel engine.
    pub station: Option<Station>,
}

/// A text that says nothing about where a node service can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an address with a port, and perhaps a station behind it")]
pub struct NotListening;

impl fmt::Display for Station {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.hardware_address;
        write!(
            formatter,
            "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}/{}/{}",
            self.port, self.mtu
        )
    }
}

impl FromStr for Station {
    type Err = NotListening;

    fn from_str(text: &str) -> Result<Self, NotListening> {
        let mut parts = text.split('/');
        let (Some(hardware), Some(port), Some(mtu), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(NotListening);
        };
        let bytes = hardware
            .split(':')
            .map(|byte| u8::from_str_radix(byte, 16))
            .collect::<Result<Vec<_>, _>>();
        let hardware_address =
            bytes.ok().and_then(|bytes| bytes.try_into().ok()).ok_or(NotListening)?;
        let (port, mtu) =
            (port.parse().map_err(|_| NotListening)?, mtu.parse().map_err(|_| NotListening)?);
        Ok(Station { hardware_address, port, mtu })
    }
}

impl fmt::Display for Listening {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.address)?;
        self.station.map_or(Ok(()), |station| write!(formatter, "@{station}"))
    }
}

impl FromStr for Listening {
    type Err = NotListening;

    fn from_str(text: &str) -> Result<Self, NotListening> {
        let (address, station) =
            text.split_once('@').map_or((text, None), |(address, rest)| (address, Some(rest)));
        let station = station.map(str::parse).transpose()?;
        Ok(Listening { address: address.parse().map_err(|_| NotListening)?, station })
    }
}

/// What one rank of each node tells its node service; the same on all nodes but for `node`.
#[derive(Clone, PartialEq, Eq)]
pub struct Invitation {
    /// The job's secret, made by one rank with [`random_key`] and told to the others.
    pub key: Key,
    /// The number of this node.
    pub node: u32,
    /// Where each node's node service listens.
    pub addresses: Vec<SocketAddr>,
    /// Where each node's kernel engine takes packets; empty if any node has none.
    pub stations: Vec<Station>,
    /// Which rank is where.
    pub nodes: Nodes,
}

/// A secret that nobody can guess.
///
/// # Errors
/// When the system gives no random bytes.
pub fn random_key() -> Result<Key, Error> {
    let what = "cannot get random bytes from the system";
    shm::random::bytes()
        .map_err(|error| Error::System { what: what.into(), why: error.to_string() })
}

/// Secrets do not go into logs.
impl fmt::Debug for Invitation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Invitation { key: _, node, addresses, stations, nodes } = self;
        let mut shown = formatter.debug_struct("Invitation");
        shown.field("node", node).field("addresses", addresses).field("stations", stations);
        shown.field("nodes", nodes).finish_non_exhaustive()
    }
}

impl Invitation {
    /// The bytes that travel from a rank to its node service.
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
        bytes.extend_from_slice(&(self.stations.len() as u32).to_le_bytes());
        for station in &self.stations {
            bytes.extend_from_slice(&station.hardware_address);
            bytes.extend_from_slice(&station.port.to_le_bytes());
            bytes.extend_from_slice(&station.mtu.to_le_bytes());
        }
        for rank in 0..self.nodes.ranks() {
            bytes.extend_from_slice(&self.nodes.of(rank).unwrap_or(0).to_le_bytes());
        }
        bytes
    }

    /// The invitation of these bytes, if they are one.
    pub fn decode(bytes: &[u8]) -> Option<Invitation> {
        let (key, rest) = bytes.split_first_chunk::<16>()?;
        let (node, rest) = rest.split_first_chunk()?;
        let (count, rest) = rest.split_first_chunk()?;
        let (node, count) = (u32::from_le_bytes(*node), u32::from_le_bytes(*count) as usize);
        let (listed, rest) = rest.split_at_checked(count.checked_mul(22)?)?;
        let (stations, rest) = rest.split_first_chunk()?;
        let stations = u32::from_le_bytes(*stations) as usize;
        let (described, ranks) = rest.split_at_checked(stations.checked_mul(12)?)?;
        let station = |bytes: &[u8; 12]| {
            let [a, b, c, d, e, f, p0, p1, m0, m1, m2, m3] = *bytes;
            let (port, mtu) = (u16::from_le_bytes([p0, p1]), u32::from_le_bytes([m0, m1, m2, m3]));
            Station { hardware_address: [a, b, c, d, e, f], port, mtu }
        };
        let stations: Vec<Station> = described.as_chunks().0.iter().map(station).collect();
        let address = |bytes: &[u8; 22]| {
            let (ip, rest) = bytes.split_first_chunk::<16>()?;
            let (port, scope) = rest.split_first_chunk::<2>()?;
            let (ip, port) = (Ipv6Addr::from(*ip), u16::from_le_bytes(*port));
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
        let (ranks, left) = ranks.as_chunks::<4>();
        let nodes = Nodes::new(ranks.iter().map(|node| u32::from_le_bytes(*node)));
        let stations_fit = stations.is_empty() || stations.len() == addresses.len();
        let fits = stations_fit
            && left.is_empty()
            && nodes.count() as usize == addresses.len()
            && node < nodes.count();
        fits.then_some(Invitation { key: *key, node, addresses, stations, nodes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        let addresses = ["10.0.0.1:7", "[2001:db8::1]:65535", "[fe80::1%3]:9"]
            .map(|text| text.parse().expect("one"));
        let nodes = Nodes::new(["a", "b", "a", "c"]);
        let station = |port| Station { hardware_address: [2, 0, 0, 0, 0, 9], port, mtu: 9000 };
        let (addresses, stations) = (addresses.to_vec(), [1, 2, 3].map(station).to_vec());
        let invitation = Invitation { key: [7; 16], node: 2, addresses, stations, nodes };
        let alone = Invitation { stations: Vec::new(), ..invitation.clone() };
        assert_eq!(Invitation::decode(&alone.encode()), Some(alone));
        assert_eq!(Invitation::decode(&invitation.encode()), Some(invitation.clone()));
        assert!(
            !format!("{:?}", Invitation { key: [0xab; 16], ..invitation.clone() }).contains("171"),
            "a secret"
        );
        assert_eq!(
            Invitation::decode(&Invitation { node: 3, ..invitation }.encode()),
            None,
            "there is no node 3"
        );
    }

    #[test]
    fn what_is_listening_is_written_and_read() {
        let station =
            Some(Station { hardware_address: [255, 1, 2, 3, 4, 0], port: 65535, mtu: 1280 });
        for address in ["10.0.0.1:7", "[2001:db8::1]:65535"].map(|text| text.parse().expect("one"))
        {
            for place in [Listening { address, station }, Listening { address, station: None }] {
                assert_eq!(place.to_string().parse(), Ok(place));
            }
        }
        for wrong in [
            "",
            "10.0.0.1",
            "10.0.0.1:7@",
            "10.0.0.1:7@1:2:3:4:5/6/7",
            "10.0.0.1:7@1:2:3:4:5:6/7",
            "x@1:2:3:4:5:6/7/8",
        ] {
            assert_eq!(wrong.parse::<Listening>(), Err(NotListening), "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn noise_is_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(invitation) = Invitation::decode(&bytes) {
                prop_assert!(invitation.node < invitation.nodes.count());
            }
        }
    }
}
