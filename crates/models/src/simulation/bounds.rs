//! Lower bounds that hold for every way of sharing.

use super::program::{Constants, Program};

/// Times that a program cannot fall below, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// All operations, starts and ends, spread evenly over the cores: without switches and without
    /// waiting.
    pub work: f64,
    /// The longest chain of operations that wait for each other, with the start before it.
    pub chain: f64,
}

/// The lower bounds of a program on so many cores.
pub fn bounds(program: &Program, cores: usize, constants: &Constants) -> Bounds {
    let cores = cores.clamp(1, program.ranks.len().max(1));
    let step = |number: usize| {
        let step = &program.steps[number];
        constants.operation
            + constants.copy.at(step.copied)
            + constants.combine * step.combined as f64
    };
    let of_rank = |input: u64, output: u64| {
        constants.start + constants.copy.at(input) + constants.copy.at(output)
    };
    let mut work: f64 = program.ranks.iter().map(|rank| of_rank(rank.input, rank.output)).sum();

    // Longest ways, in the order in which operations become possible.
    let mut missing: Vec<u32> = program.steps.iter().map(|step| step.waits).collect();
    let mut begin = vec![0.0f64; program.steps.len()];
    let mut possible = Vec::new();
    for rank in &program.ranks {
        for start in &rank.starts {
            begin[*start] = begin[*start].max(constants.start + constants.copy.at(rank.input));
            missing[*start] = missing[*start].saturating_sub(1);
            if missing[*start] == 0 {
                possible.push(*start);
            }
        }
    }
    let mut chain = 0.0f64;
    while let Some(number) = possible.pop() {
        let end = begin[number] + step(number);
        work += step(number);
        let rank = program.steps[number].rank;
        chain = chain.max(end + constants.copy.at(program.ranks[rank].output));
        for next in &program.steps[number].enables {
            begin[*next] = begin[*next].max(end);
            missing[*next] = missing[*next].saturating_sub(1);
            if missing[*next] == 0 {
                possible.push(*next);
            }
        }
    }
    Bounds { work: work / cores as f64, chain }
}
