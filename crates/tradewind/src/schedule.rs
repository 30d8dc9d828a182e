//! User-defined collectives: one graph a rank, compiled and linked once, run many times.

use crate::buffers::SharedBuffer;
use crate::communicator::Communicator;
use crate::error::Result;
use crate::error::argument;
use crate::path::ExecutionPath;
use crate::plan::check_memory;
use crate::request::{Outputs, Request};
use bytemuck::Pod;
use engine::argument::Argument;
use engine::signature::{CallKind, Signature};
use goal::graph::Graph;
use models::decision::CallForm;
use smallvec::SmallVec;

/// A linked user-defined schedule; made by [`Communicator::compile`].
///
/// It may be run in another scope than the one that made it: the schedule owns its temporary
/// memory, the scratchpad (Schneider et al. 2011, section 2.2).
///
/// ```
/// use tradewind::{Buffers, graph::{Access, Graph}};
/// # fn main() -> Result<(), tradewind::Error> {
/// tradewind::local(2, |world| {
///     let mut graph = Graph::new(world.rank(), world.size());
///     let mine = graph.buffer(Access::Input, 8);
///     let theirs = graph.buffer(Access::Output, 8);
///     graph.send(mine, 1 - world.rank(), 0);
///     graph.receive(theirs, 1 - world.rank(), 0);
///     let swap = world.compile(&graph)?;
///
///     let mut other = [0u64];
///     swap.run(Buffers::new().input(&[u64::from(world.rank())]).output(&mut other))?.wait()?;
///     assert_eq!(other, [1 - u64::from(world.rank())]);
///     Ok(())
/// })
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Schedule {
    communicator: Communicator,
    path: ExecutionPath,
}

impl Communicator {
    /// Compiles this rank's graph and links it with the graphs of the other ranks. A collective
    /// call that waits for all ranks.
    ///
    /// Between nodes nothing is linked. Graphs that do not match then fail when they run: a message
    /// has another length than its receive, or the run times out.
    ///
    /// # Errors
    /// Fails if the graph is invalid, the graphs do not match (every rank receives the list), or a
    /// rank is gone; between nodes, if the graph has a join.
    pub fn compile(&self, graph: &Graph) -> Result<Schedule> {
        let at = |what: &'static str, found: u32, expected: u32| {
            Err(argument(what, found.to_string(), format!("{expected}, as in the communicator")))
        };
        if graph.rank() != self.rank() {
            return at("the graph's rank", graph.rank(), self.rank());
        }
        if graph.ranks() != self.size() {
            return at("the graph's number of ranks", graph.ranks(), self.size());
        }
        let path = self.link(graph, Signature::new(CallKind::Schedule, 0, 0), None)?;
        Ok(Schedule { communicator: self.clone(), path })
    }
}

impl Schedule {
    /// Starts a run with these buffers, one for each that the graph declares, in that order. All
    /// ranks run the schedule. Never waits.
    ///
    /// # Errors
    /// Fails if the number of buffers or a length differs from the declaration.
    pub fn run<'a>(&self, buffers: Buffers<'a>) -> Result<Request<'a, Vec<SharedBuffer<u8>>>> {
        self.start(CallForm::Nonblocking, buffers)
    }

    /// Runs the schedule in blocking form with these buffers, and waits; returns the buffers of the
    /// segment. Between nodes a run may execute inside the ranks' calls, so all ranks
    /// use the same form.
    ///
    /// # Errors
    /// As [`run`](Self::run), and fails if a rank is gone.
    pub fn call(&self, buffers: Buffers<'_>) -> Result<Vec<SharedBuffer<u8>>> {
        self.start(CallForm::Blocking, buffers)?.wait()
    }

    /// Name of the engine that runs calls of a form: `peers` or `caller` on one node, else a
    /// backend between nodes.
    pub fn engine(&self, form: CallForm) -> &'static str {
        match &self.path {
            ExecutionPath::Internode(schedule) => schedule.backend_name(form),
            ExecutionPath::Flat(_) | ExecutionPath::Linked(_) => {
                self.communicator.group().engine().name()
            }
        }
    }

    fn start<'a>(
        &self,
        form: CallForm,
        mut buffers: Buffers<'a>,
    ) -> Result<Request<'a, Vec<SharedBuffer<u8>>>> {
        for entry in &mut buffers.entries {
            if let Entry::Shared(buffer) = entry {
                buffer.make_writable();
            }
        }
        let between_nodes = self.path.is_internode();
        let group = self.communicator.group();
        let suits = |entry: &Entry<'_>| match entry {
            Entry::Shared(buffer) => buffer.is_shared_with(group),
            Entry::Input(_) | Entry::Output(_) | Entry::InOut(_) => true,
        };
        check_memory(&self.path, buffers.entries.iter().all(suits))?;
        let argument = if between_nodes { Entry::contents } else { Entry::argument };
        let arguments: SmallVec<[Argument<'_>; 4]> = buffers.entries.iter().map(argument).collect();
        let pending = self.path.start(group, form, &arguments)?;
        drop(arguments);
        let mut outputs = Vec::new();
        let mut kept = Vec::new();
        for entry in buffers.entries {
            match entry {
                Entry::Output(private) | Entry::InOut(private) => outputs.push(Some(private)),
                Entry::Input(_) => outputs.push(Some(&mut [])),
                Entry::Shared(buffer) => {
                    outputs.push(if between_nodes { None } else { Some(&mut []) });
                    kept.push(buffer);
                }
            }
        }
        Ok(Request::new(&self.communicator, pending, Outputs::Many(outputs, bytes_of_all), kept))
    }
}

#[expect(clippy::ptr_arg, reason = "it is given what a request holds, and that is a vector")]
fn bytes_of_all(buffers: &mut Vec<SharedBuffer<u8>>) -> Vec<&mut [u8]> {
    buffers.iter_mut().map(|buffer| &mut **buffer).collect()
}

/// Buffers of a run, in the order in which the graph declares them.
#[derive(Debug, Default)]
pub struct Buffers<'a> {
    entries: SmallVec<[Entry<'a>; 4]>,
}

#[derive(Debug)]
enum Entry<'a> {
    Input(&'a [u8]),
    Output(&'a mut [u8]),
    InOut(&'a mut [u8]),
    Shared(SharedBuffer<u8>),
}

impl Entry<'_> {
    /// The contents, in private memory or in the segment.
    fn contents(&self) -> Argument<'_> {
        match self {
            Entry::Shared(buffer) => Argument::input(buffer),
            private => private.argument(),
        }
    }

    fn argument(&self) -> Argument<'_> {
        match self {
            Entry::Input(data) => Argument::input(data),
            Entry::InOut(data) => Argument::input(data),
            Entry::Output(data) => Argument::output(data.len() as u64),
            Entry::Shared(buffer) => buffer.place(),
        }
    }
}

impl<'a> Buffers<'a> {
    /// An empty list of buffers.
    pub fn new() -> Self {
        Buffers::default()
    }

    /// Adds a private buffer that the run reads.
    #[must_use]
    pub fn input<T: Pod>(mut self, data: &'a [T]) -> Self {
        self.entries.push(Entry::Input(bytemuck::cast_slice(data)));
        self
    }

    /// Adds a private buffer that the run writes; bytes that no operation writes keep their value.
    #[must_use]
    pub fn output<T: Pod>(mut self, data: &'a mut [T]) -> Self {
        self.entries.push(Entry::Output(bytemuck::cast_slice_mut(data)));
        self
    }

    /// Adds a private buffer that the run reads and writes.
    #[must_use]
    pub fn inout<T: Pod>(mut self, data: &'a mut [T]) -> Self {
        self.entries.push(Entry::InOut(bytemuck::cast_slice_mut(data)));
        self
    }

    /// Adds memory of the segment, used in place; [`Request::wait`] returns it, in order.
    #[must_use]
    pub fn shared(mut self, buffer: SharedBuffer<u8>) -> Self {
        self.entries.push(Entry::Shared(buffer));
        self
    }
}
