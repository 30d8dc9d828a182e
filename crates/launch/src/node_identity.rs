//! The identity of the node that a process is on, by kernel namespaces.

pub use crate::addresses::CommonNetwork;
use crate::addresses::{self, Network};
use crate::error::{LaunchError, system};
use crate::secret::hexadecimal;
use std::net::IpAddr;

/// The node of a process.
#[derive(Clone, Debug)]
pub struct NodeIdentity {
    /// The same for all ranks of the node, different for ranks of other nodes.
    pub name: String,
    /// The same for processes that share a network namespace of one machine.
    pub network: String,
    pub(crate) addresses: Vec<Network>,
}

impl NodeIdentity {
    /// The node of this process. Processes are on one node if they share the machine, the process
    /// and network namespaces, and `name`. `interface` names the interface or range of addresses
    /// that leads to the other nodes.
    ///
    /// # Errors
    /// If `/proc` cannot be read, or the interface has no address.
    pub fn of_this_process(
        name: Option<&str>,
        interface: Option<&str>,
    ) -> Result<Self, LaunchError> {
        const ACTION: &str = "identify this node by /proc, which must be mounted";
        let read = |path: &str| std::fs::read_to_string(path).map_err(system(ACTION));
        let link = |path: &str| {
            let link = std::fs::read_link(path).map_err(system(ACTION))?;
            // The link is like `net:[4026531840]`.
            Ok::<_, LaunchError>(
                link.to_string_lossy().chars().filter(char::is_ascii_digit).collect::<String>(),
            )
        };
        let machine = read("/proc/sys/kernel/random/boot_id")?;
        let network = format!("{}.{}", machine.trim(), link("/proc/self/ns/net")?);
        let processes = link("/proc/self/ns/pid")?;
        let name = match name {
            Some(name) => format!("{network}.{processes}.{}", hexadecimal(name.as_bytes())),
            None => format!("{network}.{processes}"),
        };
        Ok(NodeIdentity { name, network, addresses: addresses::of_this_node(interface)? })
    }

    /// Returns the addresses at which other nodes may connect to this one, the most likely first.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.addresses.iter().map(|network| network.address)
    }

    /// Formats the addresses with their networks, for [`in_common`](Self::in_common) of another
    /// node.
    pub fn networks(&self) -> String {
        addresses::write_list(&self.addresses)
    }

    /// Returns the networks that this node has in common with another one, of which `networks` are
    /// the [`networks`](Self::networks): each once, in the order of this node's addresses. The
    /// other node may find another order and other addresses, so that only one of both calls this.
    pub fn in_common(&self, networks: &str) -> Vec<CommonNetwork> {
        let others = addresses::read_list(networks).unwrap_or_default();
        addresses::common(&self.addresses, &others)
    }

    /// Prefers the addresses in these networks, such as `10.1.0.0/16`, the first most.
    pub fn prefer(&mut self, ranges: &[String]) {
        addresses::prefer(&mut self.addresses, ranges);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmi::LONGEST_VALUE;

    #[test]
    fn the_name_of_this_node_fits_a_value() {
        let unnamed =
            NodeIdentity::of_this_process(None, Some("127.0.0.0/8")).expect("/proc is mounted");
        let again =
            NodeIdentity::of_this_process(None, Some("127.0.0.0/8")).expect("/proc is mounted");
        let named = NodeIdentity::of_this_process(Some("left half"), Some("127.0.0.0/8"))
            .expect("/proc is mounted");
        assert_eq!(unnamed.name, again.name);
        assert_ne!(unnamed.name, named.name);
        assert_eq!(unnamed.network, named.network);
        for node in [unnamed, named] {
            assert!(
                node.name.len() <= LONGEST_VALUE && !node.name.contains([' ', ';', '=']),
                "{}",
                node.name
            );
        }
    }
}
