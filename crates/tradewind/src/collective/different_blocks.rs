//! Collectives with blocks of different sizes.

use crate::buffers::Output;
use crate::communicator::Communicator;
use crate::forms::forms;
use collectives::Collective;
use std::convert::identity;

forms! {
    /// # Collectives with blocks of different sizes
    impl Communicator in identity;

    /// Sends each rank its block of the root's input, in rank order; each may have another length.
    ///
    /// Shapes: at the root `counts` has the number of elements of each rank, and the input their
    /// sum; elsewhere both are ignored: empty slices suffice. The output has the rank's own number
    /// of elements. At the root it may be [in place](crate::InPlace).
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(3, |world| {
    ///     let mut mine = vec![0; world.rank() as usize];
    ///     if world.rank() == 0 {
    ///         world.scatterv(&[1, 2, 2], &[0, 1, 2], &mut mine, 0)?;
    ///     } else {
    ///         world.scatterv(&[], &[], &mut mine, 0)?;
    ///     }
    ///     assert_eq!(mine, vec![world.rank(); mine.len()]);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if a length does not fit, the root is not a rank, a rank is gone or in another
    /// collective, or the root's count for this rank is not the length of its output. The root does
    /// not wait, and may not detect a failure.
    scatterv, iscatterv(takes_own_sizes),
    scatterv_init("of `count` elements on this rank and, at the root, `counts` on all", count):
        (input, counts: &[usize]; output: impl Output<'o, T, Back = ()>, root: u32)
        = plan_known_at_root(Collective::Scatter), streamed by stream_scatterv;

    /// Gathers the inputs of all ranks at the root, in rank order; each may have another length.
    ///
    /// Shapes: at the root `counts` has the number of elements of each rank, and the output their
    /// sum; elsewhere both are ignored: empty slices suffice. At the root the input may be [in
    /// place](crate::InPlace).
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(3, |world| {
    ///     let mine = vec![world.rank(); world.rank() as usize];
    ///     if world.rank() == 0 {
    ///         let mut all = [9; 3];
    ///         world.gatherv(&mine, &mut all, &[0, 1, 2], 0)?;
    ///         assert_eq!(all, [1, 2, 2]);
    ///         Ok(())
    ///     } else {
    ///         world.gatherv(&mine, &mut [], &[], 0)
    ///     }
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if a length does not fit, the root is not a rank, or a rank is gone or in another
    /// collective; at the root, if a rank has more or fewer elements than its count. Ranks other
    /// than the root do not wait, and may not detect a failure.
    gatherv, igatherv(takes_own_sizes),
    gatherv_init("of `count` elements on this rank and, at the root, `counts` on all", count):
        (input; output: &'o mut [T], counts: &[usize], root: u32)
        = plan_known_at_root(Collective::Gather), streamed by stream_gatherv;

    /// Gathers the inputs of all ranks on every rank, in rank order; each may have another length.
    ///
    /// Shapes: `counts` has the number of elements of each rank, the same list on all ranks; the
    /// output has their sum. The input may be [in place](crate::InPlace).
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(3, |world| {
    ///     let mut all = [9; 3];
    ///     world.allgatherv(&vec![world.rank(); world.rank() as usize], &mut all, &[0, 1, 2])?;
    ///     assert_eq!(all, [1, 2, 2]);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if a length does not fit, the ranks' counts differ, or a rank is gone or in another
    /// collective.
    allgatherv, iallgatherv,
    allgatherv_init("of `counts` elements"):
        (input; output: &'o mut [T], counts: &[usize])
        = plan_known(Collective::Allgather);

    /// Sends one block of the input to every rank: block j of rank i's input becomes block i of
    /// rank j's output. Each block may have another length.
    ///
    /// Shapes: `sent` has the number of elements for each rank and `received` that from each rank;
    /// blocks follow each other without gaps. If the input is [in place](crate::InPlace), `sent` is
    /// ignored: the blocks of `received` are sent and replaced.
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// // Rank 0 sends one element to itself and two to rank 1, which sends three back.
    /// tradewind::local(2, |world| {
    ///     if world.rank() == 0 {
    ///         let mut got = [0; 4];
    ///         world.alltoallv(&[1, 2, 3], &[1, 2], &mut got, &[1, 3])?;
    ///         assert_eq!(got, [1, 7, 8, 9]);
    ///     } else {
    ///         let mut got = [0; 2];
    ///         world.alltoallv(&[7, 8, 9], &[3, 0], &mut got, &[2, 0])?;
    ///         assert_eq!(got, [2, 3]);
    ///     }
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if a length does not fit, a block is longer or shorter than its receiver expects, or a
    /// rank is gone or in another collective.
    alltoallv, ialltoallv(takes_own_sizes),
    alltoallv_init("of these numbers of elements"):
        (input, sent: &[usize]; output: &'o mut [T], received: &[usize])
        = plan_pairs(Collective::Alltoall), streamed by stream_alltoallv;
}
