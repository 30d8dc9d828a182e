//! Several nodes in one process, for tests and examples.

use crate::agent::shared_region::{SharedRegion, notifier};
use crate::agent::{Agent, AgentAddress, AgentClient, Limits, limits};
use crate::direct::DirectBackend;
use crate::error::{Error, system};
use crate::job_nodes::{Key, random_key};
use crate::node_map::NodeMap;
use crate::transport::Transport;
use crate::transport::tcp::{Listener, Tcp, Timeouts};
use shm::mapped::Mapped;
use shm::sync::AtomicU32;
use std::net::SocketAddr;
use std::sync::Arc;

/// Starts the agents of a job with threads of this process as nodes, connected by TCP over
/// loopback, and returns the backends of all ranks, in order.
///
/// # Errors
/// If the system refuses threads, memory or sockets.
///
/// ```
/// use goal::graph::{Access, Graph};
/// use network::backend::{Backend, CommunicatorContext};
/// use network::node_map::NodeMap;
///
/// // Two ranks on two nodes; rank 0 sends four bytes.
/// let clients = network::local::connect(&NodeMap::new(["a", "b"]))?;
/// let (mut sender, mut receiver) = (Graph::new(0, 2), Graph::new(1, 2));
/// let block = sender.buffer(Access::Input, 4);
/// sender.send(block, 1, 0);
/// let block = receiver.buffer(Access::Output, 4);
/// receiver.receive(block, 0, 0);
///
/// let start = |rank: u32, graph: &Graph, input: &[u8]| {
///     let context = CommunicatorContext { number: 0, members: [0, 1].into(), rank };
///     let schedule = goal::compile::compile(graph).expect("in order");
///     let client = &clients[rank as usize];
///     client.start(client.register(&context, &schedule, 0)?, 0, &[input])
/// };
/// start(0, &sender, b"wind")?;
/// let run = start(1, &receiver, &[])?;
/// clients[1].wait(run, None)?;
/// let mut received = [0; 4];
/// clients[1].fetch(run, &mut [&mut received])?;
/// assert_eq!(&received, b"wind");
/// # Ok::<(), network::error::Error>(())
/// ```
pub fn connect(nodes: &NodeMap) -> Result<Vec<AgentClient>, Error> {
    connect_waking(nodes, |_| None)
}

/// The same, where the threads of a rank that wait for messages are woken by a word
/// ([`Agent::wake_by`]).
///
/// # Errors
/// As [`connect`].
pub fn connect_waking(
    nodes: &NodeMap,
    word_of: impl Fn(u32) -> Option<Mapped<AtomicU32>>,
) -> Result<Vec<AgentClient>, Error> {
    let transports = connect_all(nodes.count(), |listener, node, addresses, key| {
        let transport =
            Tcp::connect_neighbors(listener, node, addresses, key, Timeouts::default())?;
        Ok(Box::new(transport) as Box<dyn Transport>)
    })?;
    open_all(nodes, transports, limits(), word_of)
}

/// The same over transports that are connected already, one for each node in order.
///
/// # Errors
/// As [`connect`].
pub fn connect_over(
    nodes: &NodeMap,
    transports: Vec<Box<dyn Transport>>,
    limits: Limits,
) -> Result<Vec<AgentClient>, Error> {
    open_all(nodes, transports, limits, |_| None)
}

fn open_all(
    nodes: &NodeMap,
    transports: Vec<Box<dyn Transport>>,
    limits: Limits,
    word_of: impl Fn(u32) -> Option<Mapped<AtomicU32>>,
) -> Result<Vec<AgentClient>, Error> {
    let mut clients: Vec<Option<AgentClient>> = (0..nodes.ranks()).map(|_| None).collect();
    for transport in transports {
        let node = transport.node();
        let agent_address = AgentAddress { node, address: transport.address(node) };
        let agent = Agent::start(nodes.clone(), transport, limits, || {})?;
        for rank in nodes.members(node) {
            let region = SharedRegion::create()?;
            let own = SharedRegion::open(Arc::clone(region.segment()))?;
            let notifier = notifier()?;
            let copy = notifier.try_clone().map_err(|error| system("copy a descriptor", error))?;
            if let Some(word) = word_of(rank) {
                agent.wake_by(rank, word);
            }
            agent.open(rank, region, notifier);
            clients[rank as usize] =
                Some(AgentClient::new(own, copy, agent_address.clone(), None)?);
        }
    }
    Ok(clients.into_iter().flatten().collect())
}

/// Connects ranks that are threads of this process with each other, and returns their direct
/// backends, in order.
///
/// # Errors
/// If the system refuses memory or sockets.
pub fn connect_directly(ranks: u32) -> Result<Vec<DirectBackend>, Error> {
    let mut backends = connect_all(ranks, |listener, rank, addresses, key| {
        let timeouts = Timeouts::default();
        DirectBackend::connect(listener, rank, addresses, key, timeouts, |_| {})
    })?;
    let held = backends.iter().map(DirectBackend::held).min().unwrap_or(0);
    backends.iter_mut().for_each(|backend| backend.limit_held(held));
    Ok(backends)
}

/// Connects the two ends of every connection at the same time: each waits for the others.
fn connect_all<T: Send>(
    ends: u32,
    connect: impl Fn(Listener, u32, &[SocketAddr], Key) -> Result<T, Error> + Sync,
) -> Result<Vec<T>, Error> {
    let key = random_key()?;
    let listeners: Vec<Listener> =
        (0..ends).map(|_| Listener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    let addresses: Vec<SocketAddr> = listeners.iter().map(Listener::address).collect();
    let connect = &connect;
    let addresses = &addresses;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(listeners)
            .map(|(end, listener)| scope.spawn(move || connect(listener, end, addresses, key)))
            .collect();
        let panicked = |_| Err(system("connect the nodes", "the thread panicked"));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect()
    })
}
