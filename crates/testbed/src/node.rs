//! One node: a network namespace with an interface and addresses.

use crate::error::Error;
use crate::namespace::Namespace;
use rustix::fs::{Mode, OFlags, openat};
use std::ffi::OsStr;
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::process::Command;

/// The interface of every node.
pub(crate) const INTERFACE: &str = "eth0";

/// A node of a [`Testbed`](crate::Testbed).
#[derive(Debug)]
pub struct Node {
    number: usize,
    pub(crate) namespace: Namespace,
    sysfs: OwnedFd,
}

impl Node {
    pub(crate) fn new(number: usize) -> Result<Self, Error> {
        let namespace = Namespace::new()?;
        // No addresses but ours, no search for routers and for others with the same address: the
        // nodes are silent unless a test sends something.
        for (setting, value) in [("addr_gen_mode", "1"), ("dad_transmits", "0"), ("accept_ra", "0")]
        {
            namespace.tune(&format!("ipv6/conf/default/{setting}"), value)?;
        }
        let sysfs = namespace.sysfs()?;
        Ok(Node { number, namespace, sysfs })
    }

    /// Gives the interface, which is there by now, its addresses, and says where the others are.
    pub(crate) fn set_up(&self, all: &[Node]) -> Result<(), Error> {
        let mut orders = format!(
            "link set lo up\naddress add {}/24 dev {INTERFACE}\naddress add {}/64 dev {INTERFACE} nodad\nlink set {INTERFACE} up\n",
            self.address(),
            self.address_v6()
        );
        for other in all.iter().filter(|other| other.number != self.number) {
            let hardware = other.hardware_address_text();
            for address in [other.address().to_string(), other.address_v6().to_string()] {
                let _ = writeln!(
                    orders,
                    "neighbour replace {address} lladdr {hardware} dev {INTERFACE} nud permanent"
                );
            }
        }
        self.configure(&orders)
    }

    pub(crate) fn configure(&self, orders: &str) -> Result<(), Error> {
        self.namespace.configure(&format!("node {}", self.number), orders)
    }

    /// Its place among the nodes of the testbed.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Its interface, beside `lo`: the same name on every node.
    pub fn interface(&self) -> &'static str {
        INTERFACE
    }

    /// The number of its interface within its namespace.
    pub fn interface_index(&self) -> u32 {
        let text = self.read("ifindex").unwrap_or_default();
        text.trim().parse().expect("the kernel writes a number")
    }

    /// Its IPv4 address.
    pub fn address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 84, 0, self.number as u8 + 1)
    }

    /// Its IPv6 address.
    pub fn address_v6(&self) -> Ipv6Addr {
        Ipv6Addr::new(0xfd54, 0, 0, 0, 0, 0, 0, self.number as u16 + 1)
    }

    /// The Ethernet address of its interface.
    pub fn hardware_address(&self) -> [u8; 6] {
        // The second bit of the first byte: given out locally.
        [0x02, b't', b'w', 0, 0, self.number as u8 + 1]
    }

    pub(crate) fn hardware_address_text(&self) -> String {
        self.hardware_address().map(|byte| format!("{byte:02x}")).join(":")
    }

    /// Runs a closure on a thread in the node and waits for it. Sockets that it makes belong to the
    /// node and may be taken out of it.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.namespace.run(work)
    }

    /// A command that will run in the node. A process that is still there when the testbed has gone
    /// keeps the namespace until it ends.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        self.namespace.command(program)
    }

    /// A path that names the node's network namespace, for `nsenter --net=…`, as long as this
    /// process lives.
    pub fn namespace(&self) -> String {
        self.namespace.path()
    }

    /// Has arriving packets processed on one of these cores (a mask), as if a network card
    /// interrupted it there, or with 0 as veth does it: inside the system call of the sender.
    ///
    /// # Errors
    /// When the kernel cannot steer packets, or there is no such core.
    pub fn receive_on(&self, cores: u64) -> Result<(), Error> {
        let what = "steering received packets (RPS)";
        let path = format!("class/net/{INTERFACE}/queues/rx-0/rps_cpus");
        let file = openat(&self.sysfs, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| match errno {
                rustix::io::Errno::NOENT => {
                    Error::Feature { what, way_out: "take a kernel with CONFIG_RPS" }
                }
                errno => Error::System { what, source: errno.into() },
            })?;
        // The kernel wants groups of 32 bits.
        let mask = format!("{:08x},{:08x}", cores >> 32, cores & 0xffff_ffff);
        let mask = if cores >> 32 == 0 { &mask[9..] } else { &mask };
        rustix::io::write(&file, mask.as_bytes()).map_err(Error::of(what, "CAP_NET_ADMIN"))?;
        Ok(())
    }

    /// An attribute of the interface from `/sys/class/net`.
    pub(crate) fn read(&self, attribute: &str) -> Result<String, Error> {
        read_attribute(&self.sysfs, INTERFACE, attribute)
    }
}

/// An attribute of an interface from a namespace's `/sys/class/net`.
pub(crate) fn read_attribute(
    sysfs: &OwnedFd,
    interface: &str,
    attribute: &str,
) -> Result<String, Error> {
    let what = "reading the state of an interface";
    let path = format!("class/net/{interface}/{attribute}");
    let file = openat(sysfs, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| Error::System { what, source: errno.into() })?;
    std::io::read_to_string(std::fs::File::from(file)).map_err(Error::system(what))
}
