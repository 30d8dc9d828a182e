//! All-to-all of blocks of different sizes.

use super::plan::{Course, InPlaceRule, Own, Plan, Shape};
use super::sizes::{Counts, digest};
use crate::AlltoallAlgorithm;
use crate::algorithms::{Choice, Levels, Order};
use crate::buffers::{Input, Output};
use crate::communicator::Communicator;
use crate::error::Result;
use crate::persistent::Persistent;
use crate::request::Request;
use bytemuck::Pod;
use engine::call::{Call, CallKind};
use engine::meeting::{Blocks, Meeting, Pattern};
use std::sync::Arc;

/// # All-to-all, blocks of different sizes
impl Communicator {
    /// Every rank gives one block to every rank, each as long as it is: block j of rank i's input
    /// becomes block i of rank j's output.
    ///
    /// Shapes: `sent` has the number of elements for each rank and `received` that from each rank;
    /// blocks follow each other without gaps. If the input is [in place](crate::InPlace), `sent` is
    /// not looked at, and the blocks of `received` are both what is given and what is replaced.
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// // Rank 0 gives one element to itself and two to rank 1, which gives three back.
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
    /// When the lengths do not fit, what a rank gives to another is not as long as what that one
    /// expects, a rank is gone or in another collective.
    pub fn alltoallv<'i, T: Pod>(
        &self,
        input: impl Input<'i, T, Back = ()>,
        sent: &[usize],
        output: &mut [T],
        received: &[usize],
    ) -> Result<()> {
        let sent = if input.argument().is_some() { sent } else { received };
        self.plan_alltoallv::<T>(sent, received)?.run(self, input, output)
    }

    /// Begins an [`alltoallv`](Self::alltoallv).
    ///
    /// # Errors
    /// As [`alltoallv`](Self::alltoallv). Never waits, with the algorithm `join`; with others the
    /// ranks tell each other first whether they have the same sizes as before.
    pub fn ialltoallv<'a, T: Pod, I: Input<'a, T>, O: Output<'a, T>>(
        &self,
        input: I,
        sent: &[usize],
        output: O,
        received: &[usize],
    ) -> Result<Request<'a, (I::Back, O::Back)>> {
        let sent = if input.argument().is_some() { sent } else { received };
        self.plan_alltoallv::<T>(sent, received)?.start(self, input, output)
    }

    /// Prepares an alltoallv of these numbers of elements to be started many times.
    ///
    /// # Errors
    /// As [`ialltoallv`](Self::ialltoallv).
    pub fn alltoallv_init<T: Pod>(&self, sent: &[usize], received: &[usize]) -> Result<Persistent> {
        Ok(Persistent::new(self, self.plan_alltoallv::<T>(sent, received)?))
    }

    #[inline(always)]
    fn plan_alltoallv<T>(&self, sent: &[usize], received: &[usize]) -> Result<Plan> {
        let (rank, ranks) = (self.rank(), self.size());
        let sent = Counts::of::<T>("the list of counts that are sent", sent, ranks)?;
        let received = Counts::of::<T>("the list of counts that are received", received, ranks)?;
        let own =
            Own { from: sent.offset(rank), to: received.offset(rank), bytes: sent.block(rank) };
        if own.bytes != received.block(rank) {
            let (sent, expected) = (own.bytes, received.block(rank));
            return Err(
                collectives::CollectiveError::OwnSizesDiffer { rank, sent, expected }.into()
            );
        }
        let in_place =
            if sent.bytes == received.bytes { InPlaceRule::InputAt(0) } else { InPlaceRule::Never };
        let course = self.course_of_alltoallv(CallKind::Alltoallv, (&sent, &received), None)?;
        let own = matches!(course, Course::Meeting(_)).then_some(own);
        Ok(Plan::new(course, Shape { in_place, own, ..Shape::new(sent.total, received.total) }))
    }

    /// How every rank gives a block to every rank. Without `known`, sizes that all ranks know, each
    /// has blocks of its own, and leaves that for itself to the caller.
    #[inline(always)]
    pub(super) fn course_of_alltoallv(
        &self,
        kind: CallKind,
        (sent, received): (&Counts, &Counts),
        known: Option<&Counts>,
    ) -> Result<Course> {
        // Nobody could say how many bytes there are, and all have to choose the same. Nor could a
        // rank that speaks for a node say how long the others' blocks are, so there is one level.
        let choice = self.choose::<AlltoallAlgorithm>(0, Order::Any);
        let choice = Choice {
            algorithm: for_different_sizes(choice.algorithm),
            levels: Levels::One,
            ..choice
        };
        let call = Call::new(kind, 0, choice.digest() ^ known.map_or(0, Counts::digest));
        if choice.algorithm == AlltoallAlgorithm::Join {
            let blocks = Blocks::new(sent.bytes.iter().copied(), received.bytes.iter().copied());
            let meeting = Meeting::new(Pattern::Exchange, 0, call);
            return Ok(Course::Meeting(Meeting {
                blocks: Some(Arc::new(blocks)),
                leaves_own: known.is_none(),
                ..meeting
            }));
        }
        let sizes = match known {
            Some(known) => known.bytes.to_vec(),
            // Ranks whose own sizes are as before must link anew, too, if those of others are not.
            None => self.tell_all(digest(&[sent.digest(), received.digest()]), call)?,
        };
        self.linked((call, &choice), (0, sizes), || {
            choice.algorithm.graph_v(self.rank(), &sent.bytes, &received.bytes)
        })
    }
}

/// The algorithm, or the nearest one that can do with blocks of different sizes.
pub(crate) fn for_different_sizes(algorithm: AlltoallAlgorithm) -> AlltoallAlgorithm {
    match algorithm {
        AlltoallAlgorithm::Bruck | AlltoallAlgorithm::Multiphase => {
            AlltoallAlgorithm::RotatedDirect
        }
        other => other,
    }
}
