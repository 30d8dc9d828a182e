//! The node service's part of the kernel engine: it has the rights, so it reserves this host's place on the wire, loads the
//! program once all hosts are known, and hands every rank of this host the descriptors that it needs, and no more.

use kernel::wire::{Endpoint, Key};
use kernel::{Handles, Interface, JobDescription, LoadError, Loader};
use network::invitation::{Invitation, Station};
use siphasher::sip::SipHasher24;
use std::hash::Hasher;
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
    /// be loaded is tried here, too, because a host that promises what it cannot keep would be waited for.
    pub(crate) fn new(ip: IpAddr) -> Result<Self, LoadError> {
        let what = "reserving a port for the kernel engine";
        let system = |source| LoadError::System { what, source };
        let all = if_addrs::get_if_addrs().map_err(system)?;
        let name = all.into_iter().find(|interface| interface.ip() == ip).map(|interface| interface.name);
        let interface = Interface::named(&name.ok_or_else(|| LoadError::NoInterface { name: ip.to_string() })?)?;
        let reserved = UdpSocket::bind((ip, 0)).map_err(system)?;
        let port = reserved.local_addr().map_err(system)?.port();
        let station = Station { hardware_address: interface.hardware_address, port, mtu: interface.mtu };
        let offer = Offer { _reserved: reserved, interface, station };
        Loader::load(&offer.job(&[0], 0, vec![offer.endpoint(ip, &station)], [0; 16]))?;
        Ok(offer)
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
        let endpoints = places.map(|(address, station)| self.endpoint(address.ip(), station)).collect();
        let hosts = &invitation.hosts;
        let host_of_rank: Vec<u32> = (0..hosts.ranks()).filter_map(|rank| hosts.of(rank)).collect();
        Some(Loader::load(&self.job(&host_of_rank, invitation.host, endpoints, invitation.key)))
    }

    fn endpoint(&self, address: IpAddr, station: &Station) -> Endpoint {
        Endpoint { hardware_address: station.hardware_address, address, port: station.port }
    }

    fn job(&self, host_of_rank: &[u32], host: u32, endpoints: Vec<Endpoint>, secret: [u8; 16]) -> JobDescription {
        // Whoever learns one of these numbers learns nothing about the others, nor about the secret that the agents share.
        let derived = |purpose: u64| {
            let mut hasher = SipHasher24::new_with_key(&secret);
            hasher.write_u64(purpose);
            hasher.finish()
        };
        JobDescription {
            host,
            host_of_rank: host_of_rank.to_vec(),
            endpoints,
            number: derived(0),
            key: Key([derived(1), derived(2)]),
            interface: self.interface.name.clone(),
            mtu: self.interface.mtu,
        }
    }
}

/// What the ranks of a host need of a job of several hosts, all of whose packets have room for the shortest.
pub(crate) fn addresses(invitation: &Invitation) -> Vec<IpAddr> {
    invitation.addresses.iter().map(SocketAddr::ip).collect()
}

/// The descriptors of a rank, by its number in the job.
pub(crate) fn handles(loader: &Loader, rank: u32) -> Option<Handles> {
    loader.handles(rank).ok().flatten()
}
