//! A schedule that a backend between nodes has accepted.

use super::group::InternodeGroup;
use super::recording::Recording;
use super::unattended;
use crate::error::{Error, Result};
use crate::placement::InRanks;
use engine::signature::Signature;
use goal::graph::Access;
use goal::schedule::{BufferRecord, Kind, Schedule};
use models::decision::CallForm;
use network::backend::{Backend, ScheduleId};
use network::direct::DirectBackend;
use network::error::Error as BackendError;
use std::sync::Arc;

/// A schedule registered with a backend; dropping it releases the registration.
#[derive(Debug)]
pub(crate) struct InternodeSchedule {
    pub(super) internode: Arc<InternodeGroup>,
    /// For nonblocking and persistent calls.
    background: Registration,
    /// For blocking calls, if the ranks run them themselves.
    blocking: Option<Registration>,
    direct: Option<Arc<DirectBackend>>,
    /// True if the ranks run nonblocking calls themselves, while other collectives run on the general
    /// backend.
    is_unattended: bool,
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
        backend: Arc<dyn Backend>,
        registered: std::result::Result<ScheduleId, BackendError>,
    ) -> Result<Self> {
        let id = registered.map_err(|error| internode.translate(error))?;
        Ok(Registration { backend, id })
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.backend.release(self.id);
    }
}

impl InternodeSchedule {
    /// Registers a schedule with a backend. `needs_no_thread` is true if, on every rank, nonblocking
    /// runs [need no thread](super::unattended).
    pub(crate) fn register(
        internode: &Arc<InternodeGroup>,
        backend: &Arc<dyn Backend>,
        schedule: &Schedule,
        call: Signature,
        needs_no_thread: bool,
    ) -> Result<Arc<Self>> {
        // Counted even if the backend refuses, so that the number is the same on all ranks.
        let program = internode.next_program();
        let registered = Self::add(internode, backend, schedule, call, needs_no_thread)?;
        let recording =
            Recording::new(internode.group(), internode.context(), program, schedule, call);
        Ok(Arc::new(InternodeSchedule { recording, ..registered }))
    }

    /// Registers this rank's part of a collective with block sizes that only some ranks have, at a
    /// time at which other ranks may register none. `has_one_step` must be the same on all ranks: the
    /// backend follows from it and from the placement of the ranks. Profiles have the calls and not
    /// their operations, because the number of the schedule would differ.
    pub(crate) fn register_alone(
        internode: &Arc<InternodeGroup>,
        schedule: &Schedule,
        call: Signature,
        has_one_step: bool,
    ) -> Result<Arc<Self>> {
        let general = &internode.job().backends.general;
        let is_unattended = has_one_step && unattended::runs_unknown_sizes(internode);
        let registered = Self::add(internode, general, schedule, call, is_unattended)?;
        let recording = Recording::of_calls(internode.group(), internode.context(), call);
        Ok(Arc::new(InternodeSchedule { recording, ..registered }))
    }

    fn add(
        internode: &Arc<InternodeGroup>,
        backend: &Arc<dyn Backend>,
        schedule: &Schedule,
        call: Signature,
        is_unattended: bool,
    ) -> Result<Self> {
        if schedule.view().operations().iter().any(|record| record.kind() == Kind::Join) {
            return Err(Error::NeedsSharedMemory { what: "joins of a user-defined schedule" });
        }
        // Another backend than the general one runs its blocking calls, too, and perhaps all. All
        // ranks decide alike, because all have the same backends.
        let backends = &internode.job().backends;
        let is_general = Arc::ptr_eq(backend, &backends.general);
        let direct = backends.blocking.clone().filter(|_| is_general);
        let in_ranks = direct.clone().map(|direct| direct as Arc<dyn Backend>);
        let is_unattended = is_unattended && direct.is_some();
        let (background, of_blocking) = match &in_ranks {
            // On one backend, messages of the two forms differ in their signatures.
            Some(direct) if backends.in_ranks == InRanks::All || is_unattended => {
                (direct, call.blocking())
            }
            _ => (backend, call),
        };
        let context = internode.context();
        let registered = background.register(context, schedule, call.digest24());
        let background = Registration::new(internode, Arc::clone(background), registered)?;
        let blocking = direct.as_ref().map(|direct| {
            let registered = direct.register_blocking(context, schedule, of_blocking.digest24());
            Registration::new(internode, Arc::clone(direct) as Arc<dyn Backend>, registered)
        });
        let blocking = blocking.transpose()?;
        Ok(InternodeSchedule {
            internode: Arc::clone(internode),
            background,
            blocking,
            direct,
            is_unattended,
            call,
            buffers: schedule.view().buffers().to_vec(),
            recording: None,
        })
    }
}

impl InternodeSchedule {
    /// The signature of the call.
    pub(crate) fn call(&self) -> Signature {
        self.call
    }

    /// The backend of other calls, if it is another one: of those of the other form, or of those
    /// that need a thread.
    pub(super) fn backend_of_other_calls(&self, form: CallForm) -> Option<&Arc<dyn Backend>> {
        if self.is_unattended {
            return Some(&self.internode.job().backends.general);
        }
        let is_other = |one: &&Registration| !Arc::ptr_eq(&one.backend, &self.background.backend);
        let blocking = self.blocking.as_ref().filter(is_other)?;
        Some(match form {
            CallForm::Blocking => &self.background.backend,
            CallForm::Nonblocking => &blocking.backend,
        })
    }

    /// The backend of blocking calls that uses their buffers in place, and its registration.
    pub(super) fn direct(&self) -> Option<(&DirectBackend, ScheduleId)> {
        Some((self.direct.as_deref()?, self.blocking.as_ref()?.id))
    }

    /// The backend of calls of this form, if the ranks run them themselves.
    pub(super) fn in_ranks(&self, form: CallForm) -> Option<&DirectBackend> {
        let direct = self.direct.as_deref()?;
        let of_form = Arc::as_ptr(&self.registration(form).backend);
        std::ptr::addr_eq(direct, of_form).then_some(direct)
    }

    /// Returns `true` if blocking calls can [run](super::request::run_in_place) on their buffers.
    pub(crate) fn runs_in_place(&self) -> bool {
        let is_plain = |record: &BufferRecord| record.access != Access::InOut as u32;
        self.direct.is_some() && self.buffers.iter().all(is_plain)
    }

    /// Name of the backend that runs calls of this form.
    pub(crate) fn backend_name(&self, form: CallForm) -> &'static str {
        self.registration(form).backend.name()
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
