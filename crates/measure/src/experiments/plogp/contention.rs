//! γ: the contention ratio of the direct all-to-all (2004, section 5.1).

use crate::experiments::algorithms::CollectiveCall;
use crate::harness::Error;
use crate::rows::{Row, What};
use collectives::{Algorithm, Choice, Collective};
use models::costs::StartCosts;
use models::fit::{self, ContentionSample};
use models::formulas::alltoall::bounds;
use models::machine_file::Engine;
use models::parameters::Parameters;
use tradewind::CallForm;

/// Direct exchanges of these sizes among so many ranks, each timed by `time`.
pub(super) fn exchanges(
    form: CallForm,
    sizes: &[u64],
    ranks: u32,
    time: impl Fn(&CollectiveCall, &[Choice]) -> Result<Vec<Row>, Error>,
) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for bytes in sizes.iter().copied() {
        let call = CollectiveCall { operation: Collective::Alltoall, form, ranks, bytes, root: 0 };
        rows.extend(time(&call, &[Choice::of(Algorithm::RotatedDirect)])?);
    }
    Ok(rows)
}

/// γ for the exchanges among these rows; `None` if the bounds do not differ at any size, so that γ
/// changes no prediction.
pub(super) fn fit<'r>(
    rows: impl IntoIterator<Item = &'r Row>,
    network: &Parameters,
    start: StartCosts,
) -> Option<f64> {
    let sample = |row: &Row| {
        let is_batch = row.engine.is_some_and(Engine::is_between_nodes);
        let time = if is_batch { row.lower_quartile() } else { row.median() };
        let measured = time - start.of(Collective::Alltoall, row.ranks, row.bytes);
        ContentionSample { bounds: bounds(network, row.ranks, row.bytes), measured }
    };
    let exchanges =
        rows.into_iter().filter(|row| row.what == What::Collective(Collective::Alltoall));
    let samples: Vec<ContentionSample> =
        exchanges.map(sample).filter(|sample| sample.measured > 0.0).collect();
    fit::contention(&samples).ok().map(|found| found.ratio)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::plogp::found::tests::row;
    use crate::rows::Quantity;

    #[test]
    fn the_ratio_of_exchanges_between_the_bounds_is_found() {
        let network =
            Parameters::linear(1.0, (0.25, 0.0), (0.5, 0.0), (2.25, 0.001)).expect("valid");
        let start = StartCosts { fixed: 3.0, per_byte: 0.001 };
        let exchange = |bytes: u64| {
            let time =
                bounds(&network, 2, bytes).at(0.4) + start.of(Collective::Alltoall, 2, bytes);
            row(What::Collective(Collective::Alltoall), Quantity::Alone, &[time]).sized(bytes)
        };
        let found = fit(&[8, 512, 8192].map(exchange), &network, start);
        assert!(found.is_some_and(|ratio| (ratio - 0.4).abs() < 1e-9), "{found:?}");
        assert_eq!(fit(&[], &network, start), None);
    }
}
