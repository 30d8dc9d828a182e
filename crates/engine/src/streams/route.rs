//! Which bytes of a collective go from whom to whom.

use super::transfer::Transfer;
use crate::meeting::{Meeting, Pattern};

/// Has a transfer send and receive what this rank has to in a meeting among so many ranks. The result lies at the beginning of
/// `memory`.
pub(super) fn fill<'a>(
    transfer: &mut Transfer<'a>,
    meeting: &Meeting,
    (me, ranks): (u32, u32),
    input: &'a [u8],
    memory: &'a mut [u8],
) {
    let length = memory.len().min(meeting.result_bytes(me, ranks) as usize);
    let output = &mut memory[..length];
    // Of two ranks, where a pattern is for no more.
    let other = 1 - me.min(1);
    match meeting.pattern {
        Pattern::Broadcast { root } if me == root => transfer.send(other, input),
        Pattern::Broadcast { root } => transfer.receive(root, output),
        Pattern::Scatter { root } if me == root => {
            let block = input.len() / ranks as usize;
            send_blocks(transfer, me, input, block);
            if !meeting.leaves_own {
                output.copy_from_slice(&input[me as usize * block..][..block]);
            }
        }
        Pattern::Scatter { root } => transfer.receive(root, output),
        Pattern::Gather => {
            transfer.send(other, input);
            receive_blocks(transfer, meeting, me, input, output);
        }
        Pattern::GatherTo { root } if me == root => receive_blocks(transfer, meeting, me, input, output),
        Pattern::GatherTo { root } => transfer.send(root, input),
        Pattern::Exchange => {
            let block = input.len() / ranks as usize;
            send_blocks(transfer, me, input, block);
            receive_blocks(transfer, meeting, me, &input[me as usize * block..][..block], output);
        }
        Pattern::ReduceTo { root } if me != root => transfer.send(root, input),
        Pattern::Reduce | Pattern::ReduceTo { .. } => {
            if meeting.pattern == Pattern::Reduce {
                transfer.send(other, input);
            }
            transfer.fold(other, input, meeting.arithmetic, output);
        }
        Pattern::ReduceScatter { at, bytes } => {
            let own = at as usize..(at + bytes) as usize;
            // Two blocks: this rank's, and what lies before or behind it.
            transfer.send(other, if me == 0 { &input[own.end..] } else { &input[..own.start] });
            transfer.fold(other, &input[own], meeting.arithmetic, output);
        }
        Pattern::Scan | Pattern::Exscan if me == 0 => {
            transfer.send(other, input);
            if meeting.pattern == Pattern::Scan {
                output.copy_from_slice(input);
            }
        }
        Pattern::Scan => transfer.fold(other, input, meeting.arithmetic, output),
        Pattern::Exscan => transfer.receive(other, output),
        Pattern::Barrier | Pattern::Neighbors => {}
    }
}

/// A block to every other rank, the next one first, so that not all send to the same.
fn send_blocks<'a>(transfer: &mut Transfer<'a>, me: u32, input: &'a [u8], block: usize) {
    let blocks = (0u32..).zip(input.chunks_exact(block.max(1)));
    let (before, after): (Vec<_>, Vec<_>) = blocks.filter(|(rank, _)| *rank != me).partition(|(rank, _)| *rank < me);
    after.into_iter().chain(before).for_each(|(rank, bytes)| transfer.send(rank, bytes));
}

/// A block from every other rank; this rank's own is `own`.
fn receive_blocks<'a>(transfer: &mut Transfer<'a>, meeting: &Meeting, me: u32, own: &'a [u8], output: &'a mut [u8]) {
    let block = match meeting.pattern {
        Pattern::Exchange => own.len(),
        _ => meeting.bytes as usize,
    };
    for (rank, place) in (0u32..).zip(output.chunks_exact_mut(block.max(1))) {
        if rank != me {
            transfer.receive(rank, place);
        } else if !meeting.leaves_own && own.len() == place.len() {
            place.copy_from_slice(own);
        }
    }
}
