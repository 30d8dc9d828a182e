//! Ranks of another runtime, such as an MPI library, that form a job and run some of their collectives
//! here. Other programs need nothing of this.
//!
//! Processes that another runtime has started form a job without a launcher: the messages of that
//! runtime carry the addresses of the nodes, and the first rank on each node starts the node
//! service.

use crate::communicator::Communicator;
use crate::error::{Error, Result};
use crate::job::Job;
use crate::request::Request;
use engine::node::membership::Member;
pub use engine::{sleep_after, while_waiting};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Interval at which memory is freed while a rank is short of it.
const INTERVAL: Duration = Duration::from_micros(200);

/// Longest sleep between two looks at the word of shortages.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Joins the job of `ranks` ranks, on one node or several, as rank `rank`, and waits for the other
/// ranks. `command` is the `tradewind` command, unless TRADEWIND_COMMAND names another; `None` is
/// the one in PATH.
///
/// `exchange` is an allgather by the means that the ranks have without tradewind: it sends bytes to
/// all ranks, and returns those of every rank, in rank order. They may differ in length. It returns
/// `None` on all ranks if it fails. Each step of the entry ends with such an exchange, so if a rank
/// cannot join, the call fails on every rank, no rank waits for another, and node services that have
/// started end. The bytes contain the job's secret: only the ranks may read them.
///
/// Between nodes, nonblocking collectives run on the agents of the node services. The kernel
/// engine is not used, because its first start of a collective waits for all ranks.
///
/// ```no_run
/// # fn main() -> Result<(), tradewind::Error> {
/// // A single rank receives what it sends.
/// let job = tradewind::interop::join(0, 1, None, |own| Some(vec![own.to_vec()]))?;
/// job.world().barrier()
/// # }
/// ```
///
/// # Errors
/// Fails if a rank cannot join: its node service does not start, another node cannot be
/// reached, or the exchange fails.
pub fn join(
    rank: u32,
    ranks: u32,
    command: Option<&Path>,
    exchange: impl FnMut(&[u8]) -> Option<Vec<Vec<u8>>> + Send,
) -> Result<Job> {
    Job::of(service::exchanged::enter((rank, ranks), command, exchange)?)
}

/// Returns whether every rank of the job on this node has a core of its own. With fewer cores a rank
/// that waits should yield its core soon: another one may need it to arrive.
pub fn has_cores_for_all(communicator: &Communicator) -> bool {
    communicator.group().member().node().has_cores_for_all()
}

/// Records a collective that another library runs on the same ranks, for programs that run some of
/// their collectives there. All ranks must record the same ones. If another rank has started that
/// collective here, a rank that waits for it gets [`Error::Mismatch`], and
/// [`check_external_collectives`] returns that error. Between nodes the rank that waits gets it from
/// that check, if it has sent something for the collective or has waited for a third of a second.
///
/// ```
/// # fn main() -> Result<(), tradewind::Error> {
/// tradewind::local(2, |world| {
///     if world.rank() == 0 {
///         tradewind::interop::record_external_collective(&world);
///     } else {
///         assert!(matches!(world.barrier(), Err(tradewind::Error::Mismatch { .. })));
///     }
///     Ok(())
/// })
/// # }
/// ```
#[inline]
pub fn record_external_collective(communicator: &Communicator) {
    match communicator.internode() {
        None => communicator.group().record_external_collective(),
        Some(internode) => internode.record_external_collective(),
    }
}

/// Checks whether another rank has [recorded as external](record_external_collective) one of the last
/// collectives that this rank has started here, or the other way round. Waits for no rank and no
/// other thread. Between nodes it asks the node service whether other ranks have sent something for
/// one of the last collectives that this rank has recorded, or wait long in it.
///
/// # Errors
/// [`Error::Mismatch`].
pub fn check_external_collectives(communicator: &Communicator) -> Result<()> {
    match communicator.internode() {
        None => Ok(communicator.group().check_external_collectives()?),
        Some(internode) => internode.check_external_collectives(),
    }
}

/// Returns `true` if ranks hold memory of their parts of the segment until all have fetched their
/// results: the collective is long, or runs on a schedule. See [`relieve_memory`].
#[inline]
pub fn uses_arena<B: Send + 'static>(request: &Request<'_, B>) -> bool {
    request.uses_arena()
}

/// A thread that frees memory of this rank's finished collectives while a rank of the node is
/// short of it; see [`relieve_memory`]. Dropping it ends the thread.
#[derive(Debug)]
pub struct MemoryRelief {
    member: Arc<Member>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Starts a thread that frees the memory of this rank's finished collectives, and calls
/// `advance`, whenever a rank of this node is short of memory. One thread is enough for all
/// communicators of the job.
///
/// A start that finds the memory of its rank full is queued until other ranks have fetched
/// their results. They do in every wait for a collective and every test of an incomplete one,
/// but not while they wait for messages or at queues. The thread is for ranks that call no
/// collective for a long time, because they wait there or in another library; otherwise it sleeps.
///
/// ```no_run
/// # fn main() -> Result<(), tradewind::Error> {
/// let job = tradewind::Job::init()?;
/// let relief = tradewind::interop::relieve_memory(job.world(), || {})?;
/// // … collectives, and long waits elsewhere …
/// drop(relief);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Fails if the system refuses a thread.
pub fn relieve_memory(
    communicator: &Communicator,
    advance: impl Fn() + Send + 'static,
) -> Result<MemoryRelief> {
    let member = Arc::clone(communicator.group().member());
    let is_over = Arc::new(AtomicBool::new(false));
    let relieve = {
        let member = Arc::clone(&member);
        let is_over = Arc::clone(&is_over);
        move || {
            // Relaxed: the flag publishes nothing.
            while !is_over.load(Ordering::Relaxed) {
                if member.relieve_shortage(LONGEST_SLEEP) {
                    advance();
                    std::thread::sleep(INTERVAL);
                }
            }
        }
    };
    let thread = std::thread::Builder::new().name("tradewind".into()).spawn(relieve);
    let what = "a thread that frees memory could not be started".to_owned();
    let thread = thread.map_err(|source| Error::System { what, source })?;
    Ok(MemoryRelief { member, is_over, thread: Some(thread) })
}

impl Drop for MemoryRelief {
    fn drop(&mut self) {
        // Relaxed: the flag publishes nothing, and the thread is joined.
        self.is_over.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return };
        // Again and again: the thread may have been between its look at the flag and its sleep.
        while !thread.is_finished() {
            self.member.end_relief();
            std::thread::sleep(INTERVAL);
        }
        // A panic of the thread has been reported, and there is nothing left to do.
        let _ = thread.join();
    }
}
