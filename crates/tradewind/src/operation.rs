//! How values are combined in a reduction: the operations that the library knows, and the caller's
//! own.

use crate::algorithms::Order;
use crate::error::{Result, argument};
use bytemuck::Pod;
use goal::arithmetic::{Arithmetic, DataType, Element};
use std::marker::PhantomData;
use std::sync::Arc;

/// How values are combined in a reduction. What each means on every type is defined in
/// [`goal::arithmetic`]: integers wrap, a NaN result is the canonical one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// a + b
    Sum,
    /// a · b
    Product,
    /// The smaller; NaN if either is.
    Minimum,
    /// The larger; NaN if either is.
    Maximum,
    /// Bitwise and, on integers.
    And,
    /// Bitwise or, on integers.
    Or,
    /// Bitwise exclusive or, on integers.
    Xor,
    /// ((c₀ − c₁) − c₂) − …, in rank order; only by algorithms that fold so, else by `join`.
    Difference,
    /// ((c₀ / c₁) / c₂) / …, in rank order; only by algorithms that fold so, else by `join`.
    Quotient,
}

impl Op {
    /// What an algorithm may do with the order of contributions.
    #[inline]
    pub(crate) fn order(self) -> Order {
        if matches!(self, Op::Difference | Op::Quotient) { Order::FromLeft } else { Order::Any }
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

/// An operation of the caller's own on elements of type `T`; made by [`fold`].
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

/// Makes an operation of a function that combines what has been accumulated with the next rank's
/// element. All ranks give the same function.
///
/// Elements are folded from the left in rank order, ((c₀ ∘ c₁) ∘ c₂) ∘ …; nothing is assumed of the
/// function, neither that it is commutative nor that it is associative. Other processes cannot run
/// it, so contributions travel whole, and each rank folds what it wants when it fetches its result:
/// a reduction of n bytes takes n bytes for each rank at the root, an allreduce, a scan or an
/// exscan everywhere, a reduce_scatter as many as its blocks of all contributions have.
///
/// A function that panics panics in the call that fetches the result; the communicator stays
/// usable.
///
/// ```
/// use tradewind::fold;
/// # fn main() -> Result<(), tradewind::Error> {
/// // Where the largest value is: pairs of value and rank.
/// tradewind::local(4, |world| {
///     let mine = [[(7 * world.rank()) % 5, world.rank()]];
///     let mut largest = [[0; 2]];
///     let larger = fold(|found: &mut [u32; 2], next: &[u32; 2]| {
///         if next[0] > found[0] {
///             *found = *next;
///         }
///     });
///     world.allreduce(&mine, &mut largest, larger)?;
///     assert_eq!(largest, [[4, 2]]);
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
    impl<T, F> Sealed for super::Fold<T, F> {}
}

/// What a reduction can do with elements of type `T`: an [`Op`], or a function of the caller's own
/// made with [`fold`].
pub trait Operation<T: Pod>: sealed::Sealed {
    /// What is done, and by whom.
    #[doc(hidden)]
    fn into_combination(self) -> Result<Combination>;
}

/// What is done with contributions.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub enum Combination {
    /// By whoever is there.
    Known(Known),
    /// By the rank that wants the result.
    Own(Function),
}

/// An operation that the library knows, on elements of a type.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Known {
    pub(crate) op: Op,
    pub(crate) data_type: DataType,
}

impl Known {
    #[inline]
    pub(crate) fn arithmetic(self) -> (Arithmetic, DataType) {
        (self.op.into(), self.data_type)
    }

    pub(crate) fn reduction(self) -> collectives::Reduction {
        collectives::Reduction::new(self.op.into(), self.data_type)
    }

    /// A number of 16 bits that no other operation has.
    #[inline]
    pub(crate) fn number(self) -> u64 {
        (Arithmetic::from(self.op) as u64) << 8 | self.data_type as u64
    }
}

impl<T: Element> Operation<T> for Op {
    #[inline]
    fn into_combination(self) -> Result<Combination> {
        let (arithmetic, data_type) = (Arithmetic::from(self), T::DATA_TYPE);
        if !arithmetic.applies_to(data_type) {
            let found = format!("{arithmetic} on {data_type}");
            return Err(argument("the operation", found, "one that the type has"));
        }
        Ok(Combination::Known(Known { op: self, data_type }))
    }
}

impl<T: Pod, F: Fn(&mut T, &T) + Send + Sync + 'static> Operation<T> for Fold<T, F> {
    fn into_combination(self) -> Result<Combination> {
        Ok(Combination::Own(Function(Arc::new(self))))
    }
}

/// A function of the caller's own, whatever its elements are.
#[doc(hidden)]
#[derive(Clone)]
pub struct Function(Arc<dyn Combine>);

impl std::fmt::Debug for Function {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Function")
    }
}

impl Function {
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
        let (bytes, element) = (output.len(), size_of::<T>());
        if bytes == 0 || element == 0 {
            return;
        }
        for (target, at) in output.chunks_exact_mut(element).zip((0..).step_by(element)) {
            // Contributions lie where they came to, which need not suit the type.
            let mut elements = contributions.chunks_exact(bytes).map(|contribution| {
                bytemuck::pod_read_unaligned::<T>(&contribution[at..at + element])
            });
            let Some(mut accumulated) = elements.next() else { return };
            elements.for_each(|next| (self.function)(&mut accumulated, &next));
            target.copy_from_slice(bytemuck::bytes_of(&accumulated));
        }
    }
}
