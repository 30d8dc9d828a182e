//! Costs of a run of a schedule beside its messages, and of combining.

use super::patterns;
use crate::harness::Error;
use crate::harness::timer::{Batches, calls};
use models::costs::StartCosts;
use models::machine_file::Engine;
use models::parameters::Parameters;
use models::statistics::Sample;
use tradewind::{Buffers, CallForm, Communicator, Schedule};

/// A private buffer of this length lies beside the messages where the cost of a byte is measured.
const PRIVATE_BYTES: usize = 64 << 10;
/// So many bytes are combined: more than the nearest cache holds, as where it matters.
const COMBINED_BYTES: u64 = 64 << 10;

/// Time of a run on the slower rank, in microseconds: the lower quartile, as with messages.
fn run_us(
    world: &Communicator,
    schedule: &Schedule,
    form: CallForm,
    private: &[u8],
    batches: Batches,
) -> Result<f64, Error> {
    let mut run = calls(|| {
        let buffers =
            if private.is_empty() { Buffers::new() } else { Buffers::new().input(private) };
        match form {
            CallForm::Blocking => schedule.call(buffers)?,
            CallForm::Nonblocking => schedule.run(buffers)?.wait()?,
        };
        Ok(())
    });
    Ok(Sample::of(batches.time(world, &mut run)?).quantiles.p25)
}

/// Measures a run that is an empty round trip, in microseconds, and the additional time for
/// each byte of a private buffer. Both ranks call this.
pub(super) fn measure(
    world: &Communicator,
    form: CallForm,
    batches: Batches,
) -> Result<StartCosts, Error> {
    let private = vec![1; PRIVATE_BYTES];
    let rank = (world.rank(), world.size());
    let empty = world.compile(&patterns::bare_round_trip(rank, 0))?;
    let with_buffer = world.compile(&patterns::bare_round_trip(rank, PRIVATE_BYTES as u64))?;
    let fixed = run_us(world, &empty, form, &[], batches)?;
    let longer = run_us(world, &with_buffer, form, &private, batches)? - fixed;
    Ok(StartCosts { fixed, per_byte: (longer / PRIVATE_BYTES as f64).max(0.0) })
}

/// The same without the round trip.
pub(super) fn without_messages(run: StartCosts, network: &Parameters) -> StartCosts {
    StartCosts { fixed: (run.fixed - 2.0 * network.arrival(0)).max(0.0), ..run }
}

/// Measures the time of combining two contributions, in microseconds a byte. All ranks call this.
pub(super) fn combine(world: &Communicator, runs: usize) -> Result<f64, Error> {
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
    Ok(Sample::of(times).quantiles.p25 / COMBINED_BYTES as f64)
}

/// Measures what an engine between nodes takes for combining, in microseconds a byte, by the
/// difference of runs with one combination and with several; `None` if another engine runs them.
/// All ranks call this.
pub(super) fn combine_between_nodes(
    world: &Communicator,
    (form, engine): (CallForm, Engine),
    batches: Batches,
) -> Result<Option<f64>, Error> {
    const SEVERAL: u32 = 5;
    let rank = (world.rank(), world.size());
    let run = |count| world.compile(&patterns::combinations(rank, COMBINED_BYTES, count));
    let one = run(1)?;
    let several = run(SEVERAL)?;
    if [&one, &several].iter().any(|schedule| schedule.engine(form) != engine.name()) {
        return Ok(None);
    }
    let more =
        run_us(world, &several, form, &[], batches)? - run_us(world, &one, form, &[], batches)?;
    Ok(Some((more / f64::from(SEVERAL - 1) / COMBINED_BYTES as f64).max(0.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_s_messages_are_no_part_of_its_start() {
        let network = Parameters::linear(1.0, (0.25, 0.0), (0.25, 0.0), (0.5, 0.0)).expect("valid");
        let run = |fixed| StartCosts { fixed, per_byte: 0.5 };
        // RTT(0) is 2 × (1 + 0.5).
        assert_eq!(without_messages(run(3.75), &network), run(0.75));
        assert_eq!(without_messages(run(2.5), &network), run(0.0));
    }
}
