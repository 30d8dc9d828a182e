//! A job on a testbed: hosts with the program loaded, ranks as threads in their hosts.
#![allow(dead_code, reason = "not every test uses all of it")]

pub(crate) mod allreduce;
mod part;

use conformance::random::Program;
use conformance::{Capabilities, Engine, Failure, Round, RoundOutcome};
use goal::graph::{Graph, Operation, Vertex};
use kernel::wire::{Endpoint, Key};
use kernel::{JobDescription, Loader, Rank};
use network::carrier::Context;
use part::RankOutcome;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use testbed::{Options, Testbed};

/// The UDP port of a job; further jobs have those behind it.
pub(crate) const PORT: u16 = 7199;

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
    pub(crate) fn new(
        hosts: usize,
        ranks_per_host: usize,
        mtu: u32,
    ) -> Result<World, testbed::Error> {
        let testbed = Testbed::new(hosts, Options { mtu, ..Options::default() })?;
        Ok(World::on(Arc::new(testbed), ranks_per_host, mtu, JobKind::default()))
    }

    /// A job on hosts that there are.
    pub(crate) fn on(
        testbed: Arc<Testbed>,
        ranks_per_host: usize,
        mtu: u32,
        kind: JobKind,
    ) -> World {
        let hosts = testbed.hosts().len();
        World::on_first(testbed, hosts, ranks_per_host, mtu, kind)
    }

    /// A job on the first hosts of those that there are.
    pub(crate) fn on_first(
        testbed: Arc<Testbed>,
        hosts: usize,
        ranks_per_host: usize,
        mtu: u32,
        kind: JobKind,
    ) -> World {
        let ranks = hosts * ranks_per_host;
        let host_of_rank: Vec<u32> = (0..ranks).map(|rank| (rank % hosts) as u32).collect();
        let endpoint = |host: &testbed::Host| Endpoint {
            hardware_address: host.hardware_address(),
            address: if kind.is_version_6 {
                host.address_v6().into()
            } else {
                host.address().into()
            },
            port: PORT + kind.number as u16,
        };
        let endpoints: Vec<Endpoint> = testbed.hosts()[..hosts].iter().map(endpoint).collect();
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
        let loaders: Vec<Loader> = testbed.hosts()[..hosts].iter().enumerate().map(load).collect();
        let (mut all, mut workers) = (Vec::new(), Vec::new());
        for rank in 0..ranks {
            let handles =
                loaders[rank % hosts].handles(rank as u32).expect("there are descriptors");
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

impl World {
    /// Runs programs on communicators of their own, all rounds of all of them under way at once as far as there is memory.
    pub(crate) fn run_at_once(
        &self,
        programs: Vec<Program>,
    ) -> Vec<Result<Vec<RoundOutcome>, Failure>> {
        let numbered = |program| (self.communicator(), program);
        let programs: Arc<Vec<(u32, Program)>> =
            Arc::new(programs.into_iter().map(numbered).collect());
        let ranks = programs.iter().map(|(_, program)| program.graphs.len()).max().unwrap_or(0);
        let all = Arc::clone(&programs);
        let mut outcomes: Vec<_> = self
            .run(ranks, move |rank, here| part::run(here, rank, &all).into_iter())
            .into_iter()
            .collect();
        let outcome = |(_, program): &(u32, Program)| {
            let parts: Vec<RankOutcome> =
                outcomes[..program.graphs.len()].iter_mut().filter_map(Iterator::next).collect();
            let parts = parts.into_iter().collect::<Result<Vec<_>, _>>()?;
            Ok((0..program.inputs.len())
                .map(|round| RoundOutcome {
                    buffers: parts.iter().map(|rank| rank[round].0.clone()).collect(),
                    faults: parts.iter().filter_map(|rank| rank[round].1).collect(),
                })
                .collect())
        };
        programs.iter().map(outcome).collect()
    }
}

impl Engine for World {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { joins: false, max_ranks: self.ranks.len() as u32, ..Capabilities::default() }
    }

    fn run(&self, program: &[Graph], inputs: &[Round]) -> Result<Vec<RoundOutcome>, Failure> {
        let program = Program { graphs: program.to_vec(), inputs: inputs.to_vec() };
        self.run_at_once(vec![program]).remove(0)
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
