//! Which algorithm a communicator uses for each collective.

use engine::node::EngineKind;

pub use collectives::allreduce::Algorithm as AllreduceAlgorithm;
pub use collectives::alltoall::Algorithm as AlltoallAlgorithm;
pub use collectives::barrier::Algorithm as BarrierAlgorithm;
pub use collectives::bcast::Algorithm as BcastAlgorithm;

/// Up to this many bytes a pair, fewer rounds beat fewer bytes in an exchange without joins (Bruck et al. 1997).
const BRUCK_BYTES: u64 = 256;

/// The choice for each collective. `None` leaves it to the library: joins under the peers engine, where all ranks share a
/// node; the classical algorithms under the caller engine, whose point is to be what libraries ship today.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Algorithms {
    /// For barrier.
    pub barrier: Option<BarrierAlgorithm>,
    /// For allreduce.
    pub allreduce: Option<AllreduceAlgorithm>,
    /// For alltoall.
    pub alltoall: Option<AlltoallAlgorithm>,
    /// For bcast.
    pub bcast: Option<BcastAlgorithm>,
}

impl Algorithms {
    pub(crate) fn barrier(&self, engine: EngineKind) -> BarrierAlgorithm {
        self.barrier.unwrap_or(match engine {
            EngineKind::Peers => BarrierAlgorithm::Join,
            EngineKind::Caller => BarrierAlgorithm::Dissemination,
        })
    }

    pub(crate) fn allreduce(&self, engine: EngineKind) -> AllreduceAlgorithm {
        self.allreduce.unwrap_or(match engine {
            EngineKind::Peers => AllreduceAlgorithm::Join,
            EngineKind::Caller => AllreduceAlgorithm::RecursiveDoubling,
        })
    }

    pub(crate) fn alltoall(&self, engine: EngineKind, bytes_per_pair: u64) -> AlltoallAlgorithm {
        self.alltoall.unwrap_or(match engine {
            EngineKind::Peers => AlltoallAlgorithm::Join,
            EngineKind::Caller if bytes_per_pair <= BRUCK_BYTES => AlltoallAlgorithm::Bruck,
            EngineKind::Caller => AlltoallAlgorithm::RotatedDirect,
        })
    }

    pub(crate) fn bcast(&self, engine: EngineKind) -> BcastAlgorithm {
        self.bcast.unwrap_or(match engine {
            EngineKind::Peers => BcastAlgorithm::Join,
            EngineKind::Caller => BcastAlgorithm::Binomial,
        })
    }
}
