//! A schedule that a backend between nodes has accepted.

use super::group::InternodeGroup;
use super::recording::Recording;
use crate::call_form::CallForm;
use crate::error::{Error, Result};
use engine::signature::Signature;
use goal::graph::Access;
use goal::schedule::{BufferRecord, Kind, Schedule};
use network::backend::{Backend, ScheduleId};
use std::sync::Arc;

/// A schedule registered with a backend; dropping it releases the registration.
#[derive(Debug)]
pub(crate) struct InternodeSchedule {
    pub(super) internode: Arc<InternodeGroup>,
    /// For nonblocking and persistent calls.
    background: Registration,
    /// For blocking calls, if another backend runs them.
    blocking: Option<Registration>,
    pub(super) call: Signature,
    pub(super) buffers: Vec<BufferRecord>,
    pub(super) recording: Option<Recording>,
}

/// A schedule that is registered with a backend, until it is dropped.
#[derive(Debug)]
pub(super) struct Registration {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) id: ScheduleId,
}

impl Registration {
    fn new(
        internode: &InternodeGroup,
        backend: &Arc<dyn Backend>,
        schedule: &Schedule,
        call: Signature,
    ) -> Result<Self> {
        let id = backend
            .register(internode.context(), schedule, call.digest24())
            .map_err(|error| internode.translate(error))?;
        Ok(Registration { backend: Arc::clone(backend), id })
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.backend.release(self.id);
    }
}

impl InternodeSchedule {
    /// Registers a schedule with a backend.
    pub(crate) fn register(
        internode: &Arc<InternodeGroup>,
        backend: &Arc<dyn Backend>,
        schedule: &Schedule,
        call: Signature,
    ) -> Result<Arc<Self>> {
        // Counted even if the backend refuses, so that the number is the same on all ranks.
        let program = internode.next_program();
        if schedule.view().operations().iter().any(|record| record.kind() == Kind::Join) {
            return Err(Error::NeedsSharedMemory { what: "joins of a user-defined schedule" });
        }
        let background = Registration::new(internode, backend, schedule, call)?;
        // Another backend than the general one runs its blocking calls, too. All ranks decide alike,
        // because all have the same backends.
        let backends = &internode.job().backends;
        let blocking =
            backends.blocking.as_ref().filter(|_| Arc::ptr_eq(backend, &backends.general));
        let blocking = blocking
            .map(|backend| Registration::new(internode, backend, schedule, call))
            .transpose()?;
        let recording =
            Recording::new(internode.group(), internode.context(), program, schedule, call);
        Ok(Arc::new(InternodeSchedule {
            internode: Arc::clone(internode),
            background,
            blocking,
            call,
            buffers: schedule.view().buffers().to_vec(),
            recording,
        }))
    }
}

impl InternodeSchedule {
    /// The backend of calls of the other form, if it is another one.
    pub(super) fn backend_of_other_form(&self, form: CallForm) -> Option<&Arc<dyn Backend>> {
        let blocking = self.blocking.as_ref()?;
        Some(match form {
            CallForm::Blocking => &self.background.backend,
            CallForm::Nonblocking => &blocking.backend,
        })
    }

    /// The registration for calls of this form.
    pub(super) fn registration(&self, form: CallForm) -> &Registration {
        match form {
            CallForm::Blocking => self.blocking.as_ref().unwrap_or(&self.background),
            CallForm::Nonblocking => &self.background,
        }
    }
}

/// Returns `true` if runs read the buffer.
pub(super) fn is_read(record: &BufferRecord) -> bool {
    record.access != Access::Output as u32
}

/// Returns `true` if runs write the buffer.
pub(super) fn is_written(record: &BufferRecord) -> bool {
    record.access != Access::Input as u32
}
