//! The constants from measurements.

use super::play::run;
use super::program::{Constants, Counts, Curve, KNOTS, Program};

/// Number of simulations with refined constants.
const PASSES: u32 = 12;
/// Sweeps over all constants in each pass.
const SWEEPS: u32 = 3000;
/// Constants that no measurement asks for stay near what they were: by this weight against a
/// measurement's.
const INERTIA: f64 = 1e-6;

/// A program and how long it took.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The program.
    pub program: Program,
    /// In microseconds.
    pub measured: f64,
}

/// Constants, none below zero and no copy dearer than a longer one, for which the relative errors
/// of these samples are least in the sum of their squares.
///
/// The costs on a program's way depend on the constants, and the constants on the costs on the
/// ways: programs are played, the constants are fitted to what was found, and so on a few times;
/// the best of all passes is given back.
pub fn fit(samples: &[Sample], cores: usize, guess: &Constants) -> Constants {
    let scales = of_constants(guess).map(|value| if value > 0.0 { value } else { 1.0 });
    let mut constants = guess.clone();
    let mut best = (error(samples, cores, &constants), constants.clone());
    for _ in 0..PASSES {
        let rows: Vec<[f64; LENGTH]> =
            samples.iter().map(|sample| row(sample, cores, &constants)).collect();
        constants = to_constants(solve(&rows, of_constants(&constants), &scales));
        let error = error(samples, cores, &constants);
        if error < best.0 {
            best = (error, constants.clone());
        }
    }
    best.1
}

/// The sum of squared relative errors.
fn error(samples: &[Sample], cores: usize, constants: &Constants) -> f64 {
    let one = |sample: &Sample| {
        (run(&sample.program, cores, constants).microseconds / sample.measured - 1.0).powi(2)
    };
    samples.iter().map(one).sum()
}

/// Count of each constant over the measured time.
fn row(sample: &Sample, cores: usize, constants: &Constants) -> [f64; LENGTH] {
    let counts = run(&sample.program, cores, constants).counts;
    list(&counts).map(|count| count / sample.measured)
}

/// Constants that are no curves.
const SINGLE: usize = 5;
/// Of the curves, by how much each knot lies above the one before: with none below zero, the curves
/// do not fall.
const LENGTH: usize = SINGLE + 2 * KNOTS.len();

fn list(counts: &Counts) -> [f64; LENGTH] {
    let Counts { starts, operations, crossings, switches, combined, copies, fetches } = *counts;
    let mut list = [0.0; LENGTH];
    list[..SINGLE].copy_from_slice(&[starts, operations, crossings, switches, combined]);
    for (curve, counts) in list[SINGLE..].chunks_exact_mut(KNOTS.len()).zip([copies, fetches]) {
        // A step up at a knot is paid at all knots from there on.
        let mut from_here = 0.0;
        for (step, count) in curve.iter_mut().zip(counts).rev() {
            from_here += count;
            *step = from_here;
        }
    }
    list
}

fn of_constants(constants: &Constants) -> [f64; LENGTH] {
    let Constants { start, operation, crossing, switch, copy, fetch, combine } = constants;
    let mut list = [0.0; LENGTH];
    list[..SINGLE].copy_from_slice(&[*start, *operation, *crossing, *switch, *combine]);
    for (steps, curve) in list[SINGLE..].chunks_exact_mut(KNOTS.len()).zip([copy, fetch]) {
        let before = std::iter::once(&0.0).chain(&curve.0);
        steps
            .iter_mut()
            .zip(curve.0.iter().zip(before))
            .for_each(|(step, (cost, before))| *step = (cost - before).max(0.0));
    }
    list
}

fn to_constants(list: [f64; LENGTH]) -> Constants {
    let curve = |steps: &[f64]| {
        let mut curve = Curve::default();
        let mut cost = 0.0;
        for (knot, step) in curve.0.iter_mut().zip(steps) {
            cost += step;
            *knot = cost;
        }
        curve
    };
    let [start, operation, crossing, switch, combine, steps @ ..] = list;
    let (copy, fetch) = steps.split_at(KNOTS.len());
    Constants {
        start,
        operation,
        crossing,
        switch,
        combine,
        copy: curve(copy),
        fetch: curve(fetch),
    }
}

/// Non-negative least squares by coordinate descent: row × constants = 1 for each row. `scales` say
/// how large each constant may be expected to be.
fn solve(rows: &[[f64; LENGTH]], before: [f64; LENGTH], scales: &[f64; LENGTH]) -> [f64; LENGTH] {
    // Sums over all rows, once: a step then takes as long as there are constants, not rows.
    let product = |left: usize, right: usize| rows.iter().map(|row| row[left] * row[right]).sum();
    let products: [[f64; LENGTH]; LENGTH] =
        std::array::from_fn(|left| std::array::from_fn(|right| product(left, right)));
    let mut values = before;
    let mut pulls: [f64; LENGTH] = std::array::from_fn(|place| {
        let explained = products[place].iter().zip(&values).map(|(product, value)| product * value);
        rows.iter().map(|row| row[place]).sum::<f64>() - explained.sum::<f64>()
    });
    for _ in 0..SWEEPS {
        for place in 0..LENGTH {
            let hold = INERTIA / (scales[place] * scales[place]);
            let step = (pulls[place] + hold * (before[place] - values[place]))
                / (products[place][place] + hold);
            let new = (values[place] + step).max(0.0);
            let step = new - values[place];
            values[place] = new;
            pulls
                .iter_mut()
                .zip(&products[place])
                .for_each(|(pull, product)| *pull -= product * step);
        }
    }
    values
}
