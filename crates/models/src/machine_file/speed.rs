//! Changes of a machine's speed.

use super::contents::Machine;
use crate::costs::{FlatCosts, Sharing};

impl Machine {
    /// Multiplies all costs of collectives among so many ranks of one node by a factor. What would be no
    /// time then stays as it is.
    pub fn change_speed(&mut self, ranks: u32, factor: f64) {
        for costs in self.flat.values_mut().flat_map(|of_form| of_form.values_mut()) {
            let mut points = costs.points().to_vec();
            let of_ranks = points.iter_mut().filter(|point| point.ranks == ranks);
            of_ranks.for_each(|point| point.microseconds *= factor);
            if let Ok(changed) = FlatCosts::new(points) {
                *costs = changed;
            }
        }
        for sharing in self.sharing.iter_mut().filter(|sharing| sharing.ranks == ranks) {
            let changed =
                Sharing { constants: sharing.constants.clone().scaled(factor), ..*sharing };
            if changed.check().is_ok() {
                *sharing = changed;
            }
        }
    }
}
