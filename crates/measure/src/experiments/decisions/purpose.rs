//! Purposes of times of plans.

use crate::rows::{Measurements, Run};
use models::machine_file::Engine;

collectives::named_enum! {
    /// Purpose for which plans are timed. Its name is that of the experiment.
    pub enum Purpose ("purpose of times") {
        /// To correct the parameters of the models between nodes: every plan, at few sizes.
        Calibration = "calibration",
        /// To decide where the models leave doubt, most used sizes first.
        Decision = "decisions",
        /// To find out the losses of choices: every plan, at sizes that nothing was made from.
        Check = "regret",
    }
}

impl Purpose {
    /// Purposes of the times that a table between nodes is made from.
    pub const OF_TABLE: [Purpose; 2] = [Purpose::Calibration, Purpose::Decision];

    /// Sizes, most used first.
    pub(super) const fn sizes(self, is_between_nodes: bool) -> &'static [u64] {
        match (self, is_between_nodes) {
            (Purpose::Calibration, _) => &[8, 4096, 524_288],
            (Purpose::Decision, true) => &[8, 16_384, 1024, 65_536, 256, 4096, 524_288],
            (Purpose::Decision, false) => &[
                8, 1024, 65_536, 64, 4096, 1_048_576, 512, 16_384, 262_144, 1, 2048, 8192, 32_768,
                131_072,
            ],
            (Purpose::Check, true) => &[24, 3000, 24_576, 196_608],
            (Purpose::Check, false) => &[24, 3000, 98_304, 192, 1000, 24_576, 786_432],
        }
    }

    /// Milliseconds of a call's plans.
    pub(super) const fn milliseconds(self, is_between_nodes: bool) -> f64 {
        match (self, is_between_nodes) {
            (Purpose::Calibration, _) => 20.0,
            (Purpose::Decision, true) => 40.0,
            (Purpose::Check, true) => 60.0,
            (Purpose::Decision | Purpose::Check, false) => 30.0,
        }
    }
}

/// The runs between nodes for these purposes, of jobs in user space and in the kernel.
pub fn between_nodes<'m>(measured: &'m Measurements, purposes: &[Purpose]) -> Vec<&'m Run> {
    let engines = [None, Some(Engine::Direct), Some(Engine::Kernel)];
    let suffix = |engine: Engine| format!("-{engine}");
    let name = |purpose: &Purpose, engine: Option<Engine>| {
        format!("{purpose}-nodes{}", engine.map(suffix).unwrap_or_default())
    };
    let of_purpose = |purpose| engines.map(|engine| measured.run(&name(purpose, engine)));
    purposes.iter().flat_map(of_purpose).flatten().collect()
}
