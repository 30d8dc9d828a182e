//! Speed of a machine while candidates were timed.

use super::grid::shape_of;
use super::times::measured;
use crate::results::Part;
use collectives::{Algorithm, Choice};
use models::decision::Query;
use models::machine_file::Machine;
use models::prediction::Models;
use models::statistics::median;
use std::collections::BTreeMap;

/// Least number of times from which a speed is computed.
const LEAST: usize = 8;

/// Returns the machine with the parameters of one node at the speed of a part of the
/// [experiment](super::experiment).
///
/// Ranks that share cores take up to 1.4 times as long in one minute as in another, and longer beside
/// many plans than beside few. The parameters are from a few seconds before, of which the faster ones
/// counted. Flat collectives, which are measured there and here, take a factor of what they took
/// there: all costs among so many ranks are multiplied by its median. A second correction by the same
/// part changes nothing.
pub fn at_speed(part: &Part, machine: &Machine) -> Machine {
    let models = Models::of(machine);
    let mut ratios: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    let flat = Choice::of(Algorithm::Join);
    for figure in &part.figures {
        let Some((operation, form, ranks, ranks_per_node)) = shape_of(&figure.name) else {
            continue;
        };
        for (bytes, plans) in measured(figure, None) {
            let query = Query { operation, form, ranks, ranks_per_node, bytes };
            let time = plans.iter().find(|one| one.plan == flat).map(|one| one.median);
            let predicted = models.price(None, &flat, &query).filter(|time| *time > 0.0);
            let ratio = time.zip(predicted).map(|(time, predicted)| time / predicted);
            ratios.entry(ranks).or_default().extend(ratio);
        }
    }
    let mut found = machine.clone();
    for (ranks, ratios) in ratios.into_iter().filter(|(_, ratios)| ratios.len() >= LEAST) {
        found.change_speed(ranks, median(&ratios));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::decisions::grid::{empty_figure, figure_of};
    use crate::results::{Point, Role};
    use collectives::Collective;
    use models::costs::{FlatCosts, FlatPoint, Sharing};
    use models::machine::Fingerprint;
    use models::simulation::{Constants, Curve};
    use tradewind::CallForm;

    #[test]
    fn parameters_follow_the_speed_of_flat_collectives_once() {
        let (operation, form) = (Collective::Bcast, CallForm::Blocking);
        let flat = |ranks| FlatPoint { ranks, bytes: 0, microseconds: 2.0 };
        let mut machine = Machine::new(Fingerprint::default());
        let costs = FlatCosts::new(vec![flat(2), flat(4)]).expect("times");
        machine.flat.insert(form, [(operation, costs)].into());
        let constants = Constants {
            start: 1.0,
            operation: 0.5,
            crossing: 0.25,
            switch: 0.0,
            copy: Curve::default(),
            fetch: Curve::default(),
            combine: 0.125,
        };
        machine.sharing = vec![Sharing { ranks: 4, cores: 2, constants, error: 0.1 }];
        let mut figure = empty_figure(&figure_of((operation, form, 4, 4)), "");
        for size in 0..LEAST as u32 {
            figure.add("join", Role::Measured, Point::exact(f64::from(size), 3.0));
            figure.add("flat", Role::Measured, Point::exact(f64::from(size), 900.0));
        }
        let mut part = Part::new("decisions", "");
        part.figures.push(figure);
        let found = at_speed(&part, &machine);
        let times: Vec<f64> =
            found.flat[&form][&operation].points().iter().map(|point| point.microseconds).collect();
        assert_eq!(times, [2.0, 3.0], "nothing was measured among two ranks");
        let Constants { start, operation, combine, .. } = found.sharing[0].constants;
        assert_eq!((start, operation, combine), (1.5, 0.75, 0.1875));
        assert_eq!(at_speed(&part, &found), found);
    }
}
