//! γ: the contention ratio of the direct all-to-all (2004, section 5.1).

use crate::experiments::algorithms::{CollectiveCall, compare};
use crate::harness::timer::{Batches, Budget, calls};
use crate::harness::{Error, StepContext};
use crate::rows::{Quantity, Row, What};
use collectives::{Algorithm, Choice, Collective};
use models::costs::StartCosts;
use models::fit::{self, ContentionSample};
use models::formulas::alltoall::bounds;
use models::machine_file::Engine;
use models::parameters::Parameters;
use tradewind::{Algorithms, CallForm};

/// The algorithm.
const DIRECT: Algorithm = Algorithm::RotatedDirect;

/// Times direct exchanges among the ranks of a node. All ranks call this.
pub(super) fn on_one_node(
    here: &StepContext<'_>,
    form: CallForm,
    sizes: &[u64],
    budget: Budget,
) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for bytes in sizes.iter().copied() {
        let (operation, ranks) = (Collective::Alltoall, here.world.size());
        let call = CollectiveCall { operation, form, ranks, bytes, root: 0 };
        rows.extend(compare(here, &call, &[Choice::of(DIRECT)], budget)?);
    }
    Ok(rows)
}

/// Times direct exchanges among ranks of different nodes in batches, because the clocks of nodes
/// differ. All ranks call this.
pub(super) fn between_nodes(
    here: &StepContext<'_>,
    (form, engine): (CallForm, Engine),
    sizes: &[u64],
    batches: Batches,
) -> Result<Vec<Row>, Error> {
    let direct = Algorithms::default().with(Collective::Alltoall, DIRECT)?;
    let group = here.world.with_algorithms(direct);
    let time = |bytes: &u64| {
        let length = *bytes as usize * group.size() as usize;
        let input = vec![1u8; length];
        let mut output = vec![0u8; length];
        let mut exchange = calls(|| {
            match form {
                CallForm::Blocking => group.alltoall(&input, &mut output)?,
                CallForm::Nonblocking => {
                    group.ialltoall(&input[..], &mut output[..])?.wait().map(drop)?;
                }
            }
            Ok(())
        });
        let times = batches.time(&group, &mut exchange)?;
        let row = here.row(What::Collective(Collective::Alltoall), Quantity::Alone, times);
        Ok(row.sized(*bytes).by(engine, form, Some(Choice::of(DIRECT))))
    };
    sizes.iter().map(time).collect()
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
