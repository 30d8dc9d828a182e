//! Job on virtual nodes: the program is loaded on each node, and ranks are threads in their nodes.
#![allow(dead_code, reason = "not every test uses all of it")]

pub(crate) mod allreduce;
mod part;

use goal::graph::{Graph, Operation, Vertex};
use kernel::wire::{Endpoint, Key};
use kernel::{JobDescription, Loader, Rank};
use network::backend::CommunicatorContext;
use part::RankOutcome;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use testing::conformance::random::Program;
use testing::conformance::{Capabilities, Engine, Failure, Round, RoundOutcome};
use virtual_nodes::VirtualNodes;

/// UDP port of a job; further jobs use the following ports.
pub(crate) const PORT: u16 = 7199;

/// Task of a rank's thread.
type Work = Box<dyn FnOnce(&Rank) + Send>;

/// Job of the kernel engine. Rank r is on node r modulo the number of nodes.
pub(crate) struct World {
    // Before the nodes, so that threads and programs are dropped first.
    workers: Vec<(Sender<Work>, Option<JoinHandle<()>>)>,
    pub(crate) ranks: Vec<Arc<Rank>>,
    pub(crate) loaders: Vec<Loader>,
    pub(crate) testbed: Arc<VirtualNodes>,
    communicators: AtomicU32,
    name: String,
}

/// Parameters that distinguish jobs on the same nodes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct JobKind {
    pub(crate) number: u64,
    pub(crate) is_version_6: bool,
    /// True if the ranks' doorbells are in a namespace where the program does not receive them.
    pub(crate) has_no_doorbell: bool,
}

impl World {
    /// Creates nodes with this number of ranks each.
    pub(crate) fn new(nodes: usize, ranks_per_node: usize, mtu: u32) -> World {
        let testbed = VirtualNodes::new(nodes, mtu).expect("virtual nodes");
        World::on(Arc::new(testbed), ranks_per_node, mtu, JobKind::default())
    }

    /// Creates a job on existing nodes.
    pub(crate) fn on(
        testbed: Arc<VirtualNodes>,
        ranks_per_node: usize,
        mtu: u32,
        kind: JobKind,
    ) -> World {
        let nodes = testbed.nodes().len();
        World::on_first(testbed, nodes, ranks_per_node, mtu, kind)
    }

    /// Creates a job on the first of the existing nodes.
    pub(crate) fn on_first(
        testbed: Arc<VirtualNodes>,
        nodes: usize,
        ranks_per_node: usize,
        mtu: u32,
        kind: JobKind,
    ) -> World {
        let ranks = nodes * ranks_per_node;
        let node_of_rank: Vec<u32> = (0..ranks).map(|rank| (rank % nodes) as u32).collect();
        let endpoint = |node: &virtual_nodes::Node| Endpoint {
            hardware_address: node.hardware_address(),
            address: if kind.is_version_6 {
                node.address_v6().into()
            } else {
                node.address().into()
            },
            port: PORT + kind.number as u16,
        };
        let endpoints: Vec<Endpoint> = testbed.nodes()[..nodes].iter().map(endpoint).collect();
        let load = |(number, node): (usize, &virtual_nodes::Node)| {
            let job = JobDescription {
                node: number as u32,
                node_of_rank: node_of_rank.clone(),
                endpoints: endpoints.clone(),
                number: kind.number,
                key: Key([kind.number, 0x5eed]),
                interface: node.interface().to_owned(),
                mtu,
            };
            node.run(|| Loader::load(&job)).expect("the program is loaded")
        };
        let loaders: Vec<Loader> = testbed.nodes()[..nodes].iter().enumerate().map(load).collect();
        let mut all = Vec::new();
        let mut workers = Vec::new();
        for rank in 0..ranks {
            let handles =
                loaders[rank % nodes].handles(rank as u32).expect("there are descriptors");
            let handles = handles.expect("the rank is on this node");
            let node = &testbed.nodes()[rank % nodes];
            let make = || Rank::new(handles).expect("the maps can be mapped");
            let rank_here = Arc::new(if kind.has_no_doorbell { make() } else { node.run(make) });
            let (sender, receiver) = channel::<Work>();
            let worker = start_worker(node, Arc::clone(&rank_here), receiver);
            all.push(rank_here);
            workers.push((sender, Some(worker)));
        }
        let name = format!("kernel, {nodes} nodes with {ranks_per_node} ranks each, MTU {mtu}");
        World { workers, ranks: all, loaders, testbed, communicators: AtomicU32::new(0), name }
    }

    /// Returns an unused number for a communicator.
    pub(crate) fn communicator(&self) -> u32 {
        self.communicators.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns a rank's context of a communicator of the first ranks.
    pub(crate) fn context(&self, number: u32, ranks: usize, rank: usize) -> CommunicatorContext {
        CommunicatorContext { number, members: (0..ranks as u32).collect(), rank: rank as u32 }
    }

    /// Runs a task on the first ranks, each on its thread in its node, and returns their results.
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

/// Thread in a node that runs the tasks of its channel.
fn start_worker(
    node: &virtual_nodes::Node,
    rank: Arc<Rank>,
    receiver: Receiver<Work>,
) -> JoinHandle<()> {
    // A thread inherits the namespace of its creator.
    node.run(|| std::thread::spawn(move || receiver.into_iter().for_each(|work| work(&rank))))
}

impl World {
    /// Runs programs on communicators of their own, with as many rounds of all of them under way
    /// at once as the memory permits.
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
        Capabilities {
            joins: false,
            all_types: false,
            max_ranks: self.ranks.len() as u32,
            ..Capabilities::default()
        }
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
