//! Which bytes of a collective go from whom to whom.

use super::transfer::Transfer;
use crate::error::Error;
use crate::flat::pattern::{EdgeKey, FlatCollective, Pattern, block};
use smallvec::SmallVec;

/// Has a transfer send and receive what this rank has to in a collective among so many ranks. The
/// result lies at the beginning of `memory`.
///
/// # Errors
/// When this rank's own lists of neighbours do not agree; the transfer is complete all the same,
/// for the others' sake.
pub(super) fn fill<'a>(
    transfer: &mut Transfer<'a>,
    collective: &FlatCollective,
    (me, ranks): (u32, u32),
    input: &'a [u8],
    memory: &'a mut [u8],
) -> Result<(), Error> {
    let length = memory.len().min(collective.result_bytes(me, ranks) as usize);
    let output = &mut memory[..length];
    // Of two ranks, where a pattern is for no more.
    let other = 1 - me.min(1);
    match collective.pattern {
        Pattern::Broadcast { root } if me == root => transfer.send(other, input),
        Pattern::Broadcast { root } => transfer.receive(root, output),
        Pattern::Scatter { root } if me == root => {
            let block = input.len() / ranks as usize;
            send_blocks(transfer, me, input, block);
            if !collective.leaves_own {
                output.copy_from_slice(&input[me as usize * block..][..block]);
            }
        }
        Pattern::Scatter { root } => transfer.receive(root, output),
        Pattern::Gather => {
            transfer.send(other, input);
            receive_blocks(transfer, collective, me, input, output);
        }
        Pattern::GatherTo { root } if me == root => {
            receive_blocks(transfer, collective, me, input, output)
        }
        Pattern::GatherTo { root } => transfer.send(root, input),
        Pattern::Exchange => {
            let block = input.len() / ranks as usize;
            send_blocks(transfer, me, input, block);
            receive_blocks(
                transfer,
                collective,
                me,
                &input[me as usize * block..][..block],
                output,
            );
        }
        Pattern::ReduceTo { root } if me != root => transfer.send(root, input),
        Pattern::Reduce | Pattern::ReduceTo { .. } => {
            if collective.pattern == Pattern::Reduce {
                transfer.send(other, input);
            }
            transfer.fold(other, input, collective.arithmetic, output);
        }
        Pattern::ReduceScatter { at, bytes } => {
            let own = at as usize..(at + bytes) as usize;
            // Two blocks: this rank's, and what lies before or behind it.
            transfer.send(other, if me == 0 { &input[own.end..] } else { &input[..own.start] });
            transfer.fold(other, &input[own], collective.arithmetic, output);
        }
        Pattern::Scan | Pattern::Exscan if me == 0 => {
            transfer.send(other, input);
            if collective.pattern == Pattern::Scan {
                output.copy_from_slice(input);
            }
        }
        Pattern::Scan => transfer.fold(other, input, collective.arithmetic, output),
        Pattern::Exscan => transfer.receive(other, output),
        Pattern::Neighbors => return neighbors(transfer, collective, me, input, output),
        Pattern::Barrier => {}
    }
    Ok(())
}

/// A block to every other rank, the next one first, so that not all send to the same.
fn send_blocks<'a>(transfer: &mut Transfer<'a>, me: u32, input: &'a [u8], block: usize) {
    let blocks = (0u32..).zip(input.chunks_exact(block.max(1)));
    let (before, after): (Vec<_>, Vec<_>) =
        blocks.filter(|(rank, _)| *rank != me).partition(|(rank, _)| *rank < me);
    after.into_iter().chain(before).for_each(|(rank, bytes)| transfer.send(rank, bytes));
}

/// A block from every other rank; this rank's own is `own`.
fn receive_blocks<'a>(
    transfer: &mut Transfer<'a>,
    collective: &FlatCollective,
    me: u32,
    own: &'a [u8],
    output: &'a mut [u8],
) {
    let block = match collective.pattern {
        Pattern::Exchange => own.len(),
        _ => collective.bytes as usize,
    };
    for (rank, place) in (0u32..).zip(output.chunks_exact_mut(block.max(1))) {
        if rank != me {
            transfer.receive(rank, place);
        } else if !collective.leaves_own && own.len() == place.len() {
            place.copy_from_slice(own);
        }
    }
}

/// The blocks between two ranks, and those of a rank for itself, in the order of their edge_keys on
/// both sides.
fn neighbors<'a>(
    transfer: &mut Transfer<'a>,
    collective: &FlatCollective,
    me: u32,
    input: &'a [u8],
    output: &'a mut [u8],
) -> Result<(), Error> {
    let Some((blocks, edge_keys, sources)) = collective.blocks.as_deref().and_then(|blocks| {
        let (edge_keys, sources) = (blocks.edge_keys.as_deref()?, blocks.sources.as_deref()?);
        Some((blocks, edge_keys, sources))
    }) else {
        return Ok(());
    };
    let mut locations: SmallVec<[Option<&mut [u8]>; 8]> = SmallVec::new();
    let mut rest = output;
    for number in 0..sources.len() {
        let piece = block(&blocks.received, number);
        let (place, behind) =
            rest.split_at_mut(((piece.end - piece.start) as usize).min(rest.len()));
        locations.push(Some(place));
        rest = behind;
    }
    let edges = |rank: u32| {
        let mut sent: SmallVec<[(EdgeKey, usize); 8]> =
            edge_keys.iter().copied().zip(0..).collect();
        sent.retain(|(edge_key, _)| edge_key.rank() == Some(rank));
        sent.sort_by_key(|(edge_key, _)| edge_key.0);
        let mut received: SmallVec<[(u32, u32, usize); 8]> = SmallVec::new();
        for (edge, number) in sources.iter().zip(0..) {
            received.extend(
                edge.filter(|edge| edge.rank == rank).map(|edge| (edge.tag, edge.number, number)),
            );
        }
        received.sort_unstable();
        (sent, received)
    };
    let bytes = |number: usize| {
        let piece = block(&blocks.sent, number);
        &input[piece.start as usize..piece.end as usize]
    };
    let (sent, received) = edges(me);
    let outcome = match sent.len() < received.len() {
        true => Err(Error::MissingEdge { call: collective.call.kind.name(), from: me, to: me }),
        false => Ok(()),
    };
    for ((_, from), (_, _, to)) in sent.into_iter().zip(received) {
        if let Some(place) = &mut locations[to] {
            place.copy_from_slice(bytes(from));
        }
    }
    let other = 1 - me.min(1);
    let (sent, received) = edges(other);
    // Where there is no block an empty message says so: who waits for one finds out.
    if sent.is_empty() {
        transfer.send(other, &[]);
    }
    if received.is_empty() {
        transfer.receive(other, &mut []);
    }
    sent.into_iter()
        .for_each(|(edge_key, from)| transfer.send_tagged(other, edge_key.tag(), bytes(from)));
    for (tag, _, to) in received {
        if let Some(place) = locations[to].take() {
            transfer.receive_tagged(other, u64::from(tag), place);
        }
    }
    outcome
}
