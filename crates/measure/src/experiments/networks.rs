//! Messages by the agents of two nodes, over TCP and over the providers of libfabric.
//!
//! A path is an agent with one rank, over a transport that is connected with that of another node.
//! Half a round trip is measured with 8 bytes, and the time of a longer message with eight under
//! way: on the agents of the second node, which sends.

use crate::harness::{Error, Setting, agreement, leaders};
use fabric::{Endpoint, Library};
use goal::graph::{Access, Graph};
use launch::environment::{Environment, INTERFACE, LIBFABRIC, Lookup};
use launch::node_identity::{CommonNetwork, NodeIdentity};
use models::machine_file::{Networks, TCP};
use models::statistics::median;
use network::agent::{AgentClient, limits};
use network::backend::{Backend, CommunicatorContext, ScheduleId};
use network::job_nodes::{Key, random_key};
use network::local::connect_over;
use network::node_map::NodeMap;
use network::transport::Transport;
use network::transport::fabric::{Fabric, READ_FROM, request};
use network::transport::tcp::{Listener, Tcp, Timeouts};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tradewind::Communicator;

/// Round trips of one run, and long messages.
const TRIPS: u32 = 16;
const WINDOW: u32 = 8;
/// Runs for each one that warms up.
const WARM_UP: u32 = 10;
/// The nodes connect at the same time, and are connected in milliseconds or not at all.
const TIMEOUTS: Timeouts =
    Timeouts { connecting: Duration::from_secs(3), unanswered: Duration::from_secs(15) };
/// Sizes in bytes, and the number of runs in a round.
const SIZES: [(u64, u32); 5] =
    [(8, 125), (64 << 10, 100), (256 << 10, 30), (1 << 20, 10), (4 << 20, 3)];

/// An agent over a network, and the schedules of all sizes.
#[derive(Debug)]
pub struct NetworkPath {
    client: AgentClient,
    schedules: Vec<(ScheduleId, Vec<u64>)>,
    sequence: u64,
}

impl NetworkPath {
    /// Starts an agent over a transport that connects two nodes, as one of them.
    ///
    /// # Errors
    /// If the system refuses threads or memory.
    pub fn new(node: u32, transport: Box<dyn Transport>) -> Result<Self, Error> {
        let mut clients = connect_over(&NodeMap::new([0, 1]), vec![transport], limits())?;
        let none = || Error::Impossible {
            what: "there is no rank on this node".to_owned(),
            way_out: "give node 0 or 1".to_owned(),
        };
        let client = clients.pop().ok_or_else(none)?;
        let context = CommunicatorContext { number: 0, members: [0, 1].into(), rank: node };
        let mut schedules = Vec::new();
        for (bytes, _) in SIZES {
            let graph = graph(node, bytes);
            let lengths = graph.buffers().iter().map(|buffer| buffer.length).collect();
            let schedule = goal::compile::compile(&graph)?;
            schedules.push((client.register(&context, &schedule, 0)?, lengths));
        }
        Ok(NetworkPath { client, schedules, sequence: 0 })
    }

    /// Makes runs of one of the sizes, by its position, at the same time as the other node. Returns
    /// microseconds for a message.
    ///
    /// # Errors
    /// If the other node fails.
    pub fn measure(&mut self, size: usize, runs: u32) -> Result<f64, Error> {
        let (bytes, _) = SIZES[size];
        let (schedule, lengths) = &self.schedules[size];
        let inputs: Vec<Vec<u8>> = lengths.iter().map(|length| vec![7; *length as usize]).collect();
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        let begun = Instant::now();
        for _ in 0..runs {
            let run = self.client.start(*schedule, self.sequence, &inputs)?;
            self.sequence += 1;
            self.client.wait(run, None)?;
            let mut outputs: Vec<&mut [u8]> = lengths.iter().map(|_| &mut [][..]).collect();
            self.client.fetch(run, &mut outputs)?;
        }
        let messages = f64::from(runs * if bytes == SIZES[0].0 { 2 * TRIPS } else { WINDOW });
        Ok(begun.elapsed().as_secs_f64() * 1e6 / messages)
    }
}

/// The schedules of a size: round trips, or a window of messages and an answer.
fn graph(rank: u32, bytes: u64) -> Graph {
    let mut graph = Graph::new(rank, 2);
    let other = 1 - rank;
    let input = graph.buffer(Access::Input, bytes);
    let output = graph.buffer(Access::Output, bytes);
    if bytes == SIZES[0].0 {
        let mut last = None;
        for _ in 0..TRIPS {
            let (first, second) = if rank == 1 {
                let sent = graph.send(input, other, 0);
                (sent, graph.receive(output, other, 0))
            } else {
                let received = graph.receive(output, other, 0);
                (received, graph.send(input, other, 0))
            };
            last.into_iter().for_each(|last| graph.requires(first, last));
            graph.requires(second, first);
            last = Some(second);
        }
        return graph;
    }
    // Each message has a place of its own, as in a program that uses all of them.
    if rank == 1 {
        for _ in 0..WINDOW {
            graph.send(input, other, 0);
        }
        let answer = graph.buffer(Access::Output, 8);
        graph.receive(answer, other, 1);
    } else {
        let mut received = vec![graph.receive(output, other, 0)];
        for _ in 1..WINDOW {
            let place = graph.buffer(Access::Output, bytes);
            received.push(graph.receive(place, other, 0));
        }
        let word = graph.buffer(Access::Input, 8);
        let answer = graph.send(word, other, 1);
        received.into_iter().for_each(|received| graph.requires(answer, received));
    }
    graph
}

/// Times over the networks between two nodes.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// The networks that connect the nodes.
    pub networks: Networks,
    /// Networks that do not, each with its addresses and the reason.
    pub skipped: Vec<String>,
}

/// Measures the networks between the first two nodes of a job, in turns: TCP at the
/// job's addresses, the providers of libfabric, and TCP over each network that the nodes have in
/// common, if there are several. A network that fails on either node is skipped. Every rank calls
/// it, with its node's address; rank 0 gets the times.
///
/// # Errors
/// If a rank is gone, or a node cannot list its networks.
pub fn compare(
    world: &Communicator,
    address: IpAddr,
    setting: &Setting,
) -> Result<Comparison, Error> {
    let color = leaders(world)?.iter().take(2).any(|leader| *leader == world.rank()).then_some(0);
    let pair = world.split(color, i64::from(world.rank()))?;
    let found = pair.map(|pair| between(&pair, address, setting)).transpose();
    // The others sleep meanwhile: a rank that waits in a blocking call polls.
    world.ibarrier()?.wait()?;
    Ok(found?.unwrap_or_default())
}

/// A network to measure, as the first node chooses it for both.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Candidate {
    /// Name among [`Networks`].
    name: String,
    /// The provider of libfabric; `None` for TCP.
    provider: Option<String>,
    /// Addresses of both nodes.
    addresses: [IpAddr; 2],
}

/// Networks of a node, of which the pair's first rank makes the candidates.
#[derive(Debug, Serialize, Deserialize)]
struct NodeNetworks {
    /// The job's address of the node.
    address: IpAddr,
    /// Providers of libfabric.
    providers: Vec<String>,
    /// Addresses with their networks, of [`NodeIdentity::networks`].
    networks: String,
}

/// The reason why a network has no times.
#[derive(Debug)]
enum NoTimes {
    /// Communication between the two ranks failed: nothing more can be measured.
    Job(Error),
    /// The network failed on a node.
    Network(String),
}

impl From<Error> for NoTimes {
    fn from(error: Error) -> Self {
        NoTimes::Job(error)
    }
}

/// Measures the networks between the nodes of two ranks.
fn between(pair: &Communicator, address: IpAddr, setting: &Setting) -> Result<Comparison, Error> {
    // Rounds, and by how much each of them has fewer runs.
    let (rounds, shorter) = setting.choose((1, 25), (5, 1));
    let node = pair.rank();
    let library = Environment.get(LIBFABRIC).map(PathBuf::from);
    let library = Library::open(library.as_deref().map(Path::new)).ok();
    let (candidates, key) = candidates(pair, address, library.as_ref())?;
    let mut samples: BTreeMap<String, Vec<Vec<f64>>> = BTreeMap::new();
    let mut skipped: BTreeMap<String, String> = BTreeMap::new();
    for _ in 0..rounds {
        for candidate in &candidates {
            let Candidate { name, addresses: [first, second], .. } = candidate;
            if skipped.contains_key(name) {
                continue;
            }
            // One agent at a time: others would poll, and each network takes a port.
            let times = connect(pair, candidate, library.as_ref(), key)
                .and_then(|path| both(pair, measure_sizes(path, shorter)));
            match times {
                Ok((_, times)) => samples.entry(name.clone()).or_default().push(times),
                Err(NoTimes::Job(error)) => return Err(error),
                Err(NoTimes::Network(why)) => {
                    let text = format!("{name} between {first} and {second} is skipped: {why}");
                    skipped.insert(name.clone(), text);
                }
            }
        }
    }
    let mut networks = Networks::default();
    for (name, rounds) in samples.into_iter().filter(|(name, _)| !skipped.contains_key(name)) {
        let median_of = |size: usize| {
            let times: Vec<f64> = rounds.iter().map(|times| times[size]).collect();
            (SIZES[size].0, median(&times))
        };
        networks.0.insert(name, (0..SIZES.len()).map(median_of).collect());
    }
    // The second node sends: its times end with the answer.
    let networks = agreement::of_rank(pair, 1, (node == 1).then_some(&networks))?;
    Ok(Comparison { networks, skipped: skipped.into_values().collect() })
}

/// The networks to measure, and the key of their connections. The first node chooses for both: two
/// nodes may see different numbers of networks, in different orders.
fn candidates(
    pair: &Communicator,
    address: IpAddr,
    library: Option<&Library>,
) -> Result<(Vec<Candidate>, Key), Error> {
    let identity = || {
        let interface = Environment.text(INTERFACE).map_err(why)?;
        let here = NodeIdentity::of_this_process(None, interface.as_deref()).map_err(why)?;
        // Secret between the two processes: other programs can connect with their ports, too.
        Ok((here, random_key()?))
    };
    let (here, key) = both(pair, identity()).map_err(|none| match none {
        NoTimes::Job(error) => error,
        NoTimes::Network(what) => {
            Error::Impossible { what, way_out: "correct it on that node".to_owned() }
        }
    })?;
    let own = NodeNetworks {
        address,
        providers: library.map(fabric::providers).unwrap_or_default(),
        networks: here.networks(),
    };
    let [first, second] = exchange(pair, &own)?;
    let chosen = (pair.rank() == 0).then(|| (choose(&here, &first, &second), key));
    agreement::of_first(pair, chosen.as_ref())
}

/// The networks between the node of this process, the first one, and another.
fn choose(here: &NodeIdentity, first: &NodeNetworks, second: &NodeNetworks) -> Vec<Candidate> {
    let addresses = [first.address, second.address];
    let mut all = vec![Candidate { name: TCP.to_owned(), provider: None, addresses }];
    for provider in first.providers.iter().filter(|name| second.providers.contains(name)) {
        let name = Networks::of_provider(provider);
        all.push(Candidate { name, provider: Some(provider.clone()), addresses });
    }
    let common = here.in_common(&second.networks);
    // A single one leaves nothing to choose.
    for CommonNetwork { range, own, other } in common.iter().filter(|_| common.len() > 1) {
        let name = Networks::of_range(range);
        all.push(Candidate { name, provider: None, addresses: [*own, *other] });
    }
    all
}

/// The times of all sizes. On an error the agent ends, so that the other node's runs fail too.
fn measure_sizes(mut path: NetworkPath, shorter: u32) -> Result<(NetworkPath, Vec<f64>), Error> {
    let mut times = Vec::new();
    for (size, (_, runs)) in SIZES.iter().enumerate() {
        let runs = runs.div_ceil(shorter);
        // Both nodes begin together after the first runs, which warm up.
        path.measure(size, runs.div_ceil(WARM_UP))?;
        times.push(path.measure(size, runs)?);
    }
    Ok((path, times))
}

/// The values of both ranks.
fn exchange<T: Serialize + DeserializeOwned>(
    pair: &Communicator,
    own: &T,
) -> Result<[T; 2], Error> {
    let of = |rank| agreement::of_rank(pair, rank, (pair.rank() == rank).then_some(own));
    Ok([of(0)?, of(1)?])
}

/// Returns this node's result if the other one succeeded too, so that both go the same way.
fn both<T>(pair: &Communicator, own: Result<T, Error>) -> Result<T, NoTimes> {
    let failure = own.as_ref().err().map(Error::to_string);
    let failures = exchange(pair, &failure)?;
    match (own, failures.into_iter().flatten().next()) {
        (Ok(own), None) => Ok(own),
        (_, why) => Err(NoTimes::Network(why.unwrap_or_default())),
    }
}

/// Starts the agents of both nodes over a network.
fn connect(
    pair: &Communicator,
    candidate: &Candidate,
    library: Option<&Library>,
    key: Key,
) -> Result<NetworkPath, NoTimes> {
    let node = pair.rank();
    let address = candidate.addresses[node as usize];
    let Some(provider) = &candidate.provider else {
        let tcp = connect_tcp(pair, address, key)?;
        return both(pair, NetworkPath::new(node, Box::new(tcp)));
    };
    let endpoint = both(pair, open(library, provider, address))?;
    let names = exchange(pair, &endpoint.name().to_vec())?;
    let mesh = connect_tcp(pair, address, key)?;
    let fabric = Fabric::new(mesh, endpoint, &names, key, TIMEOUTS.unanswered, READ_FROM);
    let path =
        fabric.map_err(Error::from).and_then(|fabric| NetworkPath::new(node, Box::new(fabric)));
    both(pair, path)
}

/// Connects the two nodes by TCP.
fn connect_tcp(pair: &Communicator, address: IpAddr, key: Key) -> Result<Tcp, NoTimes> {
    let listen = || {
        let ports = Environment.ports().map_err(why)?;
        let socket = ports.bind(|port| TcpListener::bind((address, port)))?;
        Ok(Listener::with_socket(socket)?)
    };
    let listener = both(pair, listen())?;
    let addresses: [SocketAddr; 2] = exchange(pair, &listener.address())?;
    let tcp = Tcp::connect(listener, pair.rank(), &addresses, key, TIMEOUTS);
    both(pair, tcp.map_err(Error::from))
}

/// Opens a provider on this node.
fn open(library: Option<&Library>, provider: &str, address: IpAddr) -> Result<Endpoint, Error> {
    let impossible =
        |what: String| Error::Impossible { what, way_out: "see `tradewind doctor`".to_owned() };
    let library = library.ok_or_else(|| impossible("libfabric is not installed".to_owned()))?;
    let selection = provider.parse().map_err(|error| impossible(format!("{error}")))?;
    Endpoint::open(library, &request(selection, address))
        .map_err(|error| impossible(error.to_string()))
}

/// An invalid variable of the environment.
fn why(error: launch::LaunchError) -> Error {
    let way_out = "correct the variable".to_owned();
    Error::Impossible { what: error.to_string(), way_out }
}
