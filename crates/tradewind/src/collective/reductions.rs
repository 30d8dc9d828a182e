//! Reductions.

use crate::communicator::Communicator;
use crate::forms::forms;
use crate::reduction::ReduceOp;
use collectives::Collective;
use std::convert::identity;

forms! {
    /// # Reductions
    impl Communicator in identity;

    /// Combines the inputs of all ranks element by element at the root.
    ///
    /// Shapes: the input has n elements, the same on all ranks; the output has n at the root and is
    /// ignored elsewhere, where an empty slice suffices. At the root the input may be [in
    /// place](crate::InPlace). With the algorithm `join`, and with user-defined operations
    /// ([`fold`](crate::fold())), the result is ((c₀ ∘ c₁) ∘ c₂) ∘ … in rank order.
    ///
    /// ```
    /// use tradewind::Op;
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(4, |world| {
    ///     let mut product = if world.rank() == 0 { vec![0; 1] } else { vec![] };
    ///     world.reduce(&[world.rank() + 1], &mut product, Op::Product, 0)?;
    ///     assert!(world.rank() != 0 || product == [24]);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if a length does not fit, the root is not a rank, an integer is divided by zero, or a
    /// rank is gone or in another collective. Ranks other than the root do not wait, and may not
    /// detect a failure.
    reduce, ireduce,
    reduce_init("of `count` elements", count):
        (input; output: &'o mut [T], op: impl ReduceOp<T>, root: u32)
        = plan_rooted_reduction(Collective::Reduce);

    /// Combines the inputs of all ranks element by element; every rank receives the same result,
    /// bit for bit.
    ///
    /// Shapes: input and output have the same number of elements, the same on all ranks. The input
    /// may be [in place](crate::InPlace). With the algorithm `join`, and with user-defined
    /// operations ([`fold`](crate::fold())), the result is ((c₀ ∘ c₁) ∘ c₂) ∘ … in rank order.
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(4, |world| {
    ///     let mut largest = [0u32; 2];
    ///     world.allreduce(&[world.rank(), 7], &mut largest, tradewind::Op::Maximum)?;
    ///     assert_eq!(largest, [3, 7]);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the lengths differ, an integer is divided by zero, or a rank is gone or in another
    /// collective.
    allreduce, iallreduce,
    allreduce_init("of `count` elements", count):
        (input; output: &'o mut [T], op: impl ReduceOp<T>)
        = plan_reduction(Collective::Allreduce);

    /// Combines the inputs of ranks 0, …, r element by element on each rank r.
    ///
    /// Shapes: input and output have the same number of elements, the same on all ranks. The input
    /// may be [in place](crate::InPlace).
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(4, |world| {
    ///     let mut sum = [0];
    ///     world.scan(&[world.rank() + 1], &mut sum, tradewind::Op::Sum)?;
    ///     assert_eq!(sum, [[1, 3, 6, 10][world.rank() as usize]]);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the lengths differ, an integer is divided by zero, or a rank is gone or in another
    /// collective. A rank waits only for those before it, and may not detect failures of the
    /// others.
    scan, iscan,
    scan_init("of `count` elements", count):
        (input; output: &'o mut [T], op: impl ReduceOp<T>)
        = plan_reduction(Collective::Scan);

    /// Combines the inputs of ranks 0, …, r − 1 element by element on each rank r; rank 0's output
    /// keeps its value.
    ///
    /// Shapes: input and output have the same number of elements, the same on all ranks. The input
    /// may be [in place](crate::InPlace).
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// // Where each rank's part of a common list begins.
    /// tradewind::local(4, |world| {
    ///     let mut begin = [0];
    ///     world.exscan(&[10 + world.rank()], &mut begin, tradewind::Op::Sum)?;
    ///     assert_eq!(begin, [[0, 10, 21, 33][world.rank() as usize]]);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the lengths differ, an integer is divided by zero, or a rank is gone or in another
    /// collective. A rank waits only for those before it, and may not detect failures of the
    /// others.
    exscan, iexscan,
    exscan_init("of `count` elements", count):
        (input; output: &'o mut [T], op: impl ReduceOp<T>)
        = plan_reduction(Collective::Exscan);

    /// Combines the inputs of all ranks element by element; every rank receives its block of the
    /// result.
    ///
    /// Shapes: `counts` has the number of elements of each rank's block, the same list on all
    /// ranks; the input has their sum, the output the number of this rank. If the input is [in
    /// place](crate::InPlace), the output is as long as an input and holds it, and the result
    /// replaces its beginning. With the algorithm `join`, and with user-defined operations
    /// ([`fold`](crate::fold())), elements are ((c₀ ∘ c₁) ∘ c₂) ∘ … in rank order.
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(2, |world| {
    ///     let mut mine = vec![0; 1 + world.rank() as usize];
    ///     world.reduce_scatter(&[1, 10, 100], &mut mine, &[1, 2], tradewind::Op::Sum)?;
    ///     assert_eq!(mine, if world.rank() == 0 { vec![2] } else { vec![20, 200] });
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if a length does not fit, the ranks' counts differ, an integer is divided by zero, or
    /// a rank is gone or in another collective.
    reduce_scatter, ireduce_scatter,
    reduce_scatter_init("of `counts` elements"):
        (input; output: &'o mut [T], counts: &[usize], op: impl ReduceOp<T>)
        = plan_known_reduction(Collective::ReduceScatter);

    /// Runs a [`reduce_scatter`](Self::reduce_scatter) of equal blocks.
    ///
    /// Shapes: the output has n elements, the same on all ranks, the input size × n. If the input
    /// is [in place](crate::InPlace), the output is as long as an input and holds it, and the
    /// result replaces its beginning.
    ///
    /// # Errors
    /// The errors of [`reduce_scatter`](Self::reduce_scatter).
    reduce_scatter_block, ireduce_scatter_block,
    reduce_scatter_block_init("of `count` elements a rank", count):
        (input; output: &'o mut [T], op: impl ReduceOp<T>)
        = plan_reduction(Collective::ReduceScatter);
}
