//! What the node services of a job must know to find and to trust each other.

use crate::carrier::Error;
use crate::hosts::Hosts;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A secret of one job. Whoever has it may connect to the job's node services.
pub type Key = [u8; 16];

/// What one rank of each host tells its node service; the same on all hosts but for `host`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invitation {
    /// The job's secret, made by one rank with [`random_key`] and told to the others.
    pub key: Key,
    /// The number of this host.
    pub host: u32,
    /// Where each host's node service listens.
    pub addresses: Vec<SocketAddr>,
    /// Which rank is where.
    pub hosts: Hosts,
}

/// A secret that nobody can guess.
///
/// # Errors
/// When the system gives no random bytes.
pub fn random_key() -> Result<Key, Error> {
    let mut key = Key::default();
    let read = std::fs::File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut key));
    read.map_err(|error| Error::System {
        what: "cannot read random bytes from /dev/urandom".into(),
        why: error.to_string(),
    })?;
    Ok(key)
}

impl Invitation {
    /// The bytes that travel from a rank to its node service.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.key.to_vec();
        bytes.extend_from_slice(&self.host.to_le_bytes());
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
        for rank in 0..self.hosts.ranks() {
            bytes.extend_from_slice(&self.hosts.of(rank).unwrap_or(0).to_le_bytes());
        }
        bytes
    }

    /// The invitation of these bytes, if they are one.
    pub fn decode(bytes: &[u8]) -> Option<Invitation> {
        let (key, rest) = bytes.split_first_chunk::<16>()?;
        let (host, rest) = rest.split_first_chunk()?;
        let (count, rest) = rest.split_first_chunk()?;
        let (host, count) = (u32::from_le_bytes(*host), u32::from_le_bytes(*count) as usize);
        let (listed, ranks) = rest.split_at_checked(count.checked_mul(22)?)?;
        let address = |bytes: &[u8; 22]| {
            let (ip, rest) = bytes.split_first_chunk::<16>()?;
            let (port, scope) = rest.split_first_chunk::<2>()?;
            let (ip, port) = (Ipv6Addr::from(*ip), u16::from_le_bytes(*port));
            Some(match ip.to_ipv4_mapped() {
                Some(ip) => SocketAddr::from((Ipv4Addr::from(ip.octets()), port)),
                None => std::net::SocketAddrV6::new(ip, port, 0, u32::from_le_bytes(scope.try_into().ok()?)).into(),
            })
        };
        let addresses = listed.as_chunks().0.iter().map(address).collect::<Option<Vec<_>>>()?;
        let (ranks, left) = ranks.as_chunks::<4>();
        let hosts = Hosts::new(ranks.iter().map(|host| u32::from_le_bytes(*host)));
        let fits = left.is_empty() && hosts.count() as usize == addresses.len() && host < hosts.count();
        fits.then_some(Invitation { key: *key, host, addresses, hosts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        let addresses = ["10.0.0.1:7", "[2001:db8::1]:65535", "[fe80::1%3]:9"].map(|text| text.parse().expect("one"));
        let hosts = Hosts::new(["a", "b", "a", "c"]);
        let invitation = Invitation { key: [7; 16], host: 2, addresses: addresses.to_vec(), hosts };
        assert_eq!(Invitation::decode(&invitation.encode()), Some(invitation.clone()));
        assert_eq!(Invitation::decode(&Invitation { host: 3, ..invitation }.encode()), None, "there is no host 3");
    }

    proptest! {
        #[test]
        fn noise_is_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(invitation) = Invitation::decode(&bytes) {
                prop_assert!(invitation.host < invitation.hosts.count());
            }
        }
    }
}
