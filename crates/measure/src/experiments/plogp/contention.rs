//! γ: the contention ratio of the direct all-to-all (2004, section 5.1).

use crate::experiments::algorithms::{CollectiveCall, compare};
use crate::harness::timer::Budget;
use crate::harness::{Error, StepContext};
use crate::rows::Row;
use collectives::{Algorithm, Choice, Collective};
use models::costs::StartCosts;
use models::fit::{self, ContentionSample};
use models::formulas::alltoall::bounds;
use models::parameters::Parameters;
use tradewind::CallForm;

/// A measured direct exchange: bytes of a block, and its time in microseconds.
pub(super) type Exchange = (u64, f64);

/// Times direct exchanges among all ranks. All ranks call this.
pub(super) fn measure(
    here: &StepContext<'_>,
    form: CallForm,
    sizes: &[u64],
    budget: Budget,
) -> Result<Vec<Exchange>, Error> {
    let direct = [Choice::of(Algorithm::RotatedDirect)];
    let exchange = |bytes: &u64| {
        let operation = Collective::Alltoall;
        let ranks = here.world.size();
        let call = CollectiveCall { operation, form, ranks, bytes: *bytes, root: 0 };
        let rows = compare(here, &call, &direct, budget)?;
        Ok((*bytes, rows.first().map_or(0.0, Row::median)))
    };
    sizes.iter().map(exchange).collect()
}

/// γ for these exchanges among so many ranks; `None` if the bounds do not differ at any size, so
/// that γ changes no prediction.
pub(super) fn fit(
    exchanges: &[Exchange],
    ranks: u32,
    network: &Parameters,
    start: StartCosts,
) -> Option<f64> {
    let sample = |(bytes, time): &Exchange| {
        let measured = time - start.of(Collective::Alltoall, ranks, *bytes);
        ContentionSample { bounds: bounds(network, ranks, *bytes), measured }
    };
    let samples: Vec<ContentionSample> =
        exchanges.iter().map(sample).filter(|sample| sample.measured > 0.0).collect();
    fit::contention(&samples).ok().map(|found| found.ratio)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_of_exchanges_between_the_bounds_is_found() {
        let network =
            Parameters::linear(1.0, (0.25, 0.0), (0.5, 0.0), (2.25, 0.001)).expect("valid");
        let start = StartCosts { fixed: 3.0, per_byte: 0.001 };
        let time = |bytes: u64| {
            let bounds = bounds(&network, 4, bytes);
            (bytes, bounds.at(0.4) + start.of(Collective::Alltoall, 4, bytes))
        };
        let found = fit(&[8, 512, 8192].map(time), 4, &network, start);
        assert!(found.is_some_and(|ratio| (ratio - 0.4).abs() < 1e-9), "{found:?}");
        assert_eq!(fit(&[], 4, &network, start), None);
    }
}
