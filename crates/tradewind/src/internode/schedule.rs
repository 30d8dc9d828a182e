//! A schedule that a backend between nodes has accepted.

use super::group::InternodeGroup;
use super::recording::Recording;
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
    pub(super) backend: Arc<dyn Backend>,
    pub(super) id: ScheduleId,
    pub(super) call: Signature,
    pub(super) buffers: Vec<BufferRecord>,
    pub(super) recording: Option<Recording>,
}

impl Drop for InternodeSchedule {
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
        let id = backend
            .register(internode.context(), schedule, call.digest24())
            .map_err(|error| internode.translate(error))?;
        let recording =
            Recording::new(internode.group(), internode.context(), program, schedule, call);
        Ok(Arc::new(InternodeSchedule {
            internode: Arc::clone(internode),
            backend: Arc::clone(backend),
            id,
            call,
            buffers: schedule.view().buffers().to_vec(),
            recording,
        }))
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
