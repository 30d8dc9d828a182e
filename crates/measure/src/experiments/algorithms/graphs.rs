//! The graphs of a plan, by the names that models and algorithms share.

use crate::harness::Error;
use collectives::{Algorithm, Choice, Collective, GraphSpec, Levels, Reduction, build};
use goal::arithmetic::{Arithmetic, DataType};
use goal::graph::Graph;
use models::decision::{CallForm, Query};
use models::simulation::{Program, linked};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};

/// A collective to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CollectiveCall {
    /// Which.
    pub operation: Collective,
    /// In which form it is called.
    pub form: CallForm,
    /// Among how many ranks.
    pub ranks: u32,
    /// Bytes as [`Collective`] counts them.
    pub bytes: u64,
    /// The root, where there is one.
    pub root: u32,
}

/// Reason why a plan cannot be run for a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The plan is none for this call.
    #[error(transparent)]
    Plan(#[from] linked::PlanError),
    /// Ranks of one node have one level.
    #[error("a plan in two levels needs several nodes, and what is measured here is one")]
    TwoLevels,
}

/// Segments of the segmented algorithms, besides those that the models choose.
pub(crate) const SEGMENTS: [NonZeroU64; 2] =
    [NonZeroU64::new(8 << 10).expect("not zero"), NonZeroU64::new(64 << 10).expect("not zero")];

impl CollectiveCall {
    /// The calls of an operation in these forms and sizes, of which none takes more memory than this.
    /// A barrier has one size.
    pub(crate) fn all(
        operation: Collective,
        forms: &[CallForm],
        ranks: u32,
        sizes: &[u64],
        most_memory: u64,
    ) -> Vec<Self> {
        let sizes: &[u64] = if operation == Collective::Barrier { &[0] } else { sizes };
        let of_size = |bytes: &u64| {
            let bytes = *bytes;
            forms.iter().map(move |form| CollectiveCall {
                operation,
                form: *form,
                ranks,
                bytes,
                root: 0,
            })
        };
        let calls = sizes.iter().flat_map(of_size);
        calls.filter(|call| call.memory() <= most_memory).collect()
    }

    /// Element type of a reduction: the longest words that the bytes divide into, numbers of 64
    /// bits or single bytes.
    pub(super) fn data_type(&self) -> DataType {
        if self.bytes.is_multiple_of(8) { DataType::F64 } else { DataType::U8 }
    }

    /// The bytes of all buffers of all ranks together, about.
    pub fn memory(&self) -> u64 {
        use Collective as O;
        let ranks = u64::from(self.ranks);
        let of_a_rank = match self.operation {
            O::Barrier => 0,
            O::Bcast | O::Reduce | O::Allreduce | O::Scan | O::Exscan => 2,
            O::Scatter | O::Gather => 3,
            O::Allgather | O::ReduceScatter => ranks + 1,
            _ => 2 * ranks,
        };
        ranks.saturating_mul(of_a_rank).saturating_mul(self.bytes)
    }

    /// Bytes of a rank's input and of its output.
    pub(super) fn lengths(&self, rank: u32) -> [u64; 2] {
        use Collective as O;
        let CollectiveCall { operation, bytes, root, .. } = *self;
        let all = bytes * u64::from(self.ranks);
        let at_root = |bytes: u64| if rank == root { bytes } else { 0 };
        match operation {
            O::Barrier => [0, 0],
            O::Bcast => [at_root(bytes), bytes - at_root(bytes)],
            O::Scatter => [at_root(all), bytes],
            O::Gather => [bytes, at_root(all)],
            O::Allgather => [bytes, all],
            O::Reduce => [bytes, at_root(bytes)],
            O::Allreduce | O::Scan | O::Exscan => [bytes, bytes],
            O::ReduceScatter => [all, bytes],
            O::Alltoall => [all, all],
        }
    }

    /// Returns the operations of all ranks under the plan, for the simulation.
    ///
    /// # Errors
    /// As [`graph`](Self::graph).
    pub fn program(&self, plan: &Choice) -> Result<Program, PlanError> {
        Ok(linked::program(&self.spec(0), plan)?)
    }

    /// Plans for every algorithm of the operation that can be run for this shape: of those in
    /// segments, one for each of these sizes that is below the message's; of those with a degree,
    /// one for 2 and one for 4.
    pub fn plans(&self, segments: &[NonZeroU64]) -> Vec<Choice> {
        let with = |algorithm: Algorithm| -> Vec<Choice> {
            let plan = Choice::of(algorithm);
            if algorithm.is_segmented() {
                let shorter = segments.iter().filter(|segment| segment.get() < self.bytes);
                shorter.map(|segment| Choice { segment_bytes: Some(*segment), ..plan }).collect()
            } else if algorithm.has_degree() {
                [2, 4]
                    .into_iter()
                    .map(|degree| Choice { degree: NonZeroU32::new(degree), ..plan })
                    .collect()
            } else {
                vec![plan]
            }
        };
        let all = self.operation.algorithms().iter().flat_map(|algorithm| with(*algorithm));
        all.filter(|plan| self.admits(plan)).collect()
    }

    /// Builds this rank's graph of the plan.
    ///
    /// ```
    /// use measure::experiments::algorithms::CollectiveCall;
    /// use collectives::{Algorithm, Choice, Collective};
    /// use models::decision::CallForm;
    ///
    /// let (operation, form) = (Collective::Bcast, CallForm::Blocking);
    /// let shape = CollectiveCall { operation, form, ranks: 4, bytes: 100, root: 0 };
    /// let graph = shape.graph(&Choice::of(Algorithm::Flat), 0)?;
    /// assert_eq!(graph.vertices().len(), 3); // three sends
    /// # Ok::<(), measure::experiments::algorithms::PlanError>(())
    /// ```
    ///
    /// # Errors
    /// [`PlanError`]: a plan that is none for this shape.
    pub fn graph(&self, plan: &Choice, rank: u32) -> Result<Graph, PlanError> {
        if plan.levels == Levels::Two {
            return Err(PlanError::TwoLevels);
        }
        Ok(build(&self.spec(rank), plan).map_err(linked::PlanError::from)?)
    }

    fn spec(&self, rank: u32) -> GraphSpec {
        GraphSpec {
            collective: self.operation,
            rank,
            ranks: self.ranks,
            ranks_per_node: NonZeroU32::MIN,
            root: self.root,
            bytes: self.bytes,
            reduction: Reduction::new(Arithmetic::Add, self.data_type()),
        }
    }

    /// Returns true if a plan can be run for this shape.
    pub fn admits(&self, plan: &Choice) -> bool {
        self.graph(plan, 0).is_ok()
    }
}

impl From<Query> for CollectiveCall {
    /// The call with rank 0 as the root, on any nodes.
    fn from(Query { operation, form, ranks, bytes, .. }: Query) -> Self {
        CollectiveCall { operation, form, ranks, bytes, root: 0 }
    }
}

impl fmt::Display for CollectiveCall {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CollectiveCall { operation, ranks, bytes, .. } = self;
        write!(formatter, "{operation} of {bytes} bytes among {ranks} ranks")
    }
}

impl From<PlanError> for Error {
    fn from(error: PlanError) -> Self {
        Error::Cause(Box::new(error))
    }
}
