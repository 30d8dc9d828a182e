//! One node: a network namespace with an interface and addresses.

use crate::error::Error;
use crate::namespace::{Namespace, Tool};
use crate::rate::LinkRate;
use rustix::fs::{Mode, OFlags, openat};
use std::ffi::OsStr;
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::process::Command;

/// Name of every node's interface.
pub(crate) const INTERFACE: &str = "eth0";

/// Node of [`VirtualNodes`](crate::VirtualNodes).
#[derive(Debug)]
pub struct Node {
    number: usize,
    namespace: Namespace,
    sysfs: OwnedFd,
}

impl Node {
    pub(crate) fn new(number: usize) -> Result<Self, Error> {
        let namespace = Namespace::new()?;
        // No automatic addresses, no duplicate address detection, no router discovery: a node sends
        // nothing unless a program on it does.
        for (setting, value) in [("addr_gen_mode", "1"), ("dad_transmits", "0"), ("accept_ra", "0")]
        {
            namespace.tune(&format!("ipv6/conf/default/{setting}"), value)?;
        }
        let sysfs = namespace.sysfs()?;
        Ok(Node { number, namespace, sysfs })
    }

    /// Sets the addresses of the interface, which the link has created, and the neighbour table.
    pub(crate) fn set_up(&self, all: &[Node]) -> Result<(), Error> {
        let address = self.address();
        let address_v6 = self.address_v6();
        let mut commands = format!(
            "link set lo up\n\
             address add {address}/24 dev {INTERFACE}\n\
             address add {address_v6}/64 dev {INTERFACE} nodad\n\
             link set {INTERFACE} up\n"
        );
        for other in all.iter().filter(|other| other.number != self.number) {
            let hardware = other.hardware_address_text();
            for address in [other.address().to_string(), other.address_v6().to_string()] {
                let _ = writeln!(
                    commands,
                    "neighbour replace {address} lladdr {hardware} dev {INTERFACE} nud permanent"
                );
            }
        }
        self.configure(&commands)
    }

    /// Runs commands of `ip` in the node, one a line.
    ///
    /// # Errors
    /// `ip` is missing or rejects a command.
    pub fn configure(&self, commands: &str) -> Result<(), Error> {
        self.namespace.configure(Tool::Ip, &format!("node {}", self.number), commands)
    }

    /// Limits what the node sends to this rate.
    pub(crate) fn limit(&self, rate: LinkRate, mtu: u32) -> Result<(), Error> {
        let segment = rate.segment(mtu);
        self.configure(&format!("link set {INTERFACE} gso_max_size {segment}\n"))?;
        let command = format!("qdisc replace dev {INTERFACE} root {}\n", rate.queue(mtu));
        self.namespace.configure(Tool::Tc, &format!("node {}", self.number), &command)
    }

    /// Returns the index of the node.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Returns the name of its interface beside `lo`; the same on every node.
    pub fn interface(&self) -> &'static str {
        INTERFACE
    }

    /// Returns the index of its interface within its namespace.
    pub fn interface_index(&self) -> u32 {
        let text = self.read("ifindex").unwrap_or_default();
        text.trim().parse().expect("the kernel writes a number")
    }

    /// Returns its IPv4 address.
    pub fn address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 84, 0, self.number as u8 + 1)
    }

    /// Returns its IPv6 address.
    pub fn address_v6(&self) -> Ipv6Addr {
        Ipv6Addr::new(0xfd54, 0, 0, 0, 0, 0, 0, self.number as u16 + 1)
    }

    /// Returns the Ethernet address of its interface. The last byte is its number plus one.
    pub fn hardware_address(&self) -> [u8; 6] {
        // The second bit of the first byte marks a locally administered address.
        [0x02, b't', b'w', 0, 0, self.number as u8 + 1]
    }

    /// Returns the Ethernet address as `ip` writes it.
    pub fn hardware_address_text(&self) -> String {
        self.hardware_address().map(|byte| format!("{byte:02x}")).join(":")
    }

    /// Runs a closure on a thread in the node and waits for it. Sockets that it creates belong to
    /// the node, also when they are used outside of it.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.namespace.run(work)
    }

    /// Returns a command that runs in the node. A process that outlives the nodes keeps its
    /// namespace until it ends.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        self.namespace.command(program)
    }

    /// Returns a path that names the node's network namespace, for `nsenter --net=…`, while this
    /// process is alive.
    pub fn namespace(&self) -> String {
        self.namespace.path()
    }

    /// Steers the processing of received packets to one of these cores (a mask), as the interrupt
    /// of a network card does. With 0, packets are received as veth does it by default: inside the
    /// system call of the sender.
    ///
    /// # Errors
    /// The kernel cannot steer packets, or a core of the mask does not exist.
    pub fn receive_on(&self, cores: u64) -> Result<(), Error> {
        let what = "steering received packets (RPS)";
        let path = format!("class/net/{INTERFACE}/queues/rx-0/rps_cpus");
        let file = openat(&self.sysfs, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| match errno {
                rustix::io::Errno::NOENT => {
                    Error::Feature { what, way_out: "use a kernel with CONFIG_RPS" }
                }
                errno => Error::System { what, source: errno.into() },
            })?;
        // The kernel reads groups of 32 bits, the highest first.
        let mask = format!("{:08x},{:08x}", cores >> 32, cores & 0xffff_ffff);
        let mask = if cores >> 32 == 0 { &mask[9..] } else { &mask };
        rustix::io::write(&file, mask.as_bytes())
            .map_err(Error::with_right(what, "CAP_NET_ADMIN"))?;
        Ok(())
    }

    /// Reads an attribute of the interface from `/sys/class/net`.
    pub(crate) fn read(&self, attribute: &str) -> Result<String, Error> {
        read_attribute(&self.sysfs, INTERFACE, attribute)
    }
}

/// Reads an attribute of an interface from a namespace's `/sys/class/net`.
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
