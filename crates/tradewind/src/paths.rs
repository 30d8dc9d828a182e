//! Execution paths through the schedules of graphs: cached, or made now.

use crate::communicator::Communicator;
use crate::error::Result;
use crate::internode::group::InternodeGroup;
use crate::internode::schedule::InternodeSchedule;
use crate::internode::unattended;
use crate::link_key::LinkKey;
use crate::path::ExecutionPath;
use engine::signature::Signature;
use goal::compile::compile;
use goal::graph::Graph;
use models::machine_file::Engine;
use std::sync::Arc;

impl Communicator {
    /// The path of a collective through a schedule: cached, or built and linked now. `build` builds
    /// the graph of any rank, so that linking on one node waits for no rank.
    pub(crate) fn path(
        &self,
        key: LinkKey,
        build: impl Fn(u32) -> Result<Graph>,
    ) -> Result<ExecutionPath> {
        let call = key.call;
        let engine = key.engine;
        self.cached_path(key, || {
            if let Some(internode) = self.internode() {
                let needs_no_thread = unattended::is_unattended(internode, &build)?;
                let graph = build(self.rank())?;
                return self.register(internode, &graph, call, engine, needs_no_thread);
            }
            let compiled = |rank| Ok(compile(&build(rank)?)?);
            let schedules = (0..self.size()).map(compiled).collect::<Result<Vec<_>>>()?;
            Ok(ExecutionPath::Linked(self.group().link_all(schedules, call)?))
        })
    }

    /// As [`path`](Self::path), between nodes, for a graph that only its own rank can build and that
    /// is looked up by all ranks.
    pub(crate) fn path_of_own_graph(
        &self,
        internode: &Arc<InternodeGroup>,
        key: LinkKey,
        build: impl FnOnce() -> Result<Graph>,
    ) -> Result<ExecutionPath> {
        let call = key.call;
        let engine = key.engine;
        self.cached_path(key, || self.register(internode, &build()?, call, engine, false))
    }

    /// As [`path_of_own_graph`](Self::path_of_own_graph), for sizes that only some ranks have. Waits
    /// for no rank: each registers its own part when its own sizes are new. `has_one_step` is true if,
    /// on every rank, a run sends all its messages at its start.
    pub(crate) fn path_of_own_sizes(
        &self,
        internode: &Arc<InternodeGroup>,
        key: LinkKey,
        has_one_step: bool,
        build: impl FnOnce() -> Result<Graph>,
    ) -> Result<ExecutionPath> {
        let call = key.call;
        self.cached_path_of_own_sizes(key, || {
            let schedule = compile(&build()?)?;
            Ok(ExecutionPath::Internode(InternodeSchedule::register_alone(
                internode,
                &schedule,
                call,
                has_one_step,
            )?))
        })
    }

    /// Compiles a graph and links it with those of the other ranks; between nodes it registers the
    /// graph with a backend: that of the engine, or the preferred one that accepts it.
    pub(crate) fn link(
        &self,
        graph: &Graph,
        call: Signature,
        engine: Option<Engine>,
    ) -> Result<ExecutionPath> {
        match self.internode() {
            None => Ok(ExecutionPath::Linked(self.group().link(&compile(graph)?, call)?)),
            Some(internode) => self.register(internode, graph, call, engine, false),
        }
    }

    fn register(
        &self,
        internode: &Arc<InternodeGroup>,
        graph: &Graph,
        call: Signature,
        engine: Option<Engine>,
        needs_no_thread: bool,
    ) -> Result<ExecutionPath> {
        let registered = self.register_graph(internode, graph, call, engine, needs_no_thread)?;
        Ok(ExecutionPath::Internode(registered))
    }
}
