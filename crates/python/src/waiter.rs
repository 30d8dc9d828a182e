//! Threads that wait for requests and call functions of the program.
//!
//! The collectives of a communicator end in about the order of their starts, so one thread sleeps until
//! the oldest is complete, and tests the others at times. Messages end in any order, so another thread
//! tests all of them at intervals. Before a thread calls a function, it leaves its place to another thread:
//! the function may wait for another request.

use crate::errors::error;
use crate::started::Shared;
use pyo3::prelude::*;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest wait for the oldest collective, after which the others are tested. A wait polls at its begin,
/// so shorter ones would use more of a core.
const SLICE: Duration = Duration::from_millis(20);

/// Time between two tests of messages. None of them is awaited: the wait for one would not notice
/// another.
const INTERVAL: Duration = Duration::from_micros(500);

/// A request and the function that is called at its end, or at the deadline.
struct Watched {
    shared: Arc<Shared>,
    deadline: Option<Instant>,
    request: Py<PyAny>,
    function: Py<PyAny>,
}

impl Watched {
    fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    fn call_function(self) {
        // Without an interpreter no function is left to call.
        let _ = Python::try_attach(|py| {
            if let Err(error) = self.function.call1(py, (self.request,)) {
                error.write_unraisable(py, Some(self.function.bind(py)));
            }
        });
    }
}

/// The requests of one kind, in the place of the thread that waits for them.
struct Place {
    receiver: Receiver<Watched>,
    waiting: VecDeque<Watched>,
    /// Those that have ended, or are late.
    ended: VecDeque<Watched>,
    is_of_messages: bool,
}

/// The threads of one kind of requests.
struct Waiters {
    sender: Sender<Watched>,
    shared: Arc<Threads>,
}

/// State that these threads share.
struct Threads {
    place: Mutex<Place>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    threads: Vec<JoinHandle<()>>,
    /// Threads that have the place or wait for it.
    at_place: usize,
}

/// The threads of collectives, and the threads of messages.
static WAITERS: [Mutex<Option<Waiters>>; 2] = [const { Mutex::new(None) }; 2];

/// Calls the function when the request has ended, or after `limit`.
pub(crate) fn watch(
    shared: Arc<Shared>,
    limit: Option<Duration>,
    request: Py<PyAny>,
    function: Py<PyAny>,
) -> PyResult<()> {
    let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    let is_of_messages = shared.is_message();
    let watched = Watched { shared, deadline, request, function };
    let mut waiters =
        WAITERS[usize::from(is_of_messages)].lock().unwrap_or_else(PoisonError::into_inner);
    if waiters.is_none() {
        let (sender, receiver) = channel();
        let place = Mutex::new(Place {
            receiver,
            waiting: VecDeque::new(),
            ended: VecDeque::new(),
            is_of_messages,
        });
        let shared = Arc::new(Threads { place, state: Mutex::default() });
        shared
            .add_thread()
            .map_err(|why| error(format!("no thread can wait for requests: {why}")))?;
        *waiters = Some(Waiters { sender, shared });
    }
    if let Some(waiters) = &*waiters {
        // The receiver is in the place, which lives as long as its threads.
        let _ = waiters.sender.send(watched);
    }
    Ok(())
}

/// Ends the threads: one that executed Python while the interpreter ends would end the process. The
/// functions of requests that no thread has found complete are not called.
///
/// # Errors
/// A function that a thread has called must not end it. The exception of a signal ends the wait for a
/// function.
pub(crate) fn end(py: Python<'_>) -> PyResult<()> {
    let is_own = |thread: &JoinHandle<()>| thread.thread().id() == std::thread::current().id();
    let lock = |waiters: &'static Mutex<Option<Waiters>>| {
        waiters.lock().unwrap_or_else(PoisonError::into_inner)
    };
    let mut all = WAITERS.each_ref().map(lock);
    if all
        .iter()
        .flat_map(|one| one.as_ref())
        .any(|one| one.shared.state().threads.iter().any(is_own))
    {
        return Err(error("a function of on_complete cannot leave the job: return from it first"));
    }
    let ended: Vec<Waiters> = all.iter_mut().filter_map(|waiters| waiters.take()).collect();
    drop(all);
    for Waiters { sender, shared } in ended {
        drop(sender);
        loop {
            // Without the lock: a thread may add another one before it ends.
            let Some(thread) = shared.state().threads.pop() else { break };
            while !thread.is_finished() {
                py.detach(|| std::thread::sleep(INTERVAL));
                py.check_signals()?;
            }
            // A panic of the thread has been reported.
            let _ = thread.join();
        }
    }
    Ok(())
}

impl Threads {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add_thread(self: &Arc<Self>) -> std::io::Result<()> {
        let mut state = self.state();
        let shared = Arc::clone(self);
        let builder = std::thread::Builder::new().name("tradewind".into());
        let thread = builder.spawn(move || shared.run())?;
        state.threads.push(thread);
        state.at_place += 1;
        Ok(())
    }

    /// Waits in the place for a request that has ended, leaves the place, and calls the function.
    fn run(self: Arc<Self>) {
        loop {
            let next = self.place.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(watched) = next else { return };
            let is_last = {
                let mut state = self.state();
                state.at_place -= 1;
                state.at_place == 0
            };
            if is_last && let Err(why) = self.add_thread() {
                log::warn!("requests are watched by one thread only: {why}");
            }
            watched.call_function();
            self.state().at_place += 1;
        }
    }
}

impl Place {
    /// Waits for a request that has ended, or is late; `None` at the end.
    fn next(&mut self) -> Option<Watched> {
        loop {
            if let Some(ended) = self.ended.pop_front() {
                return Some(ended);
            }
            if self.waiting.is_empty() {
                self.waiting.push_back(self.receiver.recv().ok()?);
            }
            if !self.take_all() {
                return None;
            }
            if self.is_of_messages {
                self.take_ended();
                if self.ended.is_empty() {
                    match self.receiver.recv_timeout(INTERVAL) {
                        Ok(next) => self.waiting.push_back(next),
                        Err(RecvTimeoutError::Timeout) => {}
                        Err(RecvTimeoutError::Disconnected) => return None,
                    }
                }
                continue;
            }
            let Some(oldest) = self.waiting.front() else { continue };
            let left = oldest.deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if oldest.shared.wait(left.map_or(SLICE, |left| left.min(SLICE))).is_ok() {
                return self.waiting.pop_front();
            }
            // Others may have ended before it.
            self.take_all();
            self.take_ended();
        }
    }

    /// Takes all requests that have come. Returns `false` when no more can come.
    fn take_all(&mut self) -> bool {
        loop {
            match self.receiver.try_recv() {
                Ok(next) => self.waiting.push_back(next),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Finds all that have ended, or are late.
    fn take_ended(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        for watched in waiting {
            let is_over = watched.shared.has_ended() || watched.is_late();
            if is_over { &mut self.ended } else { &mut self.waiting }.push_back(watched);
        }
    }
}
