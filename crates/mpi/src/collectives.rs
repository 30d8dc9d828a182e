//! The collectives: arguments of MPI become calls of tradewind, in both modes.
//!
//! Each function decides by grounds that are equal on all ranks, and returns what remains of a call.
//! Lengths that only pairs of ranks know, as those of the forms with a `v` or a `w`, decide
//! nothing.

use crate::abi::Abi;
use crate::buffers::{Area, Input, Output, Piece, Staging, TypeInfo, type_info};
use crate::communicators::Served;
use crate::host::{Handle, Pointer, Types};
use crate::lists::{Lists, Number};
use crate::mode::{Background, From, Mode, To};
use crate::reason::Reason;
use crate::refusal::Refusal;
use crate::report;
use crate::requests::Rest;
use std::ffi::c_int;
use tradewind::Communicator;

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
pub(crate) struct Listed<N, D> {
    pub(crate) at: Pointer,
    pub(crate) counts: *const N,
    pub(crate) displacements: *const D,
    pub(crate) datatype: Handle,
}

/// Blocks of elements, each of a type of its own, as the forms with a `w` pass them. Displacements
/// count bytes.
#[derive(Clone, Copy)]
pub(crate) struct Typed<N, D> {
    pub(crate) at: Pointer,
    pub(crate) counts: *const N,
    pub(crate) displacements: *const D,
    pub(crate) datatypes: Types,
}

/// A buffer with a block for each rank or neighbour, in one of the three ways to describe it.
pub(crate) trait Blocks: Copy {
    /// All blocks have one length.
    const ARE_EQUAL: bool;

    /// The address of the buffer.
    fn at(self) -> Pointer;

    /// The first `number` blocks.
    fn area<M: Mode>(self, call: Call<M>, number: usize) -> Result<Area, Refusal>;

    /// One of the blocks, which are `all`.
    fn block<M: Mode>(self, _call: Call<M>, all: &Area, index: usize) -> Result<Area, Refusal> {
        Ok(all.piece(index))
    }

    /// The size of an element and its type, equal for buffers with the same elements; `None` without
    /// elements.
    fn description(self) -> Option<(usize, Handle)>;

    /// As [`Call::check_apart`], for buffers with the same elements.
    fn check_apart<M: Mode>(self, call: Call<M>, other: Self) -> Result<(), Refusal> {
        let is_same = self.description().is_some() && self.description() == other.description();
        if is_same { call.check_apart(self.at(), other.at()) } else { Ok(()) }
    }
}

/// Blocks of elements of one type.
pub(crate) trait OneType: Blocks {
    /// As [`Call::check_apart`], for a buffer of the root beside these blocks, which are `all`.
    fn check_apart_from<M: Mode>(
        self,
        call: Call<M>,
        one: Elements,
        all: &Area,
    ) -> Result<(), Refusal>;
}

impl Blocks for Elements {
    const ARE_EQUAL: bool = true;

    fn at(self) -> Pointer {
        self.at
    }

    fn area<M: Mode>(self, call: Call<M>, number: usize) -> Result<Area, Refusal> {
        let element = call.element(self.datatype, self.count == 0)?;
        let count = count(self.count)?.checked_mul(number).ok_or(INVALID)?;
        count.checked_mul(element.size).ok_or(INVALID)?;
        Ok(Area::single(self.at, count, element))
    }

    fn block<M: Mode>(self, call: Call<M>, _all: &Area, index: usize) -> Result<Area, Refusal> {
        let element = call.element(self.datatype, self.count == 0)?;
        let count = count(self.count)?;
        let displacement = (index * count) as isize;
        Ok(Area::blocks(self.at, element, std::iter::once((count, displacement))))
    }

    fn description(self) -> Option<(usize, Handle)> {
        (self.count != 0).then_some((self.count as usize, self.datatype))
    }
}

impl OneType for Elements {
    fn check_apart_from<M: Mode>(
        self,
        call: Call<M>,
        one: Elements,
        _all: &Area,
    ) -> Result<(), Refusal> {
        self.check_apart(call, one)
    }
}

impl<N: Number, D: Number> Blocks for Listed<N, D> {
    const ARE_EQUAL: bool = false;

    fn at(self) -> Pointer {
        self.at
    }

    fn area<M: Mode>(self, call: Call<M>, number: usize) -> Result<Area, Refusal> {
        let counts = call.lists.numbers(self.counts, number);
        let element = call.element(self.datatype, counts.iter().all(|count| *count == 0))?;
        let displacements = call.lists.numbers(self.displacements, number);
        if counts.iter().any(|count| *count < 0) {
            return Err(INVALID);
        }
        let blocks = counts.iter().zip(displacements).map(|(c, d)| (*c as usize, d as isize));
        Ok(Area::blocks(self.at, element, blocks))
    }

    fn description(self) -> Option<(usize, Handle)> {
        Some((self.counts.addr(), self.datatype))
    }
}

impl<N: Number, D: Number> OneType for Listed<N, D> {
    /// The blocks of other ranks may lie behind the buffer, from the same address on.
    fn check_apart_from<M: Mode>(
        self,
        call: Call<M>,
        one: Elements,
        all: &Area,
    ) -> Result<(), Refusal> {
        let own = all.piece(call.served.rank());
        let is_same = one.count != 0 && one.datatype == self.datatype && own.bytes() != 0;
        if is_same { call.check_apart(one.at, own.at()) } else { Ok(()) }
    }
}

impl<N: Number, D: Number> Blocks for Typed<N, D> {
    const ARE_EQUAL: bool = false;

    fn at(self) -> Pointer {
        self.at
    }

    fn area<M: Mode>(self, call: Call<M>, number: usize) -> Result<Area, Refusal> {
        let counts = call.lists.numbers(self.counts, number);
        let displacements = call.lists.numbers(self.displacements, number);
        let types = call.lists.types(call.abi, self.datatypes, number);
        let pieces = counts.iter().zip(displacements).zip(types).map(|((c, d), datatype)| {
            let at = self.at.cast::<u8>().wrapping_offset(d as isize);
            Ok(Piece { at, count: count(*c)?, element: call.element(datatype, *c == 0)? })
        });
        Ok(Area::of(pieces.collect::<Result<Vec<_>, Refusal>>()?.into_iter()))
    }

    fn description(self) -> Option<(usize, Handle)> {
        Some((self.counts.addr(), self.datatypes.addr().cast_signed()))
    }
}

/// The bytes of each block, unless all blocks have one length.
pub(crate) fn sizes<B: Blocks>(all: &Area) -> Option<Vec<usize>> {
    (!B::ARE_EQUAL).then(|| all.sizes())
}

/// The data that a rank sends.
pub(crate) enum Sent {
    Apart(Area),
    /// In the area of the output.
    InPlace(Area),
}

impl Sent {
    pub(crate) fn area(&self) -> &Area {
        let (Sent::Apart(area) | Sent::InPlace(area)) = self;
        area
    }
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
        self.mode.check_unknown_lengths()
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

    /// The blocks that a rank sends, which with MPI_IN_PLACE are `own`.
    #[inline]
    fn sent<B: Blocks>(self, blocks: B, number: usize, own: Area) -> Result<Sent, Refusal> {
        match self.abi.is_in_place(blocks.at()) {
            true => Ok(Sent::InPlace(own)),
            false => blocks.area(self, number).map(Sent::Apart),
        }
    }

    /// Runs or starts a call by `start`, with the bytes of its input, unless they lie in the output,
    /// and of its output. No check may follow.
    // Always inline: the areas stay in registers, and the shortest calls take 200 ns.
    #[inline(always)]
    pub(crate) fn run(
        self,
        sent: Sent,
        output: Area,
        start: impl FnOnce(&Communicator, Option<From>, To) -> tradewind::Result<M::Begun>,
    ) -> Start<M> {
        let communicator = self.communicator()?;
        let output = Output::of(self.abi, output);
        let input = match &sent {
            Sent::Apart(sent) => Input::of(self.abi, sent),
            Sent::InPlace(own) => Input::in_place(self.abi, own, &output),
        };
        let begun = start(communicator, input.bytes, output.bytes)?;
        Ok(self.end(begun, input.staging, output.unpacked))
    }

    /// Leaves a call with one buffer for sending and receiving, which MPI forbids, to a library that
    /// reports it. Other libraries accept such calls on some ranks, so all of them run here.
    pub(crate) fn check_apart(self, send: Pointer, receive: Pointer) -> Result<(), Refusal> {
        // The null address is MPI_BOTTOM, and the types then say where the data lie.
        let is_same = send == receive && !send.is_null();
        if is_same && self.abi.reports_aliases { Err(INVALID) } else { Ok(()) }
    }
}

pub(crate) fn barrier<M: Mode>(call: Call<M>) -> Start<M> {
    Ok(call.end(M::barrier(call.communicator()?)?, None, None))
}

pub(crate) fn bcast<M: Mode>(call: Call<M>, buffer: Elements, root: c_int) -> Start<M> {
    let abi = call.abi;
    let root = call.root(root)?;
    let area = buffer.area(call, 1)?;
    call.check_length(area.bytes(), 1)?;
    if !call.is_root(root) {
        let nothing = Sent::Apart(Area::empty());
        return call.run(nothing, area, |communicator, _, to| M::bcast(communicator, to, root));
    }
    // At the root the area is read: a packed copy holds the data. It needs no unpacking.
    let communicator = call.communicator()?;
    let output = Output::preserved(abi, area);
    let begun = M::bcast(communicator, output.bytes, root)?;
    let staging = output.unpacked.map(|(staging, area)| {
        area.release(abi);
        staging
    });
    Ok(call.end(begun, staging, None))
}

pub(crate) fn allgather<M: Mode, B: Blocks>(call: Call<M>, send: Elements, receive: B) -> Start<M> {
    let area = receive.area(call, call.served.size())?;
    call.check_length(area.bytes(), 1)?;
    let own = receive.block(call, &area, call.served.rank())?;
    call.check_apart(send.at, own.at())?;
    let sent = call.sent(send, 1, own)?;
    let sizes = sizes::<B>(&area);
    call.run(sent, area, |communicator, from, to| match &sizes {
        None => M::allgather(communicator, from, to),
        Some(sizes) => M::allgatherv(communicator, from, to, sizes),
    })
}

pub(crate) fn alltoall<M: Mode>(call: Call<M>, send: Elements, receive: Elements) -> Start<M> {
    let ranks = call.served.size();
    let area = receive.area(call, ranks)?;
    call.check_length(area.bytes(), 1)?;
    send.check_apart(call, receive)?;
    let sent = call.sent(send, ranks, area.clone())?;
    call.run(sent, area, M::alltoall)
}

pub(crate) fn alltoallv<M: Mode, B: Blocks>(call: Call<M>, send: B, receive: B) -> Start<M> {
    call.check_unknown_lengths()?;
    let ranks = call.served.size();
    let area = receive.area(call, ranks)?;
    send.check_apart(call, receive)?;
    let sent = call.sent(send, ranks, area.clone())?;
    let sizes = [sent.area().sizes(), area.sizes()];
    call.run(sent, area, |communicator, from, to| {
        M::alltoallv(communicator, from, &sizes[0], to, &sizes[1])
    })
}

pub(crate) fn gather<M: Mode, B: OneType>(
    call: Call<M>,
    send: Elements,
    receive: B,
    root: c_int,
) -> Start<M> {
    let root = call.root(root)?;
    let ranks = call.served.size();
    if !B::ARE_EQUAL {
        call.check_unknown_lengths()?;
    }
    let is_root = call.is_root(root);
    let area = if is_root { receive.area(call, ranks)? } else { Area::empty() };
    if B::ARE_EQUAL && is_root {
        call.check_length(area.bytes(), 1)?;
    }
    let sent = if is_root {
        receive.check_apart_from(call, send, &area)?;
        let own = receive.block(call, &area, call.served.rank())?;
        call.sent(send, 1, own)?
    } else {
        let sent = send.area(call, 1)?;
        if B::ARE_EQUAL {
            call.check_length(sent.bytes(), ranks)?;
        }
        Sent::Apart(sent)
    };
    let sizes = sizes::<B>(&area);
    call.run(sent, area, |communicator, from, to| match &sizes {
        None => M::gather(communicator, from, to, root),
        Some(sizes) => M::gatherv(communicator, from, to, sizes, root),
    })
}

pub(crate) fn scatter<M: Mode, B: OneType>(
    call: Call<M>,
    send: B,
    receive: Elements,
    root: c_int,
) -> Start<M> {
    let root = call.root(root)?;
    let ranks = call.served.size();
    if !B::ARE_EQUAL {
        call.check_unknown_lengths()?;
    }
    let is_root = call.is_root(root);
    let blocks = if is_root { send.area(call, ranks)? } else { Area::empty() };
    if is_root {
        // First: the other ranks leave a length as well, and know no other argument of the root.
        if B::ARE_EQUAL {
            call.check_length(blocks.bytes(), 1)?;
        }
        send.check_apart_from(call, receive, &blocks)?;
    }
    let is_in_place = is_root && call.abi.is_in_place(receive.at);
    let area = if is_in_place { Area::empty() } else { receive.area(call, 1)? };
    if B::ARE_EQUAL && !is_root {
        call.check_length(area.bytes(), ranks)?;
    }
    let sizes = sizes::<B>(&blocks);
    call.run(Sent::Apart(blocks), area, |communicator, from, to| {
        let from = from.unwrap_or_default();
        let to = (!is_in_place).then_some(to);
        match &sizes {
            None => M::scatter(communicator, from, to, root),
            Some(sizes) => M::scatterv(communicator, from, sizes, to, root),
        }
    })
}
