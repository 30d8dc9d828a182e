//! Cost of choosing an algorithm at call time: a prepared allreduce with the choice of a decision
//! table or of the built-in parameters, beside one with the same algorithm set by the caller. The two
//! take turns. Nothing is started, so they differ in the choice only.
use collectives::{Algorithm, Choice, Collective};
use models::decision::{CallForm, DecisionTable, Range, Row, Times};
use models::machine::Topology;
use std::error::Error;
use std::hint::black_box;
use std::time::Instant;
use tradewind::{Algorithms, Communicator, Op};

/// Calls in a batch, and batches of each contender.
const CALLS: u32 = 1000;
const BATCHES: usize = 301;
/// Elements, of eight bytes each.
const LENGTHS: [usize; 2] = [1, 8192];
/// Ranges of a row; rows of `tradewind tune` have one to nine.
const RANGES: u64 = 9;
/// Choice of the table at all sizes.
const ALGORITHM: Algorithm = Algorithm::ReduceBcast;

/// A table in which neighbouring ranges differ in their measurements only.
fn table() -> Result<DecisionTable, Box<dyn Error>> {
    let range = |number: u64| Range {
        from: if number == 0 { 0 } else { 4 << (2 * number) },
        to: (number + 1 < RANGES).then_some(4 << (2 * (number + 1))),
        plan: Choice::of(ALGORITHM),
        engine: None,
        at: 0,
        time: Times::default(),
        runner_up: None,
    };
    let row = |(form, ranks_per_node)| Row {
        operation: Collective::Allreduce,
        form,
        ranks: 2,
        ranks_per_node,
        error: None,
        disturbed: None,
        ranges: (0..RANGES).map(range).collect(),
    };
    let rows = CallForm::ALL.iter().flat_map(|form| [(*form, 1), (*form, 2)]).map(row).collect();
    Ok(DecisionTable::new(Topology::here().fingerprint().clone(), rows)?)
}

/// Nanoseconds of one preparation.
fn batch(world: &Communicator, length: usize) -> tradewind::Result<f64> {
    let begin = Instant::now();
    for _ in 0..CALLS {
        black_box(world.allreduce_init::<f64>(black_box(length), Op::Sum)?);
    }
    Ok(begin.elapsed().as_nanos() as f64 / f64::from(CALLS))
}

fn quartiles(times: &mut [f64]) -> [f64; 3] {
    times.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| times[times.len() * quarter / 4])
}

/// Prints a line for each length. The other rank sleeps meanwhile.
fn compare(world: &Communicator, what: &str) -> tradewind::Result<()> {
    for length in LENGTHS {
        // The caller sets the algorithm that is chosen otherwise.
        let chosen =
            world.explain_form(CallForm::Nonblocking, Collective::Allreduce, length as u64 * 8);
        let algorithms = Algorithms { allreduce: Some(chosen.algorithm), ..Algorithms::default() };
        let fixed = world.with_algorithms(algorithms);
        // All ranks link the schedules now, so that no preparation that is timed does.
        for world in [world, &fixed] {
            let mut sum = vec![0.0; length];
            world.iallreduce(&vec![1.0; length][..], &mut sum[..], Op::Sum)?.wait()?;
        }
        if world.rank() == 0 {
            let mut times = [const { Vec::new() }; 3];
            for _ in 0..BATCHES {
                let [by_choice, by_caller] = [batch(world, length)?, batch(&fixed, length)?];
                for (times, time) in
                    times.iter_mut().zip([by_choice, by_caller, by_choice - by_caller])
                {
                    times.push(time);
                }
            }
            let [by_choice, by_caller, difference] = times.map(|mut times| quartiles(&mut times));
            println!(
                "{what}, {} bytes, {}: {:.1} ns chosen, {:.1} ns fixed, difference {:.1} ns \
                 (quartiles {:.1}, {:.1})",
                length * 8,
                chosen.algorithm,
                by_choice[1],
                by_caller[1],
                difference[1],
                difference[0],
                difference[2]
            );
        }
        world.ibarrier()?.wait()?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::temp_dir().join(format!("tradewind-choosing-{}.json", std::process::id()));
    table()?.write(&path)?;
    let with_table = std::env::args().all(|argument| argument != "--built-in");
    // SAFETY: no other thread runs yet.
    unsafe {
        std::env::set_var(
            "TRADEWIND_DECISIONS",
            if with_table { path.as_os_str() } else { "".as_ref() },
        )
    };
    let what = if with_table { "table" } else { "built-in" };
    let measured = tradewind::local(2, |world| compare(&world, &format!("one node, {what}")))
        .and_then(|()| {
            tradewind::local_nodes(&[1, 1], |world| compare(&world, &format!("two nodes, {what}")))
        });
    std::fs::remove_file(&path)?;
    Ok(measured?)
}
