//! Messages by the agents of two nodes, over TCP and over the providers of libfabric.
//!
//! A path is an agent with one rank, over a transport that is connected with that of another node.
//! Half a round trip is measured with 8 bytes, and the time of a longer message with eight under
//! way: on the agents of the second node, which sends.

use crate::harness::{Error, Setting, agreement, leaders_of_ranks};
use fabric::{Endpoint, Library, Request};
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
use network::transport::fabric::{Fabric, MESSAGE_BYTES, RECEIVES, SENDS};
use network::transport::tcp::{Listener, Tcp, Timeouts};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tradewind::Communicator;

/// Round trips of one run, and long messages.
const TRIPS: u32 = 16;
const WINDOW: u32 = 8;
/// Sizes in bytes, and the number of runs in a round.
pub const SIZES: [(u64, u32); 5] =
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

    /// Makes runs of one of the [`SIZES`], by its position, at the same time as the other node. Returns microseconds for a message, and of this process's processor time.
    ///
    /// # Errors
    /// If the other node fails.
    pub fn measure(&mut self, size: usize, runs: u32) -> Result<[f64; 2], Error> {
        let (bytes, _) = SIZES[size];
        let (schedule, lengths) = &self.schedules[size];
        let inputs: Vec<Vec<u8>> = lengths.iter().map(|length| vec![7; *length as usize]).collect();
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        let begun = Instant::now();
        let used = processor_time();
        for _ in 0..runs {
            let run = self.client.start(*schedule, self.sequence, &inputs)?;
            self.sequence += 1;
            self.client.wait(run, None)?;
            let mut outputs: Vec<&mut [u8]> = lengths.iter().map(|_| &mut [][..]).collect();
            self.client.fetch(run, &mut outputs)?;
        }
        let messages = f64::from(runs * if bytes == SIZES[0].0 { 2 * TRIPS } else { WINDOW });
        let spent = processor_time().saturating_sub(used);
        Ok([begun.elapsed(), spent].map(|time| time.as_secs_f64() * 1e6 / messages))
    }
}

/// Of all threads of this process.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
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

/// Measures the networks between the first two nodes of a job, in turns: TCP at the
/// job's addresses, the providers of libfabric, and TCP over each network that the nodes have in
/// common, if there are several. Every rank calls it, with its node's address; rank 0 gets the times.
///
/// # Errors
/// If the nodes cannot be connected, or a rank is gone.
pub fn compare(
    world: &Communicator,
    address: IpAddr,
    setting: &Setting,
) -> Result<Networks, Error> {
    let mut leaders = leaders_of_ranks(world)?;
    leaders.sort_unstable();
    leaders.dedup();
    let color = leaders.iter().take(2).any(|leader| *leader == world.rank()).then_some(0);
    let pair = world.split(color, i64::from(world.rank()))?;
    let found = pair.map(|pair| between(&pair, address, setting)).transpose();
    // The others sleep meanwhile: a rank that waits in a blocking call polls.
    world.ibarrier()?.wait()?;
    Ok(found?.unwrap_or_default())
}

/// Measures the networks between the nodes of two ranks.
fn between(pair: &Communicator, address: IpAddr, setting: &Setting) -> Result<Networks, Error> {
    // Rounds, and by how much each of them has fewer runs.
    let (rounds, shorter) = setting.choose((1, 25), (5, 1));
    let node = pair.rank();
    // Known to the two processes only: everybody can connect with their ports.
    let key = if node == 0 { Some(random_key()?) } else { None };
    let key: Key = agreement::of_first(pair, key.as_ref())?;
    let library = Environment.get(LIBFABRIC).map(PathBuf::from);
    let library = Library::open(library.as_deref().map(Path::new)).ok();
    let own = library.as_ref().map(fabric::providers).unwrap_or_default();
    let [mut providers, theirs] = exchange(pair, &own)?;
    providers.retain(|provider| theirs.contains(provider));
    let tcp = connect(pair, address, key)?;
    let mut paths = vec![(TCP.to_owned(), NetworkPath::new(node, Box::new(tcp))?)];
    for provider in providers {
        let fabric = connect_fabric(pair, library.as_ref(), &provider, (address, key))?;
        if let Some(fabric) = fabric {
            let path = NetworkPath::new(node, Box::new(fabric))?;
            paths.push((Networks::of_provider(&provider), path));
        }
    }
    let interface = Environment.text(INTERFACE).map_err(why)?;
    let here = NodeIdentity::of_this_process(None, interface.as_deref()).map_err(why)?;
    let lists = exchange(pair, &here.networks())?;
    let common = here.in_common(&lists[1 - node as usize]);
    // A single one leaves nothing to choose.
    for CommonNetwork { range, own, .. } in common.iter().filter(|_| common.len() > 1) {
        let path = NetworkPath::new(node, Box::new(connect(pair, *own, key)?))?;
        paths.push((Networks::of_range(range), path));
    }
    let mut samples: BTreeMap<(String, u64), Vec<f64>> = BTreeMap::new();
    for round in 0..=rounds {
        for (name, path) in &mut paths {
            for (size, (bytes, runs)) in SIZES.iter().enumerate() {
                pair.barrier()?;
                let [time, _] = path.measure(size, runs.div_ceil(shorter))?;
                // The first round warms up.
                if round > 0 {
                    samples.entry((name.clone(), *bytes)).or_default().push(time);
                }
            }
        }
    }
    let mut networks = Networks::default();
    for ((name, bytes), times) in samples {
        networks.0.entry(name).or_default().insert(bytes, median(&times));
    }
    // The second node sends: its times end with the answer.
    agreement::of_rank(pair, 1, (node == 1).then_some(&networks))
}

/// The values of both ranks.
fn exchange<T: Serialize + DeserializeOwned>(
    pair: &Communicator,
    own: &T,
) -> Result<[T; 2], Error> {
    let of = |rank| agreement::of_rank(pair, rank, (pair.rank() == rank).then_some(own));
    Ok([of(0)?, of(1)?])
}

/// Connects the two nodes by TCP.
fn connect(pair: &Communicator, address: IpAddr, key: Key) -> Result<Tcp, Error> {
    let ports = Environment.ports().map_err(why)?;
    let socket = ports.bind(|port| TcpListener::bind((address, port)))?;
    let listener = Listener::with_socket(socket)?;
    let addresses: [SocketAddr; 2] = exchange(pair, &listener.address())?;
    Ok(Tcp::connect(listener, pair.rank(), &addresses, key, Timeouts::default())?)
}

/// Connects the two nodes by a provider; `None` if one of them cannot open it.
fn connect_fabric(
    pair: &Communicator,
    library: Option<&Library>,
    provider: &str,
    (address, key): (IpAddr, Key),
) -> Result<Option<Fabric>, Error> {
    let open = |library| {
        let request = Request {
            choice: provider.parse().ok()?,
            address,
            sends: SENDS,
            receives: RECEIVES,
            message_bytes: MESSAGE_BYTES,
        };
        Endpoint::open(library, &request).ok()
    };
    let endpoint = library.and_then(open);
    let name = endpoint.as_ref().map(|endpoint| endpoint.name().to_vec());
    let names: Vec<Vec<u8>> = exchange(pair, &name)?.into_iter().flatten().collect();
    let Some(endpoint) = endpoint.filter(|_| names.len() == 2) else { return Ok(None) };
    let mesh = connect(pair, address, key)?;
    Ok(Some(Fabric::new(mesh, endpoint, &names, key, Timeouts::default().unanswered)?))
}

/// An invalid variable of the environment.
fn why(error: launch::LaunchError) -> Error {
    let way_out = "correct the variable".to_owned();
    Error::Impossible { what: error.to_string(), way_out }
}
