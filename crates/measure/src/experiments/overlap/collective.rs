//! The collectives that can be measured, with their names on the command line.

use super::progress::Progress;
use crate::harness::Error;
use crate::rows::What;
use tradewind::Algorithm;

/// The longest message that is measured, in bytes.
pub const MOST_BYTES: u64 = 1 << 30;

/// Up to this many bytes a pair the caller engine exchanges in the fewest rounds instead of with
/// the fewest bytes.
const BRUCK_BYTES: u64 = 256;

collectives::named_enum! {
    /// A collective. Bytes follow MPI's own convention: of the whole message in allreduce and bcast,
    /// of what one rank has for one other in alltoall and in the neighbour exchange; a barrier has
    /// none.
    pub enum Collective ("collective to measure") {
        /// Waits until all ranks have arrived.
        Barrier = "barrier",
        /// The sum of doubles, for all.
        Allreduce = "allreduce",
        /// A block from each rank to each.
        Alltoall = "alltoall",
        /// The root's block, for all; each rank is root in turn.
        Bcast = "bcast",
        /// A block to each of four neighbours: the ranks form a grid of two dimensions that is closed
        /// to a torus. In a dimension of two or one the two neighbours are the same rank, or the rank
        /// itself.
        Neighbor = "neighbor",
    }
}

impl Collective {
    /// Returns true if it moves data, so that sizes mean something.
    pub const fn has_data(self) -> bool {
        !matches!(self, Collective::Barrier)
    }

    /// Returns true if it can have this size.
    ///
    /// ```
    /// use measure::experiments::overlap::Collective;
    /// assert!(Collective::Bcast.check_bytes(3).is_ok());
    /// assert!(Collective::Allreduce.check_bytes(3).is_err(), "it adds doubles, of 8 bytes each");
    /// ```
    ///
    /// # Errors
    /// [`Error::Bytes`].
    pub fn check_bytes(self, bytes: u64) -> Result<(), Error> {
        let expected = match self {
            Collective::Barrier if bytes > 0 => "0, it has no data",
            Collective::Barrier => return Ok(()),
            _ if bytes == 0 || bytes > MOST_BYTES => "from 1 to 1073741824 (1 GiB)",
            Collective::Allreduce if !bytes.is_multiple_of(8) => "a multiple of 8, it adds doubles",
            _ => return Ok(()),
        };
        Err(Error::Bytes { collective: self.to_string(), bytes, expected })
    }

    /// The algorithm that is measured: a flat collective where the last rank to arrive can complete
    /// it for all, what libraries ship where each rank runs its own part, and between nodes. It is
    /// chosen here, and not by default, so that a report says what was measured.
    pub(super) fn algorithm(self, progress: Progress, bytes: u64) -> Algorithm {
        let joins = progress == Progress::Peers;
        match self {
            Collective::Neighbor => Algorithm::Direct,
            _ if joins => Algorithm::Join,
            Collective::Barrier => Algorithm::Dissemination,
            Collective::Allreduce => Algorithm::RecursiveDoubling,
            Collective::Alltoall if bytes <= BRUCK_BYTES => Algorithm::Bruck,
            Collective::Alltoall => Algorithm::RotatedDirect,
            Collective::Bcast => Algorithm::Binomial,
        }
    }

    /// The collective of the library; `None` for the exchange with neighbours.
    pub(super) const fn of_library(self) -> Option<collectives::Collective> {
        use collectives::Collective as Library;
        match self {
            Collective::Barrier => Some(Library::Barrier),
            Collective::Allreduce => Some(Library::Allreduce),
            Collective::Alltoall => Some(Library::Alltoall),
            Collective::Bcast => Some(Library::Bcast),
            Collective::Neighbor => None,
        }
    }

    /// The subject of rows.
    pub fn what(self) -> What {
        self.of_library().map_or(What::NeighborAlltoall, What::Collective)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_refused_with_the_way_out() {
        assert!(Collective::Barrier.check_bytes(0).is_ok());
        for (collective, bytes, hint) in [
            (Collective::Barrier, 8, "no data"),
            (Collective::Bcast, 0, "from 1"),
            (Collective::Alltoall, u64::MAX, "1 GiB"),
            (Collective::Allreduce, 12, "multiple of 8"),
        ] {
            let error =
                collective.check_bytes(bytes).expect_err("it cannot have this size").to_string();
            assert!(error.contains(hint) && error.contains(&bytes.to_string()), "{error}");
        }
    }
}
