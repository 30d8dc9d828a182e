//! Memory for the collectives of other ranks, freed while this rank makes no call.

use crate::communicator::Communicator;
use crate::error::{Error, Result};
use engine::node::membership::Member;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Interval at which memory is freed while a rank is short of it.
const INTERVAL: Duration = Duration::from_micros(200);

/// Longest sleep between two looks at the word of shortages.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// A thread that frees memory of this rank's finished collectives while a rank of the node is
/// short of it; see [`Communicator::relieve_memory`]. Dropping it ends the thread.
#[derive(Debug)]
pub struct MemoryRelief {
    member: Arc<Member>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Communicator {
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
    /// let relief = job.world().relieve_memory(|| {})?;
    /// // … collectives, and long waits elsewhere …
    /// drop(relief);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the system refuses a thread.
    pub fn relieve_memory(&self, advance: impl Fn() + Send + 'static) -> Result<MemoryRelief> {
        let member = Arc::clone(self.group().member());
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
