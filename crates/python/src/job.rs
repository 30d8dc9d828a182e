//! Joining and leaving a job, and jobs with threads as ranks.

use crate::communicator::Communicator;
use crate::errors::{ArgumentError, exception};
use crate::handle;
use crate::interrupts::{self, interruptible};
use crate::waiter;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tradewind::{Error, Job, interop};

/// The job of this process. Locked without the interpreter's lock only, because `Job::init` waits.
static JOB: Mutex<Option<Job>> = Mutex::new(None);

/// The communicator of all its ranks. Locked with the interpreter's lock only.
static WORLD: Mutex<Option<Py<Communicator>>> = Mutex::new(None);

/// Returns the communicator of all ranks of the job.
///
/// The first call joins the job that `tradewind run`, mpiexec, srun or torchrun has started this
/// process for, and waits for the other ranks. A process started by hand is a job of one rank. The
/// process leaves the job at its exit.
#[pyfunction]
pub(crate) fn world(py: Python<'_>) -> PyResult<Py<Communicator>> {
    handle::refuse_fork()?;
    if let Some(world) = &*WORLD.lock().unwrap_or_else(PoisonError::into_inner) {
        return Ok(world.clone_ref(py));
    }
    let communicator = interruptible(py, || {
        let mut job = JOB.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(job) = &*job {
            return Ok(job.world().clone());
        }
        Ok(job.insert(Job::init()?).world().clone())
    })?;
    keep_world(py, communicator)
}

/// Keeps the object of the communicator of all ranks.
fn keep_world(py: Python<'_>, communicator: tradewind::Communicator) -> PyResult<Py<Communicator>> {
    let mut world = WORLD.lock().unwrap_or_else(PoisonError::into_inner);
    // Another thread may have been first.
    if world.is_none() {
        *world = Some(Py::new(py, Communicator::new(communicator))?);
    }
    match &*world {
        Some(world) => Ok(world.clone_ref(py)),
        None => unreachable!("it has been set above"),
    }
}

/// Returns the communicator of all ranks if this process has joined its job.
#[pyfunction(name = "_joined")]
pub(crate) fn joined(py: Python<'_>) -> Option<Py<Communicator>> {
    let world = WORLD.lock().unwrap_or_else(PoisonError::into_inner);
    world.as_ref().filter(|_| !handle::is_fork()).map(|world| world.clone_ref(py))
}

/// Joins the job of `ranks` processes that another library has started, as rank `rank`, and returns the
/// communicator of all ranks. `command` is the path of the `tradewind` command. `exchange` is an allgather
/// by that library: it takes bytes, and returns those of all ranks.
#[pyfunction(name = "_join")]
pub(crate) fn join(
    py: Python<'_>,
    rank: u32,
    ranks: u32,
    command: PathBuf,
    exchange: Py<PyAny>,
) -> PyResult<Py<Communicator>> {
    let raised: Mutex<Option<PyErr>> = Mutex::new(None);
    let exchange = |own: &[u8]| {
        Python::attach(|py| {
            let all = exchange.call1(py, (PyBytes::new(py, own),));
            let all = all.and_then(|all| all.extract::<Vec<Vec<u8>>>(py));
            all.map_err(|error| {
                *raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            })
            .ok()
        })
    };
    let joined = py.detach(|| {
        let mut job = JOB.lock().unwrap_or_else(PoisonError::into_inner);
        if job.is_some() {
            return Err(Error::Startup("this process has joined a job already".to_owned()));
        }
        Ok(job.insert(interop::join(rank, ranks, Some(&command), exchange)?).world().clone())
    });
    let raised = raised.into_inner().unwrap_or_else(PoisonError::into_inner);
    let communicator = joined.map_err(|error| raised.unwrap_or_else(|| exception(&error)))?;
    keep_world(py, communicator)
}

/// Leaves the job. The exit of the process does so, too.
#[pyfunction]
pub(crate) fn leave(py: Python<'_>) -> PyResult<()> {
    if handle::is_fork() {
        return Ok(());
    }
    waiter::end(py)?;
    let world = WORLD.lock().unwrap_or_else(PoisonError::into_inner).take();
    drop(world);
    handle::end_all();
    let left = py.detach(|| {
        let job = JOB.lock().unwrap_or_else(PoisonError::into_inner).take();
        job.map_or(Ok(()), Job::finish)
    });
    left.map_err(|error| exception(&error))
}

/// Calls `body(communicator)` in `ranks` threads of this process, each a rank of a job of its own, and
/// returns the results in the order of the ranks. For tests and notebooks.
///
/// An exception of a rank is raised here, when all ranks have ended.
#[pyfunction]
pub(crate) fn local(py: Python<'_>, ranks: u32, body: Py<PyAny>) -> PyResult<Vec<Py<PyAny>>> {
    run_threads(py, body, |run| tradewind::local(ranks, run))
}

/// As `local`, with ranks on several simulated nodes, which share no memory: `ranks` has the number of
/// each node.
#[pyfunction]
pub(crate) fn local_nodes(
    py: Python<'_>,
    ranks: Vec<u32>,
    body: Py<PyAny>,
) -> PyResult<Vec<Py<PyAny>>> {
    if ranks.iter().try_fold(0_u32, |sum, ranks| sum.checked_add(*ranks)).is_none() {
        return Err(ArgumentError::new_err("the sum of the numbers of ranks is impossible"));
    }
    run_threads(py, body, |run| tradewind::local_nodes(&ranks, run))
}

/// The body of a rank, as the library calls it.
type Body<'a> = &'a (dyn Fn(tradewind::Communicator) -> tradewind::Result<()> + Sync);

/// Results and the first exception of ranks that are threads.
#[derive(Default)]
struct Outcomes {
    results: Mutex<BTreeMap<u32, Py<PyAny>>>,
    raised: Mutex<Option<PyErr>>,
}

impl Outcomes {
    fn raise(&self, error: PyErr) {
        let mut first = self.raised.lock().unwrap_or_else(PoisonError::into_inner);
        let later = if first.is_none() { first.replace(error) } else { Some(error) };
        // Dropped without the lock: it may execute Python.
        drop(first);
        drop(later);
    }

    /// Calls the function of a rank, and keeps its result or exception.
    fn run_rank(
        &self,
        py: Python<'_>,
        body: &Py<PyAny>,
        communicator: tradewind::Communicator,
    ) -> tradewind::Result<()> {
        let place = communicator.rank();
        let communicator = Py::new(py, Communicator::new(communicator));
        let result = communicator.and_then(|communicator| {
            let result = body.call1(py, (&communicator,));
            // The rank has left when its function returns, although Python may keep the object.
            communicator.get().end();
            result
        });
        match result {
            Ok(result) => {
                let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
                results.insert(place, result);
                Ok(())
            }
            Err(error) => {
                let text = error.to_string();
                self.raise(error);
                Err(Error::Internal(text))
            }
        }
    }
}

/// Runs a job of threads, and returns their results.
fn run_threads(
    py: Python<'_>,
    body: Py<PyAny>,
    run: impl FnOnce(Body<'_>) -> tradewind::Result<()> + Send,
) -> PyResult<Vec<Py<PyAny>>> {
    let outcomes = Outcomes::default();
    let interrupt = Arc::new(AtomicBool::new(false));
    let rank = |communicator: tradewind::Communicator| {
        interrupts::end_waits_by(&interrupt);
        Python::attach(|py| outcomes.run_rank(py, &body, communicator))
    };
    let ended = std::thread::scope(|scope| {
        let job = scope.spawn(|| run(&rank));
        while !job.is_finished() {
            py.detach(|| std::thread::sleep(interrupts::INTERVAL_OF_LOCAL));
            if let Err(error) = py.check_signals() {
                outcomes.raise(error);
                // Relaxed: the threads look again and again.
                interrupt.store(true, Ordering::Relaxed);
            }
            // This thread may be a rank of another such job.
            if interrupts::is_interrupted() {
                interrupt.store(true, Ordering::Relaxed);
            }
        }
        job.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let Outcomes { results, raised } = outcomes;
    if let Some(error) = raised.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    ended.map_err(|error| exception(&error))?;
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(results.into_values().collect())
}
