//! Allreduce: every rank gets all ranks' contributions combined, and all get the same bits.

use crate::CollectiveError;
use crate::blocks::Row;
use crate::member::{Member, doublings};
use goal::arithmetic::{Arithmetic, DataType};
use goal::graph::{Access, Block, Graph, JoinMode, Vertex};

algorithms! {
    "allreduce",
    /// [`recursive_doubling`].
    RecursiveDoubling = "recursive-doubling",
    /// [`join`].
    Join = "join",
}

impl Algorithm {
    /// The graph that this algorithm draws; `bytes` is the size of a contribution.
    ///
    /// # Errors
    /// As the algorithm's function.
    pub fn graph(
        self,
        rank: u32,
        ranks: u32,
        bytes: u64,
        operation: Arithmetic,
        data_type: DataType,
    ) -> Result<Graph, CollectiveError> {
        match self {
            Algorithm::RecursiveDoubling => recursive_doubling(rank, ranks, bytes, operation, data_type),
            Algorithm::Join => join(rank, ranks, bytes, operation, data_type),
        }
    }
}

/// In round k partners 2^k apart exchange what they have so far and both combine it. ⌊log₂ ranks⌋ rounds, and two
/// messages more on some ranks when the number of ranks is not a power of two.
///
/// Thakur, Rabenseifner, Gropp: "Optimization of Collective Communication Operations in MPICH", International Journal
/// of High Performance Computing Applications 19(1), 2005: recursive doubling, and its way with other numbers of ranks:
/// among the first ranks, as many pairs as there are ranks too many fold into one rank each, which gives the result back.
///
/// What a rank holds is always the combination of a run of consecutive ranks, and of two such runs the lower is the left
/// operand. Both partners therefore compute the same expression, and all ranks end with the same bits whatever the order
/// of arrival; a floating-point result depends on the number of ranks alone.
///
/// # Errors
/// [`CollectiveError::RankOutOfRange`], [`CollectiveError::NotWholeElements`], [`CollectiveError::NotApplicable`],
/// [`CollectiveError::NotAssociative`] for subtraction and division, [`CollectiveError::TooManyBytes`].
///
/// ```
/// use goal::arithmetic::{Arithmetic, DataType};
///
/// // Rank 0 of 3 hands its contribution to rank 1 and gets the result from there.
/// let graph = collectives::allreduce::recursive_doubling(0, 3, 8, Arithmetic::Add, DataType::F64)?;
/// assert_eq!(graph.vertices().len(), 2);
/// # Ok::<(), collectives::CollectiveError>(())
/// ```
pub fn recursive_doubling(
    rank: u32,
    ranks: u32,
    bytes: u64,
    operation: Arithmetic,
    data_type: DataType,
) -> Result<Graph, CollectiveError> {
    let member = Member::new(rank, ranks)?;
    reducible(bytes, operation, data_type)?;
    if matches!(operation, Arithmetic::Subtract | Arithmetic::Divide) {
        return Err(CollectiveError::NotAssociative { operation, algorithm: Algorithm::RecursiveDoubling.name() });
    }
    let mut graph = member.graph();
    let input = graph.buffer(Access::Input, bytes);
    let output = graph.buffer(Access::Output, bytes);
    if ranks == 1 {
        graph.copy(input, output);
        return Ok(graph);
    }
    let folding = Folding::new(ranks);
    match folding.role(rank) {
        Role::Folded { into } => {
            graph.send(input, into, FOLD);
            graph.receive(output, into, FOLD);
        }
        Role::Core { position, folded } => {
            let mut reduction = Reduction { graph, operation, data_type, output, held: input, ready: None };
            reduction.core(folding, position, folded)?;
            graph = reduction.graph;
        }
    }
    Ok(graph)
}

/// All ranks meet in one join vertex that folds their contributions from the left in rank order.
///
/// # Errors
/// [`CollectiveError::RankOutOfRange`], [`CollectiveError::NotWholeElements`], [`CollectiveError::NotApplicable`].
///
/// ```
/// use goal::arithmetic::{Arithmetic, DataType};
///
/// let graph = collectives::allreduce::join(0, 3, 8, Arithmetic::Add, DataType::F64)?;
/// assert_eq!(graph.vertices().len(), 1);
/// # Ok::<(), collectives::CollectiveError>(())
/// ```
pub fn join(
    rank: u32,
    ranks: u32,
    bytes: u64,
    operation: Arithmetic,
    data_type: DataType,
) -> Result<Graph, CollectiveError> {
    let member = Member::new(rank, ranks)?;
    reducible(bytes, operation, data_type)?;
    let mut graph = member.graph();
    let input = graph.buffer(Access::Input, bytes);
    let output = graph.buffer(Access::Output, bytes);
    graph.join(JoinMode::Reduce { operation, data_type }, input, output);
    Ok(graph)
}

fn reducible(bytes: u64, operation: Arithmetic, data_type: DataType) -> Result<(), CollectiveError> {
    if !operation.applies_to(data_type) {
        return Err(CollectiveError::NotApplicable { operation, data_type });
    }
    if !bytes.is_multiple_of(data_type.bytes() as u64) {
        return Err(CollectiveError::NotWholeElements { bytes, data_type });
    }
    Ok(())
}

/// The tag of messages between a folded rank and the one it folds into; rounds have the tags from 1.
const FOLD: u32 = 0;

/// How the ranks become a power of two: of the first 2 × `pairs` ranks the even ones fold into the odd ones.
#[derive(Clone, Copy)]
struct Folding {
    /// The largest power of two that is not above the number of ranks.
    core: u32,
    pairs: u32,
}

/// What a rank does in [`recursive_doubling`].
enum Role {
    /// Hands its contribution to another rank and gets the result back.
    Folded { into: u32 },
    /// Takes part in the rounds at this position, for the folded rank, too, if there is one.
    Core { position: u32, folded: Option<u32> },
}

impl Folding {
    /// For at least one rank.
    fn new(ranks: u32) -> Self {
        let core = 1 << ranks.ilog2();
        Folding { core, pairs: ranks - core }
    }

    fn role(self, rank: u32) -> Role {
        if rank / 2 >= self.pairs {
            Role::Core { position: rank - self.pairs, folded: None }
        } else if rank.is_multiple_of(2) {
            Role::Folded { into: rank + 1 }
        } else {
            Role::Core { position: rank / 2, folded: Some(rank - 1) }
        }
    }

    /// The rank at a position of the core; positions keep the order of ranks.
    fn rank(self, position: u32) -> u32 {
        if position < self.pairs { 2 * position + 1 } else { position + self.pairs }
    }
}

/// The graph of a rank in the core, while it is drawn.
struct Reduction {
    graph: Graph,
    operation: Arithmetic,
    data_type: DataType,
    output: Block,
    /// What the rank has combined so far.
    held: Block,
    /// What put it there; none for the input.
    ready: Option<Vertex>,
}

impl Reduction {
    fn core(&mut self, folding: Folding, position: u32, folded: Option<u32>) -> Result<(), CollectiveError> {
        // What is not yet the result stays in the scratchpad, so that an engine needs the output only at the very end.
        let single_step = folding.core == 2 && folded.is_none();
        let partial = if single_step { self.output } else { self.scratchpad()? };
        if let Some(folded) = folded {
            let theirs = self.receive(folded, FOLD)?;
            self.combine(theirs, Side::Left, None, partial);
        }
        for (round, distance) in doublings(folding.core).enumerate() {
            let (partner, tag) = (folding.rank(position ^ distance), round as u32 + 1);
            let theirs = self.receive(partner, tag)?;
            let send = self.send(partner, tag);
            let side = if position & distance == 0 { Side::Right } else { Side::Left };
            let last = distance == folding.core / 2;
            self.combine(theirs, side, Some(send), if last { self.output } else { partial });
        }
        if let Some(folded) = folded {
            self.send(folded, FOLD);
        }
        Ok(())
    }

    /// Receives a partner's part into memory of its own: the receive depends on nothing and can be posted at once.
    fn receive(&mut self, partner: u32, tag: u32) -> Result<(Block, Vertex), CollectiveError> {
        let block = self.scratchpad()?;
        Ok((block, self.graph.receive(block, partner, tag)))
    }

    fn scratchpad(&mut self) -> Result<Block, CollectiveError> {
        Ok(Row::scratchpad(&mut self.graph, 1, self.output.length)?.all())
    }

    fn send(&mut self, partner: u32, tag: u32) -> Vertex {
        let send = self.graph.send(self.held, partner, tag);
        if let Some(ready) = self.ready {
            self.graph.requires(send, ready);
        }
        send
    }

    /// destination = what is held ∘ theirs, with theirs on the given side.
    fn combine(&mut self, theirs: (Block, Vertex), side: Side, send: Option<Vertex>, destination: Block) {
        let (block, receive) = theirs;
        let (left, right) = match side {
            Side::Left => (block, self.held),
            Side::Right => (self.held, block),
        };
        let local = self.graph.local(self.operation, self.data_type, left, right, destination);
        self.graph.requires(local, receive);
        // Overwriting what is still being sent must wait for the send, which itself waits until it was there.
        let other = if destination == self.held { send } else { self.ready };
        if let Some(other) = other {
            self.graph.requires(local, other);
        }
        (self.held, self.ready) = (destination, Some(local));
    }
}

/// The side of an operand.
enum Side {
    Left,
    Right,
}
