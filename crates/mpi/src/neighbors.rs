//! The nonblocking collectives of neighbours.

use crate::buffers::{Area, Input, Output};
use crate::collectives::{
    Blocks, Call, Elements, INVALID, Number, Start, TypedBlocks, check_block, operation,
};
use crate::take::Refusal;
use tradewind::Neighbors;

impl Call {
    /// The topology of the communicator; without one the MPI library reports the error.
    fn neighbors(self) -> Result<&'static Neighbors, Refusal> {
        self.served.neighbors.as_ref().ok_or(INVALID)
    }
}

/// Bytes of a block, which all ranks find alike.
fn bytes_of_block(call: Call, elements: Elements) -> Result<usize, Refusal> {
    let bytes = call.area(elements, 1)?.bytes();
    check_block(bytes)?;
    Ok(bytes)
}

/// One of the two signatures: without sources a rank knows the length from what it sends.
fn block(
    call: Call,
    neighbors: &Neighbors,
    send: Elements,
    receive: Elements,
) -> Result<usize, Refusal> {
    let elements = if neighbors.sources().is_empty() { send } else { receive };
    bytes_of_block(call, elements)
}

/// An area of `blocks` equal blocks; without blocks its type may be anything.
fn blocks_of(call: Call, elements: Elements, blocks: usize) -> Result<Area, Refusal> {
    if blocks == 0 { Ok(Area::empty()) } else { call.area(elements, blocks) }
}

pub(crate) fn ineighbor_allgather(call: Call, send: Elements, receive: Elements) -> Start {
    let neighbors = call.neighbors()?;
    let bytes = block(call, neighbors, send, receive)?;
    let sources = neighbors.sources().len();
    // Blocks of neighbours beyond the edge of a grid keep their values.
    let output = Output::preserved(call.abi, blocks_of(call, receive, sources)?);
    let input = Input::of(call.abi, &call.area(send, 1)?);
    let from = input.bytes.unwrap_or_default();
    let prepared = neighbors.neighbor_allgather_init::<u8>(bytes)?;
    Ok(operation(prepared.start(from, output.bytes)?, input.staging, output.unpacked))
}

pub(crate) fn ineighbor_alltoall(call: Call, send: Elements, receive: Elements) -> Start {
    let neighbors = call.neighbors()?;
    let bytes = block(call, neighbors, send, receive)?;
    let sources = neighbors.sources().len();
    let destinations = neighbors.destinations().len();
    let output = Output::preserved(call.abi, blocks_of(call, receive, sources)?);
    let input = Input::of(call.abi, &blocks_of(call, send, destinations)?);
    let from = input.bytes.unwrap_or_default();
    let prepared = neighbors.neighbor_alltoall_init::<u8>(bytes)?;
    Ok(operation(prepared.start(from, output.bytes)?, input.staging, output.unpacked))
}

pub(crate) fn ineighbor_allgatherv<N: Number, D: Number>(
    call: Call,
    send: Elements,
    receive: Blocks<N, D>,
) -> Start {
    let neighbors = call.neighbors()?;
    let area = match neighbors.sources().len() {
        0 => Area::empty(),
        sources => call.blocks(receive, sources)?,
    };
    let received = area.sizes();
    let output = Output::preserved(call.abi, area);
    let input = Input::of(call.abi, &call.area(send, 1)?);
    let from = input.bytes.unwrap_or_default();
    let started = neighbors.ineighbor_allgatherv(from, output.bytes, &received)?;
    Ok(operation(started, input.staging, output.unpacked))
}

pub(crate) fn ineighbor_alltoallv<N: Number, D: Number>(
    call: Call,
    send: Blocks<N, D>,
    receive: Blocks<N, D>,
) -> Start {
    let neighbors = call.neighbors()?;
    let sent = match neighbors.destinations().len() {
        0 => Area::empty(),
        destinations => call.blocks(send, destinations)?,
    };
    let received = match neighbors.sources().len() {
        0 => Area::empty(),
        sources => call.blocks(receive, sources)?,
    };
    exchange(call, neighbors, sent, received)
}

pub(crate) fn ineighbor_alltoallw<N: Number, D: Number>(
    call: Call,
    send: TypedBlocks<N, D>,
    receive: TypedBlocks<N, D>,
) -> Start {
    let neighbors = call.neighbors()?;
    let sent = call.typed_blocks(send, neighbors.destinations().len())?;
    let received = call.typed_blocks(receive, neighbors.sources().len())?;
    exchange(call, neighbors, sent, received)
}

fn exchange(call: Call, neighbors: &Neighbors, sent: Area, received: Area) -> Start {
    let sent_sizes = sent.sizes();
    let received_sizes = received.sizes();
    let output = Output::preserved(call.abi, received);
    let input = Input::of(call.abi, &sent);
    let from = input.bytes.unwrap_or_default();
    let started =
        neighbors.ineighbor_alltoallv(from, &sent_sizes, output.bytes, &received_sizes)?;
    Ok(operation(started, input.staging, output.unpacked))
}
