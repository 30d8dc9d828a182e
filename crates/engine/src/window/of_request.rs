//! Calls of a request on its run: to advance it, to look for its end, to take or abandon its results.

use super::{Executor, InflightWindow, StartedRun};
use crate::error::Outcome;
use crate::protocol::run_state::RunState;

impl<P: Executor> InflightWindow<P> {
    /// As [`advance`](Self::advance), but returns the error that prevents this run from starting.
    pub(crate) fn advance_for(&self, run: &StartedRun<P>) -> Outcome {
        let mut starter = self.lock();
        match self.start_queued(&mut starter) {
            // Queued runs start in order, so the error concerns the next one and those behind it.
            Err(error) if starter.window.next <= run.number.run => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes a queued run that cannot start from the queue, so the next run gets its number.
    /// Returns false if it has started or if runs are queued behind it, because their numbers count
    /// it.
    #[cold]
    pub(crate) fn withdraw(&self, run: &StartedRun<P>) -> bool {
        let mut starter = self.lock();
        let is_alone = starter.queue.len() == 1 && starter.window.next == run.number.run;
        // No other rank can have seen the run, so the next call can use its number.
        if is_alone {
            starter.queue.runs.clear();
        }
        is_alone
    }

    /// Prevents a run from being retired while this thread works on it. Returns false if it has
    /// been retired already.
    pub(crate) fn pin(&self, run: &StartedRun<P>) -> bool {
        // The same exchange as in `retire` and `collect`: exactly one of them takes the run.
        self.own().change(run.number.run, RunState::Active, RunState::Taken)
    }

    /// Reverses [`pin`](Self::pin).
    pub(crate) fn unpin(&self, run: &StartedRun<P>) {
        self.own().change(run.number.run, RunState::Taken, RunState::Active);
    }

    /// Returns whether the run is complete. One load unless the run was queued.
    #[inline]
    pub(crate) fn is_complete(&self, run: &StartedRun<P>) -> bool {
        self.has_begun(run)
            && (self.executor.is_complete(run.number.run, &run.call) || self.has_failed(run))
    }

    /// Returns whether the run failed when it was started.
    fn has_failed(&self, run: &StartedRun<P>) -> bool {
        run.queued && self.lock().retired.get(&run.number.run).is_some_and(Result::is_err)
    }

    /// Returns whether the run has its slot. A run without a slot is not complete, even if the
    /// other ranks have finished their part.
    #[inline]
    pub(crate) fn has_begun(&self, run: &StartedRun<P>) -> bool {
        !run.queued || self.own().has_begun(run.number.run)
    }

    /// Fetches the results of a complete run.
    #[inline]
    pub(crate) fn collect(&self, run: &mut StartedRun<P>, outputs: &mut [&mut [u8]]) -> Outcome {
        if std::mem::replace(&mut run.collected, true) {
            return Ok(());
        }
        // The state decides between this thread and one that retires the run to reuse its slot.
        if self.own().change(run.number.run, RunState::Active, RunState::Taken) {
            let outcome = self.executor.collect(run.number, &run.call, &run.bindings, outputs);
            self.own().consume(run.number.run);
            return outcome;
        }
        // The run was not active any more, so `retire` or a failed launch has stored its outcome.
        // Both do so under the lock.
        let kept = self.lock().retired.remove(&run.number.run);
        let kept = kept.unwrap_or_else(|| Ok(Vec::new()))?;
        for (buffer, (output, result)) in outputs.iter_mut().zip(&kept).enumerate() {
            self.executor.put_back(&run.call, buffer, result, output);
        }
        Ok(())
    }

    /// Abandons the results; the slot is free when the run is complete.
    pub(crate) fn abandon(&self, run: &StartedRun<P>) {
        if run.collected || self.own().change(run.number.run, RunState::Active, RunState::Abandoned)
        {
            return;
        }
        // The change fails if the run is still queued, or if its results have been retired.
        let mut starter = self.lock();
        if run.number.run >= starter.window.next {
            starter.queue.abandon(run.number.run);
        } else {
            starter.retired.remove(&run.number.run);
        }
    }
}
