//! Barrier.

use crate::call::{Blocks, Call};
use crate::communicator::Communicator;
use crate::error::Result;
use crate::path::StartedCollective;
use crate::persistent::Persistent;
use crate::plan::{CollectivePlan, NoBuffers};
use crate::request::{Outputs, Request};
use crate::selection::choice::SelectedAlgorithm;
use collectives::Collective;
use models::decision::CallForm;

/// # Barrier
impl Communicator {
    /// Waits until every rank has called it.
    ///
    /// # Errors
    /// Fails if a rank is gone or in another collective.
    #[inline]
    pub fn barrier(&self) -> Result<()> {
        let call = self.describe_barrier(CallForm::Blocking)?;
        let choice = self.choose(&call);
        if choice.is_join() {
            return Ok(self.group().run_flat(&call.flat(&choice), &[], &mut [])?);
        }
        self.barrier_by_graph(call, choice)
    }

    #[cold]
    fn barrier_by_graph(&self, call: Call<'_>, choice: SelectedAlgorithm) -> Result<()> {
        CollectivePlan::without_buffers(self.path_by_graph(call, choice)?).run(self)
    }

    /// Starts a barrier, which is complete when every rank has started its own.
    ///
    /// # Errors
    /// Fails if the schedule cannot be linked. Never waits once linked.
    #[inline]
    pub fn ibarrier(&self) -> Result<Request<'static>> {
        let call = self.describe_barrier(CallForm::Nonblocking)?;
        let choice = self.choose(&call);
        if !choice.is_join() {
            return self.ibarrier_by_graph(call, choice);
        }
        // Without an `ExecutionPath`: one that may also be a schedule lies in memory, and the pattern
        // is then no constant.
        let started = self.group().start_flat(&call.flat(&choice), &[])?;
        Ok(Request::new(self, StartedCollective::Node(started), Outputs::None, ()))
    }

    #[cold]
    fn ibarrier_by_graph(
        &self,
        call: Call<'_>,
        choice: SelectedAlgorithm,
    ) -> Result<Request<'static>> {
        CollectivePlan::without_buffers(self.path_by_graph(call, choice)?).start(self)
    }

    /// Prepares a persistent barrier.
    ///
    /// # Errors
    /// The errors of [`ibarrier`](Self::ibarrier).
    pub fn barrier_init(&self) -> Result<Persistent<NoBuffers>> {
        let call = self.describe_barrier(CallForm::Nonblocking)?;
        let path = self.path_of_call(&call, &self.choose(&call))?;
        Ok(Persistent::new(self, CollectivePlan::without_buffers(path)))
    }

    #[inline(always)]
    fn describe_barrier(&self, form: CallForm) -> Result<Call<'static>> {
        self.describe(Collective::Barrier, form, None, Blocks::Equal(0))
    }
}
