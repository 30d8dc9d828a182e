//! Requests of the library with the objects that they use.

use crate::handle;
use crate::memory::Memory;
use crate::prepared::Prepared;
use crate::status::Status;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;
use tradewind::{Communicator, Error, Pending, RecvRequest, SendRequest};

/// A request of the library.
pub(crate) enum Started {
    Plain(tradewind::Request<'static>),
    Pair(tradewind::Request<'static, ((), ())>),
    Send(SendRequest<'static>),
    Recv(RecvRequest<'static>),
}

impl Started {
    pub(crate) fn pending(&mut self) -> &mut dyn Pending {
        match self {
            Started::Plain(request) => request,
            Started::Pair(request) => request,
            Started::Send(request) => request,
            Started::Recv(request) => request,
        }
    }

    fn status(&self) -> Option<Status> {
        match self {
            Started::Recv(request) => request.status().map(Status::of),
            _ => None,
        }
    }
}

/// Objects that a request uses until it is complete.
pub(crate) enum Used {
    Collective(Arc<Prepared>),
    Message { _communicator: Arc<Communicator>, _memory: Memory },
}

/// State of a request.
enum Stage {
    Active(Started),
    /// The status is that of a receive.
    Complete(Option<Status>),
    Failed(Arc<Error>),
    /// Dropped by a fork.
    Over,
}

/// A request with the objects that it uses, for the object in Python and for the thread that waits.
pub(crate) struct Shared {
    // Before the objects that it uses, so that it is dropped first. A thread that waits holds it, so it is locked
    // without the interpreter's lock, until the operation has ended.
    stage: Mutex<Stage>,
    /// `None` in a fork.
    used: Option<Used>,
    /// Wakes the threads that wait while another one has the lock.
    has_ended: (Mutex<bool>, Condvar),
}

impl Shared {
    /// Waits for a limited time. Succeeds also if the operation has failed: its error is raised by the
    /// object.
    pub(crate) fn wait(&self, limit: Duration) -> tradewind::Result<()> {
        match self.stage.try_lock() {
            Ok(stage) => self.advance(stage, |request| request.wait_timeout(limit).map(|()| true)),
            Err(TryLockError::Poisoned(stage)) => {
                let step = |request: &mut dyn Pending| request.wait_timeout(limit).map(|()| true);
                self.advance(stage.into_inner(), step)
            }
            // The other thread waits for the same.
            Err(TryLockError::WouldBlock) => {
                let (has_ended, condition) = &self.has_ended;
                let has_ended = has_ended.lock().unwrap_or_else(PoisonError::into_inner);
                let waited = condition.wait_timeout_while(has_ended, limit, |ended| !*ended);
                match *waited.unwrap_or_else(PoisonError::into_inner).0 {
                    true => Ok(true),
                    false => Err(Error::Timeout { after: limit, waiting_for: Vec::new() }),
                }
            }
        }
        .map(|_| ())
    }

    /// Executes a step of an active request, and keeps its end. Returns whether it has ended.
    ///
    /// # Errors
    /// A time-out.
    fn advance(
        &self,
        mut stage: MutexGuard<'_, Stage>,
        step: impl FnOnce(&mut dyn Pending) -> tradewind::Result<bool>,
    ) -> tradewind::Result<bool> {
        let Stage::Active(started) = &mut *stage else { return Ok(true) };
        *stage = match step(started.pending()) {
            Ok(false) => return Ok(false),
            Ok(true) => Stage::Complete(started.status()),
            Err(error) if error.is_timeout() => return Err(error),
            Err(error) => Stage::Failed(Arc::new(error)),
        };
        let (has_ended, condition) = &self.has_ended;
        *has_ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        condition.notify_all();
        Ok(true)
    }

    /// Returns whether the operation has ended. Never waits: while another thread waits for the
    /// operation, that thread notes its end.
    pub(crate) fn has_ended(&self) -> bool {
        let stage = match self.stage.try_lock() {
            Ok(stage) => stage,
            Err(TryLockError::Poisoned(stage)) => stage.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return *self.has_ended.0.lock().unwrap_or_else(PoisonError::into_inner);
            }
        };
        matches!(self.advance(stage, |request| request.test()), Ok(true))
    }

    pub(crate) fn is_message(&self) -> bool {
        matches!(self.used, Some(Used::Message { .. }))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if handle::is_fork() {
            // The operation belongs to the rank.
            let stage = self.stage.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget((std::mem::replace(stage, Stage::Over), self.used.take()));
        }
    }
}

impl Shared {
    pub(crate) fn new(started: Started, used: Used) -> Self {
        Shared {
            stage: Mutex::new(Stage::Active(started)),
            used: Some(used),
            has_ended: (Mutex::new(false), Condvar::new()),
        }
    }

    /// The status of a receive, once the operation is complete.
    ///
    /// # Errors
    /// Its failure.
    pub(crate) fn outcome(&self) -> Result<Option<Status>, Arc<Error>> {
        // The operation has ended, so no thread holds the lock for long.
        match &*self.stage.lock().unwrap_or_else(PoisonError::into_inner) {
            Stage::Failed(error) => Err(Arc::clone(error)),
            Stage::Complete(status) => Ok(*status),
            Stage::Active(_) | Stage::Over => Err(Arc::new(Error::RequestFailed)),
        }
    }

    /// The call of a collective.
    pub(crate) fn call(&self) -> Option<&Prepared> {
        match &self.used {
            Some(Used::Collective(prepared)) => Some(prepared),
            _ => None,
        }
    }
}
