//! Started operations, as objects of Python.

use crate::errors::{ArgumentError, exception};
use crate::handle;
use crate::interrupts::wait_in_slices;
use crate::started::{Shared, Started, Used};
use crate::waiter;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::sync::Arc;
use std::time::Duration;

/// A started operation, which goes on while the program computes. It keeps its arrays.
///
/// A request may be dropped at any time: a collective continues for the other ranks, a message is still
/// delivered, and a receive is cancelled.
#[pyclass(frozen, weakref, module = "tradewind")]
pub(crate) struct Request(Arc<Shared>);

impl Request {
    pub(crate) fn new(started: Started, used: Used) -> Self {
        Request(Arc::new(Shared::new(started, used)))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0
    }

    /// The result of a complete request.
    fn outcome(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let status = self.0.outcome().map_err(|error| exception(&error))?;
        match (self.0.call(), status) {
            (Some(prepared), _) => prepared.result(py),
            (None, Some(status)) => Ok(Py::new(py, status)?.into_any()),
            (None, None) => Ok(py.None()),
        }
    }
}

/// The time of a number of seconds.
fn limit_of(timeout: Option<f64>) -> PyResult<Option<Duration>> {
    let limit = timeout.map(|seconds| {
        Duration::try_from_secs_f64(seconds).map_err(|_| {
            ArgumentError::new_err(format!("a timeout of {seconds} seconds is impossible"))
        })
    });
    limit.transpose()
}

#[pymethods]
impl Request {
    /// Waits for the operation and returns its result: the output of a collective, the `Status` of a
    /// receive, else `None`.
    ///
    /// After `timeout` seconds `WaitTimeoutError` is raised, which names the ranks that are awaited; the
    /// request can then be waited for again.
    #[pyo3(signature = (timeout=None))]
    pub(crate) fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        handle::refuse_fork()?;
        wait_in_slices(py, limit_of(timeout)?, |slice| self.0.wait(slice))?;
        self.outcome(py)
    }

    /// Returns whether the operation is complete; its output is then there. Never waits.
    fn test(&self, py: Python<'_>) -> PyResult<bool> {
        handle::refuse_fork()?;
        if !self.0.has_ended() {
            return Ok(false);
        }
        self.outcome(py).map(|_| true)
    }

    /// True if the operation has ended, also by an error, which `wait` raises.
    #[getter]
    fn done(&self) -> PyResult<bool> {
        handle::refuse_fork()?;
        Ok(self.0.has_ended())
    }

    /// Calls `function(request)` in another thread when the operation has ended, or after `timeout`
    /// seconds. `request.wait()` returns at once if it has ended.
    #[pyo3(signature = (function, timeout=None))]
    fn on_complete(slf: Py<Self>, function: Py<PyAny>, timeout: Option<f64>) -> PyResult<()> {
        handle::refuse_fork()?;
        let shared = Arc::clone(slf.get().shared());
        waiter::watch(shared, limit_of(timeout)?, slf.into_any(), function)
    }

    /// `await request` returns the same as `wait`, and lets other tasks of asyncio run meanwhile.
    fn __await__(slf: Py<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        static AWAIT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        Ok(AWAIT.import(py, "tradewind._asyncio", "iterator")?.call1((slf,))?.unbind())
    }
}
