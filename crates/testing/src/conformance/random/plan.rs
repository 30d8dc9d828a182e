//! Abstract form of a random program, which proptest generates and shrinks.

use crate::conformance::engine::Capabilities;
use goal::arithmetic::{Arithmetic, DataType};
use proptest::collection::vec;
use proptest::prelude::*;

/// Largest number of ranks of a random program.
const RANKS: u32 = 6;
/// Largest number of steps.
const STEPS: usize = 48;

/// Random program before its layout. A selector is a number; its remainder is the index of the
/// selected element.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Number of ranks.
    pub ranks: u32,
    /// Bytes of a slot, the unit in which memory is used; a multiple of 16, and at least 8 for each
    /// rank.
    pub slot: u64,
    /// Steps in their global order.
    pub steps: Vec<Step>,
    /// Seed of the shuffle of vertex order; 0 for none.
    pub shuffle: u64,
    /// Seed of the buffers' contents.
    pub seed: u64,
    /// Number of rounds to run.
    pub rounds: u64,
}

/// Step, with selectors of its ranks and memory.
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
        /// Selects its length, up to three slots.
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
        /// Operation; divisions of integers become additions, since random divisors are often zero.
        operation: Arithmetic,
        /// Type; an operation that does not apply to it becomes one that does.
        data_type: DataType,
        /// Operand that is the destination: left (1) or right (2).
        in_place: u8,
        /// True for two slots.
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
    /// A join of all ranks.
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

/// Edge that no use of memory requires.
#[derive(Clone, Copy, Debug)]
pub struct ExtraEdge {
    /// Selects an earlier operation of the rank.
    pub before: u32,
    /// True if its start suffices.
    pub started: bool,
}

/// Returns plans within an engine's capabilities.
pub fn plans(capabilities: &Capabilities) -> impl Strategy<Value = Plan> + use<> {
    let slots = prop_oneof![6 => Just(48u64), 3 => Just(112), 2 => Just(1008), 1 => Just(9008), 1 => Just(30_000)];
    let ranks = 1..=capabilities.max_ranks.clamp(1, RANKS);
    let steps = vec(step(capabilities), 0..STEPS);
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

fn step(capabilities: &Capabilities) -> impl Strategy<Value = Step> + use<> {
    let rank = || 0..RANKS;
    let memory = || 0..1000u32;
    let operation = || prop::sample::select(Arithmetic::ALL.to_vec());
    let Capabilities { joins, all_types, .. } = *capabilities;
    let types = DataType::ALL.into_iter().filter(|one| all_types || one.is_basic());
    let types: Vec<_> = types.collect();
    let data_type = || prop::sample::select(types.clone());
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
