//! Costs of a run of a schedule beside its messages, and of combining.

use super::patterns;
use crate::harness::timer::{Batches, calls};
use crate::harness::{Error, StepContext};
use crate::rows::{Quantity, Row, What};
use models::costs::StartCosts;
use models::machine_file::Engine;
use models::parameters::Parameters;
use tradewind::{Buffers, CallForm, Communicator, Schedule};

/// A private buffer of this length lies beside the messages where the cost of a byte is measured.
const PRIVATE_BYTES: u64 = 64 << 10;
/// So many bytes are combined: more than the nearest cache holds, as where it matters.
const COMBINED_BYTES: u64 = 64 << 10;

/// Times of runs of a schedule on the slower rank, in microseconds.
fn runs(
    world: &Communicator,
    schedule: &Schedule,
    form: CallForm,
    private: &[u8],
    batches: Batches,
) -> Result<Vec<f64>, Error> {
    let mut run = calls(|| {
        let buffers =
            if private.is_empty() { Buffers::new() } else { Buffers::new().input(private) };
        match form {
            CallForm::Blocking => schedule.call(buffers)?,
            CallForm::Nonblocking => schedule.run(buffers)?.wait()?,
        };
        Ok(())
    });
    batches.time(world, &mut run)
}

/// Measures runs that are an empty round trip, without and with a private buffer. Both ranks call
/// this.
pub(super) fn round_trips(
    here: &StepContext<'_>,
    form: CallForm,
    batches: Batches,
) -> Result<Vec<Row>, Error> {
    let world = here.world;
    let of_length = |bytes: u64| {
        let graph = patterns::bare_round_trip((world.rank(), world.size()), bytes);
        let private = vec![1; bytes as usize];
        let times = runs(world, &world.compile(&graph)?, form, &private, batches)?;
        Ok(here.row(What::RoundTrip, Quantity::Alone, times).sized(bytes))
    };
    [0, PRIVATE_BYTES].into_iter().map(of_length).collect()
}

/// Costs of a run besides its messages, from rows of [`round_trips`]: by the lower quartile, as with
/// messages.
pub(super) fn costs(rows: &[Row], network: &Parameters) -> StartCosts {
    let run_us = |has_length: fn(u64) -> bool| {
        let is_run = |row: &&Row| row.what == What::RoundTrip && has_length(row.bytes);
        rows.iter().find(is_run).map(|row| (row.bytes, row.lower_quartile()))
    };
    let (_, empty) = run_us(|bytes| bytes == 0).unwrap_or_default();
    let (bytes, longer) = run_us(|bytes| bytes > 0).unwrap_or((1, empty));
    StartCosts {
        fixed: (empty - 2.0 * network.arrival(0)).max(0.0),
        per_byte: ((longer - empty) / bytes as f64).max(0.0),
    }
}

/// Measures the time of combining two contributions. All ranks call this.
pub(super) fn combination(here: &StepContext<'_>, runs: usize) -> Result<Row, Error> {
    let world = here.world;
    let schedule =
        world.compile(&patterns::combination(world.rank(), world.size(), COMBINED_BYTES))?;
    let mut data = world.alloc::<u8>(2 * COMBINED_BYTES as usize)?;
    let mut times = Vec::with_capacity(runs);
    // The first runs touch the memory.
    for run in 0..runs + 2 {
        let mut timestamps = [0u64; 2];
        let request = schedule.run(Buffers::new().shared(data).output(&mut timestamps))?;
        let Some(back) = request.wait()?.pop() else { unreachable!("what moved in comes back") };
        data = back;
        if run >= 2 {
            times.push(timestamps[1].wrapping_sub(timestamps[0]) as f64 * 1e-3);
        }
    }
    Ok(here.row(What::Combination, Quantity::Alone, times).sized(COMBINED_BYTES))
}

/// Measures runs of an engine between nodes with one combination and with several; no rows if
/// another engine runs them. All ranks call this.
pub(super) fn combinations_between_nodes(
    here: &StepContext<'_>,
    (form, engine): (CallForm, Engine),
    batches: Batches,
) -> Result<Vec<Row>, Error> {
    const SEVERAL: u32 = 5;
    let world = here.world;
    let rank = (world.rank(), world.size());
    let mut rows = Vec::new();
    for count in [1, SEVERAL] {
        let schedule = world.compile(&patterns::combinations(rank, COMBINED_BYTES, count))?;
        if schedule.engine(form) != engine.name() {
            return Ok(Vec::new());
        }
        let row = here.row(
            What::Combination,
            Quantity::Alone,
            runs(world, &schedule, form, &[], batches)?,
        );
        rows.push(row.sized(COMBINED_BYTES * u64::from(count)).by(engine, form, None));
    }
    Ok(rows)
}

/// Time of combining two contributions in microseconds a byte, from these rows: that of an engine
/// between nodes, by the difference of its runs, or of this node.
pub(super) fn combine<'r>(
    rows: impl IntoIterator<Item = &'r Row>,
    engine: Option<Engine>,
) -> Option<f64> {
    let is_own = |row: &&Row| row.what == What::Combination && row.engine == engine;
    let mut own = rows.into_iter().filter(is_own);
    let one = own.next()?;
    if engine.is_none() {
        return Some(one.lower_quartile() / one.bytes as f64);
    }
    let several = own.next().filter(|several| several.bytes > one.bytes)?;
    let more = several.lower_quartile() - one.lower_quartile();
    Some((more / (several.bytes - one.bytes) as f64).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::plogp::found::tests::row;

    fn run(bytes: u64, time: f64) -> Row {
        row(What::RoundTrip, Quantity::Alone, &[time]).sized(bytes)
    }

    #[test]
    fn messages_of_a_run_are_no_part_of_its_start() {
        let network = Parameters::linear(1.0, (0.25, 0.0), (0.25, 0.0), (0.5, 0.0)).expect("valid");
        // RTT(0) is 2 × (1 + 0.5).
        let start = costs(&[run(0, 3.75), run(64, 35.75)], &network);
        assert_eq!(start, StartCosts { fixed: 0.75, per_byte: 0.5 });
        let start = costs(&[run(0, 2.5), run(64, 2.0)], &network);
        assert_eq!(start, StartCosts { fixed: 0.0, per_byte: 0.0 });
    }

    #[test]
    fn combining_between_nodes_is_a_difference_of_runs() {
        let of = |bytes, time| row(What::Combination, Quantity::Alone, &[time]).sized(bytes);
        let direct = |row: Row| row.by(Engine::Direct, CallForm::Blocking, None);
        let rows = [of(64, 16.0), direct(of(64, 50.0)), direct(of(320, 306.0))];
        assert_eq!(combine(&rows, None), Some(0.25));
        assert_eq!(combine(&rows, Some(Engine::Direct)), Some(1.0));
        assert_eq!(combine(&rows, Some(Engine::Agent)), None);
    }
}
