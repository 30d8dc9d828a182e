//! Collectives with an input and an output, and blocks of one size.

use crate::buffers::Output;
use crate::communicator::Communicator;
use crate::forms::forms;
use collectives::Collective;
use std::convert::identity;

forms! {
    /// # Collectives with blocks of one size
    impl Communicator in identity;

    /// Sends each rank its block of the root's input, in rank order.
    ///
    /// Shapes: the output has n elements, the same on all ranks; the input has size × n at the root
    /// and is ignored elsewhere, where an empty slice suffices. At the root the output may be [in
    /// place](crate::InPlace).
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(3, |world| {
    ///     let all = if world.rank() == 0 { vec![5, 6, 7] } else { vec![] };
    ///     let mut mine = [0];
    ///     world.scatter(&all, &mut mine, 0)?;
    ///     assert_eq!(mine, [5 + world.rank()]);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if a length does not fit, the root is not a rank, or a rank is gone or in another
    /// collective. The root does not wait, and may not detect a failure.
    scatter, iscatter,
    scatter_init("with `count` elements a rank", count):
        (input; output: impl Output<'o, T, Back = ()>, root: u32)
        = plan_rooted(Collective::Scatter);

    /// Gathers the inputs of all ranks at the root, in rank order.
    ///
    /// Shapes: the input has n elements, the same on all ranks; the output has size × n at the root
    /// and is ignored elsewhere, where an empty slice suffices. At the root the input may be [in
    /// place](crate::InPlace).
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(3, |world| {
    ///     let mut all = if world.rank() == 2 { vec![0; 3] } else { vec![] };
    ///     world.gather(&[10 * world.rank()], &mut all, 2)?;
    ///     assert!(world.rank() != 2 || all == [0, 10, 20]);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if a length does not fit, the root is not a rank, or a rank is gone or in another
    /// collective. Ranks other than the root do not wait, and may not detect a failure.
    gather, igather,
    gather_init("with `count` elements a rank", count):
        (input; output: &'o mut [T], root: u32)
        = plan_rooted(Collective::Gather);

    /// Gathers the inputs of all ranks on every rank, in rank order.
    ///
    /// Shapes: the input has n elements, the output size × n, with the same n on all ranks. The
    /// input may be [in place](crate::InPlace): block r of the output on rank r.
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(3, |world| {
    ///     let mut all = [0; 3];
    ///     world.allgather(&[10 * world.rank()], &mut all)?;
    ///     assert_eq!(all, [0, 10, 20]);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if a length does not fit, or a rank is gone or in another collective.
    allgather, iallgather,
    allgather_init("with `count` elements a rank", count):
        (input; output: &'o mut [T])
        = plan_equal(Collective::Allgather);

    /// Sends one part of the input to every rank: part j of rank i's input becomes part i of rank
    /// j's output.
    ///
    /// Shapes: input and output have size × n elements, with the same n on all ranks. The input may
    /// be [in place](crate::InPlace).
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(2, |world| {
    ///     let mine = [10 * world.rank(), 10 * world.rank() + 1];
    ///     let mut theirs = [0; 2];
    ///     world.alltoall(&mine, &mut theirs)?;
    ///     assert_eq!(theirs, [world.rank(), 10 + world.rank()]);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the lengths differ or are no multiple of the number of ranks, or a rank is gone or
    /// in another collective.
    alltoall, ialltoall,
    alltoall_init("with `count` elements for each rank", count):
        (input; output: &'o mut [T])
        = plan_equal(Collective::Alltoall);
}
