//! Measures the agent engine between two nodes over TCP and over libfabric, in turns: half a round
//! trip of 8 bytes, the bandwidth of longer messages with eight under way, and the processor time
//! of both nodes for a message. `bench/fabric` runs it beside a program without tradewind.
//!
//! `networks ROUNDS OWN-ADDRESS PROVIDER` on one node, and `networks ROUNDS OWN-ADDRESS PROVIDER
//! OTHER-ADDRESS` on the other one, which prints lines of JSON. `TRADEWIND_LIBFABRIC` names the
//! library.

use fabric::{Endpoint, Library, Request};
use goal::graph::{Access, Graph};
use network::agent::{AgentClient, limits};
use network::backend::{Backend, CommunicatorContext, ScheduleId};
use network::job_nodes::Key;
use network::local::connect_over;
use network::node_map::NodeMap;
use network::transport::Transport;
use network::transport::fabric::{Fabric, MESSAGE_BYTES, RECEIVES, SENDS};
use network::transport::tcp::{Listener, Tcp, Timeouts};
use rustix::time::{ClockId, clock_gettime};
use std::error::Error;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

type Failure = Box<dyn Error + Send + Sync>;

const MEETING: u16 = 9494;
const KEY: Key = [5; 16];
/// Round trips of one run, and long messages.
const TRIPS: u32 = 16;
const WINDOW: u32 = 8;
/// Sizes, and the number of runs in a round.
const SIZES: [(u64, u32); 5] =
    [(8, 125), (64 << 10, 100), (256 << 10, 30), (1 << 20, 10), (4 << 20, 3)];

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

/// A network, and the schedules of all sizes.
struct Path {
    name: &'static str,
    client: AgentClient,
    schedules: Vec<(ScheduleId, Vec<u64>)>,
    sequence: u64,
}

impl Path {
    fn new(name: &'static str, node: u32, transport: Box<dyn Transport>) -> Result<Self, Failure> {
        let mut clients = connect_over(&NodeMap::new([0, 1]), vec![transport], limits())?;
        let client = clients.pop().ok_or("there is no rank on this node")?;
        let context = CommunicatorContext { number: 0, members: [0, 1].into(), rank: node };
        let mut schedules = Vec::new();
        for (bytes, _) in SIZES {
            let graph = graph(node, bytes);
            let lengths = graph.buffers().iter().map(|buffer| buffer.length).collect();
            let schedule = goal::compile::compile(&graph)?;
            schedules.push((client.register(&context, &schedule, 0)?, lengths));
        }
        Ok(Path { name, client, schedules, sequence: 0 })
    }

    /// Microseconds for a message, and of this node's processor time.
    fn measure(&mut self, size: usize) -> Result<[f64; 2], Failure> {
        let (bytes, runs) = SIZES[size];
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

/// The connection of the two programs.
struct Meeting(TcpStream);

impl Meeting {
    fn new(own: IpAddr, other: Option<IpAddr>) -> Result<Self, Failure> {
        let stream = match other {
            None => TcpListener::bind((own, MEETING))?.accept()?.0,
            Some(other) => {
                let end = Instant::now() + Duration::from_secs(10);
                loop {
                    match TcpStream::connect((other, MEETING)) {
                        Ok(stream) => break stream,
                        Err(error) if Instant::now() >= end => return Err(error.into()),
                        Err(_) => std::thread::sleep(Duration::from_millis(20)),
                    }
                }
            }
        };
        stream.set_nodelay(true)?;
        Ok(Meeting(stream))
    }

    /// Exchanges short messages.
    fn swap(&mut self, ours: &[u8]) -> Result<Vec<u8>, Failure> {
        self.0.write_all(&(ours.len() as u64).to_le_bytes())?;
        self.0.write_all(ours)?;
        let mut length = [0; 8];
        self.0.read_exact(&mut length)?;
        let mut theirs = vec![0; u64::from_le_bytes(length) as usize];
        self.0.read_exact(&mut theirs)?;
        Ok(theirs)
    }
}

/// Connects the two nodes by TCP.
fn connect(meeting: &mut Meeting, node: u32, own: IpAddr) -> Result<Tcp, Failure> {
    let listener = Listener::bind((own, 0))?;
    let address = listener.address();
    let theirs = String::from_utf8(meeting.swap(address.to_string().as_bytes())?)?;
    let mut addresses: [SocketAddr; 2] = [address; 2];
    addresses[1 - node as usize] = theirs.parse()?;
    Ok(Tcp::connect(listener, node, &addresses, KEY, Timeouts::default())?)
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [rounds, own, provider, rest @ ..] = &arguments[..] else {
        return Err("give ROUNDS OWN-ADDRESS PROVIDER [OTHER-ADDRESS]".into());
    };
    let (rounds, own): (u32, IpAddr) = (rounds.parse()?, own.parse()?);
    let other = rest.first().map(|other| other.parse()).transpose()?;
    let node = u32::from(other.is_some());
    let mut meeting = Meeting::new(own, other)?;
    let tcp = connect(&mut meeting, node, own)?;
    let mesh = connect(&mut meeting, node, own)?;
    let library = std::env::var_os("TRADEWIND_LIBFABRIC");
    let library = Library::open(library.as_deref().map(std::path::Path::new))?;
    let request = Request {
        choice: provider.parse()?,
        address: own,
        sends: SENDS,
        receives: RECEIVES,
        message_bytes: MESSAGE_BYTES,
    };
    let endpoint = Endpoint::open(&library, &request)?;
    let ours = endpoint.name().to_vec();
    let theirs = meeting.swap(&ours)?;
    let names = if node == 0 { [ours, theirs] } else { [theirs, ours] };
    let fabric = Fabric::new(mesh, endpoint, &names, KEY, Timeouts::default().unanswered)?;
    let mut paths = [
        Path::new("agent over TCP", node, Box::new(tcp))?,
        Path::new("agent over libfabric", node, Box::new(fabric))?,
    ];
    for round in 0..=rounds {
        for path in &mut paths {
            for (size, (bytes, _)) in SIZES.iter().enumerate() {
                meeting.swap(&[])?;
                let [time, processor] = path.measure(size)?;
                let theirs = meeting.swap(&processor.to_le_bytes())?;
                let theirs = f64::from_le_bytes(theirs.as_slice().try_into()?);
                // The first round warms up.
                if node == 1 && round > 0 {
                    println!(
                        "{{\"path\":\"{}\",\"bytes\":{bytes},\"us\":{time:.3},\"processor_us\":{:.3}}}",
                        path.name,
                        processor + theirs
                    );
                }
            }
        }
    }
    Ok(())
}
