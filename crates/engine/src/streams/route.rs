//! Translation of a collective to the messages of one rank.

use super::transfer::Transfer;
use crate::error::{Error, Outcome};
use crate::flat::pattern::{FlatCollective, Pattern};
use crate::flat::role::ResultRule;
use crate::flat::variable_blocks::{EdgeKey, block};
use smallvec::SmallVec;

/// Adds the messages of rank `me` in a collective among `ranks` ranks to a transfer. The result
/// lies at the beginning of `memory`. With `keeps_own`, the transfer also copies the rank's block
/// for itself, even of a collective that leaves this to the caller.
///
/// # Errors
/// Returns an error if this rank's own lists of neighbours do not agree. The transfer is complete
/// nevertheless, because the other ranks need this rank's messages.
pub(super) fn fill<'a>(
    transfer: &mut Transfer<'a>,
    collective: &FlatCollective,
    (me, ranks): (u32, u32),
    (input, keeps_own): (&'a [u8], bool),
    memory: &'a mut [u8],
) -> Outcome {
    let role = collective.role(me, ranks);
    if role.result == ResultRule::Edges {
        return neighbors(transfer, collective, me, input, memory);
    }
    send_parts(transfer, collective, (me, ranks), input);
    if keeps_own
        && role.result == ResultRule::Nothing
        && let Some(own) = collective.own_part(me, &role)
    {
        // The root's block of a scatter is no result if the collective leaves it to the caller.
        // There is no output for it if it stays in the input.
        if let Some(output) = memory.get_mut(..(own.end - own.start) as usize) {
            transfer.keep(&input[own.start as usize..own.end as usize], output);
        }
        return Ok(());
    }
    let length = memory.len().min(collective.result_bytes(&role) as usize);
    let output = &mut memory[..length];
    let own_part = match &collective.blocks {
        None => collective.part(me, me, ranks),
        Some(_) => collective.part_for(me, me, ranks),
    };
    let own = || match own_part.clone() {
        Some(part) => &input[part.start as usize..part.end as usize],
        None => &[],
    };
    match role.result {
        ResultRule::Blocks { first, sources, .. } => {
            let part = length / sources.max(1) as usize;
            let mut rest = output;
            for (source, number) in (first..first + sources).zip(0..) {
                let bytes = match &collective.blocks {
                    None => part,
                    Some(blocks) => {
                        let block = block(&blocks.received, number);
                        (block.end - block.start) as usize
                    }
                };
                let (piece, behind) = rest.split_at_mut(bytes);
                rest = behind;
                if source != me {
                    transfer.receive(source, piece);
                } else if keeps_own || !collective.leaves_own {
                    transfer.keep(own(), piece);
                }
            }
        }
        // Folds go through streams between two ranks only.
        ResultRule::Fold { ranks: 1, .. } if me == 0 => output.copy_from_slice(own()),
        ResultRule::Fold { ranks: 1, .. } => transfer.receive(0, output),
        ResultRule::Fold { .. } => {
            transfer.fold(1 - me.min(1), own(), collective.arithmetic, output);
        }
        ResultRule::Nothing | ResultRule::Edges => {}
    }
    Ok(())
}

/// Adds the parts of the input for other ranks, the next rank's first, so that the ranks do not all
/// send to the same one.
fn send_parts<'a>(
    transfer: &mut Transfer<'a>,
    collective: &FlatCollective,
    (me, ranks): (u32, u32),
    input: &'a [u8],
) {
    // Reductions stream between two ranks only, where an exclusive scan moves one contribution.
    let is_reduced = collective.arithmetic.is_some() && collective.pattern != Pattern::Exscan;
    for other in (me + 1..ranks).chain(0..me) {
        if let Some(part) = collective.part_for(other, me, ranks) {
            let bytes = &input[part.start as usize..part.end as usize];
            transfer.send_operand(other, bytes, is_reduced);
        }
    }
}

/// Transfers the blocks between two ranks, and copies those of a rank for itself, in the order of
/// their keys on both sides. [`repeat_shared`] follows the transfer.
fn neighbors<'a>(
    transfer: &mut Transfer<'a>,
    collective: &FlatCollective,
    me: u32,
    input: &'a [u8],
    output: &'a mut [u8],
) -> Outcome {
    let Some(blocks) = collective.blocks.as_deref() else { return Ok(()) };
    let Some(destinations) = blocks.destinations.as_deref() else { return Ok(()) };
    let Some(sources) = blocks.sources.as_deref() else { return Ok(()) };
    let mut pieces: SmallVec<[Option<&mut [u8]>; 8]> = SmallVec::new();
    let mut rest = output;
    for number in 0..sources.len() {
        let piece = block(&blocks.received, number);
        let (place, behind) =
            rest.split_at_mut(((piece.end - piece.start) as usize).min(rest.len()));
        pieces.push(Some(place));
        rest = behind;
    }
    let edges = |rank: u32| {
        let mut sent: SmallVec<[(EdgeKey, usize); 8]> =
            destinations.iter().copied().zip(0..).collect();
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
        let piece = block(&blocks.sent, if blocks.is_shared { 0 } else { number });
        &input[piece.start as usize..piece.end as usize]
    };
    // Both sides order the edges between two ranks by tag, then by position in the lists, so the
    // n-th message of one is the n-th of the other.
    let (sent, received) = edges(me);
    let outcome = match sent.len() < received.len() {
        true => {
            let call = collective.call.kind.name();
            Err(Error::MissingEdge { call, from: me, to: me }.into())
        }
        false => Ok(()),
    };
    for ((_, from), (_, _, to)) in sent.into_iter().zip(received) {
        if let Some(place) = pieces[to].take() {
            transfer.keep(bytes(from), place);
        }
    }
    let other = 1 - me.min(1);
    let (mut sent, mut received) = edges(other);
    // A block for all destinations is sent once. The tag is the number of its edges, so a receiver
    // that expects another number finds the mismatch.
    let shared_tag = |edges: usize| blocks.is_shared.then_some(edges as u64);
    let sent_tag = shared_tag(sent.len());
    let received_tag = shared_tag(received.len());
    if blocks.is_shared {
        sent.truncate(1);
        received.truncate(1);
    }
    // An empty message stands for no block, so a rank that expects one finds the mismatch.
    if sent.is_empty() {
        transfer.send(other, &[]);
    }
    if received.is_empty() {
        transfer.receive(other, &mut []);
    }
    for (edge_key, from) in sent {
        transfer.send_tagged(other, sent_tag.unwrap_or(edge_key.tag()), bytes(from));
    }
    for (tag, _, to) in received {
        if let Some(place) = pieces[to].take() {
            transfer.receive_tagged(other, received_tag.unwrap_or(u64::from(tag)), place);
        }
    }
    outcome
}

/// Copies a block that the other rank has sent once for several edges to the places of all of them.
///
/// # Errors
/// Returns an error if this rank expects other lengths at some of them.
pub(super) fn repeat_shared(collective: &FlatCollective, me: u32, output: &mut [u8]) -> Outcome {
    let Some(blocks) = collective.blocks.as_deref().filter(|blocks| blocks.is_shared) else {
        return Ok(());
    };
    let sources = blocks.sources.iter().flat_map(|sources| sources.iter()).zip(0..);
    let mut edges: SmallVec<[(u32, u32, usize); 8]> = sources
        .filter_map(|(edge, number)| edge.map(|edge| (edge, number)))
        .filter(|(edge, _)| edge.rank != me)
        .map(|(edge, number)| (edge.tag, edge.number, number))
        .collect();
    // As in `neighbors`, the first edge in this order has received the block.
    edges.sort_unstable();
    let place = |number: usize| {
        let piece = block(&blocks.received, number);
        piece.start as usize..piece.end as usize
    };
    let Some((&(_, _, first), rest)) = edges.split_first() else { return Ok(()) };
    let received = place(first);
    for &(_, _, number) in rest {
        let place = place(number);
        if place.len() != received.len() {
            let sent = received.len() as u64;
            let expected = place.len() as u64;
            let call = collective.call.kind.name();
            let from = 1 - me.min(1);
            return Err(Error::BlockLength { call, from, to: me, sent, expected }.into());
        }
        output.copy_within(received.clone(), place.start);
    }
    Ok(())
}
