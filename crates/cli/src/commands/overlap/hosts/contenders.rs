//! The engines that are measured, each with a rank on every host.

use crate::failure::Failure;
use kernel::wire::{Endpoint, Key};
use kernel::{JobDescription, Loader, Rank};
use measure::hosts::{Contender, Row, Setting, sockets};
use network::agent::{limits, local_over};
use network::carrier::{Carrier, Error};
use network::hosts::Hosts;
use network::invitation::random_key;
use network::transport::Transport;
use network::transport::tcp::{Listener, Patience, Tcp};
use std::net::{SocketAddr, UdpSocket};
use std::num::NonZeroU32;
use std::sync::Arc;
use testbed::{Host, Testbed};

/// The port of the plain sockets.
const PORT: u16 = 5411;
/// The port of the kernel engine.
const KERNEL_PORT: u16 = 7199;

/// What a message needs at least: plain sockets on the first two hosts.
pub(super) fn floor(testbed: &Testbed, setting: &Setting) -> Result<Vec<Row>, Failure> {
    let [one, other, ..] = testbed.hosts() else { return Ok(Vec::new()) };
    let bind = |host: &Host, peer: &Host| -> std::io::Result<UdpSocket> {
        let socket = host.run(|| UdpSocket::bind((host.address(), PORT)))?;
        socket.connect((peer.address(), PORT))?;
        Ok(socket)
    };
    let pair = [bind(one, other), bind(other, one)];
    let [Ok(here), Ok(there)] = pair else {
        let why = pair
            .into_iter()
            .find_map(Result::err)
            .unwrap_or_else(|| std::io::ErrorKind::Other.into());
        return Err(measure::Error::from(why).into());
    };
    Ok(sockets(&[here, there], setting)?)
}

/// All engines between hosts that this machine has, and what must stay while they are used.
pub(super) fn of(
    testbed: &Testbed,
    mtu: u32,
    per_host: NonZeroU32,
) -> Result<(Vec<Contender>, Vec<Loader>), Failure> {
    let host_of_rank: Vec<u32> = (0..testbed.hosts().len() as u32)
        .flat_map(|host| (0..per_host.get()).map(move |_| host))
        .collect();
    let agent = agent(testbed, &host_of_rank).map_err(measure::Error::from)?;
    let (kernel, loaders) = kernel(testbed, mtu, &host_of_rank)?;
    Ok((
        vec![agent, kernel].into_iter().map(|one| one.with_ranks_per_host(per_host)).collect(),
        loaders,
    ))
}

/// The kernel engine.
fn kernel(
    testbed: &Testbed,
    mtu: u32,
    host_of_rank: &[u32],
) -> Result<(Contender, Vec<Loader>), Failure> {
    let hosts = testbed.hosts();
    let endpoint = |host: &Host| Endpoint {
        hardware_address: host.hardware_address(),
        address: host.address().into(),
        port: KERNEL_PORT,
    };
    let endpoints: Vec<Endpoint> = hosts.iter().map(endpoint).collect();
    let (mut carriers, mut loaders) = (Vec::new(), Vec::new());
    for host in hosts {
        let number = host.number() as u32;
        let job = JobDescription {
            host: number,
            host_of_rank: host_of_rank.to_vec(),
            endpoints: endpoints.clone(),
            // The hosts are this job's alone.
            number: 0,
            key: Key([0, 1]),
            interface: host.interface().to_owned(),
            mtu,
        };
        let loader = host.run(|| Loader::load(&job))?;
        for rank in 0..host_of_rank.len() as u32 {
            let Some(handles) = loader.handles(rank)? else { continue };
            carriers.push(Arc::new(host.run(|| Rank::new(handles))?) as Arc<dyn Carrier>);
        }
        loaders.push(loader);
    }
    Ok((Contender::new("kernel", carriers), loaders))
}

/// The agent engine over TCP.
fn agent(testbed: &Testbed, host_of_rank: &[u32]) -> Result<Contender, Error> {
    let hosts = testbed.hosts();
    let listen = |host: &Host| host.run(|| Listener::bind((host.address(), 0)));
    let listeners = hosts.iter().map(listen).collect::<Result<Vec<_>, _>>()?;
    let addresses: Vec<SocketAddr> = listeners.iter().map(Listener::address).collect();
    let key = random_key()?;
    let connect = |host: &Host, listener: Listener| {
        host.run(|| {
            Tcp::connect(listener, host.number() as u32, &addresses, key, Patience::default())
        })
    };
    // All at once: each waits for all others.
    let connected = std::thread::scope(|scope| {
        let pairs = hosts.iter().zip(listeners);
        let threads: Vec<_> = pairs
            .map(|(host, listener)| {
                scope.spawn({
                    let connect = &connect;
                    move || connect(host, listener)
                })
            })
            .collect();
        threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect::<Vec<_>>()
    });
    let transports = connected.into_iter().map(|outcome| match outcome {
        Ok(connected) => connected.map(|transport| Box::new(transport) as Box<dyn Transport>),
        Err(panic) => std::panic::resume_unwind(panic),
    });
    let transports = transports.collect::<Result<Vec<_>, Error>>()?;
    let clients = local_over(&Hosts::new(host_of_rank), transports, limits())?;
    let carriers = clients.into_iter().map(|client| Arc::new(client) as Arc<dyn Carrier>);
    Ok(Contender::new("agent", carriers.collect()))
}
