//! Persistent collectives.

use crate::collectives::Plan;
use crate::errors::{error, exception};
use crate::handle::Handle;
use crate::prepared::Prepared;
use crate::request::Request;
use crate::started::{Shared, Used};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A collective that is prepared once, with its arrays, and started many times.
#[pyclass(frozen, module = "tradewind")]
pub(crate) struct Persistent {
    plan: Handle<Plan>,
    prepared: Arc<Prepared>,
    /// The request of the last start.
    last: Mutex<Weak<Shared>>,
}

impl Persistent {
    pub(crate) fn new(prepared: Prepared) -> PyResult<Self> {
        let plan = prepared.prepare().map_err(|error| exception(&error))?;
        let plan = Handle::new(plan);
        Ok(Persistent { plan, prepared: Arc::new(prepared), last: Mutex::new(Weak::new()) })
    }
}

#[pymethods]
impl Persistent {
    /// Starts the collective with the contents that its arrays have now.
    fn start(&self) -> PyResult<Request> {
        let plan = self.plan.get()?;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.upgrade().is_some_and(|last| !last.has_ended()) {
            return Err(error("the last start is not complete: wait for its request first"));
        }
        // SAFETY: the request keeps the arrays, and no other request of this object writes the output.
        let started = unsafe { plan.start(&self.prepared) };
        let started = started.map_err(|error| exception(&error))?;
        let request = Request::new(started, Used::Collective(Arc::clone(&self.prepared)));
        *last = Arc::downgrade(request.shared());
        Ok(request)
    }
}
