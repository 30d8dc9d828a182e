//! The collectives of neighbours. Only the two ends of an edge have the length of its block, so the
//! length of no call decides whether it runs here.

use crate::buffers::{Area, Input, Output};
use crate::collectives::{Blocks, Call, Elements, INVALID, Start, sizes};
use crate::mode::{From, Mode, To};
use crate::refusal::Refusal;
use crate::report;
use crate::topology::{Form, Topology};

impl<M: Mode> Call<M> {
    /// The topology of the communicator; without one the MPI library reports the error.
    fn topology(self) -> Result<&'static Topology, Refusal> {
        self.served.topology.as_ref().ok_or(INVALID)
    }

    /// An area of `number` blocks; without blocks its type may be anything.
    fn blocks<B: Blocks>(self, blocks: B, number: usize) -> Result<Area, Refusal> {
        if number == 0 { Ok(Area::empty()) } else { blocks.area(self, number) }
    }

    /// Runs or starts an exchange by `start`. `length` is that of its blocks, if it is measured with
    /// such ones.
    fn exchange(
        self,
        sent: &Area,
        received: Area,
        length: Option<usize>,
        start: impl FnOnce(From, To) -> tradewind::Result<M::Begun>,
    ) -> Start<M> {
        self.mode.check_unknown_lengths()?;
        report::note_length(length);
        self.communicator()?;
        // Blocks of neighbours that are no rank keep their values.
        let output = Output::preserved(self.abi, received);
        let input = Input::of(self.abi, sent);
        let begun = start(input.bytes.unwrap_or_default(), output.bytes)?;
        Ok(self.end(begun, input.staging, output.unpacked))
    }

    /// As [`exchange`](Self::exchange), of equal blocks: `number` that are sent, and one from each
    /// source.
    fn exchange_equal(
        self,
        (topology, form): (&'static Topology, Form),
        (sent, number): (Area, usize),
        received: Area,
    ) -> Start<M> {
        let length = |area: &Area, blocks| area.bytes().checked_div(blocks).unwrap_or(0);
        let lengths = [length(&sent, number), length(&received, topology.sources)];
        let is_measured = topology.is_measured() && lengths[0] == lengths[1];
        let measured = Some(lengths[0]).filter(|_| is_measured);
        self.exchange(&sent, received, measured, |from, to| {
            M::exchange(topology, (form, lengths), from, to)
        })
    }
}

pub(crate) fn neighbor_allgather<M: Mode, B: Blocks>(
    call: Call<M>,
    send: Elements,
    receive: B,
) -> Start<M> {
    let topology = call.topology()?;
    let number = topology.destinations.min(1);
    let received = call.blocks(receive, topology.sources)?;
    let sent = call.blocks(send, number)?;
    match sizes::<B>(&received) {
        None => call.exchange_equal((topology, Form::Allgather), (sent, number), received),
        Some(sizes) => call.exchange(&sent, received, None, |from, to| {
            M::neighbor_allgatherv(&topology.neighbors, from, to, &sizes)
        }),
    }
}

pub(crate) fn neighbor_alltoall<M: Mode, B: Blocks>(
    call: Call<M>,
    send: B,
    receive: B,
) -> Start<M> {
    let topology = call.topology()?;
    let number = topology.destinations;
    let sent = call.blocks(send, number)?;
    let received = call.blocks(receive, topology.sources)?;
    match sizes::<B>(&sent).zip(sizes::<B>(&received)) {
        None => call.exchange_equal((topology, Form::Alltoall), (sent, number), received),
        Some((to_each, from_each)) => call.exchange(&sent, received, None, |from, to| {
            M::neighbor_alltoallv(&topology.neighbors, from, &to_each, to, &from_each)
        }),
    }
}
