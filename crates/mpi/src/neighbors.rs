//! The collectives of neighbours.

use crate::buffers::{Area, Input, Output};
use crate::collectives::{Blocks, Call, Elements, INVALID, Start, TypedBlocks};
use crate::communicators::{Form, Topology};
use crate::lists::Number;
use crate::mode::Mode;
use crate::refusal::Refusal;

impl<M: Mode> Call<M> {
    /// The topology of the communicator; without one the MPI library reports the error.
    fn topology(self) -> Result<&'static Topology, Refusal> {
        self.served.topology.as_ref().ok_or(INVALID)
    }
}

/// Bytes of a block, which all ranks find alike.
fn bytes_of_block<M: Mode>(call: Call<M>, elements: Elements) -> Result<usize, Refusal> {
    let bytes = call.area(elements, 1)?.bytes();
    call.check_block(bytes)?;
    call.check_length(bytes, 1)?;
    Ok(bytes)
}

/// One of the two signatures: without sources a rank knows the length from what it sends.
fn block<M: Mode>(
    call: Call<M>,
    topology: &Topology,
    send: Elements,
    receive: Elements,
) -> Result<usize, Refusal> {
    call.mode.check_topology(topology)?;
    let elements = if topology.sources == 0 { send } else { receive };
    bytes_of_block(call, elements)
}

/// An area of `blocks` equal blocks; without blocks its type may be anything.
fn blocks_of<M: Mode>(call: Call<M>, elements: Elements, blocks: usize) -> Result<Area, Refusal> {
    if blocks == 0 { Ok(Area::empty()) } else { call.area(elements, blocks) }
}

pub(crate) fn neighbor_allgather<M: Mode>(
    call: Call<M>,
    send: Elements,
    receive: Elements,
) -> Start<M> {
    let topology = call.topology()?;
    let bytes = block(call, topology, send, receive)?;
    call.communicator()?;
    // Blocks of neighbours beyond the edge of a grid keep their values.
    let output = Output::preserved(call.abi, blocks_of(call, receive, topology.sources)?);
    let input = Input::of(call.abi, &call.area(send, 1)?);
    let from = input.bytes.unwrap_or_default();
    let started = M::exchange(topology, (Form::Allgather, bytes), from, output.bytes)?;
    Ok(call.end(started, input.staging, output.unpacked))
}

pub(crate) fn neighbor_alltoall<M: Mode>(
    call: Call<M>,
    send: Elements,
    receive: Elements,
) -> Start<M> {
    let topology = call.topology()?;
    let bytes = block(call, topology, send, receive)?;
    call.communicator()?;
    let output = Output::preserved(call.abi, blocks_of(call, receive, topology.sources)?);
    let input = Input::of(call.abi, &blocks_of(call, send, topology.destinations)?);
    let from = input.bytes.unwrap_or_default();
    let started = M::exchange(topology, (Form::Alltoall, bytes), from, output.bytes)?;
    Ok(call.end(started, input.staging, output.unpacked))
}

pub(crate) fn neighbor_allgatherv<M: Mode, N: Number, D: Number>(
    call: Call<M>,
    send: Elements,
    receive: Blocks<N, D>,
) -> Start<M> {
    let topology = call.topology()?;
    call.check_unknown_lengths()?;
    let area = match topology.sources {
        0 => Area::empty(),
        sources => call.blocks(receive, sources)?,
    };
    let received = area.sizes();
    call.communicator()?;
    let output = Output::preserved(call.abi, area);
    let input = Input::of(call.abi, &call.area(send, 1)?);
    let from = input.bytes.unwrap_or_default();
    let started = M::neighbor_allgatherv(topology, from, output.bytes, &received)?;
    Ok(call.end(started, input.staging, output.unpacked))
}

pub(crate) fn neighbor_alltoallv<M: Mode, N: Number, D: Number>(
    call: Call<M>,
    send: Blocks<N, D>,
    receive: Blocks<N, D>,
) -> Start<M> {
    let topology = call.topology()?;
    let sent = match topology.destinations {
        0 => Area::empty(),
        destinations => call.blocks(send, destinations)?,
    };
    let received = match topology.sources {
        0 => Area::empty(),
        sources => call.blocks(receive, sources)?,
    };
    exchange(call, topology, sent, received)
}

pub(crate) fn neighbor_alltoallw<M: Mode, N: Number, D: Number>(
    call: Call<M>,
    send: TypedBlocks<N, D>,
    receive: TypedBlocks<N, D>,
) -> Start<M> {
    let topology = call.topology()?;
    let sent = call.typed_blocks(send, topology.destinations)?;
    let received = call.typed_blocks(receive, topology.sources)?;
    exchange(call, topology, sent, received)
}

fn exchange<M: Mode>(
    call: Call<M>,
    topology: &'static Topology,
    sent: Area,
    received: Area,
) -> Start<M> {
    call.check_unknown_lengths()?;
    call.communicator()?;
    let sent_sizes = sent.sizes();
    let received_sizes = received.sizes();
    let output = Output::preserved(call.abi, received);
    let input = Input::of(call.abi, &sent);
    let from = input.bytes.unwrap_or_default();
    let sent = (from, &sent_sizes[..]);
    let started = M::neighbor_alltoallv(topology, sent, output.bytes, &received_sizes)?;
    Ok(call.end(started, input.staging, output.unpacked))
}
