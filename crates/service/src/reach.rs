//! The node service's part between nodes: the listener for the other nodes' services, the
//! invitation that says who they are, and the agent that runs the ranks' collectives once all are
//! connected.

use crate::error::{ServiceError, system};
use crate::offload::{self, Offer};
use crate::protocol::Answer;
use crate::server::{FILES_OF_A_RANK, allow_open_files};
use engine::Exit;
use kernel::{Handles, Loader};
use launch::environment::{Environment, INTERNODE, InternodeEngine, Lookup};
use launch::secret::Secret;
use network::agent::shared_region::{SharedRegion, notifier};
use network::agent::{Agent, limits};
use network::error::{Error, RankExit};
use network::job_nodes::{JobNodes, KernelEndpoint, ServiceEndpoint};
use network::transport::tcp::{Listener, MAX_PENDING, Tcp, Timeouts};
use rustix::event::{EventfdFlags, eventfd};
use shm::broker::{Connection, Message};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

/// The longest invitation: a million ranks.
const MAX_INVITATION: usize = 32 << 20;

/// What the service knows of other nodes.
#[derive(Debug)]
pub(crate) struct Reach {
    state: State,
    address: Option<SocketAddr>,
    /// How long the other nodes may be silent.
    patience: Timeouts,
    /// What this node has for the kernel engine, or why it has nothing.
    offer: Result<Offer, String>,
    /// The kernel engine, once the nodes are connected and if all of them have it, or why there is
    /// none.
    loader: Result<Loader, String>,
    /// Rung by the threads that this starts when they have something to tell.
    bell: Arc<OwnedFd>,
    /// Who waits until all nodes are connected: ranks of this node by number, and who brought the
    /// invitation.
    waiting: Vec<(Option<u32>, Connection)>,
}

#[derive(Debug)]
enum State {
    /// The job is on this node alone.
    Alone,
    Listening(Listener),
    Connecting(JobNodes, Receiver<Result<Tcp, Error>>),
    Connected(JobNodes, Agent),
    Failed(String),
}

impl Reach {
    /// Listens at this address, if the job has other nodes.
    pub(crate) fn new(listen: Option<IpAddr>) -> Result<Self, ServiceError> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(system("make an event"))?;
        let (state, address) = match listen {
            None => (State::Alone, None),
            Some(ip) => {
                let listener = Listener::bind((ip, 0))?;
                let address = listener.address();
                (State::Listening(listener), Some(address))
            }
        };
        // A node without it offers nothing, and the job goes by the agent, or ends if it may not.
        let offer = match (listen, Environment.internode_engine()?) {
            (None, _) => Err("the job is on one node".into()),
            (_, InternodeEngine::Agent) => {
                Err(format!("{INTERNODE} says that the agent runs everything"))
            }
            (Some(ip), _) => Offer::new(ip).map_err(|error| error.to_string()),
        };
        let usual = Timeouts::default();
        let patience = Timeouts {
            connecting: Environment.start_timeout()?,
            unanswered: Environment.node_timeout()?.unwrap_or(usual.unanswered),
        };
        let loader = Err("the nodes are not connected".into());
        Ok(Reach {
            state,
            address,
            patience,
            offer,
            loader,
            bell: Arc::new(bell),
            waiting: Vec::new(),
        })
    }

    /// Where it listens.
    pub(crate) fn listening(&self) -> Option<ServiceEndpoint> {
        Some(ServiceEndpoint { address: self.address?, kernel: self.kernel_endpoint() })
    }

    /// Where its kernel engine takes packets.
    fn kernel_endpoint(&self) -> Option<KernelEndpoint> {
        self.offer.as_ref().ok().map(Offer::endpoint)
    }

    /// Somebody brings an invitation; it has an answer when all nodes are connected.
    pub(crate) fn invite(&mut self, message: Message, connection: Connection, ranks: u32) {
        let invitation = message
            .descriptors
            .first()
            .and_then(|file| read(file.as_fd()))
            .ok_or("it cannot be read");
        let invitation = invitation.and_then(|invitation: JobNodes| {
            self.check(&invitation, ranks)?;
            Ok(invitation)
        });
        match invitation {
            Ok(invitation) => {
                self.accept(invitation);
                self.waiting.push((None, connection));
            }
            Err(why) => refuse(&connection, format!("the invitation is refused: {why}")),
        }
    }

    /// What contradicts this service in an invitation. Any process of the user may bring one, and
    /// this service may have rights that they have not: what it says of this node must be what was
    /// reserved here.
    fn check(&self, invitation: &JobNodes, ranks: u32) -> Result<(), &'static str> {
        let node = invitation.node as usize;
        let Some(address) = self.address else {
            return Err("this job is on one node, as its node service was told");
        };
        if invitation.nodes.members(invitation.node).count() != ranks as usize {
            return Err("it has another number of ranks for this node");
        }
        if invitation.addresses.get(node) != Some(&address) {
            return Err("it has another address for this node service");
        }
        match invitation.kernel_endpoints.get(node) {
            Some(endpoint) if self.kernel_endpoint() != Some(*endpoint) => {
                Err("it has another place for the kernel engine of this node")
            }
            _ => Ok(()),
        }
    }

    /// The first invitation counts. All that come bear the same words, or their bearers would be in
    /// another job.
    fn accept(&mut self, invitation: JobNodes) {
        match std::mem::replace(&mut self.state, State::Alone) {
            State::Listening(listener) => self.state = self.connect(listener, invitation),
            state => self.state = state,
        }
    }

    /// Connects in a thread of its own: the door stays open meanwhile.
    fn connect(&self, listener: Listener, invitation: JobNodes) -> State {
        let (ranks, nodes) =
            (invitation.nodes.members(invitation.node).count() as u32, invitation.nodes.count());
        // A connection with each node, and another from each that is being made; what the kernel
        // engine keeps once.
        let others = 2 * u64::from(nodes) + MAX_PENDING as u64 + 32;
        if let Err(error) = allow_open_files(ranks, FILES_OF_A_RANK, others) {
            return State::Failed(error.to_string());
        }
        let (sender, receiver) = channel();
        let (bell, patience) = (Arc::clone(&self.bell), self.patience);
        let JobNodes { node, addresses, key, .. } = invitation.clone();
        let key = Secret::new(key).handshake_key();
        let connect = move || {
            // Nobody listens any more if the service has ended meanwhile.
            let _ = sender.send(Tcp::connect(listener, node, &addresses, key, patience));
            ring(&bell);
        };
        match std::thread::Builder::new().name("tradewind-connect".into()).spawn(connect) {
            Ok(_) => State::Connecting(invitation, receiver),
            Err(error) => State::Failed(format!("cannot start a thread: {error}")),
        }
    }

    /// Looks what the threads have to tell.
    pub(crate) fn progress(&mut self) {
        // It is read so that it can be heard again.
        let _ = rustix::io::read(&*self.bell, &mut [0; 8]);
        if let State::Connecting(invitation, receiver) = &self.state
            && let Ok(connected) = receiver.try_recv()
        {
            let bell = Arc::clone(&self.bell);
            let started = connected.and_then(|transport| {
                let ended = move || ring(&bell);
                Agent::start(invitation.nodes.clone(), Box::new(transport), limits(), ended)
            });
            self.state = match started {
                Ok(agent) => {
                    self.loader = self
                        .offer
                        .as_ref()
                        .map_err(String::clone)
                        .and_then(|offer| offer.load(invitation));
                    // What this node's ranks have sent and others not received is lost with the
                    // program.
                    if let Some(pending) =
                        self.loader.as_mut().ok().and_then(Loader::take_unacknowledged)
                    {
                        agent.hold_until_all_exit(pending);
                    }
                    State::Connected(invitation.clone(), agent)
                }
                Err(error) => State::Failed(error.to_string()),
            };
        }
    }

    /// Those who waited for the connections, if these stand or have failed.
    pub(crate) fn released(&mut self) -> Vec<(Option<u32>, Connection)> {
        match self.state {
            State::Connected(..) | State::Failed(_) => std::mem::take(&mut self.waiting),
            _ => Vec::new(),
        }
    }

    /// Lets a rank of this node in, now or when all nodes are connected.
    pub(crate) fn welcome(
        &mut self,
        rank: Option<u32>,
        connection: Connection,
        segment: BorrowedFd<'_>,
    ) {
        let answer = match &self.state {
            State::Alone => send(&connection, &Answer::Welcome, &[segment]),
            State::Listening(_) | State::Connecting(..) => {
                return self.waiting.push((rank, connection));
            }
            State::Failed(why) => return refuse(&connection, why.clone()),
            State::Connected(invitation, agent) => {
                match rank.and_then(|rank| job_rank(invitation, rank)) {
                    None => send(&connection, &Answer::Welcome, &[]),
                    Some(rank) => match place(invitation, agent, rank, &self.loader) {
                        Ok(place) => send(&connection, &place.answer, &place.descriptors(segment)),
                        Err(error) => return refuse(&connection, error.to_string()),
                    },
                }
            }
        };
        // Who does not read its answer has ended, which its process handle tells.
        let _ = answer;
    }

    /// A rank of this node is gone.
    pub(crate) fn depart(&self, rank: u32, how: Exit) {
        if let State::Connected(invitation, agent) = &self.state
            && let Some(rank) = job_rank(invitation, rank)
        {
            let how = if how == Exit::Left {
                RankExit::Left
            } else {
                RankExit::Failed(format!("failed: {how}"))
            };
            agent.exit(rank, how);
        }
    }

    /// Whether something is carried through that other nodes may wait for.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(&self.state, State::Connected(_, agent) if !agent.has_ended())
    }
}

impl AsFd for Reach {
    /// Readable when there is something for [`progress`](Reach::progress).
    fn as_fd(&self) -> BorrowedFd<'_> {
        (*self.bell).as_fd()
    }
}

/// The job's number of a rank of this node.
fn job_rank(invitation: &JobNodes, rank: u32) -> Option<u32> {
    invitation.nodes.members(invitation.node).nth(rank as usize)
}

/// What a rank is given.
struct Place {
    answer: Answer,
    area: SharedRegion,
    notifier: OwnedFd,
    offload: Option<Handles>,
}

impl Place {
    /// In the order in which the rank takes them.
    fn descriptors<'a>(&'a self, segment: BorrowedFd<'a>) -> Vec<BorrowedFd<'a>> {
        let mut all = vec![segment, self.area.segment().as_fd(), self.notifier.as_fd()];
        if let Some(Handles { memory, wakeup, start, .. }) = &self.offload {
            all.extend([memory.as_fd(), wakeup.as_fd(), start.as_fd()]);
        }
        all
    }
}

/// What a rank and the engines share; the agent has its side already.
fn place(
    invitation: &JobNodes,
    agent: &Agent,
    rank: u32,
    loader: &Result<Loader, String>,
) -> Result<Place, Error> {
    let area = SharedRegion::create()?;
    let bell = notifier()?;
    let notifier = bell.try_clone().map_err(|error| Error::System {
        what: "cannot copy a descriptor".into(),
        why: error.to_string(),
    })?;
    agent.open(rank, SharedRegion::open(Arc::clone(area.segment()))?, bell);
    let handles =
        loader.as_ref().map_err(String::clone).and_then(|loader| offload::handles(loader, rank));
    let (kernel, offload) = match handles {
        Ok(handles) => (Ok(handles.slot), Some(handles)),
        Err(why) => (Err(why), None),
    };
    let node = invitation.node;
    let address =
        invitation.addresses.get(node as usize).map_or_else(String::new, SocketAddr::to_string);
    let answer = Answer::Reachable { node, address, kernel };
    Ok(Place { answer, area, notifier, offload })
}

fn send(
    connection: &Connection,
    answer: &Answer,
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), ServiceError> {
    Ok(connection.send_message(&answer.encode(), descriptors)?)
}

fn refuse(connection: &Connection, why: String) {
    // As in `welcome`.
    let _ = send(connection, &Answer::Refused(why), &[]);
}

fn ring(bell: &OwnedFd) {
    // It is full only if it has rung and nobody has looked.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

/// Reads an invitation from a file. What a stranger passes, a pipe for example, is no file to read
/// from its start.
fn read(file: BorrowedFd<'_>) -> Option<JobNodes> {
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    loop {
        let count = rustix::io::pread(file, &mut part, bytes.len() as u64).ok()?;
        if count == 0 {
            return JobNodes::decode(&bytes);
        }
        bytes.extend_from_slice(&part[..count]);
        if bytes.len() > MAX_INVITATION {
            return None;
        }
    }
}

/// The file in which an invitation travels.
pub(crate) fn write(invitation: &JobNodes) -> Result<OwnedFd, ServiceError> {
    use rustix::fs::{MemfdFlags, memfd_create};
    let failed = system("write down the invitation for the node service");
    let file = std::fs::File::from(
        memfd_create("tradewind-invitation", MemfdFlags::CLOEXEC).map_err(&failed)?,
    );
    std::io::Write::write_all(&mut &file, &invitation.encode())
        .map_err(system("write down the invitation"))?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use network::node_map::NodeMap;
    use std::net::Ipv4Addr;

    #[test]
    fn an_invitation_that_contradicts_the_service_is_refused() {
        let reach = Reach::new(Some(Ipv4Addr::LOCALHOST.into())).expect("a port");
        let own = reach.listening().expect("it listens").address;
        let other = (Ipv4Addr::LOCALHOST, 9).into();
        let nodes = NodeMap::new([0, 1]);
        let sound = JobNodes {
            key: [1; 16],
            node: 0,
            addresses: vec![own, other],
            kernel_endpoints: Vec::new(),
            nodes: nodes.clone(),
        };
        assert_eq!(reach.check(&sound, 1), Ok(()));
        assert_eq!(
            reach.check(&JobNodes { node: 1, addresses: vec![other, own], ..sound.clone() }, 1),
            Ok(())
        );
        // The loopback is no interface for the kernel engine.
        let endpoint = KernelEndpoint { hardware_address: [2; 6], port: 53, mtu: 1500 };
        for (wrong, named) in [
            (JobNodes { nodes: NodeMap::new([0, 1, 0]), ..sound.clone() }, "number of ranks"),
            (JobNodes { addresses: vec![other, own], ..sound.clone() }, "address"),
            (JobNodes { kernel_endpoints: vec![endpoint; 2], ..sound.clone() }, "kernel engine"),
        ] {
            let why = reach.check(&wrong, 1).expect_err("it is wrong");
            assert!(why.contains(named), "{why}");
        }
        let alone = Reach::new(None).expect("an event");
        assert!(alone.check(&sound, 1).expect_err("it has no other nodes").contains("on one node"));
    }
}
