//! Reduction operations: built-in and user-defined.

use crate::error::{Result, argument};
use bytemuck::Pod;
use collectives::Collective;
use goal::arithmetic::{Arithmetic, DataType, Element};
use std::marker::PhantomData;
use std::sync::Arc;

/// A built-in reduction operation. [`goal::arithmetic`] defines each on every type: integers wrap,
/// and a NaN result is the canonical NaN. Minimum and maximum of values with an index, such as
/// [`F64At`](crate::F64At), also find where the value is:
///
/// ```
/// use tradewind::{F64At, Op};
/// # fn main() -> Result<(), tradewind::Error> {
/// tradewind::local(4, |world| {
///     let error = [0.1, 0.7, 0.2, 0.7][world.rank() as usize];
///     let mine = [F64At { value: error, index: world.rank().into() }];
///     let mut worst = [F64At::default()];
///     world.allreduce(&mine, &mut worst, Op::Maximum)?;
///     assert_eq!(worst, [F64At { value: 0.7, index: 1 }]);
///     Ok(())
/// })
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// a + b; not of values with an index.
    Sum,
    /// a · b; not of values with an index.
    Product,
    /// The smaller; NaN if either is. Not of complex numbers.
    Minimum,
    /// The larger; NaN if either is. Not of complex numbers.
    Maximum,
    /// Bitwise and, on integers and bits.
    And,
    /// Bitwise or, on integers and bits.
    Or,
    /// Bitwise exclusive or, on integers and bits.
    Xor,
    /// ((c₀ − c₁) − c₂) − …, in rank order; run by algorithms that fold in this order, else by
    /// `join`.
    Difference,
    /// ((c₀ / c₁) / c₂) / …, in rank order; run by algorithms that fold in this order, else by
    /// `join`.
    Quotient,
}

/// An [`Op`] on elements of a type that is known at run time only; the buffers are bytes. Made by
/// [`Op::on_bytes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpOnBytes {
    op: Op,
    data_type: DataType,
}

impl Op {
    /// The operation on buffers of bytes that hold elements of this type, at any address. Counts of
    /// elements in the call are then counts of bytes: multiples of the element's size, or the call
    /// fails on every rank that passes another length.
    ///
    /// ```
    /// use tradewind::{DataType, Op};
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(3, |world| {
    ///     let mine = f64::from(world.rank()).to_ne_bytes();
    ///     let mut sum = [0; 8];
    ///     world.allreduce(&mine, &mut sum, Op::Sum.on_bytes(DataType::F64))?;
    ///     assert_eq!(f64::from_ne_bytes(sum), 3.0);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// Bits are packed, eight in a byte, and have the operations and, or and xor:
    ///
    /// ```
    /// use tradewind::{DataType, Op};
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(3, |world| {
    ///     // Flag r of 40 on rank r.
    ///     let mut mine = [0u8; 5];
    ///     mine[world.rank() as usize / 8] |= 1 << (world.rank() % 8);
    ///     let mut any = [0; 5];
    ///     world.allreduce(&mine, &mut any, Op::Or.on_bytes(DataType::Bit))?;
    ///     assert_eq!(any, [0b111, 0, 0, 0, 0]);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub fn on_bytes(self, data_type: DataType) -> OpOnBytes {
        OpOnBytes { op: self, data_type }
    }
}

impl From<Op> for Arithmetic {
    #[inline]
    fn from(op: Op) -> Arithmetic {
        match op {
            Op::Sum => Arithmetic::Add,
            Op::Product => Arithmetic::Multiply,
            Op::Minimum => Arithmetic::Minimum,
            Op::Maximum => Arithmetic::Maximum,
            Op::And => Arithmetic::And,
            Op::Or => Arithmetic::Or,
            Op::Xor => Arithmetic::Xor,
            Op::Difference => Arithmetic::Subtract,
            Op::Quotient => Arithmetic::Divide,
        }
    }
}

/// Freedom of an algorithm to order the contributions of a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FoldOrder {
    /// The result does not depend on the order, or nothing is combined.
    Any,
    /// The operation is associative but for rounding: every order is allowed that is the same on all
    /// ranks.
    Common,
    /// Only a fold in rank order, from the left, has a meaning.
    FromLeft,
}

/// A user-defined operation on elements of type `T`; made by [`fold`].
#[derive(Clone, Copy)]
pub struct Fold<T, F> {
    function: F,
    element: PhantomData<fn(&mut T)>,
}

impl<T, F> std::fmt::Debug for Fold<T, F> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Fold")
    }
}

/// Makes a reduction operation from a function that combines an accumulated element with that of
/// the next rank. All ranks pass the same function.
///
/// Elements are folded from the left in rank order, ((c₀ ∘ c₁) ∘ c₂) ∘ …, so the function need not
/// be commutative or associative. Other processes cannot call it. Contributions are therefore sent
/// whole, and each rank folds its result when it fetches it: a reduction of n bytes takes n bytes
/// for each rank at the root; an allreduce, a scan or an exscan takes them on every rank; a
/// reduce_scatter takes the rank's block of every contribution.
///
/// A panic of the function propagates from the call that fetches the result; the communicator stays
/// usable.
///
/// ```
/// use tradewind::fold;
/// # fn main() -> Result<(), tradewind::Error> {
/// // Functions x ↦ ax + b, composed in rank order.
/// tradewind::local(3, |world| {
///     let mine = [[2, i64::from(world.rank())]];
///     let mut all = [[0; 2]];
///     let after = fold(|[a, b]: &mut [i64; 2], [next_a, next_b]: &[i64; 2]| {
///         *b += *a * next_b;
///         *a *= next_a;
///     });
///     world.allreduce(&mine, &mut all, after)?;
///     assert_eq!(all, [[8, 2 * 1 + 4 * 2]]);
///     Ok(())
/// })
/// # }
/// ```
pub fn fold<T: Pod, F: Fn(&mut T, &T) + Send + Sync + 'static>(function: F) -> Fold<T, F> {
    Fold { function, element: PhantomData }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Op {}
    impl Sealed for super::OpOnBytes {}
    impl<T, F> Sealed for super::Fold<T, F> {}
}

/// A reduction operation on elements of type `T`: an [`Op`], or a function made into one by
/// [`fold`].
pub trait ReduceOp<T: Pod>: sealed::Sealed {
    /// Checks that the operation applies to the type, and that blocks of these lengths in bytes
    /// consist of whole elements.
    #[doc(hidden)]
    fn into_combination(self, blocks: &[u64]) -> Result<Combination>;
}

/// A reduction operation, by the place where it is executed.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub enum Combination {
    /// Executed by the engine or a backend, on any rank.
    BuiltIn(BuiltInReduction),
    /// Executed by the rank that receives the result.
    UserDefined(FoldFunction),
}

/// A built-in operation on elements of a type.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct BuiltInReduction {
    pub(crate) op: Op,
    pub(crate) data_type: DataType,
}

impl BuiltInReduction {
    #[inline]
    pub(crate) fn arithmetic(self) -> (Arithmetic, DataType) {
        (self.op.into(), self.data_type)
    }

    pub(crate) fn reduction(self) -> collectives::Reduction {
        collectives::Reduction::new(self.op.into(), self.data_type)
    }

    /// Freedom of an algorithm to order the contributions.
    #[inline]
    pub(crate) fn order(self) -> FoldOrder {
        match self.op {
            Op::Difference | Op::Quotient => FoldOrder::FromLeft,
            _ if self.reduction().depends_on_order() => FoldOrder::Common,
            _ => FoldOrder::Any,
        }
    }

    /// A number of 16 bits, distinct for each operation and type.
    #[inline]
    pub(crate) fn number(self) -> u64 {
        (Arithmetic::from(self.op) as u64) << 8 | self.data_type as u64
    }
}

impl<T: Element> ReduceOp<T> for Op {
    #[inline]
    fn into_combination(self, _blocks: &[u64]) -> Result<Combination> {
        // Blocks of slices of the elements.
        built_in(self, T::DATA_TYPE)
    }
}

impl ReduceOp<u8> for OpOnBytes {
    #[inline]
    fn into_combination(self, blocks: &[u64]) -> Result<Combination> {
        // On every rank, before the start: the rank that executes the operation could report the
        // error to its own program only.
        let element = self.data_type.bytes() as u64;
        if let Some(broken) = blocks.iter().find(|bytes| !bytes.is_multiple_of(element)) {
            let expected = format!("whole elements of {element} bytes ({})", self.data_type);
            return Err(argument("the length of a block", format!("{broken} bytes"), expected));
        }
        built_in(self.op, self.data_type)
    }
}

#[inline]
fn built_in(op: Op, data_type: DataType) -> Result<Combination> {
    let arithmetic = Arithmetic::from(op);
    if !arithmetic.applies_to(data_type) {
        let found = format!("{arithmetic} on {data_type}");
        let expected = format!("one of {}", Arithmetic::names_for(data_type));
        return Err(argument("the operation", found, expected));
    }
    Ok(Combination::BuiltIn(BuiltInReduction { op, data_type }))
}

impl<T: Pod, F: Fn(&mut T, &T) + Send + Sync + 'static> ReduceOp<T> for Fold<T, F> {
    fn into_combination(self, _blocks: &[u64]) -> Result<Combination> {
        Ok(Combination::UserDefined(FoldFunction(Arc::new(self))))
    }
}

/// A user-defined function without its element type.
#[doc(hidden)]
#[derive(Clone)]
pub struct FoldFunction(Arc<dyn Combine>);

impl std::fmt::Debug for FoldFunction {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("FoldFunction")
    }
}

impl FoldFunction {
    /// Folds contributions, each as long as the output, from the left into the output.
    pub(crate) fn combine(&self, contributions: &[u8], output: &mut [u8]) {
        self.0.combine(contributions, output);
    }
}

trait Combine: Send + Sync {
    fn combine(&self, contributions: &[u8], output: &mut [u8]);
}

impl<T: Pod, F: Fn(&mut T, &T) + Send + Sync> Combine for Fold<T, F> {
    fn combine(&self, contributions: &[u8], output: &mut [u8]) {
        let bytes = output.len();
        let element = size_of::<T>();
        if bytes == 0 || element == 0 {
            return;
        }
        for (target, at) in output.chunks_exact_mut(element).zip((0..).step_by(element)) {
            // Contributions need not be aligned for the type.
            let mut elements = contributions.chunks_exact(bytes).map(|contribution| {
                bytemuck::pod_read_unaligned::<T>(&contribution[at..at + element])
            });
            let Some(mut accumulated) = elements.next() else { return };
            elements.for_each(|next| (self.function)(&mut accumulated, &next));
            target.copy_from_slice(bytemuck::bytes_of(&accumulated));
        }
    }
}

/// The collective that delivers the contributions of a reduction with a user-defined operation.
pub(crate) fn transport_of_fold(reduction: Collective) -> Collective {
    match reduction {
        Collective::Reduce => Collective::Gather,
        Collective::ReduceScatter => Collective::Alltoall,
        _ => Collective::Allgather,
    }
}
