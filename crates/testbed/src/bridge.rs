//! Nodes joined by veth pairs and a bridge, in a namespace of its own.

use crate::error::Error;
use crate::namespace::Namespace;
use crate::node::{INTERFACE, Node, read_attribute};
use std::fmt::Write;
use std::os::fd::OwnedFd;

#[derive(Debug)]
pub(crate) struct Bridge {
    namespace: Namespace,
    sysfs: OwnedFd,
}

impl Bridge {
    /// Makes a bridge with a port for each node, at the other end of which is the node's interface.
    pub(crate) fn join(nodes: &[Node], mtu: u32) -> Result<Self, Error> {
        let namespace = Namespace::new()?;
        namespace.tune("ipv6/conf/default/disable_ipv6", "1")?;
        // A switch of a machine room looks at no IP header.
        for table in ["arptables", "iptables", "ip6tables"] {
            namespace.tune_if_known(&format!("bridge/bridge-nf-call-{table}"), "0")?;
        }
        let mut orders = String::from(
            "link add bridge type bridge stp_state 0 forward_delay 0 mcast_snooping 0\n",
        );
        for node in nodes {
            let (number, hardware, path) =
                (node.number(), node.hardware_address_text(), node.namespace());
            let _ = writeln!(
                orders,
                "link add port{number} mtu {mtu} type veth peer name {INTERFACE} mtu {mtu} address {hardware} netns {path}\n\
                 link set port{number} master bridge up",
            );
        }
        orders.push_str("link set bridge up\n");
        namespace.configure("the bridge", &orders)?;
        let sysfs = namespace.sysfs()?;
        Ok(Bridge { namespace, sysfs })
    }

    pub(crate) fn set_port(&self, node: usize, up: bool) -> Result<(), Error> {
        let state = if up { "up" } else { "down" };
        self.namespace.configure("the bridge", &format!("link set port{node} {state}\n"))
    }

    /// Whether the bridge forwards to and from a port, which it does a moment after the link is up.
    pub(crate) fn forwards(&self, node: usize) -> Result<bool, Error> {
        const FORWARDING: &str = "3";
        Ok(read_attribute(&self.sysfs, &format!("port{node}"), "brport/state")?.trim()
            == FORWARDING)
    }
}
