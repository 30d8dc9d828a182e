//! Several nodes in one process, for tests and examples.

use super::area::{Area, doorbell, system};
use super::client::{Client, Home};
use super::limits;
use super::worker::Agent;
use crate::carrier::Error;
use crate::invitation::random_key;
use crate::nodes::Nodes;
use crate::transport::Transport;
use crate::transport::tcp::{Listener, Patience, Tcp};
use interpreter::Limits;
use std::sync::Arc;

/// The carriers of all ranks, in order, of a job whose nodes are threads of this process, connected
/// by TCP over loopback.
///
/// # Errors
/// When the system refuses threads, memory or sockets.
///
/// ```
/// use goal::graph::{Access, Graph};
/// use network::carrier::{Carrier, Context};
/// use network::nodes::Nodes;
///
/// // Two ranks on two nodes; rank 0 sends four bytes.
/// let clients = network::agent::local(&Nodes::new(["a", "b"]))?;
/// let (mut sender, mut receiver) = (Graph::new(0, 2), Graph::new(1, 2));
/// let block = sender.buffer(Access::Input, 4);
/// sender.send(block, 1, 0);
/// let block = receiver.buffer(Access::Output, 4);
/// receiver.receive(block, 0, 0);
///
/// let start = |rank: u32, graph: &Graph, input: &[u8]| {
///     let context = Context { number: 0, members: [0, 1].into(), rank };
///     let schedule = goal::compile::compile(graph).expect("in order");
///     let client = &clients[rank as usize];
///     client.start(client.prepare(&context, &schedule, 0)?, 0, &[input])
/// };
/// start(0, &sender, b"wind")?;
/// let ticket = start(1, &receiver, &[])?;
/// clients[1].wait(ticket, None)?;
/// let mut received = [0; 4];
/// clients[1].fetch(ticket, &mut [&mut received])?;
/// assert_eq!(&received, b"wind");
/// # Ok::<(), network::carrier::Error>(())
/// ```
pub fn local(nodes: &Nodes) -> Result<Vec<Client>, Error> {
    let key = random_key()?;
    let listeners: Vec<Listener> =
        (0..nodes.count()).map(|_| Listener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    let addresses: Vec<_> = listeners.iter().map(Listener::address).collect();
    let connect = |(node, listener): (usize, Listener)| {
        let addresses = addresses.clone();
        std::thread::spawn(move || {
            Tcp::connect(listener, node as u32, &addresses, key, Patience::default())
        })
    };
    let threads: Vec<_> = listeners.into_iter().enumerate().map(connect).collect();
    let connected = threads.into_iter().map(|thread| match thread.join() {
        Ok(transport) => transport.map(|transport| Box::new(transport) as Box<dyn Transport>),
        Err(_) => Err(system("connect the nodes", "the thread panicked")),
    });
    local_over(nodes, connected.collect::<Result<_, _>>()?, limits())
}

/// The same over transports that are connected already, one for each node in order.
///
/// # Errors
/// As [`local`].
pub fn local_over(
    nodes: &Nodes,
    transports: Vec<Box<dyn Transport>>,
    limits: Limits,
) -> Result<Vec<Client>, Error> {
    let mut clients: Vec<Option<Client>> = (0..nodes.ranks()).map(|_| None).collect();
    for transport in transports {
        let (node, address) = (transport.node(), transport.address(transport.node()));
        let agent = Agent::start(nodes.clone(), transport, limits, || {})?;
        for rank in nodes.members(node) {
            let area = Area::create()?;
            let ours = Area::open(Arc::clone(area.segment()))?;
            let (bell, home) = (doorbell()?, Home { node, address: address.clone() });
            let copy = bell.try_clone().map_err(|error| system("copy a descriptor", error))?;
            agent.open(rank, area, bell);
            clients[rank as usize] = Some(Client::new(ours, copy, home, None)?);
        }
    }
    Ok(clients.into_iter().flatten().collect())
}
