//! The reductions: arguments of MPI become calls of tradewind.

use crate::buffers::{Area, Input, Staging, TypeInfo};
use crate::collectives::{Call, INVALID, Sent, Start, count};
use crate::host::{Handle, Pointer};
use crate::lists::Number;
use crate::mode::{From, Mode, To};
use crate::reason::Reason;
use crate::reductions::{Computed, Fold, computed};
use crate::refusal::Refusal;
use crate::requests::Rest;
use std::ffi::c_int;
use tradewind::Communicator;

/// The type and the operation of a reduction.
#[derive(Clone, Copy)]
pub(crate) struct Reduction {
    pub(crate) datatype: Handle,
    pub(crate) operation: Handle,
}

/// The buffers of a reduction with results of `count` elements.
#[derive(Clone, Copy)]
pub(crate) struct Reduced {
    pub(crate) send: Pointer,
    pub(crate) receive: Pointer,
    pub(crate) count: i64,
}

/// The elements of a reduction and its operation.
#[derive(Clone, Copy)]
struct Combination {
    count: usize,
    element: TypeInfo,
    operation: Handle,
    /// The operation of tradewind, if it has it.
    native: Option<tradewind::OpOnBytes>,
}

impl<M: Mode> Call<M> {
    /// The operation, if it is one at all, and the number of elements and their type. A count that
    /// `MPI_Reduce_local` cannot take is left to the MPI library.
    fn reduction(self, reduction: Reduction, elements: i64) -> Result<Combination, Refusal> {
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
        Ok(Combination { count, element, operation, native })
    }

    /// The elements that a rank sends: those in its buffer or, in place, in the one that receives. Only
    /// a rank with a result has the latter.
    #[inline(always)]
    fn contribution(
        self,
        Reduced { send, receive, .. }: Reduced,
        has_result: bool,
        Combination { count, element, .. }: Combination,
    ) -> Result<Sent, Refusal> {
        if has_result && count > 0 {
            self.check_apart(send, receive)?;
        }
        Ok(match self.abi.is_in_place(send) {
            true => Sent::InPlace(Area::single(receive, count, element)),
            false => Sent::Apart(Area::single(send, count, element)),
        })
    }

    /// Sends the elements of `own` by `start`, which receives `bytes` bytes of contributions, and then
    /// combines the first `ranks` of these by the MPI library into `count` elements of `result`.
    fn fold(
        self,
        own: &Area,
        (bytes, ranks): (usize, usize),
        Combination { element, operation, .. }: Combination,
        (result, count): (Pointer, usize),
        start: impl FnOnce(&Communicator, From, To) -> tradewind::Result<M::Begun>,
    ) -> Start<M> {
        let communicator = self.communicator()?;
        let input = Input::of(self.abi, own);
        let memory = Staging::new(bytes);
        // SAFETY: only the request uses the memory until the call is complete, and the fold that
        // takes the memory runs after that.
        let received = unsafe { memory.slice() };
        let begun = start(communicator, input.bytes.unwrap_or_default(), received)?;
        let fold = Fold::new(memory, (ranks, count), (operation, element), result);
        Ok(M::operation(self.abi, begun, input.staging, Some(Rest::Fold(fold))))
    }

    /// As [`fold`](Self::fold), with the contributions of all ranks at all ranks.
    // Never inline: the operations of tradewind need none of it.
    #[inline(never)]
    fn fold_of_all(
        self,
        sent: &Sent,
        ranks: usize,
        combination: Combination,
        result: Pointer,
    ) -> Start<M> {
        let own = sent.area();
        self.check_contributions(own.bytes())?;
        let bytes = own.bytes() * self.served.size();
        let to = (result, combination.count);
        self.fold(own, (bytes, ranks), combination, to, |communicator, from, to| {
            M::allgather(communicator, Some(from), to)
        })
    }
}

pub(crate) fn allreduce<M: Mode>(
    call: Call<M>,
    buffers: Reduced,
    reduction: Reduction,
) -> Start<M> {
    let combination = call.reduction(reduction, buffers.count)?;
    let sent = call.contribution(buffers, true, combination)?;
    let Some(op) = combination.native else {
        return call.fold_of_all(&sent, call.served.size(), combination, buffers.receive);
    };
    call.check_length(sent.area().bytes(), 1)?;
    let area = Area::single(buffers.receive, combination.count, combination.element);
    call.run(sent, area, |communicator, from, to| M::allreduce(communicator, from, to, op))
}

pub(crate) fn reduce<M: Mode>(
    call: Call<M>,
    buffers: Reduced,
    reduction: Reduction,
    root: c_int,
) -> Start<M> {
    let root = call.root(root)?;
    let combination = call.reduction(reduction, buffers.count)?;
    let is_root = call.is_root(root);
    let sent = call.contribution(buffers, is_root, combination)?;
    let Combination { count, element, native, .. } = combination;
    if let Some(op) = native {
        call.check_length(sent.area().bytes(), 1)?;
        let area =
            if is_root { Area::single(buffers.receive, count, element) } else { Area::empty() };
        return call
            .run(sent, area, |communicator, from, to| M::reduce(communicator, from, to, op, root));
    }
    let own = sent.area();
    call.check_contributions(own.bytes())?;
    if !is_root {
        let own = Sent::Apart(own.clone());
        return call.run(own, Area::empty(), |communicator, from, to| {
            M::gather(communicator, from, to, root)
        });
    }
    let ranks = call.served.size();
    let received = (own.bytes() * ranks, ranks);
    call.fold(own, received, combination, (buffers.receive, count), |communicator, from, to| {
        M::gather(communicator, Some(from), to, root)
    })
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
    let combination = call.reduction(reduction, buffers.count)?;
    let sent = call.contribution(buffers, true, combination)?;
    let Some(op) = combination.native else {
        let combined = call.served.rank() + usize::from(prefix == Prefix::Inclusive);
        return call.fold_of_all(&sent, combined, combination, buffers.receive);
    };
    call.check_length(sent.area().bytes(), 1)?;
    let area = Area::single(buffers.receive, combination.count, combination.element);
    call.run(sent, area, |communicator, from, to| match prefix {
        Prefix::Inclusive => M::scan(communicator, from, to, op),
        Prefix::Exclusive => M::exscan(communicator, from, to, op),
    })
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
    if counts.iter().any(|count| *count < 0) {
        return Err(INVALID);
    }
    let total =
        counts.iter().try_fold(0i64, |sum, count| sum.checked_add(*count)).ok_or(INVALID)?;
    let combination = call.reduction(reduction, total)?;
    let sent = call.contribution(buffers, true, combination)?;
    call.check_length(sent.area().bytes(), 1)?;
    let Combination { count: all, element, native, .. } = combination;
    let count = buffers.count as usize;
    let sizes: Vec<usize> = counts.iter().map(|count| *count as usize * element.size).collect();
    let Some(op) = native else {
        // Contributions are sent in blocks of different lengths.
        call.check_unknown_lengths()?;
        let ranks = call.served.size();
        let received = vec![count * element.size; ranks];
        let memory = (count * element.size * ranks, ranks);
        let result = (buffers.receive, count);
        return call.fold(sent.area(), memory, combination, result, |communicator, from, to| {
            M::alltoallv(communicator, Some(from), &sizes, to, &received)
        });
    };
    // In place the output also holds the input.
    let length = if matches!(sent, Sent::InPlace(_)) { all } else { count };
    let area = Area::single(buffers.receive, length, element);
    call.run(sent, area, |communicator, from, to| match is_equal {
        true => M::reduce_scatter_block(communicator, from, to, op),
        false => M::reduce_scatter(communicator, from, to, &sizes, op),
    })
}
