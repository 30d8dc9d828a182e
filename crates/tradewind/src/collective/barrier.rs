//! Barrier.

use crate::communicator::Communicator;
use crate::error::Result;
use crate::path::ExecutionPath;
use crate::persistent::Persistent;
use crate::plan::{CollectivePlan, NoBuffers};
use crate::reduction::FoldOrder;
use crate::request::Request;
use crate::selection::choice::SelectedAlgorithm;
use collectives::Collective;
use engine::flat::{FlatCollective, Pattern};
use engine::signature::{CallKind, Signature};
use models::decision::CallForm;

/// # Barrier
impl Communicator {
    /// Waits until every rank has called it.
    ///
    /// # Errors
    /// Fails if a rank is gone or in another collective.
    #[inline]
    pub fn barrier(&self) -> Result<()> {
        let choice = self.choose(CallForm::Blocking, Collective::Barrier, 0, FoldOrder::Any);
        if choice.is_join() {
            return Ok(self.group().run_flat(&flat_barrier(&choice), &[], &mut [])?);
        }
        CollectivePlan::without_buffers(self.linked_barrier(&choice)?).run(self)
    }

    /// Starts a barrier, which is complete when every rank has started its own.
    ///
    /// # Errors
    /// Fails if the schedule cannot be linked. Never waits once linked.
    #[inline]
    pub fn ibarrier(&self) -> Result<Request<'static>> {
        CollectivePlan::without_buffers(self.path_of_barrier(CallForm::Nonblocking)?).start(self)
    }

    /// Prepares a persistent barrier.
    ///
    /// # Errors
    /// The errors of [`ibarrier`](Self::ibarrier).
    pub fn barrier_init(&self) -> Result<Persistent<NoBuffers>> {
        Ok(Persistent::new(
            self,
            CollectivePlan::without_buffers(self.path_of_barrier(CallForm::Nonblocking)?),
        ))
    }

    #[inline(always)]
    fn path_of_barrier(&self, form: CallForm) -> Result<ExecutionPath> {
        let choice = self.choose(form, Collective::Barrier, 0, FoldOrder::Any);
        if choice.is_join() {
            return Ok(ExecutionPath::Flat(flat_barrier(&choice)));
        }
        self.linked_barrier(&choice)
    }

    #[cold]
    fn linked_barrier(&self, choice: &SelectedAlgorithm) -> Result<ExecutionPath> {
        self.linked_equal((signature_of_barrier(choice), choice), 0, (0, 0, None))
    }
}

#[inline(always)]
fn flat_barrier(choice: &SelectedAlgorithm) -> FlatCollective {
    FlatCollective::new(Pattern::Barrier, 0, signature_of_barrier(choice))
}

#[inline(always)]
fn signature_of_barrier(choice: &SelectedAlgorithm) -> Signature {
    Signature::new(CallKind::Barrier, 0, choice.digest())
}
