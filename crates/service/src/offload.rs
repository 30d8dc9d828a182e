//! The node service's part of the kernel engine: it has the rights, so it reserves this host's place on the wire, loads the
//! program once all hosts are known, and hands every rank of this host the descriptors that it needs, and no more.

use crate::secret::{Half, Purpose, derive};
use kernel::wire::{Endpoint, Key};
use kernel::{Handles, Interface, JobDescription, LoadError, Loader};
use network::invitation::{Invitation, Station};
use std::net::{IpAddr, SocketAddr, UdpSocket};

/// This host's place on the wire, reserved.
#[derive(Debug)]
pub(crate) struct Offer {
    /// Keeps the port from other programs. Nothing is ever received through it: packets of the job end before it.
    _reserved: UdpSocket,
    interface: Interface,
    station: Station,
}

impl Offer {
    /// Reserves a place at this address, if the interface that has it is one for the kernel engine. Whether the program can
    /// be loaded is seen when it is: the ranks agree afterwards whether all have it.
    pub(crate) fn new(ip: IpAddr) -> Result<Self, LoadError> {
        let what = "reserving a port for the kernel engine";
        let system = |source| LoadError::System { what, source };
        let all = if_addrs::get_if_addrs().map_err(system)?;
        let name = all.into_iter().find(|interface| interface.ip() == ip).map(|interface| interface.name);
        let interface = Interface::named(&name.ok_or_else(|| LoadError::NoInterface { name: ip.to_string() })?)?;
        let reserved = UdpSocket::bind((ip, 0)).map_err(system)?;
        let port = reserved.local_addr().map_err(system)?.port();
        let station = Station { hardware_address: interface.hardware_address, port, mtu: interface.mtu };
        Ok(Offer { _reserved: reserved, interface, station })
    }

    /// What the other hosts must know.
    pub(crate) fn station(&self) -> Station {
        self.station
    }

    /// Loads the program for the job; none if the job has no place for this engine.
    pub(crate) fn load(&self, invitation: &Invitation) -> Option<Result<Loader, LoadError>> {
        if invitation.stations.len() != invitation.addresses.len() {
            return None;
        }
        let places = invitation.addresses.iter().zip(&invitation.stations);
        let endpoint = |(address, station): (&SocketAddr, &Station)| {
            let Station { hardware_address, port, .. } = *station;
            Endpoint { hardware_address, address: address.ip(), port }
        };
        let derived = |purpose| derive(&invitation.key, purpose);
        let hosts = &invitation.hosts;
        Some(Loader::load(&JobDescription {
            host: invitation.host,
            host_of_rank: (0..hosts.ranks()).filter_map(|rank| hosts.of(rank)).collect(),
            endpoints: places.map(endpoint).collect(),
            number: derived(Purpose::JobNumber),
            key: Key([derived(Purpose::PacketKey(Half::First)), derived(Purpose::PacketKey(Half::Second))]),
            interface: self.interface.name.clone(),
            // Packets have room on every interface, and the hosts cut messages alike.
            mtu: invitation.stations.iter().map(|station| station.mtu).min().unwrap_or(self.interface.mtu),
        }))
    }
}

/// The addresses of the hosts.
pub(crate) fn addresses(invitation: &Invitation) -> Vec<IpAddr> {
    invitation.addresses.iter().map(SocketAddr::ip).collect()
}

/// The descriptors of a rank, by its number in the job.
pub(crate) fn handles(loader: &Loader, rank: u32) -> Option<Handles> {
    loader.handles(rank).ok().flatten()
}
