//! The choice of the addresses by which nodes connect to each other.
//!
//! Every node publishes its addresses, and all choose by the same rule: of the networks in which
//! each node has an address of its own, the one that is first in the list of the first node. A node
//! lists the networks that were measured first, the fastest at the start; then that of its default
//! route, and IPv4 before IPv6. An address that several nodes have, such as that of a bridge to
//! containers, is not used.

use crate::error::{LaunchError, system};
use std::collections::HashSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::str::FromStr;

/// An address and the length of its network's prefix: `10.1.2.3/16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Network {
    pub(crate) address: IpAddr,
    prefix: u8,
}

impl Network {
    fn new(address: IpAddr, prefix: u8) -> Option<Self> {
        let longest = if address.is_ipv4() { 32 } else { 128 };
        (prefix <= longest).then_some(Network { address, prefix })
    }

    /// Formats the network without the address in it, such as `10.1.0.0/16`.
    fn range(&self) -> String {
        let host_bits = |all: u32| all - u32::from(self.prefix);
        let first: IpAddr = match self.address {
            IpAddr::V4(address) => {
                let host = u32::MAX.checked_shl(host_bits(32)).unwrap_or(0);
                Ipv4Addr::from_bits(address.to_bits() & host).into()
            }
            IpAddr::V6(address) => {
                let host = u128::MAX.checked_shl(host_bits(128)).unwrap_or(0);
                Ipv6Addr::from_bits(address.to_bits() & host).into()
            }
        };
        format!("{first}/{}", self.prefix)
    }

    /// Returns true if an address is in this network.
    fn contains(&self, other: IpAddr) -> bool {
        // A prefix of length 0 would shift by all bits, which `checked_shr` refuses: every address
        // is in that network.
        match (self.address, other) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                let differs = ours.to_bits() ^ theirs.to_bits();
                differs.checked_shr(32 - u32::from(self.prefix)).unwrap_or(0) == 0
            }
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => {
                let differs = ours.to_bits() ^ theirs.to_bits();
                differs.checked_shr(128 - u32::from(self.prefix)).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.prefix)
    }
}

impl FromStr for Network {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (address, prefix) = text.split_once('/').ok_or(())?;
        let address = address.parse().map_err(|_| ())?;
        let prefix = prefix.parse().map_err(|_| ())?;
        Network::new(address, prefix).ok_or(())
    }
}

/// Formats a list, with commas.
pub(crate) fn write_list(networks: &[Network]) -> String {
    let texts: Vec<String> = networks.iter().map(Network::to_string).collect();
    texts.join(",")
}

/// Parses a list of [`write_list`].
pub(crate) fn read_list(text: &str) -> Option<Vec<Network>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    text.split(',').map(|network| network.parse().ok()).collect()
}

/// A network in which two nodes have an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommonNetwork {
    /// The network, such as `10.1.0.0/16`.
    pub range: String,
    /// The address of this node.
    pub own: IpAddr,
    /// The address of the other node.
    pub other: IpAddr,
}

/// The networks in which both nodes have an address of their own, each once: with the first address
/// of either node in it.
pub(crate) fn common(own: &[Network], others: &[Network]) -> Vec<CommonNetwork> {
    let mut found: Vec<CommonNetwork> = Vec::new();
    for network in own {
        let range = network.range();
        let other = others.iter().map(|other| other.address).find(|other| {
            network.contains(*other) && own.iter().all(|network| network.address != *other)
        });
        if let Some(other) = other
            && others.iter().all(|other| other.address != network.address)
            && found.iter().all(|common| common.range != range)
        {
            found.push(CommonNetwork { range, own: network.address, other });
        }
    }
    found
}

/// Moves the addresses in these networks to the start of a list, in their order.
pub(crate) fn prefer(list: &mut [Network], ranges: &[String]) {
    let position = |network: &Network| {
        let range = network.range();
        ranges.iter().position(|preferred| *preferred == range).unwrap_or(ranges.len())
    };
    list.sort_by_key(position);
}

/// Returns the addresses at which other nodes may connect to this one, the most likely first.
/// `wanted` names the interface or the range of addresses. Without it there may be none: several
/// nodes on one machine need none.
pub(crate) fn of_this_node(wanted: Option<&str>) -> Result<Vec<Network>, LaunchError> {
    let interfaces =
        if_addrs::get_if_addrs().map_err(system("list this node's network addresses"))?;
    let range = wanted.and_then(|wanted| wanted.parse::<Network>().ok());
    let listed = |interface: &if_addrs::Interface| {
        let (address, prefix) = match &interface.addr {
            if_addrs::IfAddr::V4(address) => (IpAddr::V4(address.ip), address.prefixlen),
            if_addrs::IfAddr::V6(address) => (IpAddr::V6(address.ip), address.prefixlen),
        };
        let network = Network::new(address, prefix)?;
        let fits = match (wanted, range) {
            (_, Some(range)) => range.contains(address),
            (Some(name), None) => interface.name == name && !is_link_local(address),
            (None, None) => !address.is_loopback() && !is_link_local(address),
        };
        fits.then_some(network)
    };
    let mut found: Vec<Network> = interfaces.iter().filter_map(listed).collect();
    let outward = [
        outward_address(Ipv4Addr::UNSPECIFIED.into()),
        outward_address(Ipv6Addr::UNSPECIFIED.into()),
    ];
    // Stable: within a class the system's order remains.
    found.sort_by_key(|network| {
        (network.address.is_ipv6(), !outward.contains(&Some(network.address)))
    });
    if let (true, Some(wanted)) = (found.is_empty(), wanted) {
        let why = format!("this node has no address of {wanted:?}");
        let all =
            interfaces.iter().map(|interface| format!("{} {}", interface.name, interface.ip()));
        return Err(LaunchError::NoAddress { why, here: all.collect::<Vec<_>>().join(", ") });
    }
    Ok(found)
}

/// The address of this node on its default route, if it has one. Nothing is sent.
fn outward_address(unspecified: IpAddr) -> Option<IpAddr> {
    // Addresses for documentation (RFC 5737, RFC 3849), which no node has.
    let somewhere: IpAddr = match unspecified {
        IpAddr::V4(_) => Ipv4Addr::new(192, 0, 2, 1).into(),
        IpAddr::V6(_) => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
    };
    // A connected datagram socket has the source address of its route; no packet is needed for it.
    let socket = UdpSocket::bind((unspecified, 0)).ok()?;
    socket.connect((somewhere, 9)).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// Chooses the address of each node from the addresses of all. Every node chooses the same.
pub(crate) fn choose(nodes: &[Vec<Network>]) -> Result<Vec<IpAddr>, LaunchError> {
    let listed = |address: IpAddr| {
        nodes.iter().flatten().filter(|network| network.address == address).count()
    };
    let of_its_own: Vec<Vec<Network>> = nodes
        .iter()
        .map(|all| all.iter().copied().filter(|network| listed(network.address) == 1).collect())
        .collect();
    let in_network = |network: &Network| -> Option<Vec<IpAddr>> {
        let member = |all: &Vec<Network>| {
            all.iter().map(|other| other.address).find(|other| network.contains(*other))
        };
        of_its_own.iter().map(member).collect()
    };
    if let Some(common) = of_its_own.iter().flatten().find_map(in_network) {
        return Ok(common);
    }
    // Networks that routers connect: the most likely address of each node, of one kind.
    let of_kind = |ipv6: bool| -> Option<Vec<IpAddr>> {
        let first = |all: &Vec<Network>| {
            all.iter().map(|other| other.address).find(|other| other.is_ipv6() == ipv6)
        };
        of_its_own.iter().map(first).collect()
    };
    of_kind(false).or_else(|| of_kind(true)).ok_or_else(|| {
        let distinct: HashSet<String> = nodes.iter().map(|all| write_list(all)).collect();
        let why = "the nodes of this job have no addresses at which they could reach each other"
            .to_owned();
        LaunchError::NoAddress { why, here: distinct.into_iter().collect::<Vec<_>>().join(" and ") }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(networks: &[&str]) -> Vec<Network> {
        networks.iter().map(|text| text.parse().expect("a network")).collect()
    }

    fn chosen(nodes: &[Vec<Network>]) -> String {
        let texts = choose(nodes)
            .map(|all| all.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(" "));
        texts.unwrap_or_else(|error| error.to_string())
    }

    #[test]
    fn a_network_in_which_all_are_is_taken() {
        let nodes =
            [node(&["10.0.0.1/24", "192.168.7.1/16"]), node(&["10.0.1.1/24", "192.168.9.2/16"])];
        assert_eq!(chosen(&nodes), "192.168.7.1 192.168.9.2");
        let nodes =
            [node(&["10.0.0.1/8", "192.168.7.1/16"]), node(&["192.168.9.2/16", "10.9.1.1/8"])];
        assert_eq!(chosen(&nodes), "10.0.0.1 10.9.1.1", "as the first node has it");
        let nodes = [node(&["fd00::1/64"]), node(&["10.0.0.1/8", "fd00::2/64"])];
        assert_eq!(chosen(&nodes), "fd00::1 fd00::2");
    }

    #[test]
    fn an_address_that_several_have_leads_nowhere() {
        let nodes =
            [node(&["172.17.0.1/16", "10.0.0.1/24"]), node(&["172.17.0.1/16", "10.0.0.2/24"])];
        assert_eq!(chosen(&nodes), "10.0.0.1 10.0.0.2");
        let nodes = [node(&["172.17.0.1/16"]), node(&["172.17.0.1/16"])];
        assert!(chosen(&nodes).contains("TRADEWIND_INTERFACE"), "{}", chosen(&nodes));
        assert!(
            chosen(&[node(&["10.0.0.1/24"]), Vec::new()]).contains("no addresses"),
            "nor does none"
        );
    }

    #[test]
    fn nodes_behind_routers_take_their_likeliest_address() {
        let nodes = [node(&["10.0.0.1/24", "10.7.0.1/24"]), node(&["fd00::9/64", "10.0.1.1/24"])];
        assert_eq!(chosen(&nodes), "10.0.0.1 10.0.1.1");
    }

    #[test]
    fn networks_are_read_as_they_are_written() {
        let networks = node(&["10.0.0.1/24", "fd00::1/64", "1.2.3.4/0"]);
        assert_eq!(read_list(&write_list(&networks)), Some(networks.clone()));
        assert_eq!(read_list(&write_list(&[])), Some(Vec::new()));
        assert!(
            networks[2].contains("200.1.1.1".parse().expect("an address")),
            "everything is in a network of no prefix"
        );
        for wrong in
            [",", "10.0.0.1", "10.0.0.1/33", "10.0.0.1/24,", "fd00::1/129", "a/8", "10.0.0.1/-1"]
        {
            assert_eq!(read_list(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn an_interface_is_found_by_its_name_or_by_a_range() {
        let by_range = of_this_node(Some("127.0.0.0/8")).expect("every node has it");
        assert!(by_range.iter().all(|network| network.address.is_loopback()));
        let error = of_this_node(Some("no-such-interface")).expect_err("there is none").to_string();
        assert!(
            error.contains("no address of \"no-such-interface\"") && error.contains("127.0.0.1"),
            "{error}"
        );
    }

    /// Temporary addresses of IPv6, secondary ones of IPv4.
    #[test]
    fn several_addresses_in_a_network_are_one_network() {
        let first = node(&["fd00::1/64", "fd00::a7/64", "10.0.0.1/8", "10.0.0.5/8"]);
        let second = node(&["10.0.0.2/8", "fd00::9/64"]);
        let shown = |own: &[Network], others: &[Network]| {
            let all = common(own, others);
            let show = |CommonNetwork { range, own, other }| format!("{range} {own} {other}");
            all.into_iter().map(show).collect::<Vec<_>>()
        };
        assert_eq!(
            shown(&first, &second),
            ["fd00::/64 fd00::1 fd00::9", "10.0.0.0/8 10.0.0.1 10.0.0.2"]
        );
        assert_eq!(
            shown(&second, &first),
            ["10.0.0.0/8 10.0.0.2 10.0.0.1", "fd00::/64 fd00::9 fd00::1"]
        );
    }

    #[test]
    fn networks_that_were_measured_come_first() {
        let [mut first, second] = [
            ["10.0.0.1/8", "192.168.7.1/24", "fd00::1/64"],
            ["10.9.0.2/8", "192.168.7.2/24", "fd01::2/64"],
        ]
        .map(|networks| node(&networks));
        let ranges = |common: Vec<CommonNetwork>| {
            common.into_iter().map(|network| network.range).collect::<Vec<_>>()
        };
        let both = common(&first, &second);
        assert_eq!(
            (both[1].own.to_string(), both[1].other.to_string()),
            ("192.168.7.1".into(), "192.168.7.2".into())
        );
        assert_eq!(ranges(both), ["10.0.0.0/8", "192.168.7.0/24"]);
        // A bridge to containers has one address on both nodes.
        assert_eq!(ranges(common(&node(&["172.17.0.1/16"]), &node(&["172.17.0.1/16"]))), [""; 0]);
        // Even if another network of theirs has the same range.
        let [one, two] = [node(&["172.17.0.1/16"]), node(&["172.17.0.1/16", "172.17.0.9/16"])];
        assert_eq!((ranges(common(&one, &two)), ranges(common(&two, &one))), (vec![], vec![]));
        assert_eq!(chosen(&[first.clone(), second.clone()]), "10.0.0.1 10.9.0.2");
        prefer(&mut first, &["fd09::/64".into(), "192.168.7.0/24".into()]);
        assert_eq!(chosen(&[first, second]), "192.168.7.1 192.168.7.2");
        assert_eq!(
            node(&["fd00::1:2/64", "1.2.3.4/32", "1.2.3.4/0"])
                .iter()
                .map(Network::range)
                .collect::<Vec<_>>(),
            ["fd00::/64", "1.2.3.4/32", "0.0.0.0/0"]
        );
    }
}
