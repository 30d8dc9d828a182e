//! Collectives of the program that another library runs.
//!
//! Each takes the next number of its communicator, as the collectives that run here do. If one rank starts a
//! collective here and another rank starts it in the other library, the entries of their journals
//! under that number differ. Without such an entry the first rank would wait for ever.

use crate::communicator::Communicator;
use crate::error::Error;
use crate::signature::{CallKind, Signature};

impl Communicator {
    /// Records a collective that another library runs on the same ranks.
    #[inline]
    pub fn record_external_collective(&self) {
        self.context.begin(Signature { kind: CallKind::External, bytes: 0, digest: 0 });
    }

    /// Checks whether another rank has recorded as external one of the last collectives that this
    /// rank has started here, or the other way round. Waits for nothing and takes no lock, so that a
    /// thread may call it while another one runs collectives.
    ///
    /// # Errors
    /// [`Error::Mismatch`].
    pub fn check_external_collectives(&self) -> Result<(), Error> {
        self.context.state.find_external_mismatch()
    }
}
