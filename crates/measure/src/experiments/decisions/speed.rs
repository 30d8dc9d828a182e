//! Speed of a machine while candidates were timed.

use super::timed::timed;
use crate::rows::Run;
use collectives::{Algorithm, Choice};
use models::machine_file::Machine;
use models::prediction::Models;
use models::statistics::median;
use std::collections::BTreeMap;

/// Least number of times from which a speed is computed.
const LEAST: usize = 8;

/// Returns the machine with the parameters of one node at the speed of a run there.
///
/// Ranks that share cores take up to 1.4 times as long in one minute as in another, and longer beside
/// many plans than beside few. The parameters are from a few seconds before, of which the faster ones
/// counted. Flat collectives, which are measured there and here, take a factor of what they took
/// there: all costs among so many ranks are multiplied by its median. A second correction by the same
/// run changes nothing.
pub fn at_speed(run: &Run, machine: &Machine) -> Machine {
    let models = Models::of(machine);
    let mut ratios: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    let flat = Choice::of(Algorithm::Join);
    for (query, plans) in timed(&[run]) {
        let time = plans.iter().find(|one| one.plan == flat).map(|one| one.median);
        let predicted = models.price(None, &flat, &query).filter(|time| *time > 0.0);
        let ratio = time.zip(predicted).map(|(time, predicted)| time / predicted);
        ratios.entry(query.ranks).or_default().extend(ratio);
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
    use crate::experiments::decisions::trial::trial;
    use collectives::Collective;
    use models::costs::{FlatCosts, FlatPoint, Sharing};
    use models::decision::{CallForm, Query};
    use models::machine::Fingerprint;
    use models::simulation::{Constants, Curve};

    #[test]
    fn parameters_follow_the_speed_of_flat_collectives_once() {
        let operation = Collective::Bcast;
        let form = CallForm::Blocking;
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
        let rows = (0..LEAST as u64).flat_map(|bytes| {
            let query = Query { operation, form, ranks: 4, ranks_per_node: 4, bytes };
            [(Algorithm::Join, 3.0), (Algorithm::Flat, 900.0)]
                .map(|(algorithm, time)| trial(&query, &Choice::of(algorithm), time))
        });
        let run = Run::of(rows);
        let found = at_speed(&run, &machine);
        let times: Vec<f64> =
            found.flat[&form][&operation].points().iter().map(|point| point.microseconds).collect();
        assert_eq!(times, [2.0, 3.0], "nothing was measured among two ranks");
        let Constants { start, operation, combine, .. } = found.sharing[0].constants;
        assert_eq!((start, operation, combine), (1.5, 0.75, 0.1875));
        assert_eq!(at_speed(&run, &found), found);
    }
}
