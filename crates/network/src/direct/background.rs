//! The thread that executes a rank's runs while none of its other threads does.
//!
//! A thread that waits for a run sleeps on the set of all connections. The background thread sleeps
//! on a set of its own with that set as a member, which is *armed* while none waits for runs that
//! need a thread (`background_need`) or for frames that the system has not taken, and while threads
//! sleep elsewhere until messages arrive. The next arrival, or space for a frame, wakes the
//! background thread, once (`EPOLLONESHOT`). A thread that begins to wait disarms the member: an
//! arrival wakes one thread, not two, and a rank with blocking calls only, of which the system
//! takes all frames at once, arms nothing. For runs that need no thread, and in a rank that has
//! used messages, the background thread looks at the connections at intervals (*looks*). While
//! records wait in the submissions for others to join them, it takes these at shorter ones
//! (*ticks*).

use crate::agent::shared_region::notifier;
use crate::error::{Error, refused, system};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Pause after a refusal of the system to read, which the next attempt may not meet.
pub(super) const PAUSE: Duration = Duration::from_millis(1);

/// Numbers of the members of the set; the loop does not distinguish them.
const CONNECTIONS: u64 = 0;
const NOTIFIER: u64 = 1;

/// A set on which the background thread sleeps, and its state.
#[derive(Debug)]
pub(super) struct Background {
    set: OwnedFd,
    /// The set of all connections.
    connections: OwnedFd,
    /// Wakes the thread for another reason than an arrival.
    notifier: OwnedFd,
    /// True: the thread executes what arrives. False: the member is not armed, unless it was armed
    /// while the thread woke up, which costs one wake-up too many.
    is_armed: AtomicBool,
    /// Held while a thread changes the member and the mark, so that both agree afterwards.
    arming: Mutex<()>,
    is_started: AtomicBool,
    /// True while the thread looks at the connections at intervals. Changes under the lock of the
    /// engine, which orders them.
    has_looks: AtomicBool,
    /// True while the thread looks often for messages that wait for others to join them.
    has_ticks: AtomicBool,
    is_over: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Background {
    /// Watches a set of connections, which is not armed.
    pub(super) fn new(connections: BorrowedFd<'_>) -> Result<Background, Error> {
        let what = "watch the connections of a rank";
        let connections = connections.try_clone_to_owned();
        let connections = connections.map_err(|error| system(what, error))?;
        let set = epoll::create(CreateFlags::CLOEXEC).map_err(refused(what))?;
        let notifier = notifier()?;
        let add = |descriptor: &OwnedFd, number, flags| {
            epoll::add(&set, descriptor, EventData::new_u64(number), flags).map_err(refused(what))
        };
        add(&connections, CONNECTIONS, EventFlags::empty())?;
        // Edge-triggered: the counter of the notifier is never read.
        add(&notifier, NOTIFIER, EventFlags::IN | EventFlags::ET)?;
        Ok(Background {
            set,
            connections,
            notifier,
            is_armed: AtomicBool::new(false),
            arming: Mutex::default(),
            is_started: AtomicBool::new(false),
            has_looks: AtomicBool::new(false),
            has_ticks: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            thread: Mutex::default(),
        })
    }

    /// Starts the thread with this body, unless it runs already.
    ///
    /// # Errors
    /// If the system has no thread left.
    pub(super) fn start(&self, body: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_some() {
            return Ok(());
        }
        let started = std::thread::Builder::new().name("tradewind-runs".into()).spawn(body);
        *thread = Some(started.map_err(|error| system("start a thread for runs", error))?);
        self.is_started.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Returns true if the thread was started: a hint, because another one may just start it.
    pub(super) fn is_started(&self) -> bool {
        self.is_started.load(Ordering::Relaxed)
    }

    /// Returns true if the thread will execute what arrives: a hint.
    pub(super) fn is_armed(&self) -> bool {
        self.is_armed.load(Ordering::Relaxed)
    }

    /// Returns true if the thread looks at the connections at intervals.
    pub(super) fn has_looks(&self) -> bool {
        self.has_looks.load(Ordering::Relaxed)
    }

    /// Makes the thread look at the connections at intervals, or no more. The caller has the engine.
    pub(super) fn set_looks(&self, has_looks: bool) {
        self.has_looks.store(has_looks, Ordering::Relaxed);
    }

    /// Makes the thread take soon what was passed to the engine before this call.
    pub(super) fn tick(&self) {
        // The lock of the submissions orders it with `end_ticks`.
        // Acquire: pairs with the Release in `end_ticks`.
        if !self.has_ticks.load(Ordering::Acquire) {
            // Release: pairs with the Acquire in `has_ticks`.
            self.has_ticks.store(true, Ordering::Release);
            self.notify();
        }
    }

    /// Returns true if the thread looks often.
    pub(super) fn has_ticks(&self) -> bool {
        // Acquire: pairs with the Release in `tick`.
        self.has_ticks.load(Ordering::Acquire)
    }

    /// Ends that, unless something `was_passed`: a thread that has passed something before this check
    /// may rely on the looks, and one that passes something later begins them anew.
    pub(super) fn end_ticks(&self, was_passed: impl FnOnce() -> bool) {
        // Release: pairs with the Acquire in `tick`.
        self.has_ticks.store(false, Ordering::Release);
        if was_passed() {
            self.has_ticks.store(true, Ordering::Release);
        }
    }

    /// Ends the thread.
    pub(super) fn stop(&self) {
        self.is_over.store(true, Ordering::Release);
        self.notify();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A panic of the thread has been reported where it happened.
        thread.into_iter().for_each(|thread| drop(thread.join()));
    }

    /// Makes the next arrival wake the thread, or one that is there already.
    pub(super) fn arm(&self) {
        // Pairs with the fence in `sleep`: if this thread still finds the mark of a wake-up that
        // has happened, the background thread finds the engine free, which this thread has left
        // before, or in the hands of one that leaves it later. A thread that disarms at the same
        // moment has the engine and arms when it leaves it.
        fence(Ordering::SeqCst);
        if self.is_armed.load(Ordering::Relaxed) {
            return;
        }
        self.change(true, EventFlags::IN | EventFlags::ONESHOT);
    }

    /// Withdraws [`arm`](Self::arm). A thread that arms at the same moment may prevail; then an
    /// arrival wakes the background thread in vain.
    pub(super) fn disarm(&self) {
        if self.is_armed.load(Ordering::Relaxed) {
            self.change(false, EventFlags::empty());
        }
    }

    fn change(&self, is_armed: bool, flags: EventFlags) {
        let _arming = self.arming.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_armed.store(is_armed, Ordering::Relaxed);
        let data = EventData::new_u64(CONNECTIONS);
        // The member is there as long as the set, so the system has no reason to refuse.
        let changed = epoll::modify(&self.set, &self.connections, data, flags);
        debug_assert!(changed.is_ok(), "{changed:?}");
    }

    /// Wakes the thread.
    pub(super) fn notify(&self) {
        // It fails only if the counter is full, and then the descriptor is readable.
        let _ = rustix::io::write(&self.notifier, &1u64.to_ne_bytes());
    }

    /// Sleeps until an arrival, a notification, or the end of the time. Returns false when the
    /// thread must end.
    pub(super) fn sleep(&self, timeout: Option<Duration>) -> bool {
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut space = [const { MaybeUninit::<epoll::Event>::uninit() }; 2];
        if let Err(error) = epoll::wait(&self.set, &mut space[..], timeout.as_ref())
            && error != Errno::INTR
        {
            std::thread::sleep(PAUSE);
        }
        // The member reports once. It is armed again when this thread leaves the engine, or the one
        // that has it now.
        let arming = self.arming.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_armed.store(false, Ordering::Relaxed);
        drop(arming);
        // Before this thread tries to lock the engine: see `arm`.
        fence(Ordering::SeqCst);
        // Acquire: pairs with the Release in `stop`.
        !self.is_over.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::sync::Barrier;

    /// A thread that leaves the engine arms the set while the next one, which has taken the engine,
    /// disarms it.
    #[test]
    fn a_set_that_is_marked_as_armed_is_armed() {
        const ROUNDS: u32 = 20_000;
        let connections = epoll::create(CreateFlags::CLOEXEC).expect("a descriptor");
        let arrival = notifier().expect("a descriptor");
        let data = EventData::new_u64(0);
        epoll::add(&connections, &arrival, data, EventFlags::IN).expect("both are there");
        rustix::io::write(&arrival, &1u64.to_ne_bytes()).expect("the counter is not full");
        let background = Background::new(connections.as_fd()).expect("descriptors");
        let reports = || {
            let mut space = [const { MaybeUninit::<epoll::Event>::uninit() }; 2];
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            let (events, _) =
                epoll::wait(&background.set, &mut space[..], Some(&now)).expect("the set is there");
            !events.is_empty()
        };
        let turn = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    turn.wait();
                    background.arm();
                    turn.wait();
                }
            });
            for round in 0..ROUNDS {
                background.arm();
                turn.wait();
                background.disarm();
                turn.wait();
                let is_armed = background.is_armed();
                assert!(!is_armed || reports(), "round {round}: no arrival wakes the thread");
            }
        });
    }
}
