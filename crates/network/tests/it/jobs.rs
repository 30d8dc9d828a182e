//! NodeMap and ranks that are threads of this process, and an engine for the conformance suite made
//! of them.

use goal::compile::compile;
use goal::graph::{Access, Graph};
use network::agent::{AgentClient, Limits};
use network::backend::{Backend, CommunicatorContext, ScheduleId};
use network::error::Error;
use network::local;
use network::node_map::NodeMap;
use network::transport::{Transport, memory};
use std::time::{Duration, Instant};
use testing::conformance::{Capabilities, Engine, Failure, Fault, Round, RoundOutcome};

/// What connects the nodes.
pub(crate) enum Wires {
    Memory,
    Tcp,
    /// What connects nodes.
    Other(Connect),
}

type Connect = Box<dyn Fn(&NodeMap) -> Result<Vec<AgentClient>, Error>>;

pub(crate) struct Agents {
    ranks_per_node: u32,
    wires: Wires,
    pub(crate) limits: Limits,
    pub(crate) capabilities: Capabilities,
    name: String,
}

impl Agents {
    pub(crate) fn new(ranks_per_node: u32, wires: Wires) -> Self {
        let name = format!("agent, {ranks_per_node} ranks a node");
        let capabilities = Capabilities { random_programs: 64, ..Capabilities::default() };
        Agents { ranks_per_node, wires, limits: Limits::new(16 << 10), capabilities, name }
    }
}

/// The nodes of ranks that come in so many to a node.
pub(crate) fn nodes(ranks: u32, ranks_per_node: u32) -> NodeMap {
    NodeMap::new((0..ranks).map(|rank| rank / ranks_per_node))
}

/// Connects nodes of this process.
pub(crate) fn connect(
    nodes: &NodeMap,
    wires: &Wires,
    limits: Limits,
) -> Result<Vec<AgentClient>, Error> {
    match wires {
        Wires::Tcp => local::connect(nodes),
        Wires::Other(connect) => connect(nodes),
        Wires::Memory => {
            let connected = memory::connect(nodes.count())?;
            let boxed = connected
                .into_iter()
                .map(|transport| Box::new(transport) as Box<dyn Transport>)
                .collect();
            local::connect_over(nodes, boxed, limits)
        }
    }
}

/// Runs a body as every rank of a job on so many nodes with so many ranks each.
pub(crate) fn run_job<R: Send>(
    nodes: &NodeMap,
    wires: Wires,
    body: impl Fn(u32, AgentClient) -> R + Sync,
) -> Vec<R> {
    let clients =
        connect(nodes, &wires, Limits::new(16 << 10)).expect("threads, memory and sockets");
    let body = &body;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(clients)
            .map(|(rank, client)| scope.spawn(move || body(rank, client)))
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no rank panics")).collect()
    })
}

/// A communicator of all ranks.
pub(crate) fn world(number: u32, rank: u32, ranks: u32) -> CommunicatorContext {
    CommunicatorContext { number, members: (0..ranks).collect(), rank }
}

/// Registers a graph.
pub(crate) fn register(
    client: &AgentClient,
    context: &CommunicatorContext,
    graph: &Graph,
) -> ScheduleId {
    client.register(context, &compile(graph).expect("in order"), 0).expect("memory")
}

/// A minute is more than any run takes.
pub(crate) fn deadline() -> Option<Instant> {
    Instant::now().checked_add(Duration::from_secs(60))
}

/// Runs a schedule from its start to its end.
pub(crate) fn run(
    client: &AgentClient,
    prepared: ScheduleId,
    sequence: u64,
    inputs: &[&[u8]],
    outputs: &mut [&mut [u8]],
) -> Result<(), Error> {
    let run = client.start(prepared, sequence, inputs)?;
    assert!(client.wait(run, deadline())?, "run {sequence} does not end");
    client.fetch(run, outputs)
}

/// What a rank brings home: by round, its buffers and what divided by zero.
type RankOutcome = Vec<(Vec<Vec<u8>>, Option<Fault>)>;

impl Engine for Agents {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn run(&self, program: &[Graph], inputs: &[Round]) -> Result<Vec<RoundOutcome>, Failure> {
        let nodes = nodes(program.len() as u32, self.ranks_per_node);
        let clients = connect(&nodes, &self.wires, self.limits).map_err(|error| failure(&error))?;
        run_program(clients, program, inputs)
    }
}

/// Ranks that execute their runs themselves, connected by TCP.
pub(crate) struct Direct {
    pub(crate) capabilities: Capabilities,
}

impl Engine for Direct {
    fn name(&self) -> &str {
        "direct"
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn run(&self, program: &[Graph], inputs: &[Round]) -> Result<Vec<RoundOutcome>, Failure> {
        let clients = local::connect_directly(program.len() as u32);
        run_program(clients.map_err(|error| failure(&error))?, program, inputs)
    }
}

/// Runs a program with a thread for each rank.
fn run_program(
    clients: Vec<impl Backend>,
    program: &[Graph],
    inputs: &[Round],
) -> Result<Vec<RoundOutcome>, Failure> {
    let outcomes: Vec<Result<RankOutcome, Error>> = std::thread::scope(|scope| {
        let rank = |(rank, client)| scope.spawn(move || run_rank(client, &program[rank], inputs));
        let threads: Vec<_> = clients.into_iter().enumerate().map(rank).collect();
        threads.into_iter().map(|thread| thread.join().expect("no rank panics")).collect()
    });
    // A rank whose run failed leaves, which others notice in their next round: what it found
    // itself says more.
    let said_most = |error: &&Error| !matches!(error, Error::RankFailed { .. });
    let errors: Vec<&Error> =
        outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
    if let Some(error) = errors.iter().copied().find(said_most).or(errors.first().copied()) {
        return Err(failure(error));
    }
    let outcomes: Vec<RankOutcome> = outcomes.into_iter().flatten().collect();
    Ok((0..inputs.len())
        .map(|round| RoundOutcome {
            buffers: outcomes.iter().map(|rank| rank[round].0.clone()).collect(),
            faults: outcomes.iter().filter_map(|rank| rank[round].1).collect(),
        })
        .collect())
}

fn run_rank(client: impl Backend, graph: &Graph, inputs: &[Round]) -> Result<RankOutcome, Error> {
    let (rank, ranks) = (graph.rank(), graph.ranks());
    let context = CommunicatorContext { number: 7, members: (0..ranks).collect(), rank };
    let schedule = compile(graph).map_err(|error| Error::Operation(error.to_string()))?;
    let prepared = client.register(&context, &schedule, 0)?;
    let mut outcomes = Vec::new();
    for (round, inputs) in (0..).zip(inputs) {
        let mut memory = inputs[rank as usize].clone();
        let accesses: Vec<Access> = graph.buffers().iter().map(|buffer| buffer.access).collect();
        let given: Vec<&[u8]> = (memory.iter().zip(&accesses))
            .map(|(bytes, access)| if *access == Access::Output { &[] } else { bytes.as_slice() })
            .collect();
        let run = client.start(prepared, round, &given)?;
        let limit = Instant::now() + Duration::from_secs(60);
        // A rank that has ended its part before ends the wait as well.
        while !client.wait(run, Some(limit))? && Instant::now() < limit {}
        if !client.is_complete(run) {
            return Err(Error::System {
                what: "stuck".into(),
                why: format!("rank {rank}, round {round}"),
            });
        }
        assert!(client.is_complete(run));
        let mut wanted: Vec<&mut [u8]> = (memory.iter_mut().zip(&accesses))
            .map(
                |(bytes, access)| {
                    if *access == Access::Input { &mut [] } else { bytes.as_mut_slice() }
                },
            )
            .collect();
        let fault = match client.fetch(run, &mut wanted) {
            Ok(()) => None,
            Err(Error::DivisionByZero { rank, vertex, .. }) => Some(Fault { rank, vertex }),
            Err(error) => return Err(error),
        };
        outcomes.push((memory, fault));
    }
    client.release(prepared);
    Ok(outcomes)
}

fn failure(error: &Error) -> Failure {
    match error {
        Error::SizesDiffer(text) => Failure::SizesDiffer(text.clone()),
        Error::System { what, why } if what == "stuck" => Failure::Stuck(why.clone()),
        error => Failure::Other(error.to_string()),
    }
}
