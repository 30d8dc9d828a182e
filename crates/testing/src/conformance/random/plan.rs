//! The abstract form of a random program, which proptest makes and makes smaller.

use crate::conformance::engine::Capabilities;
use goal::arithmetic::{Arithmetic, DataType};
use proptest::collection::vec;
use proptest::prelude::*;

/// The largest number of ranks of a random program.
const RANKS: u32 = 6;
/// The largest number of steps.
const STEPS: usize = 48;

/// A random program before it is laid out. Selectors are numbers of which a remainder chooses among
/// what there is.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many ranks take part.
    pub ranks: u32,
    /// Bytes of a slot, the unit in which memory is used; a multiple of 8, and at least 8 for each
    /// rank.
    pub slot: u64,
    /// What happens.
    pub steps: Vec<Step>,
    /// Shuffles vertex order; 0 leaves it as it is.
    pub shuffle: u64,
    /// Chooses the bytes.
    pub seed: u64,
    /// How many rounds to run.
    pub rounds: u64,
}

/// One thing that happens, with the selectors that say where.
#[derive(Clone, Debug)]
pub enum Step {
    /// A message.
    Message {
        /// Selects the sender.
        from: u32,
        /// Selects the receiver.
        to: u32,
        /// The tag.
        tag: u32,
        /// Selects its length among those that up to three slots hold.
        length: u64,
        /// Selects memory on both sides.
        memory: [u32; 2],
        /// Edges of send and receive.
        edges: [Vec<ExtraEdge>; 2],
    },
    /// A local operation on one or two slots.
    Local {
        /// Selects the rank.
        rank: u32,
        /// What is computed; divisions of integers become additions, since chance likes to divide
        /// by zero.
        operation: Arithmetic,
        /// On what; bitwise operations on floating-point numbers become maxima.
        data_type: DataType,
        /// Whether the destination is the left (1) or right (2) operand.
        in_place: u8,
        /// Whether there are two slots.
        double: bool,
        /// Selects memory.
        memory: [u32; 3],
        /// Edges of the operation.
        edges: Vec<ExtraEdge>,
    },
    /// A copy between lists cut at different places.
    Copy {
        /// Selects the rank.
        rank: u32,
        /// Selects the length.
        length: u64,
        /// Selects memory.
        memory: [u32; 2],
        /// Edges of the copy.
        edges: Vec<ExtraEdge>,
    },
    /// A computation.
    Calc {
        /// Selects the rank.
        rank: u32,
        /// Its length.
        nanoseconds: u64,
        /// Edges of the computation.
        edges: Vec<ExtraEdge>,
    },
    /// All ranks meet.
    Join {
        /// Selects the mode, and the root of a broadcast.
        mode: u32,
        /// The operation of a reduction, with the same exceptions as for local operations.
        operation: Arithmetic,
        /// Its type.
        data_type: DataType,
        /// Selects memory on every rank.
        memory: u32,
        /// Edges on every rank.
        edges: Vec<ExtraEdge>,
    },
}

/// An edge that no use of memory calls for.
#[derive(Clone, Copy, Debug)]
pub struct ExtraEdge {
    /// Selects an earlier operation of the rank.
    pub before: u32,
    /// Whether its start is enough.
    pub started: bool,
}

/// Plans within an engine's capabilities.
pub fn plans(capabilities: &Capabilities) -> impl Strategy<Value = Plan> + use<> {
    let slots = prop_oneof![6 => Just(48u64), 3 => Just(104), 2 => Just(1000), 1 => Just(9000), 1 => Just(30_000)];
    let ranks = 1..=capabilities.max_ranks.clamp(1, RANKS);
    let steps = vec(step(capabilities.joins), 0..STEPS);
    (ranks, slots, steps, any::<u64>(), any::<u64>(), 2..=4u64).prop_map(
        |(ranks, slot, steps, shuffle, seed, rounds)| Plan {
            ranks,
            slot,
            steps,
            shuffle,
            seed,
            rounds,
        },
    )
}

fn step(joins: bool) -> impl Strategy<Value = Step> {
    let rank = || 0..RANKS;
    let memory = || 0..1000u32;
    let operation = || prop::sample::select(Arithmetic::ALL.to_vec());
    let data_type = || prop::sample::select(DataType::ALL.to_vec());
    let length = || any::<u64>();
    let message = (rank(), rank(), 0..3u32, length(), [memory(), memory()], [edges(), edges()])
        .prop_map(|(from, to, tag, length, memory, edges)| Step::Message {
            from,
            to,
            tag,
            length,
            memory,
            edges,
        });
    let local = (
        (rank(), operation(), data_type()),
        (0..3u8, any::<bool>(), [memory(), memory(), memory()], edges()),
    )
        .prop_map(|((rank, operation, data_type), (in_place, double, memory, edges))| {
            Step::Local { rank, operation, data_type, in_place, double, memory, edges }
        });
    let copy = (rank(), length(), [memory(), memory()], edges())
        .prop_map(|(rank, length, memory, edges)| Step::Copy { rank, length, memory, edges });
    let calc = (rank(), 0..2000u64, edges()).prop_map(|(rank, nanoseconds, edges)| Step::Calc {
        rank,
        nanoseconds,
        edges,
    });
    let join = (0..30u32, operation(), data_type(), memory(), edges()).prop_map(
        |(mode, operation, data_type, memory, edges)| Step::Join {
            mode,
            operation,
            data_type,
            memory,
            edges,
        },
    );
    prop_oneof![
        10 => message,
        5 => local,
        3 => copy,
        1 => calc,
        if joins { 2 } else { 0 } => join,
    ]
}

fn edges() -> impl Strategy<Value = Vec<ExtraEdge>> {
    vec(
        (0..1000u32, any::<bool>()).prop_map(|(before, started)| ExtraEdge { before, started }),
        0..3,
    )
}
