//! A job on a testbed: hosts with the program loaded, ranks as threads in their hosts.
#![allow(dead_code, reason = "not every test uses all of it")]

use conformance::{Capabilities, Engine, Failure, Fault, Round, RoundOutcome};
use goal::compile::compile;
use goal::graph::{Graph, Operation, Vertex};
use kernel::wire::{Endpoint, Key};
use kernel::{Fault as RunFault, JobDescription, Loader, Rank};
use network::carrier::{Carrier, Context, Error};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use testbed::{Options, Testbed};

/// How long a run may take before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(20);

/// Something for a rank's thread to do.
type Work = Box<dyn FnOnce(&Rank) + Send>;

/// A job of the kernel engine. Rank r is on host r modulo the number of hosts.
pub(crate) struct World {
    // Before the testbed, so that threads and programs go first.
    workers: Vec<(Sender<Work>, Option<JoinHandle<()>>)>,
    pub(crate) ranks: Vec<Arc<Rank>>,
    pub(crate) loaders: Vec<Loader>,
    pub(crate) testbed: Arc<Testbed>,
    communicators: AtomicU32,
    name: String,
}

/// What tells jobs on the same hosts apart.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct JobKind {
    pub(crate) number: u64,
    pub(crate) is_version_6: bool,
    /// Whether the ranks' doorbells are where the program does not hear them.
    pub(crate) is_unheard: bool,
}

impl World {
    /// Hosts with so many ranks each.
    pub(crate) fn new(hosts: usize, ranks_per_host: usize, mtu: u32) -> Result<World, testbed::Error> {
        let testbed = Testbed::new(hosts, Options { mtu, ..Options::default() })?;
        Ok(World::on(Arc::new(testbed), ranks_per_host, mtu, JobKind::default()))
    }

    /// A job on hosts that there are.
    pub(crate) fn on(testbed: Arc<Testbed>, ranks_per_host: usize, mtu: u32, kind: JobKind) -> World {
        let hosts = testbed.hosts().len();
        let ranks = hosts * ranks_per_host;
        let host_of_rank: Vec<u32> = (0..ranks).map(|rank| (rank % hosts) as u32).collect();
        let endpoint = |host: &testbed::Host| Endpoint {
            hardware_address: host.hardware_address(),
            address: if kind.is_version_6 { host.address_v6().into() } else { host.address().into() },
            port: 7199 + kind.number as u16,
        };
        let endpoints: Vec<Endpoint> = testbed.hosts().iter().map(endpoint).collect();
        let load = |(number, host): (usize, &testbed::Host)| {
            let job = JobDescription {
                host: number as u32,
                host_of_rank: host_of_rank.clone(),
                endpoints: endpoints.clone(),
                number: kind.number,
                key: Key([kind.number, 0x5eed]),
                interface: host.interface().to_owned(),
                mtu,
            };
            host.run(|| Loader::load(&job)).expect("the program is loaded")
        };
        let loaders: Vec<Loader> = testbed.hosts().iter().enumerate().map(load).collect();
        let (mut all, mut workers) = (Vec::new(), Vec::new());
        for rank in 0..ranks {
            let handles = loaders[rank % hosts].handles(rank as u32).expect("there are descriptors");
            let handles = handles.expect("the rank is on this host");
            let host = &testbed.hosts()[rank % hosts];
            let make = || Rank::new(handles).expect("the maps can be mapped");
            let rank_here = Arc::new(if kind.is_unheard { make() } else { host.run(make) });
            let (sender, receiver) = channel::<Work>();
            let worker = start_worker(host, Arc::clone(&rank_here), receiver);
            all.push(rank_here);
            workers.push((sender, Some(worker)));
        }
        let name = format!("kernel, {hosts} hosts with {ranks_per_host} ranks each, MTU {mtu}");
        World { workers, ranks: all, loaders, testbed, communicators: AtomicU32::new(0), name }
    }

    /// A number for a communicator that no other has.
    pub(crate) fn communicator(&self) -> u32 {
        self.communicators.fetch_add(1, Ordering::Relaxed)
    }

    /// What a rank knows about a communicator of the first ranks.
    pub(crate) fn context(&self, number: u32, ranks: usize, rank: usize) -> Context {
        Context { number, members: (0..ranks as u32).collect(), rank: rank as u32 }
    }

    /// Has the first ranks do something, each on its thread in its host; gives what each brings home.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        ranks: usize,
        work: impl Fn(usize, &Rank) -> T + Send + Sync + 'static,
    ) -> Vec<T> {
        let work = Arc::new(work);
        let results: Vec<_> = (0..ranks)
            .map(|rank| {
                let (sender, receiver) = channel();
                let work = Arc::clone(&work);
                let body: Work = Box::new(move |here| drop(sender.send(work(rank, here))));
                self.workers[rank].0.send(body).expect("the worker lives");
                receiver
            })
            .collect();
        results.into_iter().map(|result| result.recv().expect("the rank did not panic")).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for (sender, worker) in std::mem::take(&mut self.workers) {
            drop(sender);
            drop(worker.map(JoinHandle::join));
        }
    }
}

/// A thread in a host that does what it is sent.
fn start_worker(host: &testbed::Host, rank: Arc<Rank>, receiver: Receiver<Work>) -> JoinHandle<()> {
    // A thread inherits the namespace of the one that starts it.
    host.run(|| std::thread::spawn(move || receiver.into_iter().for_each(|work| work(&rank))))
}

/// What one rank brings home: by round, its buffers and what failed.
type RankOutcome = Result<Vec<(Vec<Vec<u8>>, Option<Fault>)>, Failure>;

impl Engine for World {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { joins: false, max_ranks: self.ranks.len() as u32, ..Capabilities::default() }
    }

    fn run(&self, program: &[Graph], inputs: &[Round]) -> Result<Vec<RoundOutcome>, Failure> {
        let number = self.communicator();
        let program: Arc<Vec<Graph>> = Arc::new(program.iter().map(without_computations).collect());
        let inputs: Arc<Vec<Round>> = Arc::new(inputs.to_vec());
        let ranks = program.len();
        let (graphs, rounds) = (Arc::clone(&program), Arc::clone(&inputs));
        let outcomes: Vec<RankOutcome> = self.run(ranks, move |rank, here| {
            let context = Context { number, members: (0..ranks as u32).collect(), rank: rank as u32 };
            run_rank(here, &context, &graphs[rank], &rounds)
        });
        let outcomes = outcomes.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok((0..inputs.len())
            .map(|round| RoundOutcome {
                buffers: outcomes.iter().map(|rank| rank[round].0.clone()).collect(),
                faults: outcomes.iter().filter_map(|rank| rank[round].1).collect(),
            })
            .collect())
    }
}

/// Computations take no time in the kernel.
pub(crate) fn without_computations(graph: &Graph) -> Graph {
    let mut graph = graph.clone();
    for vertex in 0..graph.vertices().len() as u32 {
        if let Some(entry) = graph.vertex_mut(Vertex(vertex))
            && let Operation::Calc { nanoseconds } = &mut entry.operation
        {
            *nanoseconds = 0;
        }
    }
    graph
}

fn run_rank(rank: &Rank, context: &Context, graph: &Graph, rounds: &[Round]) -> RankOutcome {
    let other = |error: Error| Failure::Other(error.to_string());
    let schedule = compile(graph).map_err(|error| Failure::Other(error.to_string()))?;
    let prepared = rank.prepare(context, &schedule, 0).map_err(other)?;
    let mut outcomes = Vec::new();
    for (sequence, round) in (0..).zip(rounds) {
        let mut buffers = round[context.rank as usize].clone();
        let inputs: Vec<&[u8]> = buffers.iter().map(Vec::as_slice).collect();
        let ticket = rank.start(prepared, sequence, &inputs).map_err(other)?;
        if !rank.wait(ticket, Some(Instant::now() + PATIENCE)).map_err(other)? {
            let awaited = rank.awaited(ticket);
            return Err(Failure::Stuck(format!("rank {}, round {sequence} waits for {awaited:?}", context.rank)));
        }
        let fault = rank.fault(ticket);
        let mut outputs: Vec<&mut [u8]> = buffers.iter_mut().map(Vec::as_mut_slice).collect();
        let fetched = rank.fetch(ticket, &mut outputs);
        let fault = match fault {
            None => fetched.map(|()| None).map_err(other)?,
            Some(RunFault::Division { vertex, .. }) => Some(Fault { rank: context.rank, vertex }),
            Some(RunFault::Sizes { .. }) => {
                return Err(Failure::SizesDiffer(fetched.map_or_else(|error| error.to_string(), |()| String::new())));
            }
            Some(fault) => return Err(Failure::Other(format!("{fault:?}"))),
        };
        outcomes.push((buffers, fault));
    }
    rank.release(prepared);
    Ok(outcomes)
}
