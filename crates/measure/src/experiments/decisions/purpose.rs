//! Purposes of times of plans between nodes.

/// Purpose for which plans are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To correct the parameters of the models: every plan, at few sizes.
    Calibration,
    /// To decide where the models leave doubt, most used sizes first.
    Decision,
    /// To find out what choices lose: every plan, at sizes that nothing was made from.
    Check,
}

impl Purpose {
    /// Sizes, most used first.
    pub(super) const fn sizes(self) -> &'static [u64] {
        match self {
            Purpose::Calibration => &[8, 4 << 10, 512 << 10],
            Purpose::Decision => &[8, 16 << 10, 1 << 10, 64 << 10, 256, 4 << 10, 512 << 10],
            Purpose::Check => &[24, 3000, 24 << 10, 192 << 10],
        }
    }

    /// Milliseconds of a call's plans.
    pub(super) const fn milliseconds(self) -> f64 {
        match self {
            Purpose::Calibration => 20.0,
            Purpose::Decision => 40.0,
            Purpose::Check => 60.0,
        }
    }

    /// Name of the part, before the name of the engine.
    pub const fn part(self) -> &'static str {
        match self {
            Purpose::Calibration => "calibration-nodes",
            Purpose::Decision => "decisions-nodes",
            Purpose::Check => "regret-nodes",
        }
    }

    pub(super) const fn title(self) -> &'static str {
        match self {
            Purpose::Calibration => "Times that the models between nodes are corrected by",
            Purpose::Decision => "Which algorithm is best between nodes",
            Purpose::Check => "What choices between nodes are compared with",
        }
    }

    pub(super) const fn about(self) -> &'static str {
        match self {
            Purpose::Calibration => {
                "Every plan of a call between the nodes of a job takes its turn, in batches of calls \
                 back to back. A few constants of the models are fitted to these times."
            }
            Purpose::Decision => {
                "The models predict every plan of a call between the nodes of a job. Candidates whose \
                 predictions lie within the models' own error of the best take turns, in batches of \
                 calls back to back. Dashed are predictions."
            }
            Purpose::Check => {
                "Every plan of a call takes its turn, at sizes that neither the models nor the table \
                 were made from. Dashed are predictions."
            }
        }
    }
}
