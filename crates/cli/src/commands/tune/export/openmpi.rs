//! Dynamic rules for Open MPI's component `tuned`.

use super::library::OPERATIONS;
use super::times::{Rule, Timings};
use collectives::Collective;
use std::fmt::Write;

/// The number of an operation in rules (`COLLTYPE` of Open MPI's `coll_base_functions.h`).
fn number(operation: Collective) -> Option<u32> {
    match operation {
        Collective::Allgather => Some(0),
        Collective::Allreduce => Some(2),
        Collective::Alltoall => Some(3),
        Collective::Barrier => Some(6),
        Collective::Bcast => Some(7),
        Collective::Reduce => Some(11),
        _ => None,
    }
}

/// Bytes by which the library chooses: of the whole result where each rank has a block.
fn size(operation: Collective, ranks: u32, bytes: u64) -> u64 {
    match operation {
        Collective::Allgather | Collective::Alltoall => bytes.saturating_mul(u64::from(ranks)),
        _ => bytes,
    }
}

/// The text of the rules. A rule holds from its number of ranks and from its size on, up to the
/// next ones. Measured numbers of ranks are therefore followed by a rule of algorithm 0, which
/// leaves other numbers to the library.
pub(super) fn rules(timings: &Timings) -> String {
    let mut operations: Vec<(u32, Collective)> = OPERATIONS
        .iter()
        .filter(|operation| !timings.ranks(**operation).is_empty())
        .filter_map(|operation| Some((number(*operation)?, *operation)))
        .collect();
    operations.sort_unstable();
    let mut text = format!("{} # number of collectives\n", operations.len());
    for (number, operation) in operations {
        let ranks = timings.ranks(operation);
        let mut blocks: Vec<(u32, Vec<Rule<'_>>)> = Vec::new();
        for (place, count) in ranks.iter().enumerate() {
            blocks.push((*count, timings.rules(operation, *count)));
            if ranks.get(place + 1) != Some(&(count + 1)) {
                blocks.push((count + 1, vec![Rule { from: 0, algorithm: None }]));
            }
        }
        // Writing to a string does not fail.
        let _ = writeln!(text, "{number} # {operation}\n{} # numbers of ranks", blocks.len());
        for (ranks, rules) in blocks {
            let _ = writeln!(text, "{ranks} # ranks\n{} # sizes", rules.len());
            for Rule { from, algorithm } in rules {
                let from = size(operation, ranks, from);
                let algorithm = algorithm.unwrap_or("0");
                let _ = writeln!(text, "{from} {algorithm} 0 0 # bytes, algorithm, fan, segment");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::times::Timing;
    use super::*;

    #[test]
    fn numbers_of_ranks_that_were_not_measured_are_left_to_the_library() {
        let timing = |ranks, bytes, algorithm: &str| Timing {
            operation: Collective::Allgather,
            ranks,
            bytes,
            algorithm: algorithm.to_owned(),
            microseconds: 1.0,
        };
        let all = [timing(2, 8, "6"), timing(3, 8, "1"), timing(3, 128, "4"), timing(8, 8, "2")];
        let text = rules(&Timings(all.to_vec()));
        let numbers = |line: &str| line.split(" #").next().unwrap_or_default().to_owned();
        let numbers: Vec<String> = text.lines().map(numbers).collect();
        let expected = "1|0|5|2|1|0 6 0 0|3|2|0 1 0 0|99 4 0 0|4|1|0 0 0 0|8|1|0 2 0 0|9|1|0 0 0 0";
        assert_eq!(numbers.join("|"), expected);
    }
}
