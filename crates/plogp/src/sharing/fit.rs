//! The constants from measurements.

use super::{Constants, Counts, KNOTS, Program, run};

/// How often programs are played with better constants.
const PASSES: u32 = 12;
/// Sweeps over all constants in each pass.
const SWEEPS: u32 = 3000;
/// Constants that no measurement asks for stay near what they were: by this weight against a measurement's.
const INERTIA: f64 = 1e-6;

/// A program and how long it took.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The program.
    pub program: Program,
    /// In microseconds.
    pub measured: f64,
}

/// Constants, none below zero, for which the relative errors of these samples are least in the sum of their squares.
///
/// What lies on a program's way depends on the constants, and the constants on what lies on the ways: programs are played,
/// the constants are fitted to what was found, and so on a few times; the best of all passes is given back.
pub fn fit(samples: &[Sample], cores: usize, guess: &Constants) -> Constants {
    let mut constants = guess.clone();
    let mut best = (error(samples, cores, &constants), constants.clone());
    for _ in 0..PASSES {
        let rows: Vec<Vec<f64>> = samples.iter().map(|sample| row(sample, cores, &constants)).collect();
        constants = solve(&rows, &constants);
        let error = error(samples, cores, &constants);
        if error < best.0 {
            best = (error, constants.clone());
        }
    }
    best.1
}

/// The sum of squared relative errors.
fn error(samples: &[Sample], cores: usize, constants: &Constants) -> f64 {
    let one = |sample: &Sample| (run(&sample.program, cores, constants).microseconds / sample.measured - 1.0).powi(2);
    samples.iter().map(one).sum()
}

/// How often each constant counts, over the time measured.
fn row(sample: &Sample, cores: usize, constants: &Constants) -> Vec<f64> {
    let counts = run(&sample.program, cores, constants).counts;
    list(&counts).iter().map(|count| count / sample.measured).collect()
}

/// Constants that are no curves.
const SINGLE: usize = 5;
const LENGTH: usize = SINGLE + 2 * KNOTS.len();

fn list(counts: &Counts) -> [f64; LENGTH] {
    let Counts { starts, operations, crossings, switches, combined, copies, fetches } = *counts;
    let mut list = [0.0; LENGTH];
    list[..SINGLE].copy_from_slice(&[starts, operations, crossings, switches, combined]);
    list[SINGLE..][..KNOTS.len()].copy_from_slice(&copies);
    list[SINGLE + KNOTS.len()..].copy_from_slice(&fetches);
    list
}

fn of_constants(constants: &Constants) -> [f64; LENGTH] {
    let Constants { start, operation, crossing, switch, copy, fetch, combine } = constants;
    let mut list = [0.0; LENGTH];
    list[..SINGLE].copy_from_slice(&[*start, *operation, *crossing, *switch, *combine]);
    list[SINGLE..][..KNOTS.len()].copy_from_slice(&copy.0);
    list[SINGLE + KNOTS.len()..].copy_from_slice(&fetch.0);
    list
}

/// Non-negative least squares by coordinate descent: row × constants = 1 for each row.
fn solve(rows: &[Vec<f64>], before: &Constants) -> Constants {
    let before = of_constants(before);
    let mut values = before;
    let mut rest: Vec<f64> =
        rows.iter().map(|row| 1.0 - row.iter().zip(&values).map(|(count, value)| count * value).sum::<f64>()).collect();
    for _ in 0..SWEEPS {
        for place in 0..LENGTH {
            let weight: f64 = rows.iter().map(|row| row[place] * row[place]).sum();
            let scale = 1.0 / before[place].max(1e-3);
            let hold = INERTIA * scale * scale;
            let pull: f64 = rows.iter().zip(&rest).map(|(row, rest)| row[place] * rest).sum();
            let step = (pull + hold * (before[place] - values[place])) / (weight + hold);
            let new = (values[place] + step).max(0.0);
            let step = new - values[place];
            values[place] = new;
            rows.iter().zip(&mut rest).for_each(|(row, rest)| *rest -= row[place] * step);
        }
    }
    let (mut copy, mut fetch) = (super::Curve::default(), super::Curve::default());
    copy.0.copy_from_slice(&values[SINGLE..][..KNOTS.len()]);
    fetch.0.copy_from_slice(&values[SINGLE + KNOTS.len()..]);
    Constants {
        start: values[0],
        operation: values[1],
        crossing: values[2],
        switch: values[3],
        combine: values[4],
        copy,
        fetch,
    }
}
