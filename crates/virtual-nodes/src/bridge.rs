//! veth pairs and a bridge between the nodes.

use crate::error::Error;
use crate::link::Link;
use crate::namespace::{Namespace, Tool};
use crate::node::{INTERFACE, Node, read_attribute};
use crate::rate::LinkRate;
use std::fmt::Write;
use std::os::fd::OwnedFd;

/// Bridge in a namespace of its own, with one port for each node.
#[derive(Debug)]
pub(crate) struct Bridge {
    namespace: Namespace,
    sysfs: OwnedFd,
}

impl Bridge {
    /// Creates the bridge and a veth pair for each node: one end is a port, the other one is the
    /// node's interface.
    pub(crate) fn join(nodes: &[Node], mtu: u32) -> Result<Self, Error> {
        let namespace = Namespace::new()?;
        namespace.tune("ipv6/conf/default/disable_ipv6", "1")?;
        // A switch does not look at IP headers, so the bridge skips the packet filters.
        for table in ["arptables", "iptables", "ip6tables"] {
            namespace.tune_if_present(&format!("bridge/bridge-nf-call-{table}"), "0")?;
        }
        let mut commands = String::from(
            "link add bridge type bridge stp_state 0 forward_delay 0 mcast_snooping 0\n",
        );
        for node in nodes {
            let number = node.number();
            let hardware = node.hardware_address_text();
            let path = node.namespace();
            let _ = writeln!(
                commands,
                "link add port{number} mtu {mtu} type veth peer name {INTERFACE} mtu {mtu} \
                 address {hardware} netns {path}\n\
                 link set port{number} master bridge up",
            );
        }
        commands.push_str("link set bridge up\n");
        namespace.configure(Tool::Ip, "the bridge", &commands)?;
        let sysfs = namespace.sysfs()?;
        Ok(Bridge { namespace, sysfs })
    }

    /// Limits both ends of each node's link to this rate.
    pub(crate) fn limit(&self, nodes: &[Node], rate: LinkRate, mtu: u32) -> Result<(), Error> {
        let queue = rate.queue(mtu);
        let mut commands = String::new();
        for node in nodes {
            node.limit(rate, mtu)?;
            let _ = writeln!(commands, "qdisc replace dev port{} root {queue}", node.number());
        }
        self.namespace.configure(Tool::Tc, "the bridge", &commands)
    }
}

impl Link for Bridge {
    fn set_carrier(&self, node: usize, up: bool) -> Result<(), Error> {
        let state = if up { "up" } else { "down" };
        self.namespace.configure(Tool::Ip, "the bridge", &format!("link set port{node} {state}\n"))
    }

    /// The bridge forwards a moment after the link is up.
    fn is_forwarding(&self, node: usize) -> Result<bool, Error> {
        const FORWARDING: &str = "3";
        let state = read_attribute(&self.sysfs, &format!("port{node}"), "brport/state")?;
        Ok(state.trim() == FORWARDING)
    }
}
