//! The engines that are measured, each with a rank on every node.

use crate::failure::Failure;
use kernel::wire::{Endpoint, Key};
use kernel::{JobDescription, Loader, Rank};
use measure::experiments::nodes::{Candidate, Row, Setting, sockets};
use network::agent::limits;
use network::backend::Backend;
use network::error::Error;
use network::job_nodes::random_key;
use network::local::connect_over;
use network::node_map::NodeMap;
use network::transport::Transport;
use network::transport::tcp::{Listener, Tcp, Timeouts};
use std::net::{SocketAddr, UdpSocket};
use std::num::NonZeroU32;
use std::sync::Arc;
use virtual_nodes::{Node, VirtualNodes};

/// The port of the plain sockets.
const PORT: u16 = 5411;
/// The port of the kernel engine.
const KERNEL_PORT: u16 = 7199;

/// Lower bound of a message: plain sockets on the first two nodes.
pub(super) fn floor(virtual_nodes: &VirtualNodes, setting: &Setting) -> Result<Vec<Row>, Failure> {
    let [one, other, ..] = virtual_nodes.nodes() else { return Ok(Vec::new()) };
    let bind = |node: &Node, peer: &Node| -> std::io::Result<UdpSocket> {
        let socket = node.run(|| UdpSocket::bind((node.address(), PORT)))?;
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

/// All engines between nodes that this machine has, and what must stay while they are used.
pub(super) fn of(
    virtual_nodes: &VirtualNodes,
    mtu: u32,
    per_node: NonZeroU32,
) -> Result<(Vec<Candidate>, Vec<Loader>), Failure> {
    let node_of_rank: Vec<u32> = (0..virtual_nodes.nodes().len() as u32)
        .flat_map(|node| (0..per_node.get()).map(move |_| node))
        .collect();
    let agent = agent(virtual_nodes, &node_of_rank).map_err(measure::Error::from)?;
    let (kernel, loaders) = kernel(virtual_nodes, mtu, &node_of_rank)?;
    Ok((
        vec![agent, kernel].into_iter().map(|one| one.with_ranks_per_node(per_node)).collect(),
        loaders,
    ))
}

/// The kernel engine.
fn kernel(
    virtual_nodes: &VirtualNodes,
    mtu: u32,
    node_of_rank: &[u32],
) -> Result<(Candidate, Vec<Loader>), Failure> {
    let nodes = virtual_nodes.nodes();
    let endpoint = |node: &Node| Endpoint {
        hardware_address: node.hardware_address(),
        address: node.address().into(),
        port: KERNEL_PORT,
    };
    let endpoints: Vec<Endpoint> = nodes.iter().map(endpoint).collect();
    let mut backends = Vec::new();
    let mut loaders = Vec::new();
    for node in nodes {
        let number = node.number() as u32;
        let job = JobDescription {
            node: number,
            node_of_rank: node_of_rank.to_vec(),
            endpoints: endpoints.clone(),
            // The nodes are this job's alone.
            number: 0,
            key: Key([0, 1]),
            interface: node.interface().to_owned(),
            mtu,
        };
        let loader = node.run(|| Loader::load(&job))?;
        for rank in 0..node_of_rank.len() as u32 {
            let Some(handles) = loader.handles(rank)? else { continue };
            backends.push(Arc::new(node.run(|| Rank::new(handles))?) as Arc<dyn Backend>);
        }
        loaders.push(loader);
    }
    Ok((Candidate::new("kernel", backends), loaders))
}

/// The agent engine over TCP.
fn agent(virtual_nodes: &VirtualNodes, node_of_rank: &[u32]) -> Result<Candidate, Error> {
    let nodes = virtual_nodes.nodes();
    let listen = |node: &Node| node.run(|| Listener::bind((node.address(), 0)));
    let listeners = nodes.iter().map(listen).collect::<Result<Vec<_>, _>>()?;
    let addresses: Vec<SocketAddr> = listeners.iter().map(Listener::address).collect();
    let key = random_key()?;
    let connect = |node: &Node, listener: Listener| {
        node.run(|| {
            Tcp::connect(listener, node.number() as u32, &addresses, key, Timeouts::default())
        })
    };
    // All at once: each waits for all others.
    let connected = std::thread::scope(|scope| {
        let pairs = nodes.iter().zip(listeners);
        let threads: Vec<_> = pairs
            .map(|(node, listener)| {
                scope.spawn({
                    let connect = &connect;
                    move || connect(node, listener)
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
    let clients = connect_over(&NodeMap::new(node_of_rank), transports, limits())?;
    let backends = clients.into_iter().map(|client| Arc::new(client) as Arc<dyn Backend>);
    Ok(Candidate::new("agent", backends.collect()))
}
