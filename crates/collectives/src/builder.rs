//! The builder of one rank's graph.

mod data_flow;

use crate::blocks::Parts;
use crate::builder::data_flow::DataFlow;
use crate::member::Member;
use crate::{CollectiveError, Reduction, Sizes};
use goal::graph::{Access, Block, Blocks, Graph, JoinMode, Operation, Vertex};

/// Builder of one rank's graph. Algorithms add operations in program order; the edges follow from
/// the bytes that operations read and write. Ranks are positions in the current group of ranks,
/// which is all ranks outside of [`within`](Self::within).
#[derive(Debug)]
pub(crate) struct GraphBuilder {
    graph: Graph,
    flow: DataFlow,
    group: Group,
    /// Empty messages received since the last one was sent.
    signals_received: Vec<Vertex>,
    /// The last empty message sent.
    last_signal: Option<Vertex>,
}

/// Some of the ranks: every `stride`-th from `first` on, except that one of them may be another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub(crate) first: u32,
    pub(crate) stride: u32,
    pub(crate) count: u32,
    /// The rank at this position is this one instead.
    pub(crate) replaced: Option<(u32, u32)>,
    /// The position of the graph's rank.
    pub(crate) position: u32,
}

impl Group {
    /// The rank at a position.
    fn rank(self, position: u32) -> u32 {
        match self.replaced {
            Some((replaced, rank)) if replaced == position => rank,
            _ => self.first + self.stride * position,
        }
    }
}

impl GraphBuilder {
    pub(crate) fn new(rank: u32, ranks: u32) -> Result<Self, CollectiveError> {
        let graph = Member::new(rank, ranks)?.graph();
        let group = Group { first: 0, stride: 1, count: ranks, replaced: None, position: rank };
        Ok(GraphBuilder {
            graph,
            flow: DataFlow::default(),
            group,
            signals_received: Vec::new(),
            last_signal: None,
        })
    }

    pub(crate) fn finish(self) -> Graph {
        self.graph
    }

    /// Returns the rank of the graph, by its position in the group.
    pub(crate) fn member(&self) -> Member {
        Member::at(self.group.position, self.group.count)
    }

    /// Adds operations among the ranks of a group that contains this rank.
    pub(crate) fn within<T>(&mut self, group: Group, build: impl FnOnce(&mut Self) -> T) -> T {
        let outer = std::mem::replace(&mut self.group, group);
        let result = build(self);
        self.group = outer;
        result
    }

    /// Declares the next user buffer.
    pub(crate) fn buffer(&mut self, access: Access, bytes: u64) -> Block {
        self.graph.buffer(access, bytes)
    }

    /// Declares a user buffer of a block for each rank.
    pub(crate) fn parts(&mut self, access: Access, sizes: &Sizes) -> Parts {
        Parts::new(self.graph.buffer(access, sizes.total()), sizes)
    }

    /// Allocates a block of the scratchpad.
    pub(crate) fn scratchpad(&mut self, bytes: u64) -> Result<Block, CollectiveError> {
        let block = self.graph.scratchpad(bytes);
        // The graph counts its scratchpad saturating: at the limit, blocks would share bytes.
        if self.graph.scratchpad_bytes() == u64::MAX {
            return Err(CollectiveError::TooManyBytes { what: "the scratchpad", count: 1, bytes });
        }
        Ok(block)
    }

    pub(crate) fn send(&mut self, data: impl Into<Blocks>, to: u32, tag: u32) -> Vertex {
        self.add(Operation::Send { data: data.into(), peer: self.group.rank(to), tag })
    }

    pub(crate) fn receive(&mut self, data: impl Into<Blocks>, from: u32, tag: u32) -> Vertex {
        self.add(Operation::Receive {
            data: data.into(),
            source: Some(self.group.rank(from)),
            tag: Some(tag),
        })
    }

    pub(crate) fn copy(
        &mut self,
        source: impl Into<Blocks>,
        destination: impl Into<Blocks>,
    ) -> Vertex {
        self.add(Operation::Copy { source: source.into(), destination: destination.into() })
    }

    /// destination = left ∘ right; the destination may be one of the two.
    pub(crate) fn combine(
        &mut self,
        reduction: Reduction,
        left: Block,
        right: Block,
        destination: Block,
    ) -> Vertex {
        let Reduction { operation, data_type } = reduction;
        let left = left.into();
        let right = right.into();
        let destination = destination.into();
        self.add(Operation::Local { operation, data_type, left, right, destination })
    }

    /// Adds a join of all ranks.
    pub(crate) fn join(
        &mut self,
        mode: JoinMode,
        contribution: impl Into<Blocks>,
        result: impl Into<Blocks>,
    ) -> Vertex {
        self.add(Operation::Join { mode, contribution: contribution.into(), result: result.into() })
    }

    /// Receives an empty message; every later [`send_signal`](Self::send_signal) waits for it.
    pub(crate) fn receive_signal(&mut self, from: u32, tag: u32) {
        let receive = self.receive(Blocks::none(), from, tag);
        self.signals_received.push(receive);
    }

    /// Sends an empty message once all signals to this rank so far have arrived.
    pub(crate) fn send_signal(&mut self, to: u32, tag: u32) {
        let send = self.send(Blocks::none(), to, tag);
        for received in std::mem::take(&mut self.signals_received) {
            self.requires(send, received);
        }
        // The previous signal starts only after everything it waits for is complete, so its
        // start implies those arrivals as well; messages from different ranks may overtake.
        if let Some(previous) = self.last_signal.replace(send) {
            self.graph.irequires(send, previous);
        }
    }

    /// Adds an edge that does not follow from bytes.
    pub(crate) fn requires(&mut self, after: Vertex, before: Vertex) {
        self.graph.requires(after, before);
    }

    /// `after` waits until `before` has started.
    pub(crate) fn irequires(&mut self, after: Vertex, before: Vertex) {
        self.graph.irequires(after, before);
    }

    fn add(&mut self, operation: Operation) -> Vertex {
        let vertex = Vertex(self.graph.vertices().len() as u32);
        let none = Blocks::none();
        let awaited = match &operation {
            Operation::Send { data, .. } => self.flow.note(vertex, &[data], &none),
            Operation::Receive { data, .. } => self.flow.note(vertex, &[], data),
            Operation::Copy { source, destination } => {
                self.flow.note(vertex, &[source], destination)
            }
            Operation::Local { left, right, destination, .. } => {
                self.flow.note(vertex, &[left, right], destination)
            }
            Operation::Join { contribution, result, .. } => {
                self.flow.note(vertex, &[contribution], result)
            }
            Operation::Timestamp { .. } | Operation::Calc { .. } => Default::default(),
        };
        self.graph.add(operation);
        for before in awaited {
            self.graph.requires(vertex, before);
        }
        vertex
    }
}
