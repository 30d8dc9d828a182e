//! The reductions: arguments of MPI become calls of tradewind.

use crate::buffers::{Area, Input, Output, Staging, TypeInfo};
use crate::collectives::{Call, INVALID, Start, count, with_input};
use crate::host::{Handle, Pointer};
use crate::lists::Number;
use crate::mode::Mode;
use crate::reductions::{Computed, Fold, computed};
use crate::refusal::Refusal;
use crate::report::Reason;
use crate::requests::Rest;
use std::ffi::c_int;

/// The type and the operation of a reduction.
#[derive(Clone, Copy)]
pub(crate) struct Reduction {
    pub(crate) datatype: Handle,
    pub(crate) operation: Handle,
}

/// The input of a reduction: the buffer that is sent or, in place, the one that receives. Only a
/// rank with a result has the latter.
fn input_of_reduction<M: Mode>(
    call: Call<M>,
    (send, receive, has_result): (Pointer, Pointer, bool),
    (count, element): (usize, TypeInfo),
) -> Result<(Area, bool), Refusal> {
    if has_result && count > 0 {
        call.check_apart(send, receive)?;
    }
    let is_in_place = call.abi.is_in_place(send);
    let at = if is_in_place { receive } else { send };
    Ok((Area::single(at, count, element), is_in_place))
}

/// The buffers of a reduction with results of `count` elements.
#[derive(Clone, Copy)]
pub(crate) struct Reduced {
    pub(crate) send: Pointer,
    pub(crate) receive: Pointer,
    pub(crate) count: i64,
}

/// The contributions of all ranks, with memory for them.
struct Gathered {
    input: Input,
    memory: Staging,
    bytes: &'static mut [u8],
}

impl Gathered {
    /// `ranks` contributions as long as `own`.
    fn new<M: Mode>(call: Call<M>, own: &Area, ranks: usize) -> Self {
        let input = Input::of(call.abi, own);
        Self::with(input, own.bytes() * ranks)
    }

    fn with(input: Input, bytes: usize) -> Self {
        let memory = Staging::new(bytes);
        // SAFETY: only the request uses the memory until the call is complete, and the fold that
        // takes the memory runs after that.
        let bytes = unsafe { memory.slice() };
        Gathered { input, memory, bytes }
    }
}

impl<M: Mode> Call<M> {
    /// A fold of `ranks` contributions of `count` elements into `result`.
    fn fold(
        self,
        memory: Staging,
        (ranks, count): (usize, usize),
        (reduction, element): (Reduction, TypeInfo),
        result: Pointer,
    ) -> Option<Rest> {
        let operation = (self.abi.handle(reduction.operation), element);
        Some(Rest::Fold(Fold::new(memory, (ranks, count), operation, result)))
    }

    /// The operation, if it is one at all, and the number of elements and their type. A count that
    /// `MPI_Reduce_local` cannot take is left to the MPI library.
    fn reduction(
        self,
        reduction: Reduction,
        elements: i64,
    ) -> Result<(usize, TypeInfo, Option<tradewind::OpOnBytes>), Refusal> {
        let operation = self.abi.handle(reduction.operation);
        let element = self.type_info(reduction.datatype)?;
        if operation == self.abi.op_null {
            return Err(INVALID);
        }
        let native = match computed(self.abi, operation, element) {
            Computed::Here(op) => Some(op),
            Computed::ByLibrary => None,
            Computed::Never => return Err(INVALID),
        };
        let count = count(elements)?;
        if native.is_none() {
            self.mode.check_operation_of_library()?;
        }
        if native.is_none() && c_int::try_from(count).is_err() {
            return Err(Refusal::Left(Reason::Length));
        }
        count.checked_mul(element.size).ok_or(INVALID)?;
        Ok((count, element, native))
    }
}

pub(crate) fn allreduce<M: Mode>(
    call: Call<M>,
    buffers: Reduced,
    reduction: Reduction,
) -> Start<M> {
    let Call { abi, served, .. } = call;
    let (count, element, native) = call.reduction(reduction, buffers.count)?;
    let (own, is_in_place) =
        input_of_reduction(call, (buffers.send, buffers.receive, true), (count, element))?;
    let Some(op) = native else {
        call.check_contributions(own.bytes())?;
        let communicator = call.communicator()?;
        let Gathered { input, memory, bytes } = Gathered::new(call, &own, served.size());
        let started = M::allgather(communicator, input.bytes.unwrap_or_default(), bytes)?;
        let ranks = (served.size(), count);
        let rest = call.fold(memory, ranks, (reduction, element), buffers.receive);
        return Ok(M::operation(abi, started, input.staging, rest));
    };
    call.check_length(own.bytes(), 1)?;
    let communicator = call.communicator()?;
    let output = Output::of(abi, Area::single(buffers.receive, count, element));
    let input = match is_in_place {
        true => Input::in_place(abi, &own, &output),
        false => Input::of(abi, &own),
    };
    let bytes = output.bytes;
    let started = with_input!(input, |from| M::allreduce(communicator, from, bytes, op))?;
    Ok(call.end(started, input.staging, output.unpacked))
}

pub(crate) fn reduce<M: Mode>(
    call: Call<M>,
    buffers: Reduced,
    reduction: Reduction,
    root: c_int,
) -> Start<M> {
    let Call { abi, served, .. } = call;
    let root = call.root(root)?;
    let (count, element, native) = call.reduction(reduction, buffers.count)?;
    let is_root = call.is_root(root);
    let (own, is_in_place) =
        input_of_reduction(call, (buffers.send, buffers.receive, is_root), (count, element))?;
    let Some(op) = native else {
        call.check_contributions(own.bytes())?;
        let communicator = call.communicator()?;
        if !is_root {
            let input = Input::of(abi, &own);
            let from = input.bytes.unwrap_or_default();
            let started = M::gather(communicator, from, &mut [], root)?;
            return Ok(call.end(started, input.staging, None));
        }
        let Gathered { input, memory, bytes } = Gathered::new(call, &own, served.size());
        let started = M::gather(communicator, input.bytes.unwrap_or_default(), bytes, root)?;
        let ranks = (served.size(), count);
        let rest = call.fold(memory, ranks, (reduction, element), buffers.receive);
        return Ok(M::operation(abi, started, input.staging, rest));
    };
    call.check_length(own.bytes(), 1)?;
    let communicator = call.communicator()?;
    let output = match is_root {
        true => Output::of(abi, Area::single(buffers.receive, count, element)),
        false => Output::none(),
    };
    let input = match is_in_place {
        true => Input::in_place(abi, &own, &output),
        false => Input::of(abi, &own),
    };
    let bytes = output.bytes;
    let started = with_input!(input, |from| M::reduce(communicator, from, bytes, op, root))?;
    Ok(call.end(started, input.staging, output.unpacked))
}

/// The form of a prefix reduction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prefix {
    /// The ranks up to this one.
    Inclusive,
    /// The ranks below this one.
    Exclusive,
}

pub(crate) fn scan<M: Mode>(
    call: Call<M>,
    buffers: Reduced,
    reduction: Reduction,
    prefix: Prefix,
) -> Start<M> {
    let Call { abi, served, .. } = call;
    let (count, element, native) = call.reduction(reduction, buffers.count)?;
    let (own, is_in_place) =
        input_of_reduction(call, (buffers.send, buffers.receive, true), (count, element))?;
    let Some(op) = native else {
        call.check_contributions(own.bytes())?;
        let communicator = call.communicator()?;
        let Gathered { input, memory, bytes } = Gathered::new(call, &own, served.size());
        let started = M::allgather(communicator, input.bytes.unwrap_or_default(), bytes)?;
        let combined = served.rank() + usize::from(prefix == Prefix::Inclusive);
        let rest = call.fold(memory, (combined, count), (reduction, element), buffers.receive);
        return Ok(M::operation(abi, started, input.staging, rest));
    };
    call.check_length(own.bytes(), 1)?;
    let communicator = call.communicator()?;
    let output = Output::of(abi, Area::single(buffers.receive, count, element));
    let input = match is_in_place {
        true => Input::in_place(abi, &own, &output),
        false => Input::of(abi, &own),
    };
    let bytes = output.bytes;
    let started = with_input!(input, |from| match prefix {
        Prefix::Inclusive => M::scan(communicator, from, bytes, op),
        Prefix::Exclusive => M::exscan(communicator, from, bytes, op),
    })?;
    Ok(call.end(started, input.staging, output.unpacked))
}

pub(crate) fn reduce_scatter_block<M: Mode>(
    call: Call<M>,
    buffers: Reduced,
    reduction: Reduction,
) -> Start<M> {
    scatter_reduction(call, buffers, reduction, &vec![buffers.count; call.served.size()], true)
}

pub(crate) fn reduce_scatter<M: Mode, N: Number>(
    call: Call<M>,
    (send, receive): (Pointer, Pointer),
    counts: *const N,
    reduction: Reduction,
) -> Start<M> {
    let counts = call.lists.numbers(counts, call.served.size());
    let count = counts[call.served.rank()];
    scatter_reduction(call, Reduced { send, receive, count }, reduction, &counts, false)
}

/// A reduction with a result that is distributed in blocks of these numbers of elements.
fn scatter_reduction<M: Mode>(
    call: Call<M>,
    buffers: Reduced,
    reduction: Reduction,
    counts: &[i64],
    is_equal: bool,
) -> Start<M> {
    let Call { abi, served, .. } = call;
    if counts.iter().any(|count| *count < 0) {
        return Err(INVALID);
    }
    let total =
        counts.iter().try_fold(0i64, |sum, count| sum.checked_add(*count)).ok_or(INVALID)?;
    let (all, element, native) = call.reduction(reduction, total)?;
    let (own, is_in_place) =
        input_of_reduction(call, (buffers.send, buffers.receive, true), (all, element))?;
    call.check_length(own.bytes(), 1)?;
    if native.is_none() {
        // Contributions are sent in blocks of different lengths.
        call.check_unknown_lengths()?;
    }
    let communicator = call.communicator()?;
    let count = buffers.count as usize;
    let sizes: Vec<usize> = counts.iter().map(|count| *count as usize * element.size).collect();
    let Some(op) = native else {
        let input = Input::of(abi, &own);
        let block = sizes[served.rank()];
        let Gathered { input, memory, bytes } = Gathered::with(input, block * served.size());
        let from = input.bytes.unwrap_or_default();
        let received = vec![block; served.size()];
        let started = M::alltoallv(communicator, from, &sizes, bytes, &received)?;
        let ranks = (served.size(), count);
        let rest = call.fold(memory, ranks, (reduction, element), buffers.receive);
        return Ok(M::operation(abi, started, input.staging, rest));
    };
    // In place the output also holds the input.
    let length = if is_in_place { all } else { count };
    let output = Output::of(abi, Area::single(buffers.receive, length, element));
    let input = match is_in_place {
        true => Input::in_place(abi, &own, &output),
        false => Input::of(abi, &own),
    };
    let bytes = output.bytes;
    let started = with_input!(input, |from| match is_equal {
        true => M::reduce_scatter_block(communicator, from, bytes, op),
        false => M::reduce_scatter(communicator, from, bytes, &sizes, op),
    })?;
    Ok(call.end(started, input.staging, output.unpacked))
}
