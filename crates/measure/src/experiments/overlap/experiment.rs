//! The experiment on one job, and the properties of that job.

use crate::harness::Error;
use crate::harness::agreement;
use crate::harness::computation::ComputeRate;
use crate::harness::processor_time::RankKind;
use tradewind::{Communicator, EngineKind};

/// Progress of a collective beside the computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// On one node, by this engine.
    OnNode(EngineKind),
    /// Between nodes, by the engine of nonblocking calls.
    Nonblocking,
    /// Between nodes, inside calls only: the blocking call, after the computation. It is the baseline:
    /// a program without nonblocking collectives.
    InCalls,
}

/// Properties of the job.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The progress of the collective.
    pub progress: Progress,
    /// True if ranks are processes.
    pub rank_kind: RankKind,
    /// Cores that the ranks share. A rank that is bound to one does not see the others.
    pub cores: u32,
    /// Process of the node service, if this rank adds its CPU time to the job's: one rank of each
    /// node does.
    pub service: Option<u32>,
    /// True if this rank adds the interrupts of its machine: one rank of each machine.
    pub adds_interrupts: bool,
    /// True if readings of the clock can be compared between ranks.
    pub has_common_clock: bool,
    /// Seed of the skews, together with the rank.
    pub seed: u64,
}

/// The experiment on one job.
#[derive(Debug)]
pub struct Experiment<'w> {
    pub(super) world: &'w Communicator,
    pub(super) setting: Setting,
    pub(super) rate: ComputeRate,
}

impl<'w> Experiment<'w> {
    /// Prepares it: the computation is calibrated, once. All ranks call this.
    ///
    /// # Errors
    /// When a rank is gone.
    pub fn new(world: &'w Communicator, setting: Setting) -> Result<Self, Error> {
        let own = ComputeRate::calibrate().microseconds_per_step();
        // All ranks compute the same number of steps, those of the fastest.
        let rate = ComputeRate::new(-agreement::largest(world, &[-own])?[0]);
        Ok(Experiment { world, setting, rate })
    }

    /// Number of ranks on each core.
    pub(super) fn ranks_per_core(&self) -> u32 {
        self.world.size().div_ceil(self.setting.cores.max(1))
    }
}
