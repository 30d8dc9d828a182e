//! The node service's part of the kernel engine: it has the rights, so it reserves this node's
//! place on the wire, loads the program once all nodes are known, and hands every rank of this node
//! the descriptors that it needs, and no more.

use kernel::wire::{Endpoint, Key};
use kernel::{Handles, Interface, JobDescription, LoadError, Loader};
use launch::secret::{Purpose, Secret};
use network::job_nodes::{JobNodes, KernelEndpoint};
use network::node_map::NodeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};

/// This node's place on the wire, reserved.
#[derive(Debug)]
pub(crate) struct Offer {
    /// Keeps the port from other programs. Nothing is ever received through it: packets of the job
    /// end before it.
    _reserved: UdpSocket,
    address: IpAddr,
    interface: Interface,
    endpoint: KernelEndpoint,
}

impl Offer {
    /// Reserves a place at this address, if the interface that has it is one for the kernel engine.
    /// Whether the program can be loaded is seen when it is: the ranks agree afterwards whether all
    /// have it.
    pub(crate) fn new(ip: IpAddr) -> Result<Self, LoadError> {
        let what = "reserving a port for the kernel engine";
        let system = |source| LoadError::System { what, source };
        let all = if_addrs::get_if_addrs().map_err(system)?;
        let name =
            all.into_iter().find(|interface| interface.ip() == ip).map(|interface| interface.name);
        let interface = Interface::named(
            &name.ok_or_else(|| LoadError::NoInterface { name: ip.to_string() })?,
        )?;
        let reserved = UdpSocket::bind((ip, 0)).map_err(system)?;
        let port = reserved.local_addr().map_err(system)?.port();
        let endpoint = KernelEndpoint {
            hardware_address: interface.hardware_address,
            port,
            mtu: interface.mtu,
        };
        Ok(Offer { _reserved: reserved, address: ip, interface, endpoint })
    }

    /// What the other nodes must know.
    pub(crate) fn endpoint(&self) -> KernelEndpoint {
        self.endpoint
    }

    /// Loads the program for the job, or says why the job cannot have this engine.
    pub(crate) fn load(&self, invitation: &JobNodes) -> Result<Loader, String> {
        if invitation.kernel_endpoints.len() != invitation.addresses.len() {
            return Err("another node of the job has not got it".into());
        }
        Loader::load(&self.description(invitation)).map_err(|error| error.to_string())
    }

    /// The job as the program is told of it.
    fn description(&self, invitation: &JobNodes) -> JobDescription {
        let places = (0..).zip(invitation.addresses.iter().zip(&invitation.kernel_endpoints));
        let endpoint = |(node, (address, endpoint)): (u32, (&SocketAddr, &KernelEndpoint))| {
            // Where packets are taken from the network is this service's word, never that of who
            // brought the invitation.
            let own = (self.address, &self.endpoint);
            let (address, endpoint) =
                if node == invitation.node { own } else { (address.ip(), endpoint) };
            Endpoint { hardware_address: endpoint.hardware_address, address, port: endpoint.port }
        };
        let secret = Secret::new(invitation.key);
        let nodes = &invitation.nodes;
        JobDescription {
            node: invitation.node,
            node_of_rank: node_of_rank(nodes),
            endpoints: places.map(endpoint).collect(),
            number: secret.derive(Purpose::JobNumber),
            key: Key(secret.derive_both(Purpose::PacketKey)),
            interface: self.interface.name.clone(),
            // Packets have room on every interface, and the nodes cut messages alike.
            mtu: invitation
                .kernel_endpoints
                .iter()
                .map(|endpoint| endpoint.mtu)
                .fold(self.endpoint.mtu, u32::min),
        }
    }
}

/// The node of every rank.
pub(crate) fn node_of_rank(nodes: &NodeMap) -> Vec<u32> {
    (0..nodes.ranks()).filter_map(|rank| nodes.of(rank)).collect()
}

/// The addresses of the nodes.
pub(crate) fn addresses(invitation: &JobNodes) -> Vec<IpAddr> {
    invitation.addresses.iter().map(SocketAddr::ip).collect()
}

/// The descriptors of a rank, by its number in the job.
pub(crate) fn handles(loader: &Loader, rank: u32) -> Result<Handles, String> {
    let handles = loader
        .handles(rank)
        .map_err(|error| format!("there are no descriptors for a rank: {error}"))?;
    handles.ok_or_else(|| format!("rank {rank} is on another node"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn packets_are_taken_where_this_service_has_reserved_a_port_and_nowhere_else() {
        let address = Ipv4Addr::LOCALHOST.into();
        let reserved = UdpSocket::bind((address, 0)).expect("a port");
        let port = reserved.local_addr().expect("it has one").port();
        let hardware_address = [2, 0, 0, 0, 0, 1];
        let interface = Interface { name: "eth0".into(), hardware_address, mtu: 1500 };
        let endpoint = KernelEndpoint { hardware_address, port, mtu: 1500 };
        let offer = Offer { _reserved: reserved, address, interface, endpoint };
        let foreign =
            |node: u32| KernelEndpoint { hardware_address: [4; 6], port: 53, mtu: 9000 - node };
        let invitation = JobNodes {
            key: [3; 16],
            node: 1,
            addresses: [1, 2, 3].map(|last| (Ipv4Addr::new(10, 0, 0, last), 4000).into()).to_vec(),
            kernel_endpoints: [0, 1, 2].map(foreign).to_vec(),
            nodes: NodeMap::new([0, 1, 2]),
        };
        let job = offer.description(&invitation);
        assert_eq!(job.endpoints[1], Endpoint { hardware_address, address, port });
        let theirs = Endpoint {
            hardware_address: [4; 6],
            address: Ipv4Addr::new(10, 0, 0, 3).into(),
            port: 53,
        };
        assert_eq!((job.endpoints[2], job.mtu), (theirs, 1500));
        let wider = Offer { endpoint: KernelEndpoint { mtu: 9000, ..endpoint }, ..offer };
        assert_eq!(wider.description(&invitation).mtu, 8998);
    }
}
