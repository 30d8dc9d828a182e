//! Inputs in memory of the segment, which the other ranks read in place when they fetch their results.

use crate::communicator::Communicator;
use crate::communicator::request::{Execution, Request};
use crate::flat::pattern::FlatCollective;
use crate::flat::role::ReducedBy;
use crate::window::Executor;
use std::sync::Arc;

/// The ranks that read the input of a collective in place. The collective may be complete on its
/// own rank before they do.
///
/// Until they [are done](Self::are_done), the caller neither changes nor frees the input.
#[derive(Clone, Debug)]
pub struct InputReaders {
    communicator: Arc<Communicator>,
    run: u64,
}

impl InputReaders {
    /// Returns whether every other rank has read the input: it has fetched its result, or does not
    /// need it. One load a rank.
    pub fn are_done(&self) -> bool {
        self.communicator.flat.is_read(self.run)
    }
}

impl Communicator {
    /// Returns whether the other ranks read an input of this rank that lies in the segment in place,
    /// after this rank's call. The request then [names them](Request::input_readers).
    #[inline]
    pub fn reads_in_place(&self, collective: &FlatCollective) -> bool {
        let role = self.flat.executor.role(collective);
        // Chunks of a reduction are complete after the last read of a contribution.
        role.contributes
            && role.reduced_by == ReducedBy::Reader
            && self.flat.executor.is_large(collective)
    }
}

impl Request {
    /// Returns the ranks that read an input in the segment in place, if the collective
    /// [does that](Communicator::reads_in_place).
    #[inline]
    pub fn input_readers(&self) -> Option<InputReaders> {
        match self.execution() {
            Execution::Flat(communicator, run) if communicator.reads_in_place(&run.call) => {
                let communicator = Arc::clone(communicator);
                Some(InputReaders { communicator, run: run.number.run })
            }
            _ => None,
        }
    }
}
