//! The kernel engine in the node service. The service has the privileges: it reserves a port of
//! this node, loads the program once all nodes are known, and passes every rank of this node the
//! descriptors that it needs, and no others.

use kernel::wire::{Endpoint, Key};
use kernel::{Handles, Interface, JobDescription, LoadError, Loader};
use launch::ports::Ports;
use launch::secret::{Purpose, Secret};
use network::job_nodes::{JobNodes, KernelEndpoint};
use network::node_map::NodeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};

/// Port and interface of this node, reserved for the kernel engine.
#[derive(Debug)]
pub(crate) struct KernelReservation {
    /// Reserves the port. The program takes the packets of the job from the interface, so none
    /// arrives at this socket.
    _reserved: UdpSocket,
    address: IpAddr,
    interface: Interface,
    endpoint: KernelEndpoint,
}

impl KernelReservation {
    /// Reserves a port at this address, if the kernel engine supports the interface of the address.
    /// The program is loaded later, and may fail to load; afterwards the ranks agree on whether all
    /// have it.
    pub(crate) fn new(ip: IpAddr, ports: &Ports) -> Result<Self, LoadError> {
        let what = "reserving a port for the kernel engine";
        let system = |source| LoadError::System { what, source };
        let all = if_addrs::get_if_addrs().map_err(system)?;
        let name =
            all.into_iter().find(|interface| interface.ip() == ip).map(|interface| interface.name);
        let interface = Interface::named(
            &name.ok_or_else(|| LoadError::NoInterface { name: ip.to_string() })?,
        )?;
        let reserved = ports.bind(|port| UdpSocket::bind((ip, port))).map_err(system)?;
        let port = reserved.local_addr().map_err(system)?.port();
        let endpoint = KernelEndpoint {
            hardware_address: interface.hardware_address,
            port,
            mtu: interface.mtu,
        };
        Ok(KernelReservation { _reserved: reserved, address: ip, interface, endpoint })
    }

    /// Returns the endpoint for the other nodes.
    pub(crate) fn endpoint(&self) -> KernelEndpoint {
        self.endpoint
    }

    /// Loads the program for the job. The error is the reason why the job cannot use this engine.
    pub(crate) fn load(&self, nodes: &JobNodes) -> Result<Loader, String> {
        if nodes.kernel_endpoints.len() != nodes.addresses.len() {
            return Err("another node of the job does not have it".into());
        }
        Loader::load(&self.description(nodes)).map_err(|error| error.to_string())
    }

    /// Returns the description of the job for the program.
    fn description(&self, nodes: &JobNodes) -> JobDescription {
        let endpoints = (0..).zip(nodes.addresses.iter().zip(&nodes.kernel_endpoints));
        let endpoint = |(node, (address, endpoint)): (u32, (&SocketAddr, &KernelEndpoint))| {
            // The program takes packets from the network at the endpoint that this service has
            // reserved, never at one that an unprivileged process has submitted.
            let own = (self.address, &self.endpoint);
            let (address, endpoint) =
                if node == nodes.node { own } else { (address.ip(), endpoint) };
            Endpoint { hardware_address: endpoint.hardware_address, address, port: endpoint.port }
        };
        let secret = Secret::new(nodes.key);
        JobDescription {
            node: nodes.node,
            node_of_rank: node_of_rank(&nodes.nodes),
            endpoints: endpoints.map(endpoint).collect(),
            number: secret.derive(Purpose::JobNumber),
            key: Key(secret.derive_both(Purpose::PacketKey)),
            interface: self.interface.name.clone(),
            // The smallest of all nodes: packets fit on every interface, and all nodes divide
            // messages alike.
            mtu: nodes
                .kernel_endpoints
                .iter()
                .map(|endpoint| endpoint.mtu)
                .fold(self.endpoint.mtu, u32::min),
        }
    }
}

/// Returns the node of every rank.
pub(crate) fn node_of_rank(nodes: &NodeMap) -> Vec<u32> {
    (0..nodes.ranks()).filter_map(|rank| nodes.of(rank)).collect()
}

/// Returns the addresses of the nodes.
pub(crate) fn addresses(nodes: &JobNodes) -> Vec<IpAddr> {
    nodes.addresses.iter().map(SocketAddr::ip).collect()
}

/// Returns the descriptors of a rank, by its number in the job.
pub(crate) fn handles(loader: &Loader, rank: u32) -> Result<Handles, String> {
    let handles = loader
        .handles(rank)
        .map_err(|error| format!("there are no descriptors for a rank: {error}"))?;
    handles.ok_or_else(|| format!("rank {rank} is on another node"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use network::node_network::NodeNetwork;
    use std::net::Ipv4Addr;

    #[test]
    fn packets_are_taken_where_this_service_has_reserved_a_port_and_nowhere_else() {
        let address = Ipv4Addr::LOCALHOST.into();
        let reserved = UdpSocket::bind((address, 0)).expect("a port");
        let port = reserved.local_addr().expect("it has one").port();
        let hardware_address = [2, 0, 0, 0, 0, 1];
        let interface = Interface { name: "eth0".into(), hardware_address, mtu: 1500 };
        let endpoint = KernelEndpoint { hardware_address, port, mtu: 1500 };
        let reservation = KernelReservation { _reserved: reserved, address, interface, endpoint };
        let foreign =
            |node: u32| KernelEndpoint { hardware_address: [4; 6], port: 53, mtu: 9000 - node };
        let nodes = JobNodes {
            key: [3; 16],
            node: 1,
            addresses: [1, 2, 3].map(|last| (Ipv4Addr::new(10, 0, 0, last), 4000).into()).to_vec(),
            kernel_endpoints: [0, 1, 2].map(foreign).to_vec(),
            networks: vec![NodeNetwork::default(); 3],
            nodes: NodeMap::new([0, 1, 2]),
        };
        let job = reservation.description(&nodes);
        assert_eq!(job.endpoints[1], Endpoint { hardware_address, address, port });
        let theirs = Endpoint {
            hardware_address: [4; 6],
            address: Ipv4Addr::new(10, 0, 0, 3).into(),
            port: 53,
        };
        assert_eq!((job.endpoints[2], job.mtu), (theirs, 1500));
        let wider =
            KernelReservation { endpoint: KernelEndpoint { mtu: 9000, ..endpoint }, ..reservation };
        assert_eq!(wider.description(&nodes).mtu, 8998);
    }
}
