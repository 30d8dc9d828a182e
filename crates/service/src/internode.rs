//! The node service's connections with other nodes: the listener for the services of the other
//! nodes, the list of nodes that a rank submits, and the agent that runs the ranks' collectives
//! once all nodes are connected.

use crate::error::{ServiceError, system};
use crate::fabric_endpoint;
use crate::kernel_offload::{self, KernelReservation};
use crate::limits::{FILES_PER_RANK, allow_open_files};
use crate::protocol::{Answer, read_nodes};
use crate::rank_sockets::RankSockets;
use ::fabric::Endpoint;
use engine::Exit;
use engine::node::Node;
use kernel::{Handles, Loader};
use launch::environment::{Environment, INTERNODE, InternodeEngine, Lookup, NETWORK};
use launch::secret::Secret;
use network::agent::shared_region::{SharedRegion, notifier};
use network::agent::{Agent, limits};
use network::error::{Error, RankExit};
use network::job_nodes::{JobNodes, KernelEndpoint, ServiceEndpoint};
use network::node_network::{JobNetwork, NodeNetwork};
use network::transport::Transport;
use network::transport::fabric::{Fabric, READ_FROM};
use network::transport::tcp::{Listener, MAX_PENDING, Tcp, Timeouts, neighbors};
use queues::matching::wakeup_word;
use rustix::event::{EventfdFlags, eventfd};
use shm::broker::{Connection, Message};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

/// Connections of the service with other nodes.
#[derive(Debug)]
pub(crate) struct Internode {
    state: State,
    address: Option<SocketAddr>,
    timeouts: Timeouts,
    /// The network of this node, and its endpoint of libfabric until the nodes connect.
    network: NodeNetwork,
    endpoint: Option<Endpoint>,
    /// This node's resources for the kernel engine, or the reason why there are none.
    reservation: Result<KernelReservation, String>,
    /// The kernel engine, once the nodes are connected and if all of them have it, or the reason
    /// why there is none.
    loader: Result<Loader, String>,
    /// Event that the threads of this struct notify when their state has changed.
    wakeup: Arc<OwnedFd>,
    /// Connections that wait until all nodes are connected: of ranks of this node, by number, and
    /// of the processes that submitted the nodes.
    waiting: Vec<(Option<u32>, Connection)>,
    /// Copies of the sockets between ranks.
    sockets: RankSockets,
}

#[derive(Debug)]
enum State {
    /// The job is on this node alone.
    Alone,
    Listening(Listener),
    Connecting(JobNodes, Receiver<Result<Box<dyn Transport>, Error>>),
    Connected(JobNodes, Agent),
    Failed(String),
}

impl Internode {
    /// Creates the connections. Listens at this address, if the job has other nodes.
    pub(crate) fn new(listen: Option<IpAddr>) -> Result<Self, ServiceError> {
        let wakeup = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(system("make an event"))?;
        let ports = Environment.ports()?;
        let (state, address) = match listen {
            None => (State::Alone, None),
            Some(ip) => {
                let bind = |port| TcpListener::bind((ip, port));
                let socket = ports.bind(bind).map_err(system("listen for the other nodes"))?;
                let listener = Listener::with_socket(socket)?;
                let address = listener.address();
                (State::Listening(listener), Some(address))
            }
        };
        let (network, endpoint) = match listen {
            Some(ip) => fabric_endpoint::open(&Environment, ip)?,
            None => Default::default(),
        };
        // A node without the kernel engine has no reservation. The job then uses the agent, or ends
        // if the user demands the kernel engine.
        let reservation = match (listen, Environment.internode_engine()?) {
            (None, _) => Err("the job is on one node".into()),
            (_, InternodeEngine::Agent | InternodeEngine::Direct | InternodeEngine::Ranks) => {
                Err(format!("{INTERNODE} excludes the kernel engine"))
            }
            // All messages of a job are sent over the network that the user has chosen.
            _ if !matches!(network, NodeNetwork::Tcp(_)) => {
                Err(format!("{NETWORK} excludes the kernel engine"))
            }
            (Some(ip), _) => KernelReservation::new(ip, &ports).map_err(|error| error.to_string()),
        };
        let timeouts = Timeouts {
            connecting: Environment.start_timeout()?,
            unanswered: Environment.node_timeout()?.unwrap_or(Timeouts::default().unanswered),
        };
        let loader = Err("the nodes are not connected".into());
        Ok(Internode {
            state,
            address,
            timeouts,
            network: network.shortened(),
            endpoint,
            reservation,
            loader,
            wakeup: Arc::new(wakeup),
            waiting: Vec::new(),
            sockets: RankSockets::default(),
        })
    }

    /// Returns the endpoint at which it listens.
    pub(crate) fn listening(&self) -> Option<ServiceEndpoint> {
        let kernel = self.kernel_endpoint();
        let network = self.network.clone();
        Some(ServiceEndpoint { address: self.address?, kernel, network })
    }

    /// Returns the endpoint at which its kernel engine receives packets.
    fn kernel_endpoint(&self) -> Option<KernelEndpoint> {
        self.reservation.as_ref().ok().map(KernelReservation::endpoint)
    }

    /// Handles a list of the job's nodes. The response follows when all nodes are connected.
    pub(crate) fn submit(&mut self, message: Message, connection: Connection, ranks: u32) {
        let nodes = message.descriptors.first().and_then(|file| read_nodes(file.as_fd()));
        let nodes = nodes.ok_or("it cannot be read").and_then(|nodes: JobNodes| {
            self.check(&nodes, ranks)?;
            Ok(nodes)
        });
        match nodes {
            Ok(nodes) => {
                self.accept(nodes);
                self.waiting.push((None, connection));
            }
            Err(why) => refuse(&connection, format!("the list of nodes is refused: {why}")),
        }
    }

    /// Checks that a list of nodes agrees with this service. Any process of the user may submit
    /// one, and this service may have privileges that the process lacks. So its entry for this node
    /// must be equal to what this service has reserved.
    fn check(&self, nodes: &JobNodes, ranks: u32) -> Result<(), &'static str> {
        let node = nodes.node as usize;
        let Some(address) = self.address else {
            return Err("the node service was started for a job on one node");
        };
        if nodes.nodes.members(nodes.node).count() != ranks as usize {
            return Err("it has another number of ranks for this node");
        }
        if nodes.addresses.get(node) != Some(&address) {
            return Err("it has another address for this node service");
        }
        if nodes.networks.get(node) != Some(&self.network) {
            return Err("it has another network for this node");
        }
        match nodes.kernel_endpoints.get(node) {
            Some(endpoint) if self.kernel_endpoint() != Some(*endpoint) => {
                Err("it has another endpoint for the kernel engine of this node")
            }
            _ => Ok(()),
        }
    }

    /// Connects with the nodes of the first list. Later lists of the same job are equal to it, so
    /// they change nothing.
    fn accept(&mut self, nodes: JobNodes) {
        match std::mem::replace(&mut self.state, State::Alone) {
            State::Listening(listener) => self.state = self.connect(listener, nodes),
            state => self.state = state,
        }
    }

    /// Connects in a thread of its own: the service admits ranks meanwhile.
    fn connect(&mut self, listener: Listener, nodes: JobNodes) -> State {
        let network = match JobNetwork::agree(&nodes.networks) {
            Ok(network) => network,
            // Every node comes to the same result, so no other one waits for this one.
            Err(why) => return State::Failed(why),
        };
        let ranks = nodes.nodes.members(nodes.node).count() as u32;
        // A connection with each node that is connected from the start, and a pending one from
        // each; and the descriptors that the kernel engine has once for all ranks.
        let count = nodes.nodes.count();
        let connected = neighbors(nodes.node, count).len() as u64;
        // A provider over sockets has connections of its own.
        let provider = if matches!(network, JobNetwork::Fabric { .. }) { 2 * connected } else { 0 };
        let others = 2 * connected + provider + MAX_PENDING as u64 + 32;
        if let Err(error) = allow_open_files(ranks, FILES_PER_RANK, others) {
            return State::Failed(error.to_string());
        }
        // Other nodes are connected when they are needed, so far as descriptors are left.
        shm::detached::raise_limits();
        let (sender, receiver) = channel();
        let wakeup = Arc::clone(&self.wakeup);
        let timeouts = self.timeouts;
        let JobNodes { node, addresses, key, .. } = nodes.clone();
        let secret = Secret::new(key);
        // Closed where the nodes have agreed on TCP.
        let endpoint = self.endpoint.take();
        let connect = move || {
            let key = secret.handshake_key();
            let transport = match (network, endpoint) {
                // The mesh reports the ends of all nodes to which libfabric sends.
                (JobNetwork::Fabric { names, .. }, Some(endpoint)) => {
                    let mesh = Tcp::connect_neighbors(listener, node, &addresses, key, timeouts);
                    let key = secret.fabric_key();
                    mesh.and_then(|mesh| {
                        Fabric::new(mesh, endpoint, &names, key, timeouts.unanswered, READ_FROM)
                    })
                    .map(|fabric| Box::new(fabric) as Box<dyn Transport>)
                }
                _ => Tcp::connect_neighbors(listener, node, &addresses, key, timeouts)
                    .map(|tcp| Box::new(tcp) as Box<dyn Transport>),
            };
            // The receiver is gone if the service has ended meanwhile.
            let _ = sender.send(transport);
            notify(&wakeup);
        };
        match std::thread::Builder::new().name("tradewind-connect".into()).spawn(connect) {
            Ok(_) => State::Connecting(nodes, receiver),
            Err(error) => State::Failed(format!("cannot start a thread: {error}")),
        }
    }

    /// Handles a change that a thread has notified.
    pub(crate) fn progress(&mut self) {
        // Resets the event before the state is read, so that a change after this point notifies it
        // again.
        let _ = rustix::io::read(&*self.wakeup, &mut [0; 8]);
        if let State::Connecting(nodes, receiver) = &self.state
            && let Ok(connected) = receiver.try_recv()
        {
            let wakeup = Arc::clone(&self.wakeup);
            let started = connected.and_then(|transport| {
                let ended = move || notify(&wakeup);
                Agent::start(nodes.nodes.clone(), transport, limits(), ended)
            });
            self.state = match started {
                Ok(agent) => {
                    let reservation = self.reservation.as_ref().map_err(String::clone);
                    self.loader = reservation.and_then(|reservation| reservation.load(nodes));
                    // The end of this process ends the program, and with it packets that other
                    // nodes have not acknowledged.
                    if let Some(pending) =
                        self.loader.as_mut().ok().and_then(Loader::take_unacknowledged)
                    {
                        agent.hold_until_all_exit(pending);
                    }
                    State::Connected(nodes.clone(), agent)
                }
                Err(error) => State::Failed(error.to_string()),
            };
        }
    }

    /// Returns the waiting connections, once all nodes are connected or a connection has failed.
    pub(crate) fn take_waiting(&mut self) -> Vec<(Option<u32>, Connection)> {
        match self.state {
            State::Connected(..) | State::Failed(_) => std::mem::take(&mut self.waiting),
            _ => Vec::new(),
        }
    }

    /// Admits a rank of this node, now or when all nodes are connected.
    pub(crate) fn admit(&mut self, rank: Option<u32>, connection: Connection, node: &Node) {
        let segment = node.segment().as_fd();
        let answer = match &self.state {
            State::Alone => send(&connection, &Answer::Welcome, &[segment]),
            State::Listening(_) | State::Connecting(..) => {
                return self.waiting.push((rank, connection));
            }
            State::Failed(why) => return refuse(&connection, why.clone()),
            State::Connected(nodes, agent) => {
                let of_job = rank.and_then(|rank| Some((job_rank(nodes, rank)?, rank)));
                let Some((of_job, rank)) = of_job else {
                    let _ = send(&connection, &Answer::Welcome, &[]);
                    return;
                };
                match wakeup_word(node.segment(), node.mailboxes(), rank) {
                    Ok(word) => agent.wake_by(of_job, word),
                    Err(error) => return refuse(&connection, error.to_string()),
                }
                match share(nodes, agent, of_job, &self.loader) {
                    Ok(shared) => send(&connection, &shared.answer, &shared.descriptors(segment)),
                    Err(error) => return refuse(&connection, error.to_string()),
                }
            }
        };
        // A process that does not read its response has ended, which its process handle reports.
        let _ = answer;
    }

    /// Keeps copies of sockets of a rank of this node until it has exited and they have sent
    /// everything.
    ///
    /// # Errors
    /// If the service needs its descriptors itself.
    pub(crate) fn keep(&mut self, rank: u32, sockets: Vec<OwnedFd>) -> Result<(), String> {
        self.sockets.keep(rank, sockets)
    }

    /// Reports the exit of a rank of this node to the agent, and to the other ranks on their
    /// connections with it.
    pub(crate) fn exit(&mut self, rank: u32, how: Exit) {
        let wakeup = Arc::clone(&self.wakeup);
        self.sockets.exit(rank, self.timeouts.unanswered, move || notify(&wakeup));
        if let State::Connected(nodes, agent) = &self.state
            && let Some(rank) = job_rank(nodes, rank)
        {
            let how = if how == Exit::Left {
                RankExit::Left
            } else {
                RankExit::Failed(format!("failed: {how}"))
            };
            agent.exit(rank, how);
        }
    }

    /// Returns true while the connections with other nodes are made.
    pub(crate) fn is_connecting(&self) -> bool {
        matches!(self.state, State::Connecting(..))
    }

    /// Returns true if the nodes cannot be connected.
    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.state, State::Failed(_))
    }

    /// Returns true if the agent still runs something for which other nodes may wait, or the system
    /// still sends what a rank has handed to it.
    pub(crate) fn is_busy(&self) -> bool {
        self.sockets.is_busy()
            || matches!(&self.state, State::Connected(_, agent) if !agent.has_ended())
    }
}

impl AsFd for Internode {
    /// Returns a descriptor that is readable when [`progress`](Internode::progress) has work.
    fn as_fd(&self) -> BorrowedFd<'_> {
        (*self.wakeup).as_fd()
    }
}

/// Returns the number in the job of a rank of this node.
fn job_rank(nodes: &JobNodes, rank: u32) -> Option<u32> {
    nodes.nodes.members(nodes.node).nth(rank as usize)
}

/// Resources of a rank.
struct RankResources {
    answer: Answer,
    region: SharedRegion,
    notifier: OwnedFd,
    kernel: Option<Handles>,
}

impl RankResources {
    /// Returns the descriptors in the order of the message.
    fn descriptors<'a>(&'a self, segment: BorrowedFd<'a>) -> Vec<BorrowedFd<'a>> {
        let mut all = vec![segment, self.region.segment().as_fd(), self.notifier.as_fd()];
        if let Some(Handles { memory, wakeup, start, .. }) = &self.kernel {
            all.extend([memory.as_fd(), wakeup.as_fd(), start.as_fd()]);
        }
        all
    }
}

/// Creates the resources that a rank and the engines share, and passes the agent its side.
fn share(
    nodes: &JobNodes,
    agent: &Agent,
    rank: u32,
    loader: &Result<Loader, String>,
) -> Result<RankResources, Error> {
    let region = SharedRegion::create()?;
    let own = notifier()?;
    let notifier = own.try_clone().map_err(|error| Error::System {
        what: "cannot copy a descriptor".into(),
        why: error.to_string(),
    })?;
    agent.open(rank, SharedRegion::open(Arc::clone(region.segment()))?, own);
    let loader = loader.as_ref().map_err(String::clone);
    let handles = loader.and_then(|loader| kernel_offload::handles(loader, rank));
    let slot = handles.as_ref().map(|handles| handles.slot).map_err(String::clone);
    let node = nodes.node;
    let address =
        nodes.addresses.get(node as usize).map_or_else(String::new, SocketAddr::to_string);
    let answer = Answer::WelcomeToNodes { node, address, kernel: slot };
    Ok(RankResources { answer, region, notifier, kernel: handles.ok() })
}

fn send(
    connection: &Connection,
    answer: &Answer,
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), ServiceError> {
    Ok(connection.send_message(&answer.encode(), descriptors)?)
}

fn refuse(connection: &Connection, why: String) {
    // As in `admit`.
    let _ = send(connection, &Answer::Refused(why), &[]);
}

fn notify(wakeup: &OwnedFd) {
    // A full event is readable, which is all that matters.
    let _ = rustix::io::write(wakeup, &1u64.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use network::node_map::NodeMap;
    use std::net::Ipv4Addr;

    #[test]
    fn a_list_of_nodes_that_contradicts_the_service_is_refused() {
        let internode = Internode::new(Some(Ipv4Addr::LOCALHOST.into())).expect("a port");
        let own = internode.listening().expect("it listens").address;
        let other = (Ipv4Addr::LOCALHOST, 9).into();
        let nodes = NodeMap::new([0, 1]);
        let sound = JobNodes {
            key: [1; 16],
            node: 0,
            addresses: vec![own, other],
            kernel_endpoints: Vec::new(),
            networks: vec![NodeNetwork::default(); 2],
            nodes: nodes.clone(),
        };
        assert_eq!(internode.check(&sound, 1), Ok(()));
        assert_eq!(
            internode.check(&JobNodes { node: 1, addresses: vec![other, own], ..sound.clone() }, 1),
            Ok(())
        );
        // The loopback is no interface for the kernel engine.
        let endpoint = KernelEndpoint { hardware_address: [2; 6], port: 53, mtu: 1500 };
        for (wrong, named) in [
            (JobNodes { nodes: NodeMap::new([0, 1, 0]), ..sound.clone() }, "number of ranks"),
            (JobNodes { addresses: vec![other, own], ..sound.clone() }, "address"),
            (
                JobNodes { networks: vec![NodeNetwork::Missing("".into()); 2], ..sound.clone() },
                "network",
            ),
            (JobNodes { kernel_endpoints: vec![endpoint; 2], ..sound.clone() }, "kernel engine"),
        ] {
            let why = internode.check(&wrong, 1).expect_err("it is wrong");
            assert!(why.contains(named), "{why}");
        }
        let alone = Internode::new(None).expect("an event");
        assert!(alone.check(&sound, 1).expect_err("it has no other nodes").contains("on one node"));
    }
}
