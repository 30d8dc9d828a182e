//! The reductions a person asks for by name.

use crate::algorithms::Order;
use goal::arithmetic::Arithmetic;

/// How values are combined in a reduction. What each means on every type is defined in [`goal::arithmetic`]: integers
/// wrap, a NaN result is the canonical one.
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
