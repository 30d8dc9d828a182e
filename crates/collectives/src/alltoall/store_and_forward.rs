//! All-to-all by forwarding: blocks pass through other ranks, packed into few messages.

use crate::CollectiveError;
use crate::blocks::{Parts, merged};
use crate::builder::GraphBuilder;
use crate::row::Row;
use goal::graph::Block;

pub(super) fn bruck(
    builder: &mut GraphBuilder,
    bytes: u64,
    input: &Parts,
    output: &Parts,
) -> Result<(), CollectiveError> {
    let member = builder.member();
    let rank = member.rank();
    let ranks = member.ranks();
    builder.copy(input.at(rank), output.at(rank));
    // A block is identified by its total distance in ranks; the bits of the distance determine the
    // rounds in which it moves.
    let mut places: Vec<Block> = (0..ranks).map(|way| input.at(member.after(way))).collect();
    for (round, distance) in member.doublings().enumerate() {
        let moving: Vec<u32> = (0..ranks).filter(|way| way & distance != 0).collect();
        let is_last = |way: u32| way / 2 < distance;
        let mut waiting =
            Row::new(builder, moving.iter().filter(|way| !is_last(**way)).count(), bytes)?;
        let destination = |way: &u32| {
            if is_last(*way) { output.at(member.before(*way)) } else { waiting.next_block() }
        };
        let destinations: Vec<Block> = moving.iter().map(destination).collect();
        let packed = merged(moving.iter().map(|way| places[*way as usize]));
        builder.send(packed, member.after(distance), round as u32);
        builder.receive(
            merged(destinations.iter().copied()),
            member.before(distance),
            round as u32,
        );
        for (way, block) in moving.iter().zip(destinations) {
            places[*way as usize] = block;
        }
    }
    Ok(())
}

/// Ranks and blocks have coordinates in a grid of these extents. Before a rank's phase for a
/// dimension, the coordinates of a block that it holds say where the block comes from in the
/// dimensions that are done, and where it goes in the others; what they leave open are the rank's
/// own coordinates. So there is always one block for each place of the grid, and the phase swaps
/// those of one coordinate with those of the rank at that coordinate.
pub(super) fn multiphase(
    builder: &mut GraphBuilder,
    extents: &[u32],
    bytes: u64,
    input: &Parts,
    output: &Parts,
) -> Result<(), CollectiveError> {
    let member = builder.member();
    let rank = member.rank();
    let ranks = member.ranks();
    builder.copy(input.at(rank), output.at(rank));
    let mut places: Vec<Block> = (0..ranks).map(|index| input.at(index)).collect();
    let mut stride = 1;
    for (phase, extent) in extents.iter().enumerate() {
        let mut arrived = Vec::new();
        let coordinate = |index: u32| index / stride % extent;
        // A block moves no more when its coordinates in all later dimensions are the rank's own.
        let is_last = |index: u32| index / stride / extent == rank / stride / extent;
        for step in 1..*extent {
            let to = (coordinate(rank) + step) % extent;
            let from = (coordinate(rank) + extent - step) % extent;
            let peer = |other: u32| rank - coordinate(rank) * stride + other * stride;
            let at = |other: u32| (0..ranks).filter(move |index| coordinate(*index) == other);
            let packed = merged(at(to).map(|index| places[index as usize]));
            builder.send(packed, peer(to), phase as u32);
            let mut waiting =
                Row::new(builder, at(from).filter(|index| !is_last(*index)).count(), bytes)?;
            let destinations: Vec<Block> = at(from)
                .map(|index| if is_last(index) { output.at(index) } else { waiting.next_block() })
                .collect();
            builder.receive(merged(destinations.iter().copied()), peer(from), phase as u32);
            arrived.extend(at(from).zip(destinations));
        }
        // What came stands where something else was until the phase was over.
        for (index, block) in arrived {
            places[index as usize] = block;
        }
        stride *= extent;
    }
    Ok(())
}
