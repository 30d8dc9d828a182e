//! The schedules that are measured.

use super::measure::{EXCHANGE_ROUNDS, LevelScheme};
use crate::harness::Error;
use collectives::neighbor::{Neighborhood, Topology, balanced_dimensions, neighbor_alltoall};
use collectives::{Algorithm, Tuning, alltoall, barrier, two_level};
use goal::arithmetic::{Arithmetic, DataType};
use goal::graph::{Access, Blocks, Graph, Vertex};
use std::num::NonZeroU32;

/// Round trips of one ping-pong: the cost of starting it is spread over them, as in section 3.1 of
/// the paper.
pub(super) const TRIPS: u32 = 16;
/// Operations of the long chain, and of the short one that is subtracted.
pub(super) const CHAINS: (u32, u32) = (224, 32);

/// Ranks 0 and 1 send a message to and fro; the others have nothing to do.
pub(super) fn ping_pong(rank: u32, ranks: u32, bytes: u64) -> Graph {
    let mut graph = Graph::new(rank, ranks);
    let block = graph.buffer(Access::InOut, bytes);
    let mut last = None;
    for leg in 0..2 * TRIPS {
        let vertex = match (rank, leg % 2) {
            (0, 0) | (1, 1) => graph.send(block, 1 - rank, 0),
            (0 | 1, _) => graph.receive(block, 1 - rank, 0),
            _ => continue,
        };
        after(&mut graph, vertex, last);
        last = Some(vertex);
    }
    graph
}

/// In every round each rank sends to the next and receives from the previous one; a round begins
/// when both messages of the one before have passed. A barrier of two ranks has one such round.
pub(super) fn exchange(rank: u32, ranks: u32, bytes: u64) -> Graph {
    let mut graph = Graph::new(rank, ranks);
    let out = graph.buffer(Access::Input, bytes);
    let back = graph.buffer(Access::Output, bytes);
    let mut before: Option<(Vertex, Vertex)> = None;
    for _ in 0..EXCHANGE_ROUNDS {
        let send = graph.send(out, (rank + 1) % ranks, 0);
        let receive = graph.receive(back, (rank + ranks - 1) % ranks, 0);
        if let Some((sent, received)) = before {
            for vertex in [send, receive] {
                graph.requires(vertex, sent);
                graph.requires(vertex, received);
            }
        }
        before = Some((send, receive));
    }
    graph
}

/// Rank 0 sends an empty message to rank 1.
pub(super) fn one_send(rank: u32, ranks: u32) -> Graph {
    let mut graph = Graph::new(rank, ranks);
    match rank {
        0 => drop(graph.send(empty(), 1, 0)),
        1 => drop(graph.receive(empty(), 0, 0)),
        _ => {}
    }
    graph
}

/// A block without bytes.
fn empty() -> Blocks {
    Blocks::none()
}

/// Additions of one number, each after the one before.
pub(super) fn chain(rank: u32, ranks: u32, operations: u32) -> Graph {
    let mut graph = Graph::new(rank, ranks);
    let number = graph.buffer(Access::InOut, 8);
    let one = graph.buffer(Access::Input, 8);
    let mut last = None;
    for _ in 0..operations {
        let vertex = graph.local(Arithmetic::Add, DataType::U64, number, one, number);
        after(&mut graph, vertex, last);
        last = Some(vertex);
    }
    graph
}

/// The greater of two vectors, element by element, `times` times.
pub(super) fn reduction(rank: u32, ranks: u32, bytes: u64, times: u32) -> Graph {
    let mut graph = Graph::new(rank, ranks);
    let left = graph.buffer(Access::InOut, bytes);
    let right = graph.buffer(Access::Input, bytes);
    let mut last = None;
    for _ in 0..times {
        let vertex = graph.local(Arithmetic::Maximum, DataType::F32, left, right, left);
        after(&mut graph, vertex, last);
        last = Some(vertex);
    }
    graph
}

/// A barrier of all ranks.
pub(super) fn barrier(rank: u32, ranks: u32) -> Result<Graph, Error> {
    Ok(barrier::graph(Algorithm::Dissemination, rank, ranks)?)
}

/// Each rank has a block for each rank.
pub(super) fn alltoall(
    rank: u32,
    ranks: u32,
    per_node: NonZeroU32,
    bytes: u64,
    form: LevelScheme,
) -> Result<Graph, Error> {
    let in_one_level =
        |algorithm: Algorithm| alltoall::graph(algorithm, rank, ranks, bytes, Tuning::default());
    Ok(match form {
        LevelScheme::Bruck => in_one_level(Algorithm::Bruck)?,
        LevelScheme::Direct => in_one_level(Algorithm::RotatedDirect)?,
        LevelScheme::TwoLevels => {
            two_level::alltoall(rank, ranks, per_node, bytes, Algorithm::RotatedDirect)?
        }
    })
}

/// Each rank has a block for each neighbour on a torus of two dimensions.
pub(super) fn torus(
    rank: u32,
    ranks: u32,
    per_node: NonZeroU32,
    bytes: u64,
    form: LevelScheme,
) -> Result<Graph, Error> {
    let dimensions = balanced_dimensions(ranks, 2)?;
    let own = |rank| Neighborhood::cartesian(&dimensions, &[true, true], rank);
    Ok(match form {
        LevelScheme::Bruck | LevelScheme::Direct => neighbor_alltoall(&own(rank)?, bytes)?,
        LevelScheme::TwoLevels => {
            let topology = Topology::new(&(0..ranks).map(own).collect::<Result<Vec<_>, _>>()?)?;
            let nodes: Vec<u32> = (0..ranks).map(|rank| rank / per_node.get()).collect();
            two_level::neighbor_alltoall(rank, &topology, &nodes, bytes)?
        }
    })
}

fn after(graph: &mut Graph, vertex: Vertex, before: Option<Vertex>) {
    if let Some(before) = before {
        graph.requires(vertex, before);
    }
}
