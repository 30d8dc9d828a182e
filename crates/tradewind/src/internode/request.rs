//! One run of a schedule between nodes.

use super::group::InternodeGroup;
use super::schedule::{InternodeSchedule, Registration, is_read, is_written};
use crate::error::{Error, Result};
use crate::failure::Straggler;
use engine::argument::Argument;
use engine::signature::Signature;
use goal::schedule::BufferRecord;
use models::decision::CallForm;
use network::backend::{Backend, RunId};
use network::error::Error as BackendError;
use shm::borrowed::BorrowedBytes;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Interval at which a waiting rank serves the communicators of its own node, if there ever were
/// any.
const OWN_WORK_INTERVAL: Duration = Duration::from_millis(1);

/// Time until a waiting rank first checks that the other ranks are alive. The interval doubles
/// after each check, up to [`LONGEST_CHECK_INTERVAL`].
const FIRST_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The first interval after the backend has lost a rank. The node service reports within moments
/// why the rank is gone.
const LOSS_CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// Longest interval between two liveness checks.
const LONGEST_CHECK_INTERVAL: Duration = Duration::from_millis(400);

/// Unsuccessful polls between two readings of the clock, on a rank that polls instead of waiting.
const POLLS_PER_CHECK: u32 = 256;

/// Time of the next liveness check of a run.
#[derive(Debug)]
struct NextCheck {
    due: Instant,
    interval: Duration,
    /// Number of ranks that the backend had lost at the last check.
    lost: usize,
}

/// A run between nodes.
#[derive(Debug)]
pub(crate) struct InternodeRequest {
    schedule: Arc<InternodeSchedule>,
    form: CallForm,
    /// `None` once the results have been fetched.
    run: Option<RunId>,
    /// True if the outputs of a wait were in place until the end of the run, and have the results.
    is_placed: bool,
    sequence: u64,
    /// Start time, if it is recorded.
    begun: u64,
    /// Number of unsuccessful polls.
    polls: AtomicU32,
    next_check: OnceLock<Mutex<NextCheck>>,
}

impl InternodeRequest {
    /// Starts a run with private buffers, one for each that the schedule declares. A run in
    /// blocking form progresses only while this rank waits for it.
    pub(crate) fn start(
        schedule: &Arc<InternodeSchedule>,
        form: CallForm,
        arguments: &[Argument<'_>],
    ) -> Result<Self> {
        let expected = schedule.buffers.len();
        let found = arguments.len();
        if found != expected {
            return Err(Error::BufferCount { expected, found });
        }
        for (buffer, (argument, record)) in arguments.iter().zip(&schedule.buffers).enumerate() {
            let found = if is_read(record) { argument.data.len() as u64 } else { argument.length };
            let expected = record.length;
            if found != expected {
                return Err(Error::BufferLength { buffer, expected, found });
            }
        }
        let contents: Vec<&[u8]> = arguments.iter().map(|argument| argument.data).collect();
        InternodeRequest::start_with_bytes(schedule, form, &contents)
    }

    /// Starts a run with these contents of its buffers.
    pub(crate) fn start_with_bytes(
        schedule: &Arc<InternodeSchedule>,
        form: CallForm,
        contents: &[&[u8]],
    ) -> Result<Self> {
        let inputs: Vec<&[u8]> = contents
            .iter()
            .zip(&schedule.buffers)
            .map(|(data, record)| if is_read(record) { *data } else { &[] })
            .collect();
        let Registration { backend, id } = schedule.registration(form);
        InternodeRequest::start_by(schedule, form, |sequence| backend.start(*id, sequence, &inputs))
    }

    /// Starts a run by a call of a backend with the number of the collective.
    fn start_by(
        schedule: &Arc<InternodeSchedule>,
        form: CallForm,
        start: impl FnOnce(u64) -> std::result::Result<RunId, BackendError>,
    ) -> Result<Self> {
        let internode = &schedule.internode;
        // A load and a store suffice: the collectives of one communicator are started one after
        // the other, as within a node.
        let sequence = internode.sequence().load(Ordering::Relaxed);
        internode.sequence().store(sequence + 1, Ordering::Relaxed);
        let begun = schedule.recording.as_ref().map_or(0, |recording| recording.begun(sequence));
        match start(sequence) {
            Ok(run) => Ok(InternodeRequest {
                schedule: Arc::clone(schedule),
                form,
                run: Some(run),
                is_placed: false,
                sequence,
                begun,
                polls: AtomicU32::new(0),
                next_check: OnceLock::new(),
            }),
            Err(error) => {
                // The collective did not start here: the next one takes its number, so that the
                // numbers stay equal on all ranks.
                internode.sequence().store(sequence, Ordering::Relaxed);
                Err(internode.translate(error))
            }
        }
    }

    /// The signature of the call.
    pub(crate) fn call(&self) -> Signature {
        self.schedule.call
    }

    /// Number of participating ranks.
    pub(crate) fn ranks(&self) -> u32 {
        self.internode().ranks()
    }

    /// Name of the backend that runs it.
    pub(crate) fn backend(&self) -> &'static str {
        self.backend_of_run().name()
    }

    fn backend_of_run(&self) -> &Arc<dyn Backend> {
        &self.schedule.registration(self.form).backend
    }

    fn internode(&self) -> &InternodeGroup {
        &self.schedule.internode
    }

    /// Returns `true` if the run is complete.
    #[inline]
    pub(crate) fn is_complete(&self) -> bool {
        self.run.is_none_or(|run| self.backend_of_run().is_complete(run))
    }

    /// Returns `true` if the run is complete; every [`POLLS_PER_CHECK`] polls it also checks that
    /// the other ranks are alive.
    #[inline]
    pub(crate) fn test(&self) -> Result<bool> {
        let is_complete = self.is_complete();
        // A plain load and store: a count lost between two threads only delays the check.
        let polls = self.polls.load(Ordering::Relaxed).wrapping_add(u32::from(!is_complete));
        self.polls.store(polls, Ordering::Relaxed);
        if !is_complete && polls.is_multiple_of(POLLS_PER_CHECK) {
            self.check_liveness()?;
        }
        Ok(is_complete)
    }

    fn next_check(&self) -> MutexGuard<'_, NextCheck> {
        let first = || {
            let interval = FIRST_CHECK_INTERVAL;
            let due = Instant::now() + interval;
            Mutex::new(NextCheck { due, interval, lost: 0 })
        };
        self.next_check.get_or_init(first).lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails if a rank is gone without which the run cannot complete. Checks that if it is due, and
    /// as soon as the backend has lost a rank.
    #[cold]
    fn check_liveness(&self) -> Result<()> {
        let Some(run) = self.run else { return Ok(()) };
        let backend = self.backend_of_run();
        let lost = backend.lost().len();
        let mut next = self.next_check();
        let has_lost = std::mem::replace(&mut next.lost, lost) < lost;
        if !has_lost && Instant::now() < next.due {
            return Ok(());
        }
        next.interval = match has_lost {
            true => LOSS_CHECK_INTERVAL,
            false => LONGEST_CHECK_INTERVAL.min(2 * next.interval),
        };
        next.due = Instant::now() + next.interval;
        // A rank that only receives has sent nothing by which one that runs this collective in another
        // library, or in the other form, can find the difference. A run of several steps waits for
        // other ranks later, so each of the long checks announces it to those of the moment. A rank
        // that has the sign already drops the next one.
        let announces = next.interval == LONGEST_CHECK_INTERVAL;
        drop(next);
        if announces {
            backend.announce_wait(run);
        }
        // The program in the kernel cannot see that the run will never complete.
        let checked = self.internode().check_liveness(backend, || backend.waiting_for(run));
        if let Err(error) = checked {
            // Another thread of the rank may have received the rest of the run meanwhile, and behind
            // it the end of the connection that the check has found.
            if self.is_complete() {
                return Ok(());
            }
            backend.abandon(run);
            return Err(error);
        }
        self.check_form()?;
        backend.progress(run).map_err(|error| self.internode().translate(error))
    }

    /// Fails if another rank runs the collective of this number on another backend.
    fn check_form(&self) -> Result<()> {
        let InternodeSchedule { internode, call, .. } = &*self.schedule;
        match self.schedule.backend_of_other_calls(self.form) {
            Some(other) => internode.check_form(other, self.sequence, *call),
            None => Ok(()),
        }
    }

    /// Waits until the run is complete, at most `limit`. `outputs` are those of [`fetch`](Self::fetch),
    /// which follows; long results may be there after this call.
    pub(crate) fn wait(
        &mut self,
        limit: Option<Duration>,
        outputs: &mut [&mut [u8]],
    ) -> Result<()> {
        let direct = self.schedule.in_ranks(self.form);
        let (Some(run), Some(direct), false) = (self.run, direct, outputs.is_empty()) else {
            return self.wait_for_end(limit);
        };
        let mut wanted = wanted(&self.schedule.buffers, outputs);
        let waited = direct.with_outputs_in_place(run, &mut wanted, || self.wait_for_end(limit));
        let (waited, is_placed) = waited.map_err(|error| self.internode().translate(error))?;
        self.is_placed = is_placed;
        waited
    }

    fn wait_for_end(&self, limit: Option<Duration>) -> Result<()> {
        let Some(run) = self.run else { return Ok(()) };
        // A blocking call has just passed its run, of which nothing is sent yet: to look for its end
        // would read the connections in vain.
        if self.form != CallForm::Blocking && self.is_complete() {
            return Ok(());
        }
        let internode = self.internode();
        let backend = self.backend_of_run();
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        loop {
            // Other ranks may need this one in a communicator of this node before they can take
            // part in the run; without its help both would wait for ever.
            let has_own_work = internode.group().progress_own_work()?;
            let own_work = has_own_work.then(|| Instant::now() + OWN_WORK_INTERVAL);
            let check = self.next_check().due;
            let until = [deadline, own_work, Some(check)].into_iter().flatten().min();
            if backend.wait(run, until).map_err(|error| internode.translate(error))? {
                return Ok(());
            }
            self.check_liveness()?;
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(self.timeout(run, limit.unwrap_or_default()));
            }
        }
    }

    fn timeout(&self, run: RunId, after: Duration) -> Error {
        let internode = self.internode();
        let awaited = self.backend_of_run().waiting_for(run);
        let mut ranks: Vec<u32> =
            awaited.into_iter().filter_map(|member| internode.rank_of(member)).collect();
        ranks.sort_unstable();
        ranks.dedup();
        let waiting_for = ranks
            .into_iter()
            .filter_map(|rank| Some(Straggler::on_node(rank, internode.node_of(rank)?)))
            .collect();
        Error::Timeout { after, waiting_for }
    }

    /// Copies the results to `outputs`, by buffer. A second call does nothing.
    pub(crate) fn fetch(&mut self, outputs: &mut [&mut [u8]]) -> Result<()> {
        let Some(run) = self.run.take() else { return Ok(()) };
        let InternodeSchedule { buffers, recording, .. } = &*self.schedule;
        let backend = self.backend_of_run();
        if let Some(recording) = recording {
            recording.ended(self.sequence, self.begun, &backend.times(run));
        }
        // Without outputs the results are not wanted, or are where they belong.
        let mut wanted = match outputs.is_empty() || self.is_placed {
            true => Vec::new(),
            false => wanted(buffers, outputs),
        };
        backend.fetch(run, &mut wanted).map_err(|error| self.cause(error))
    }

    /// The error of a run. If it is that another rank has left the collective after an error, or
    /// does not answer, the failure of a rank may be the cause, and is then the error.
    fn cause(&self, error: BackendError) -> Error {
        let internode = self.internode();
        let backend = self.backend_of_run();
        let silent = match &error {
            BackendError::Operation(_) => Some(None),
            BackendError::RankFailed { rank, .. } => Some(Some(*rank)),
            _ => None,
        };
        if let Some(silent) = silent {
            // Another rank may have had the report of the node service a little earlier.
            let deadline = Instant::now() + LONGEST_CHECK_INTERVAL;
            loop {
                if let Err(failure) =
                    internode.check_liveness(backend, || silent.into_iter().collect())
                {
                    return failure;
                }
                if internode.explains_losses(backend) || Instant::now() >= deadline {
                    break;
                }
                std::thread::sleep(LOSS_CHECK_INTERVAL);
            }
        }
        internode.translate(error)
    }
}

/// The outputs by buffer of a schedule, with empty ones for buffers that it only reads.
fn wanted<'a>(buffers: &[BufferRecord], outputs: &'a mut [&mut [u8]]) -> Vec<&'a mut [u8]> {
    let mut outputs = outputs.iter_mut();
    let output_of = |record: &BufferRecord| match outputs.next() {
        Some(output) if is_written(record) => &mut **output,
        _ => &mut [],
    };
    buffers.iter().map(output_of).collect()
}

/// Runs a schedule in blocking form on the buffers themselves, which stay borrowed during this
/// call. The schedule [runs in place](InternodeSchedule::runs_in_place).
pub(crate) fn run_in_place(
    schedule: &Arc<InternodeSchedule>,
    buffers: Vec<BorrowedBytes>,
) -> Result<()> {
    let Some((direct, id)) = schedule.direct() else {
        return Err(Error::Run("this schedule does not run in place".into()));
    };
    // A request that is dropped before its end cancels the run, so nothing uses the buffers after
    // this call.
    let start = |sequence| direct.start_in_place(id, sequence, buffers);
    let mut request = InternodeRequest::start_by(schedule, CallForm::Blocking, start)?;
    request.wait(None, &mut [])?;
    request.fetch(&mut [])
}

impl Drop for InternodeRequest {
    fn drop(&mut self) {
        if let Some(run) = self.run {
            if let Some(recording) = &self.schedule.recording {
                recording.abandoned(self.sequence);
            }
            // A run of a communicator with a failed rank may never send the rest.
            if self.internode().has_failed() {
                self.backend_of_run().abandon(run);
            }
            self.backend_of_run().discard(run);
        }
    }
}
