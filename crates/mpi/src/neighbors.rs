//! The nonblocking and persistent collectives of neighbours.

use crate::buffers::{Area, Input, Output};
use crate::collectives::{
    Blocks, Call, Elements, INVALID, Start, TypedBlocks, check_block, operation,
};
use crate::communicators::{Exchange, Form, Topology};
use crate::lists::Number;
use crate::refusal::Refusal;

impl Call {
    /// The topology of the communicator; without one the MPI library reports the error.
    fn topology(self) -> Result<&'static Topology, Refusal> {
        self.served.topology.as_ref().ok_or(INVALID)
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
    topology: &Topology,
    send: Elements,
    receive: Elements,
) -> Result<usize, Refusal> {
    let elements = if topology.sources == 0 { send } else { receive };
    bytes_of_block(call, elements)
}

/// An area of `blocks` equal blocks; without blocks its type may be anything.
fn blocks_of(call: Call, elements: Elements, blocks: usize) -> Result<Area, Refusal> {
    if blocks == 0 { Ok(Area::empty()) } else { call.area(elements, blocks) }
}

pub(crate) fn ineighbor_allgather(call: Call, send: Elements, receive: Elements) -> Start {
    let topology = call.topology()?;
    let bytes = block(call, topology, send, receive)?;
    call.communicator()?;
    // Blocks of neighbours beyond the edge of a grid keep their values.
    let output = Output::preserved(call.abi, blocks_of(call, receive, topology.sources)?);
    let input = Input::of(call.abi, &call.area(send, 1)?);
    let from = input.bytes.unwrap_or_default();
    let start = |exchange: &Exchange| exchange.start(from, output.bytes);
    let started = topology.exchange((Form::Allgather, bytes), start)?;
    Ok(operation(started, input.staging, output.unpacked))
}

pub(crate) fn ineighbor_alltoall(call: Call, send: Elements, receive: Elements) -> Start {
    let topology = call.topology()?;
    let bytes = block(call, topology, send, receive)?;
    call.communicator()?;
    let output = Output::preserved(call.abi, blocks_of(call, receive, topology.sources)?);
    let input = Input::of(call.abi, &blocks_of(call, send, topology.destinations)?);
    let from = input.bytes.unwrap_or_default();
    let start = |exchange: &Exchange| exchange.start(from, output.bytes);
    let started = topology.exchange((Form::Alltoall, bytes), start)?;
    Ok(operation(started, input.staging, output.unpacked))
}

pub(crate) fn ineighbor_allgatherv<N: Number, D: Number>(
    call: Call,
    send: Elements,
    receive: Blocks<N, D>,
) -> Start {
    let topology = call.topology()?;
    call.check_one_node()?;
    let area = match topology.sources {
        0 => Area::empty(),
        sources => call.blocks(receive, sources)?,
    };
    let received = area.sizes();
    call.communicator()?;
    let output = Output::preserved(call.abi, area);
    let input = Input::of(call.abi, &call.area(send, 1)?);
    let from = input.bytes.unwrap_or_default();
    let started = topology.neighbors.ineighbor_allgatherv(from, output.bytes, &received)?;
    Ok(operation(started, input.staging, output.unpacked))
}

pub(crate) fn ineighbor_alltoallv<N: Number, D: Number>(
    call: Call,
    send: Blocks<N, D>,
    receive: Blocks<N, D>,
) -> Start {
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

pub(crate) fn ineighbor_alltoallw<N: Number, D: Number>(
    call: Call,
    send: TypedBlocks<N, D>,
    receive: TypedBlocks<N, D>,
) -> Start {
    let topology = call.topology()?;
    let sent = call.typed_blocks(send, topology.destinations)?;
    let received = call.typed_blocks(receive, topology.sources)?;
    exchange(call, topology, sent, received)
}

fn exchange(call: Call, topology: &Topology, sent: Area, received: Area) -> Start {
    call.check_one_node()?;
    call.communicator()?;
    let sent_sizes = sent.sizes();
    let received_sizes = received.sizes();
    let output = Output::preserved(call.abi, received);
    let input = Input::of(call.abi, &sent);
    let from = input.bytes.unwrap_or_default();
    let neighbors = &topology.neighbors;
    let started =
        neighbors.ineighbor_alltoallv(from, &sent_sizes, output.bytes, &received_sizes)?;
    Ok(operation(started, input.staging, output.unpacked))
}
