//! The collectives: arguments of MPI become calls of tradewind, in both modes.
//!
//! Each function decides by grounds that are equal on all ranks, and returns what remains of a call.
//! Lengths that only pairs of ranks know, as those of the forms with a `v` or a `w`, decide
//! nothing.

use crate::abi::Abi;
use crate::buffers::{Area, Input, Output, Piece, Staging, TypeInfo, type_info};
use crate::communicators::Served;
use crate::host::{Handle, Pointer};
use crate::lists::{Lists, Number};
use crate::mode::{Background, Mode};
use crate::refusal::Refusal;
use crate::report::{self, Reason};
use crate::requests::Rest;
use std::ffi::c_int;
use tradewind::{Communicator, InPlace};

pub(crate) type Start<M = Background> = Result<<M as Mode>::Operation, Refusal>;

/// A call, as far as every collective needs it.
#[derive(Clone, Copy)]
pub(crate) struct Call<M = Background> {
    pub(crate) abi: &'static Abi,
    pub(crate) served: &'static Served,
    pub(crate) lists: Lists,
    pub(crate) mode: M,
}

/// `count` elements of a type at an address, as a program passes them.
#[derive(Clone, Copy)]
pub(crate) struct Elements {
    pub(crate) at: Pointer,
    pub(crate) count: i64,
    pub(crate) datatype: Handle,
}

/// Blocks of elements of a type, as the forms with a `v` pass them. Displacements count elements.
#[derive(Clone, Copy)]
pub(crate) struct Blocks<N, D> {
    pub(crate) at: Pointer,
    pub(crate) counts: *const N,
    pub(crate) displacements: *const D,
    pub(crate) datatype: Handle,
}

/// Blocks of elements, each of a type of its own, as the forms with a `w` pass them. Displacements
/// count bytes.
#[derive(Clone, Copy)]
pub(crate) struct TypedBlocks<N, D> {
    pub(crate) at: Pointer,
    pub(crate) counts: *const N,
    pub(crate) displacements: *const D,
    pub(crate) datatypes: Pointer,
}

pub(crate) const INVALID: Refusal = Refusal::Left(Reason::Arguments);

pub(crate) fn count(count: i64) -> Result<usize, Refusal> {
    usize::try_from(count).map_err(|_| INVALID)
}

impl<M: Mode> Call<M> {
    /// The communicator, on which the call starts now. To be called when all checks have passed that
    /// may leave the call to the MPI library, and before anything is kept: an examination ends here.
    pub(crate) fn communicator(self) -> Result<&'static Communicator, Refusal> {
        match self.lists {
            // The initialization of a persistent collective, which starts later.
            Lists::Copied(_) => Err(Refusal::Accepted),
            Lists::Passed | Lists::Kept(_) => Ok(&self.served.communicator),
        }
    }

    /// Leaves a call to the MPI library because of its length, `bytes` bytes `times` over, which all
    /// ranks find alike.
    pub(crate) fn check_length(self, bytes: usize, times: usize) -> Result<(), Refusal> {
        report::note_length(bytes.checked_mul(times));
        self.mode.check_length(bytes, times)
    }

    /// As [`check_length`](Self::check_length), for contributions of `bytes` bytes that the MPI
    /// library combines. No time of such a call is measured.
    pub(crate) fn check_contributions(self, bytes: usize) -> Result<(), Refusal> {
        self.mode.check_length(bytes, self.served.size())
    }

    /// Leaves a call to the MPI library because only some ranks have the lengths of its blocks.
    pub(crate) fn check_unknown_lengths(self) -> Result<(), Refusal> {
        report::note_length(None);
        self.mode.check_unknown_lengths(self.served)
    }

    /// Returns the remainder of a call, which unpacks the output if there is something to unpack.
    pub(crate) fn end(
        self,
        begun: M::Begun,
        input: Option<Staging>,
        unpacked: Option<(Staging, Area)>,
    ) -> M::Operation {
        // The time of the MPI library is measured with buffers that it need not pack.
        if input.is_some() || unpacked.is_some() {
            report::note_length(None);
        }
        let rest = unpacked.map(|(staging, area)| Rest::Unpack(staging, area));
        M::operation(self.abi, begun, input, rest)
    }

    pub(crate) fn type_info(self, datatype: Handle) -> Result<TypeInfo, Refusal> {
        type_info(self.abi, datatype).ok_or(INVALID)
    }

    /// The type of a block; without elements it may be none at all, as MPI_DATATYPE_NULL.
    fn element(self, datatype: Handle, is_empty: bool) -> Result<TypeInfo, Refusal> {
        if is_empty { Ok(TypeInfo::NOTHING) } else { self.type_info(datatype) }
    }

    pub(crate) fn root(self, root: c_int) -> Result<u32, Refusal> {
        let root = u32::try_from(root).map_err(|_| INVALID)?;
        if (root as usize) < self.served.size() { Ok(root) } else { Err(INVALID) }
    }

    pub(crate) fn is_root(self, root: u32) -> bool {
        root as usize == self.served.rank()
    }

    /// `times` blocks of elements, one after the other.
    pub(crate) fn area(self, elements: Elements, times: usize) -> Result<Area, Refusal> {
        let element = self.element(elements.datatype, elements.count == 0)?;
        let count = count(elements.count)?.checked_mul(times).ok_or(INVALID)?;
        count.checked_mul(element.size).ok_or(INVALID)?;
        Ok(Area::single(elements.at, count, element))
    }

    /// Block `index` of elements.
    fn block(self, elements: Elements, index: usize) -> Result<Area, Refusal> {
        let element = self.element(elements.datatype, elements.count == 0)?;
        let count = count(elements.count)?;
        let displacement = (index * count) as isize;
        Ok(Area::blocks(elements.at, element, std::iter::once((count, displacement))))
    }

    pub(crate) fn blocks<N: Number, D: Number>(
        self,
        blocks: Blocks<N, D>,
        length: usize,
    ) -> Result<Area, Refusal> {
        let counts = self.lists.numbers(blocks.counts, length);
        let element = self.element(blocks.datatype, counts.iter().all(|count| *count == 0))?;
        let displacements = self.lists.numbers(blocks.displacements, length);
        if counts.iter().any(|count| *count < 0) {
            return Err(INVALID);
        }
        let blocks_of = counts.iter().zip(displacements).map(|(c, d)| (*c as usize, d as isize));
        Ok(Area::blocks(blocks.at, element, blocks_of))
    }

    pub(crate) fn typed_blocks<N: Number, D: Number>(
        self,
        blocks: TypedBlocks<N, D>,
        length: usize,
    ) -> Result<Area, Refusal> {
        let counts = self.lists.numbers(blocks.counts, length);
        let displacements = self.lists.numbers(blocks.displacements, length);
        let types = self.lists.types(self.abi, blocks.datatypes, length);
        let pieces = counts.iter().zip(displacements).zip(types).map(|((c, d), datatype)| {
            let at = blocks.at.cast::<u8>().wrapping_offset(d as isize);
            Ok(Piece { at, count: count(*c)?, element: self.element(datatype, *c == 0)? })
        });
        Ok(Area::of(pieces.collect::<Result<Vec<_>, Refusal>>()?.into_iter()))
    }
}

impl<M: Mode> Call<M> {
    /// Leaves a call with one buffer for sending and receiving, which MPI forbids, to a library that
    /// reports it. Other libraries accept such calls on some ranks, so all of them run here.
    pub(crate) fn check_apart(self, send: Pointer, receive: Pointer) -> Result<(), Refusal> {
        // The null address is MPI_BOTTOM, and the types then say where the data lie.
        let is_same = send == receive && !send.is_null();
        if is_same && self.abi.reports_aliases { Err(INVALID) } else { Ok(()) }
    }

    /// As [`check_apart`](Self::check_apart), for the same number of elements.
    fn check_elements_apart(self, send: Elements, receive: Elements) -> Result<(), Refusal> {
        let Elements { count, datatype, .. } = receive;
        let is_same = send.count == count && send.datatype == datatype && count != 0;
        if is_same { self.check_apart(send.at, receive.at) } else { Ok(()) }
    }

    /// As [`check_apart`](Self::check_apart), for a buffer of the root and its own one of the blocks
    /// of all ranks. The blocks of other ranks may lie behind the buffer, from the same address on.
    fn check_block_apart(
        self,
        (at, datatype): (Pointer, Handle),
        (blocks, datatype_of_blocks): (&Area, Handle),
    ) -> Result<(), Refusal> {
        let own = blocks.piece(self.served.rank());
        let is_same = datatype == datatype_of_blocks && own.bytes() != 0;
        if is_same { self.check_apart(at, own.at()) } else { Ok(()) }
    }
}

/// Calls a collective of tradewind with an input that may be in place.
macro_rules! with_input {
    ($input:expr, |$bytes:ident| $call:expr) => {
        match $input.bytes {
            Some($bytes) => $call,
            None => {
                let $bytes = tradewind::InPlace;
                $call
            }
        }
    };
}

pub(crate) use with_input;

pub(crate) fn barrier<M: Mode>(call: Call<M>) -> Start<M> {
    Ok(call.end(M::barrier(call.communicator()?)?, None, None))
}

pub(crate) fn bcast<M: Mode>(call: Call<M>, buffer: Elements, root: c_int) -> Start<M> {
    let abi = call.abi;
    let root = call.root(root)?;
    let area = call.area(buffer, 1)?;
    call.check_length(area.bytes(), 1)?;
    let communicator = call.communicator()?;
    // At the root the area is read: a packed copy holds the data. It needs no unpacking.
    let is_root = call.is_root(root);
    let output = if is_root { Output::preserved(abi, area) } else { Output::of(abi, area) };
    let started = M::bcast(communicator, output.bytes, root)?;
    match output.unpacked {
        Some((staging, area)) if is_root => {
            area.release(abi);
            Ok(call.end(started, Some(staging), None))
        }
        unpacked => Ok(call.end(started, None, unpacked)),
    }
}

pub(crate) fn allgather<M: Mode>(call: Call<M>, send: Elements, receive: Elements) -> Start<M> {
    let Call { abi, served, .. } = call;
    let area = call.area(receive, served.size())?;
    call.check_length(area.bytes(), 1)?;
    let own = call.block(receive, served.rank())?;
    call.check_apart(send.at, own.at())?;
    let communicator = call.communicator()?;
    let output = Output::of(abi, area);
    let input = if abi.is_in_place(send.at) {
        Input::in_place(abi, &own, &output)
    } else {
        Input::of(abi, &call.area(send, 1)?)
    };
    let bytes = output.bytes;
    let started = with_input!(input, |from| M::allgather(communicator, from, bytes))?;
    Ok(call.end(started, input.staging, output.unpacked))
}

pub(crate) fn allgatherv<M: Mode, N: Number, D: Number>(
    call: Call<M>,
    send: Elements,
    receive: Blocks<N, D>,
) -> Start<M> {
    let Call { abi, served, .. } = call;
    let area = call.blocks(receive, served.size())?;
    let sizes = area.sizes();
    call.check_length(area.bytes(), 1)?;
    let own = area.piece(served.rank());
    call.check_apart(send.at, own.at())?;
    let communicator = call.communicator()?;
    let output = Output::of(abi, area);
    let input = if abi.is_in_place(send.at) {
        Input::in_place(abi, &own, &output)
    } else {
        Input::of(abi, &call.area(send, 1)?)
    };
    let bytes = output.bytes;
    let started = with_input!(input, |from| M::allgatherv(communicator, from, bytes, &sizes))?;
    Ok(call.end(started, input.staging, output.unpacked))
}

pub(crate) fn alltoall<M: Mode>(call: Call<M>, send: Elements, receive: Elements) -> Start<M> {
    let Call { abi, served, .. } = call;
    let area = call.area(receive, served.size())?;
    call.check_length(area.bytes(), 1)?;
    call.check_elements_apart(send, receive)?;
    let communicator = call.communicator()?;
    let output = Output::of(abi, area.clone());
    let input = if abi.is_in_place(send.at) {
        Input::in_place(abi, &area, &output)
    } else {
        Input::of(abi, &call.area(send, served.size())?)
    };
    let bytes = output.bytes;
    let started = with_input!(input, |from| M::alltoall(communicator, from, bytes))?;
    Ok(call.end(started, input.staging, output.unpacked))
}

pub(crate) fn alltoallv<M: Mode, N: Number, D: Number>(
    call: Call<M>,
    send: Blocks<N, D>,
    receive: Blocks<N, D>,
) -> Start<M> {
    let ranks = call.served.size();
    let area = call.blocks(receive, ranks)?;
    if send.counts == receive.counts && send.datatype == receive.datatype {
        call.check_apart(send.at, receive.at)?;
    }
    let sent = match call.abi.is_in_place(send.at) {
        true => None,
        false => Some(call.blocks(send, ranks)?),
    };
    exchange(call, sent, area)
}

pub(crate) fn alltoallw<M: Mode, N: Number, D: Number>(
    call: Call<M>,
    send: TypedBlocks<N, D>,
    receive: TypedBlocks<N, D>,
) -> Start<M> {
    let ranks = call.served.size();
    let area = call.typed_blocks(receive, ranks)?;
    if send.counts == receive.counts && send.datatypes == receive.datatypes {
        call.check_apart(send.at, receive.at)?;
    }
    let sent = match call.abi.is_in_place(send.at) {
        true => None,
        false => Some(call.typed_blocks(send, ranks)?),
    };
    exchange(call, sent, area)
}

/// An all-to-all of blocks of different sizes; without `sent` it is in place.
fn exchange<M: Mode>(call: Call<M>, sent: Option<Area>, area: Area) -> Start<M> {
    let abi = call.abi;
    call.check_unknown_lengths()?;
    let communicator = call.communicator()?;
    let received = area.sizes();
    let output = Output::of(abi, area.clone());
    let (input, sizes) = match &sent {
        None => (Input::in_place(abi, &area, &output), received.clone()),
        Some(sent) => (Input::of(abi, sent), sent.sizes()),
    };
    let bytes = output.bytes;
    let started =
        with_input!(input, |from| M::alltoallv(communicator, from, &sizes, bytes, &received))?;
    Ok(call.end(started, input.staging, output.unpacked))
}

pub(crate) fn gather<M: Mode>(
    call: Call<M>,
    send: Elements,
    receive: Elements,
    root: c_int,
) -> Start<M> {
    let Call { abi, served, .. } = call;
    let root = call.root(root)?;
    let ranks = served.size();
    if !call.is_root(root) {
        let area = call.area(send, 1)?;
        call.check_length(area.bytes(), ranks)?;
        let communicator = call.communicator()?;
        let input = Input::of(abi, &area);
        let from = input.bytes.unwrap_or_default();
        let started = M::gather(communicator, from, &mut [], root)?;
        return Ok(call.end(started, input.staging, None));
    }
    let area = call.area(receive, ranks)?;
    call.check_length(area.bytes(), 1)?;
    call.check_elements_apart(send, receive)?;
    let communicator = call.communicator()?;
    let output = Output::of(abi, area);
    let input = if abi.is_in_place(send.at) {
        Input::in_place(abi, &call.block(receive, served.rank())?, &output)
    } else {
        Input::of(abi, &call.area(send, 1)?)
    };
    let bytes = output.bytes;
    let started = with_input!(input, |from| M::gather(communicator, from, bytes, root))?;
    Ok(call.end(started, input.staging, output.unpacked))
}

pub(crate) fn gatherv<M: Mode, N: Number, D: Number>(
    call: Call<M>,
    send: Elements,
    receive: Blocks<N, D>,
    root: c_int,
) -> Start<M> {
    let Call { abi, served, .. } = call;
    let root = call.root(root)?;
    call.check_unknown_lengths()?;
    if !call.is_root(root) {
        let area = call.area(send, 1)?;
        let communicator = call.communicator()?;
        let input = Input::of(abi, &area);
        let from = input.bytes.unwrap_or_default();
        let started = M::gatherv(communicator, from, &mut [], &[], root)?;
        return Ok(call.end(started, input.staging, None));
    }
    let area = call.blocks(receive, served.size())?;
    let sizes = area.sizes();
    if send.count != 0 {
        call.check_block_apart((send.at, send.datatype), (&area, receive.datatype))?;
    }
    let communicator = call.communicator()?;
    let output = Output::of(abi, area.clone());
    let input = match abi.is_in_place(send.at) {
        true => Input::in_place(abi, &area.piece(served.rank()), &output),
        false => Input::of(abi, &call.area(send, 1)?),
    };
    let bytes = output.bytes;
    let started = with_input!(input, |from| M::gatherv(communicator, from, bytes, &sizes, root))?;
    Ok(call.end(started, input.staging, output.unpacked))
}

pub(crate) fn scatter<M: Mode>(
    call: Call<M>,
    send: Elements,
    receive: Elements,
    root: c_int,
) -> Start<M> {
    let Call { abi, served, .. } = call;
    let root = call.root(root)?;
    let ranks = served.size();
    if !call.is_root(root) {
        let area = call.area(receive, 1)?;
        call.check_length(area.bytes(), ranks)?;
        let communicator = call.communicator()?;
        let output = Output::of(abi, area);
        let started = M::scatter(communicator, &[], output.bytes, root)?;
        return Ok(call.end(started, None, output.unpacked));
    }
    let area = call.area(send, ranks)?;
    call.check_length(area.bytes(), 1)?;
    call.check_elements_apart(send, receive)?;
    let communicator = call.communicator()?;
    let input = Input::of(abi, &area);
    let from = input.bytes.unwrap_or_default();
    if abi.is_in_place(receive.at) {
        let started = M::scatter(communicator, from, InPlace, root)?;
        return Ok(call.end(started, input.staging, None));
    }
    let output = Output::of(abi, call.area(receive, 1)?);
    let started = M::scatter(communicator, from, output.bytes, root)?;
    Ok(call.end(started, input.staging, output.unpacked))
}

pub(crate) fn scatterv<M: Mode, N: Number, D: Number>(
    call: Call<M>,
    send: Blocks<N, D>,
    receive: Elements,
    root: c_int,
) -> Start<M> {
    let Call { abi, served, .. } = call;
    let root = call.root(root)?;
    call.check_unknown_lengths()?;
    if !call.is_root(root) {
        let area = call.area(receive, 1)?;
        let communicator = call.communicator()?;
        let output = Output::of(abi, area);
        let started = M::scatterv(communicator, &[], &[], output.bytes, root)?;
        return Ok(call.end(started, None, output.unpacked));
    }
    let area = call.blocks(send, served.size())?;
    let sizes = area.sizes();
    if receive.count != 0 {
        call.check_block_apart((receive.at, receive.datatype), (&area, send.datatype))?;
    }
    let communicator = call.communicator()?;
    let input = Input::of(abi, &area);
    let from = input.bytes.unwrap_or_default();
    if abi.is_in_place(receive.at) {
        let started = M::scatterv(communicator, from, &sizes, InPlace, root)?;
        return Ok(call.end(started, input.staging, None));
    }
    let output = Output::of(abi, call.area(receive, 1)?);
    let started = M::scatterv(communicator, from, &sizes, output.bytes, root)?;
    Ok(call.end(started, input.staging, output.unpacked))
}
