//! Times of a library's algorithms, and the fastest one at each size.

use collectives::Collective;

/// The name of what the library selects by itself.
pub(super) const DEFAULT: &str = "default";
/// Factor of the best time up to which the library's own selection stays.
const SLACK: f64 = 1.05;

/// Time of one algorithm.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Timing {
    pub(super) operation: Collective,
    pub(super) ranks: u32,
    pub(super) bytes: u64,
    /// Its name in the library, or [`DEFAULT`].
    pub(super) algorithm: String,
    pub(super) microseconds: f64,
}

/// All times, in the form of a CSV file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Timings(pub(super) Vec<Timing>);

const HEADER: &str = "operation,ranks,bytes,algorithm,microseconds";

/// The algorithm to use from a size on, up to the next one's.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rule<'a> {
    /// First size, as [`Collective`] counts it.
    pub(super) from: u64,
    /// The algorithm; `None` leaves the selection to the library.
    pub(super) algorithm: Option<&'a str>,
}

impl Timings {
    /// Reads a file's text; `Err` is the number of the line that is not a time.
    pub(super) fn read(text: &str) -> Result<Self, usize> {
        let line = |(number, line): (usize, &str)| {
            let words: Vec<&str> = line.split(',').collect();
            let [operation, ranks, bytes, algorithm, microseconds] = words[..] else {
                return Err(number + 1);
            };
            let timing = || {
                Some(Timing {
                    operation: operation.parse().ok()?,
                    ranks: ranks.parse().ok()?,
                    bytes: bytes.parse().ok()?,
                    algorithm: algorithm.to_owned(),
                    microseconds: microseconds
                        .parse()
                        .ok()
                        .filter(|time: &f64| time.is_finite() && *time > 0.0)?,
                })
            };
            timing().ok_or(number + 1)
        };
        let lines = text.lines().enumerate().filter(|(_, line)| *line != HEADER);
        lines.map(line).collect::<Result<_, _>>().map(Timings)
    }

    /// The file's text.
    pub(super) fn to_text(&self) -> String {
        let lines = self.0.iter().map(|one| {
            let Timing { operation, ranks, bytes, algorithm, microseconds } = one;
            format!("{operation},{ranks},{bytes},{algorithm},{microseconds}\n")
        });
        format!("{HEADER}\n{}", lines.collect::<String>())
    }

    pub(super) fn has(&self, operation: Collective, ranks: u32, algorithm: &str) -> bool {
        let same = |one: &Timing| {
            (one.operation, one.ranks, one.algorithm.as_str()) == (operation, ranks, algorithm)
        };
        self.0.iter().any(same)
    }

    /// Numbers of ranks with times, ascending.
    pub(super) fn ranks(&self, operation: Collective) -> Vec<u32> {
        let of_operation = self.0.iter().filter(|one| one.operation == operation);
        let mut ranks: Vec<u32> = of_operation.map(|one| one.ranks).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }

    /// The fastest algorithms by size: the first rule is from 0 on, and neighbours differ. Between
    /// two measured sizes the rule changes in the middle, by ratio.
    pub(super) fn rules(&self, operation: Collective, ranks: u32) -> Vec<Rule<'_>> {
        let here = |one: &&Timing| (one.operation, one.ranks) == (operation, ranks);
        let mut sizes: Vec<u64> = self.0.iter().filter(here).map(|one| one.bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let mut rules: Vec<Rule<'_>> = Vec::new();
        let mut before = 0;
        for bytes in sizes {
            let algorithm = self.fastest(operation, ranks, bytes);
            if rules.last().is_none_or(|last| last.algorithm != algorithm) {
                let middle = (before as f64 * bytes as f64).sqrt() as u64 + 1;
                let from = if rules.is_empty() { 0 } else { middle };
                rules.push(Rule { from, algorithm });
            }
            before = bytes;
        }
        rules
    }

    fn fastest(&self, operation: Collective, ranks: u32, bytes: u64) -> Option<&str> {
        let here =
            |one: &&Timing| (one.operation, one.ranks, one.bytes) == (operation, ranks, bytes);
        let best = self
            .0
            .iter()
            .filter(here)
            .min_by(|one, other| one.microseconds.total_cmp(&other.microseconds))?;
        let own = self.0.iter().filter(here).find(|one| one.algorithm == DEFAULT);
        let is_as_good = own.is_some_and(|own| own.microseconds <= SLACK * best.microseconds);
        Some(best.algorithm.as_str()).filter(|_| !is_as_good)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timings(times: &[(u64, &str, f64)]) -> Timings {
        let timing = |(bytes, algorithm, microseconds): &(u64, &str, f64)| Timing {
            operation: Collective::Bcast,
            ranks: 4,
            bytes: *bytes,
            algorithm: (*algorithm).to_owned(),
            microseconds: *microseconds,
        };
        Timings(times.iter().map(timing).collect())
    }

    #[test]
    fn the_fastest_algorithm_is_used_and_the_library_keeps_what_is_as_good() {
        let all = timings(&[
            (8, DEFAULT, 1.04),
            (8, "3", 1.0),
            (128, DEFAULT, 3.0),
            (128, "3", 1.0),
            (512, DEFAULT, 3.0),
            (512, "3", 2.0),
            (2048, "5", 2.0),
        ]);
        let rule = |from, algorithm| Rule { from, algorithm };
        let expected = [rule(0, None), rule(33, Some("3")), rule(1025, Some("5"))];
        assert_eq!(all.rules(Collective::Bcast, 4), expected);
        assert_eq!(all.rules(Collective::Bcast, 2), []);
        assert_eq!(Timings::read(&all.to_text()), Ok(all));
    }

    #[test]
    fn a_line_that_is_no_time_is_named() {
        for line in ["bcast,4,8,3", "cast,4,8,3,1.0", "bcast,4,8,3,-1", "bcast,4,8,3,NaN"] {
            assert_eq!(Timings::read(&format!("{HEADER}\n{line}\n")), Err(2), "{line}");
        }
    }
}
