//! Measures what the choice of an algorithm adds to a call: calls of a communicator that leaves the
//! choice open and of one that sets the same algorithm, in turns of a thousand. `selection [ROUNDS]`.
//! The ranks are threads; `TRADEWIND_DECISIONS` names a table.

use models::statistics::{median, percentile};
use std::time::Instant;
use tradewind::{Algorithms, CallForm, Collective, Communicator, Op, Result, local};

const CALLS: u32 = 1_000;
/// Bytes of an allreduce: a flat collective by one comparison, and a size for which the table's row
/// is searched.
const SIZES: [usize; 2] = [8, 2048];

fn main() -> Result<()> {
    let rounds = std::env::args().nth(1).and_then(|rounds| rounds.parse().ok()).unwrap_or(300);
    for form in [CallForm::Blocking, CallForm::Nonblocking] {
        for bytes in SIZES {
            local(2, |world| compare(&world, form, bytes, rounds))?;
        }
    }
    Ok(())
}

fn compare(world: &Communicator, form: CallForm, bytes: usize, rounds: u32) -> Result<()> {
    let explanation = world.explain_form(form, Collective::Allreduce, bytes as u64);
    let same = Algorithms::default()
        .with(Collective::Allreduce, explanation.algorithm)
        .expect("it is the algorithm of an allreduce");
    let fixed = world.with_algorithms(same);
    let input = vec![1u64; bytes / 8];
    let mut output = vec![0u64; bytes / 8];
    let mut differences = Vec::new();
    let mut times = Vec::new();
    for round in 0..rounds {
        let mut turn = |communicator: &Communicator| -> Result<f64> {
            world.barrier()?;
            let begin = Instant::now();
            for _ in 0..CALLS {
                match form {
                    CallForm::Blocking => communicator.allreduce(&input, &mut output, Op::Sum)?,
                    CallForm::Nonblocking => {
                        communicator.iallreduce(&input[..], &mut output[..], Op::Sum)?.wait()?;
                    }
                }
            }
            Ok(begin.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS))
        };
        let (open, set) = if round % 2 == 0 {
            let open = turn(world)?;
            (open, turn(&fixed)?)
        } else {
            let set = turn(&fixed)?;
            (turn(world)?, set)
        };
        differences.push(open - set);
        times.push(set);
    }
    if world.rank() == 0 {
        differences.sort_by(f64::total_cmp);
        println!(
            "{form} allreduce of {bytes} bytes, {}: {:.1} ns with a fixed algorithm; the choice adds \
             {:.1} ns (middle half {:.1} to {:.1})",
            explanation.algorithm,
            median(&times),
            median(&differences),
            percentile(&differences, 0.25),
            percentile(&differences, 0.75)
        );
    }
    Ok(())
}
