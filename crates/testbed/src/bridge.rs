//! Hosts joined by veth pairs and a bridge, in a namespace of its own.

use crate::error::Error;
use crate::host::{Host, INTERFACE, read_attribute};
use crate::namespace::Namespace;
use std::fmt::Write;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(crate) struct Bridge {
    namespace: Namespace,
    sysfs: OwnedFd,
}

/// How long a link may take to come up.
const PATIENCE: Duration = Duration::from_secs(10);

impl Bridge {
    /// Makes a bridge with a port for each host, at the other end of which is the host's interface.
    pub(crate) fn join(hosts: &[Host], mtu: u32) -> Result<Self, Error> {
        let namespace = Namespace::new()?;
        namespace.tune("ipv6/conf/default/disable_ipv6", "1")?;
        let mut orders = String::from("link add bridge type bridge stp_state 0 forward_delay 0 mcast_snooping 0\n");
        for host in hosts {
            let (number, hardware, path) = (host.number(), host.hardware_address_text(), host.namespace());
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

    pub(crate) fn set_port(&self, host: usize, up: bool) -> Result<(), Error> {
        let state = if up { "up" } else { "down" };
        self.namespace.configure("the bridge", &format!("link set port{host} {state}\n"))
    }

    /// Waits until the bridge forwards to and from a port, which takes the kernel a moment after its link is up.
    pub(crate) fn await_port(&self, host: usize) -> Result<(), Error> {
        const FORWARDING: &str = "3";
        let end = Instant::now() + PATIENCE;
        while read_attribute(&self.sysfs, &format!("port{host}"), "brport/state")?.trim() != FORWARDING {
            if Instant::now() > end {
                return Err(Error::Link { host, seconds: PATIENCE.as_secs() });
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}
