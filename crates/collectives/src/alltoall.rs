//! All-to-all: rank r's block for rank s becomes rank s's block from rank r.

use crate::CollectiveError;
use crate::blocks::{Row, merged};
use crate::member::Member;
use goal::graph::{Access, Block, Graph, JoinMode, Vertex};
use std::collections::BTreeSet;

algorithms! {
    "alltoall",
    /// [`bruck`].
    Bruck = "bruck",
    /// [`rotated_direct`].
    RotatedDirect = "rotated-direct",
    /// [`join`].
    Join = "join",
}

impl Algorithm {
    /// The graph that this algorithm draws; `bytes` is the size of one block.
    ///
    /// # Errors
    /// As the algorithm's function.
    pub fn graph(self, rank: u32, ranks: u32, bytes: u64) -> Result<Graph, CollectiveError> {
        match self {
            Algorithm::Bruck => bruck(rank, ranks, bytes),
            Algorithm::RotatedDirect => rotated_direct(rank, ranks, bytes),
            Algorithm::Join => join(rank, ranks, bytes),
        }
    }
}

/// Where a block lies at this stage of [`bruck`].
#[derive(Clone, Copy)]
struct Place {
    block: Block,
    /// What brought it there; none for a block that has not moved yet.
    arrival: Option<Vertex>,
}

/// Blocks travel by powers of two: in round k all blocks whose remaining way contains 2^k move 2^k ranks on, packed
/// into one message. ⌈log₂ ranks⌉ messages a rank, each of about half the blocks of `bytes` bytes; for small blocks.
///
/// Bruck, Ho, Kipnis, Upfal, Weathersby: "Efficient Algorithms for All-to-All Communications in Multiport
/// Message-Passing Systems", IEEE Transactions on Parallel and Distributed Systems 8(11), 1997: the index algorithm,
/// with radix 2 and one port. Its first and last phases, a rotation of all blocks by the rank and the inverse, cost
/// nothing here: scatter/gather lists name each block where the input has it and where the output wants it. Only blocks
/// that travel on wait in the scratchpad, each time in a place of its own, so that all receives can be posted at once.
///
/// # Errors
/// [`CollectiveError::RankOutOfRange`], [`CollectiveError::TooManyBytes`].
///
/// ```
/// let graph = collectives::alltoall::bruck(0, 8, 16)?;
/// assert_eq!(graph.vertices().len(), 7); // a copy, three sends, three receives
/// # Ok::<(), collectives::CollectiveError>(())
/// ```
pub fn bruck(rank: u32, ranks: u32, bytes: u64) -> Result<Graph, CollectiveError> {
    let member = Member::new(rank, ranks)?;
    let mut graph = member.graph();
    let (input, output) = buffers(&mut graph, ranks, bytes)?;
    graph.copy(input.at(rank), output.at(rank));
    // A block is known by how many ranks it travels in all, which is also what tells the rounds in which it moves.
    let mut places: Vec<Place> =
        (0..ranks).map(|way| Place { block: input.at(member.after(way)), arrival: None }).collect();
    for (round, distance) in member.doublings().enumerate() {
        let moving: Vec<u32> = (0..ranks).filter(|way| way & distance != 0).collect();
        let (finished, travelling): (Vec<u32>, Vec<u32>) = moving.iter().partition(|way| **way / 2 < distance);
        let waiting = Row::scratchpad(&mut graph, travelling.len() as u32, bytes)?;
        let destinations: Vec<Block> = (finished.iter().map(|way| output.at(member.before(*way))))
            .chain((0..travelling.len() as u32).map(|index| waiting.at(index)))
            .collect();

        let packed = merged(moving.iter().map(|way| places[*way as usize].block));
        let send = graph.send(packed, member.after(distance), round as u32);
        let arrivals: BTreeSet<Vertex> = moving.iter().filter_map(|way| places[*way as usize].arrival).collect();
        for arrival in arrivals {
            graph.requires(send, arrival);
        }
        let unpacked = merged(destinations.iter().copied());
        let receive = graph.receive(unpacked, member.before(distance), round as u32);
        for (way, block) in moving.iter().zip(destinations) {
            places[*way as usize] = Place { block, arrival: Some(receive) };
        }
    }
    Ok(graph)
}

/// Step i sends to the rank i places further on and receives from the rank i places back, so that in each step every
/// rank is the destination of exactly one other. `ranks` − 1 messages of `bytes` bytes a rank, straight from input to
/// output; for large blocks.
///
/// Thakur, Rabenseifner, Gropp: "Optimization of Collective Communication Operations in MPICH", International Journal
/// of High Performance Computing Applications 19(1), 2005: the all-to-all for medium and long messages. No step waits
/// for another: an engine takes them in vertex order as far as it can.
///
/// # Errors
/// [`CollectiveError::RankOutOfRange`], [`CollectiveError::TooManyBytes`].
///
/// ```
/// let graph = collectives::alltoall::rotated_direct(0, 8, 65536)?;
/// assert_eq!(graph.vertices().len(), 15); // a copy, seven sends, seven receives
/// # Ok::<(), collectives::CollectiveError>(())
/// ```
pub fn rotated_direct(rank: u32, ranks: u32, bytes: u64) -> Result<Graph, CollectiveError> {
    const TAG: u32 = 0;
    let member = Member::new(rank, ranks)?;
    let mut graph = member.graph();
    let (input, output) = buffers(&mut graph, ranks, bytes)?;
    graph.copy(input.at(rank), output.at(rank));
    for step in 1..ranks {
        let (destination, source) = (member.after(step), member.before(step));
        graph.receive(output.at(source), source, TAG);
        graph.send(input.at(destination), destination, TAG);
    }
    Ok(graph)
}

/// All ranks meet in one join vertex that exchanges their blocks.
///
/// # Errors
/// [`CollectiveError::RankOutOfRange`], [`CollectiveError::TooManyBytes`].
///
/// ```
/// assert_eq!(collectives::alltoall::join(0, 8, 16)?.vertices().len(), 1);
/// # Ok::<(), collectives::CollectiveError>(())
/// ```
pub fn join(rank: u32, ranks: u32, bytes: u64) -> Result<Graph, CollectiveError> {
    let mut graph = Member::new(rank, ranks)?.graph();
    let (input, output) = buffers(&mut graph, ranks, bytes)?;
    graph.join(JoinMode::Exchange, input.all(), output.all());
    Ok(graph)
}

fn buffers(graph: &mut Graph, ranks: u32, bytes: u64) -> Result<(Row, Row), CollectiveError> {
    let input = Row::buffer(graph, Access::Input, ranks, bytes)?;
    Ok((input, Row::buffer(graph, Access::Output, ranks, bytes)?))
}
