//! Reductions: by tradewind where it has the operation and the type, and otherwise by
//! `MPI_Reduce_local`, in rank order, on the contributions of all ranks.

use crate::abi::Abi;
use crate::buffers::{Area, Staging, TypeInfo};
use crate::host::{Aint, Handle, Pointer, call};
use crate::kept::{self, Object};
use std::ffi::c_int;
use tradewind::{Op, OpOnBytes};

/// Executor of a reduction.
pub(crate) enum Computed {
    /// Tradewind, by this operation.
    Here(OpOnBytes),
    /// `MPI_Reduce_local`.
    ByLibrary,
    /// MPI does not define the operation on the type, so the MPI library reports an error.
    Never,
}

/// Returns the executor of an operation on a type. The same on all ranks: predefined operations demand
/// that all ranks pass the same type.
pub(crate) fn computed(abi: &Abi, operation: Handle, element: TypeInfo) -> Computed {
    let Some((op, _)) = abi.operations.iter().find(|(_, handle)| *handle == operation) else {
        return Computed::ByLibrary;
    };
    let is_bitwise = matches!(op, Op::And | Op::Or | Op::Xor);
    match element.element {
        Some(data_type) if is_bitwise && data_type.is_float() => Computed::Never,
        Some(data_type) => Computed::Here(op.on_bytes(data_type)),
        None if element.handle == abi.byte && !is_bitwise => Computed::Never,
        None if abi.moved.contains(&element.handle) => Computed::Never,
        None => Computed::ByLibrary,
    }
}

/// A reduction that this rank computes when the contributions have arrived.
pub(crate) struct Fold {
    /// The packed contributions, in rank order.
    contributions: Staging,
    /// Number of contributions that are combined.
    ranks: usize,
    /// Elements of a contribution.
    count: usize,
    element: TypeInfo,
    operation: Handle,
    result: Area,
}

impl Fold {
    /// `count` elements of each of the first `ranks` contributions, combined into `result`.
    pub(crate) fn new(
        contributions: Staging,
        (ranks, count): (usize, usize),
        (operation, element): (Handle, TypeInfo),
        result: Pointer,
    ) -> Self {
        kept::keep(Object::Operation(operation));
        // The area's type is that of the elements.
        let result = Area::single(result, count, element).keep_types();
        Fold { contributions, ranks, count, element, operation, result }
    }

    /// Computes the result, and releases the type and the operation. Returns the error code of the
    /// MPI library.
    pub(crate) fn finish(self, abi: &Abi) -> c_int {
        let outcome = if self.ranks == 0 || self.count == 0 {
            0
        } else if self.element.is_dense {
            self.combine_dense(abi)
        } else {
            self.combine_unpacked(abi)
        };
        self.result.release(abi);
        kept::release(abi, Object::Operation(self.operation));
        outcome
    }

    /// Combines elements without gaps where they lie.
    fn combine_dense(&self, abi: &Abi) -> c_int {
        let bytes = self.count * self.element.size;
        let at = |rank: usize| self.contributions.at(rank * bytes);
        for rank in 1..self.ranks {
            let outcome = self.combine(at(rank - 1), at(rank));
            if outcome != 0 {
                return outcome;
            }
        }
        self.result.unpack(abi, at(self.ranks - 1));
        0
    }

    /// Combines elements of a derived type in memory of its layout.
    fn combine_unpacked(&self, abi: &Abi) -> c_int {
        let TypeInfo { handle, size, extent, lower, .. } = self.element;
        let (mut true_lower, mut true_extent): (Aint, Aint) = (0, 0);
        call!(Type_get_true_extent(handle, &raw mut true_lower, &raw mut true_extent));
        // An operation may copy whole elements, with the padding at both ends: each has its extent,
        // and where the data exceed that, their true extent.
        let lowest = lower.min(true_lower);
        let highest = (lower + extent.max(0)).max(true_lower + true_extent);
        let between = extent.unsigned_abs() * (self.count - 1);
        let bytes = between + (highest - lowest).unsigned_abs();
        // With a negative extent the first element lies last.
        let first = if extent < 0 { between as isize } else { 0 } - lowest;
        let memory = [Staging::new(bytes), Staging::new(bytes)];
        let element_at = |half: usize| memory[half].at(0).wrapping_offset(first);
        let load = |half: usize, rank: usize| {
            let area = Area::single(element_at(half).cast(), self.count, self.element);
            area.unpack(abi, self.contributions.at(rank * self.count * size));
        };
        load(0, 0);
        for rank in 1..self.ranks {
            load(rank % 2, rank);
            let outcome = self.combine(element_at((rank - 1) % 2), element_at(rank % 2));
            if outcome != 0 {
                return outcome;
            }
        }
        let result =
            Area::single(element_at((self.ranks - 1) % 2).cast(), self.count, self.element);
        let packed = Staging::new(self.count * size);
        result.pack(abi, packed.at(0));
        self.result.unpack(abi, packed.at(0));
        0
    }

    /// Computes right = left ∘ right.
    fn combine(&self, left: *mut u8, right: *mut u8) -> c_int {
        let count = self.count as c_int;
        let handle = self.element.handle;
        call!(Reduce_local(left.cast(), right.cast(), count, handle, self.operation))
    }
}
