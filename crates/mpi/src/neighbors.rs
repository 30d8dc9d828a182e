//! The collectives of neighbours.

use crate::buffers::{Area, Input, Output};
use crate::collectives::{Blocks, Call, Elements, INVALID, Start, TypedBlocks};
use crate::lists::Number;
use crate::mode::Mode;
use crate::refusal::Refusal;
use crate::report;
use crate::topology::{Form, Topology};

impl<M: Mode> Call<M> {
    /// The topology of the communicator; without one the MPI library reports the error.
    fn topology(self) -> Result<&'static Topology, Refusal> {
        self.served.topology.as_ref().ok_or(INVALID)
    }
}

/// An area of `blocks` equal blocks; without blocks its type may be anything.
fn blocks_of<M: Mode>(call: Call<M>, elements: Elements, blocks: usize) -> Result<Area, Refusal> {
    if blocks == 0 { Ok(Area::empty()) } else { call.area(elements, blocks) }
}

/// Bytes of each of `blocks` equal blocks in an area.
fn bytes_of_block(area: &Area, blocks: usize) -> usize {
    area.bytes().checked_div(blocks).unwrap_or(0)
}

/// An exchange of equal blocks, in areas of `to` blocks for the destinations and one for each
/// source.
fn exchange_equal<M: Mode>(
    call: Call<M>,
    (topology, form): (&'static Topology, Form),
    (sent, to): (Area, usize),
    received: Area,
) -> Start<M> {
    let sources = topology.sources;
    if !topology.has_one_length {
        let sizes = vec![bytes_of_block(&received, sources); sources];
        return match form {
            Form::Allgather => gather(call, topology, sent, (received, &sizes)),
            Form::Alltoall => {
                let sent_sizes = vec![bytes_of_block(&sent, to); to];
                exchange(call, topology, (sent, &sent_sizes), (received, &sizes))
            }
        };
    }
    let bytes = bytes_of_block(&received, sources);
    call.check_length(bytes, 1)?;
    if !topology.is_measured() {
        report::note_length(None);
    }
    call.communicator()?;
    // Blocks of neighbours beyond the edge of a grid keep their values.
    let output = Output::preserved(call.abi, received);
    let input = Input::of(call.abi, &sent);
    let from = input.bytes.unwrap_or_default();
    let started = M::exchange(topology, (form, bytes), from, output.bytes)?;
    Ok(call.end(started, input.staging, output.unpacked))
}

pub(crate) fn neighbor_allgather<M: Mode>(
    call: Call<M>,
    send: Elements,
    receive: Elements,
) -> Start<M> {
    let topology = call.topology()?;
    let blocks = topology.destinations.min(1);
    let sent = blocks_of(call, send, blocks)?;
    let received = blocks_of(call, receive, topology.sources)?;
    exchange_equal(call, (topology, Form::Allgather), (sent, blocks), received)
}

pub(crate) fn neighbor_alltoall<M: Mode>(
    call: Call<M>,
    send: Elements,
    receive: Elements,
) -> Start<M> {
    let topology = call.topology()?;
    let blocks = topology.destinations;
    let sent = blocks_of(call, send, blocks)?;
    let received = blocks_of(call, receive, topology.sources)?;
    exchange_equal(call, (topology, Form::Alltoall), (sent, blocks), received)
}

pub(crate) fn neighbor_allgatherv<M: Mode, N: Number, D: Number>(
    call: Call<M>,
    send: Elements,
    receive: Blocks<N, D>,
) -> Start<M> {
    let topology = call.topology()?;
    let received = match topology.sources {
        0 => Area::empty(),
        sources => call.blocks(receive, sources)?,
    };
    let sizes = received.sizes();
    let sent = blocks_of(call, send, topology.destinations.min(1))?;
    gather(call, topology, sent, (received, &sizes))
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
    let sent_sizes = sent.sizes();
    let received_sizes = received.sizes();
    exchange(call, topology, (sent, &sent_sizes), (received, &received_sizes))
}

pub(crate) fn neighbor_alltoallw<M: Mode, N: Number, D: Number>(
    call: Call<M>,
    send: TypedBlocks<N, D>,
    receive: TypedBlocks<N, D>,
) -> Start<M> {
    let topology = call.topology()?;
    let sent = call.typed_blocks(send, topology.destinations)?;
    let received = call.typed_blocks(receive, topology.sources)?;
    let sent_sizes = sent.sizes();
    let received_sizes = received.sizes();
    exchange(call, topology, (sent, &sent_sizes), (received, &received_sizes))
}

/// The same block to all destinations, and blocks of these sizes from the sources.
fn gather<M: Mode>(
    call: Call<M>,
    topology: &'static Topology,
    sent: Area,
    (received, sizes): (Area, &[usize]),
) -> Start<M> {
    call.check_unknown_lengths()?;
    call.communicator()?;
    let output = Output::preserved(call.abi, received);
    let input = Input::of(call.abi, &sent);
    let from = input.bytes.unwrap_or_default();
    let started = M::neighbor_allgatherv(topology, from, output.bytes, sizes)?;
    Ok(call.end(started, input.staging, output.unpacked))
}

/// Blocks of these sizes to the destinations and from the sources.
fn exchange<M: Mode>(
    call: Call<M>,
    topology: &'static Topology,
    (sent, sent_sizes): (Area, &[usize]),
    (received, received_sizes): (Area, &[usize]),
) -> Start<M> {
    call.check_unknown_lengths()?;
    call.communicator()?;
    let output = Output::preserved(call.abi, received);
    let input = Input::of(call.abi, &sent);
    let sent = (input.bytes.unwrap_or_default(), sent_sizes);
    let started = M::neighbor_alltoallv(topology, sent, output.bytes, received_sizes)?;
    Ok(call.end(started, input.staging, output.unpacked))
}
