//! Collectives of the program that another library runs.
//!
//! They take numbers too. A rank that waits here for a collective that another rank has passed over
//! would wait forever; the journals show it as a mismatch.

use crate::communicator::Communicator;
use crate::error::Error;
use crate::signature::{CallKind, Signature};

impl Communicator {
    /// Counts a collective that another library runs on the same ranks.
    #[inline]
    pub fn pass_over(&self) {
        self.context.begin(Signature { kind: CallKind::Elsewhere, bytes: 0, digest: 0 });
    }

    /// Checks whether another rank has passed over one of the last collectives that this rank has
    /// started, or the other way round. Waits for nothing and takes no lock, so that a thread may
    /// call it while another one runs collectives.
    ///
    /// # Errors
    /// [`Error::Mismatch`].
    pub fn check_passed_over(&self) -> Result<(), Error> {
        self.context.state.find_division()
    }
}
