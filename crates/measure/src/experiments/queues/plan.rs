//! The requested mechanisms, sizes and threads.

use super::mechanism::MOST_BYTES;
use crate::harness::Error;
use crate::harness::options::{list_of, number_of, text_of};
use crate::harness::timer::Batches;
use crate::rows::Mechanism;
use std::collections::BTreeMap;

/// The most threads that send through one queue.
const MOST_THREADS: u32 = 64;
/// The fewest rounds, so that a tenth below and a tenth above mean something.
const LEAST_ROUNDS: u32 = 7;
/// The most rounds.
const MOST_ROUNDS: u32 = 10_000;
/// The longest time for a row, in milliseconds.
const MOST_ROW_MS: u64 = 600_000;

/// Usual sizes above 48 bytes.
const LARGER_SIZES: [u64; 9] = [64, 128, 256, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20];

/// The rows to be measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The mechanisms.
    pub mechanisms: Vec<Mechanism>,
    /// Numbers of sending threads. Mechanisms that one thread at a time uses are measured with 1
    /// only.
    pub threads: Vec<u32>,
    /// Sizes in bytes. A mechanism is measured with those that it carries; a mechanism
    /// of one size always with that one.
    pub sizes: Vec<u64>,
    /// Rounds of each row.
    pub rounds: u32,
    /// About how long each row takes, in milliseconds.
    pub row_ms: u64,
}

impl Default for Plan {
    /// Everything, with one thread and with two: from 0 B to 48 B by 8, then some sizes to 1 MiB. It
    /// takes about a minute.
    fn default() -> Self {
        Plan {
            mechanisms: Mechanism::ALL.to_vec(),
            threads: vec![1, 2],
            sizes: (0..=48).step_by(8).chain(LARGER_SIZES).collect(),
            rounds: LEAST_ROUNDS,
            row_ms: 150,
        }
    }
}

/// One mechanism with one size and number of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Case {
    /// The mechanism.
    pub(super) mechanism: Mechanism,
    /// Sending threads.
    pub(super) threads: u32,
    /// Size of a message.
    pub(super) bytes: u64,
    /// Only round trips are timed, and no floor: it takes a core for each rank.
    pub(super) is_of_trips: bool,
}

impl Plan {
    /// The plan of the suite: fewer sizes than by default, and each more quickly.
    pub(super) fn of_suite(quick: bool) -> Self {
        let mut sizes = vec![0, 8, 48];
        sizes.extend((7..=20).step_by(if quick { 13 } else { 1 }).map(|power| 1 << power));
        let threads = if quick { vec![1] } else { vec![1, 2] };
        let row_ms = if quick { 7 } else { 150 };
        Plan { mechanisms: Mechanism::ALL.to_vec(), threads, sizes, rounds: LEAST_ROUNDS, row_ms }
    }

    /// The plan in words, for [`Setting::options`](crate::harness::Setting::options).
    pub fn options(&self) -> BTreeMap<String, String> {
        let words = [
            ("threads", text_of(&self.threads)),
            ("mechanisms", text_of(&self.mechanisms)),
            ("sizes", text_of(&self.sizes)),
            ("rounds", self.rounds.to_string()),
            ("row-ms", self.row_ms.to_string()),
        ];
        words.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// The plan of these words; none if they are not those of a plan.
    pub(super) fn of_options(options: &BTreeMap<String, String>) -> Option<Self> {
        Some(Plan {
            mechanisms: list_of(options, "mechanisms")?,
            threads: list_of(options, "threads")?,
            sizes: list_of(options, "sizes")?,
            rounds: number_of(options, "rounds")?,
            row_ms: number_of(options, "row-ms")?,
        })
    }

    /// Returns true if it can be measured.
    ///
    /// ```
    /// use measure::experiments::queues::Plan;
    /// assert!(Plan::default().check().is_ok());
    /// assert!(Plan { rounds: 1, ..Plan::default() }.check().is_err());
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`], [`Error::Nothing`].
    pub fn check(&self) -> Result<(), Error> {
        let refuse = |what, found: String, expected| Err(Error::Argument { what, found, expected });
        if let Some(threads) =
            self.threads.iter().find(|threads| !(1..=MOST_THREADS).contains(threads))
        {
            return refuse("the number of threads", threads.to_string(), "from 1 to 64");
        }
        if let Some(bytes) = self.sizes.iter().find(|bytes| **bytes > MOST_BYTES) {
            return refuse(
                "the size of a message",
                format!("{bytes} bytes"),
                "up to 67108864 (64 MiB)",
            );
        }
        if !(LEAST_ROUNDS..=MOST_ROUNDS).contains(&self.rounds) {
            return refuse("the number of rounds", self.rounds.to_string(), "from 7 to 10000");
        }
        if !(1..=MOST_ROW_MS).contains(&self.row_ms) {
            return refuse(
                "the time for a row",
                format!("{} ms", self.row_ms),
                "from 1 to 600000 ms",
            );
        }
        if self.cases().is_empty() {
            Err(Error::Nothing { why: self.why_nothing() })
        } else {
            Ok(())
        }
    }

    /// The obstacle of each mechanism if none can be measured.
    fn why_nothing(&self) -> String {
        if self.mechanisms.is_empty() || self.threads.is_empty() {
            return "give a mechanism and a number of threads".to_owned();
        }
        let sizes = self.sizes.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
        let why = |mechanism: &Mechanism| match self.sizes_of(*mechanism).is_empty() {
            true => {
                let (least, most) = mechanism.sizes().into_inner();
                format!("{mechanism} takes {least} to {most} bytes, not {sizes}")
            }
            false => format!("{mechanism} is measured with 1 thread only"),
        };
        self.mechanisms.iter().map(why).collect::<Vec<_>>().join("; ")
    }

    /// The cases, in their order.
    pub(super) fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for &threads in &self.threads {
            for &mechanism in self.mechanisms.iter().filter(|one| threads == 1 || one.is_shared()) {
                let sizes = self.sizes_of(mechanism).into_iter();
                cases.extend(sizes.map(|bytes| Case {
                    mechanism,
                    threads,
                    bytes,
                    is_of_trips: false,
                }));
            }
        }
        cases
    }

    /// Rounds of a case.
    pub(super) fn extent(&self) -> Batches {
        let microseconds = self.row_ms as f64 * 1e3 / f64::from(self.rounds);
        Batches { rounds: self.rounds, microseconds }
    }

    fn sizes_of(&self, mechanism: Mechanism) -> Vec<u64> {
        match mechanism.only_bytes() {
            Some(bytes) => vec![bytes],
            None => self.sizes.iter().copied().filter(|bytes| mechanism.carries(*bytes)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_done_is_named() {
        let usual = Plan::default;
        for (plan, hint) in [
            (Plan { threads: vec![1, 0], ..usual() }, "threads is 0"),
            (Plan { sizes: vec![8, MOST_BYTES + 1], ..usual() }, "67108865 bytes"),
            (Plan { rounds: 6, ..usual() }, "rounds is 6"),
            (Plan { row_ms: 0, ..usual() }, "0 ms"),
            (
                Plan { threads: vec![2], mechanisms: vec![Mechanism::Channel], ..usual() },
                "channel is measured with 1 thread",
            ),
            (
                Plan { sizes: vec![4096], mechanisms: vec![Mechanism::Express], ..usual() },
                "0 to 128 bytes, not 4096",
            ),
            (
                Plan { sizes: vec![8], mechanisms: vec![Mechanism::BulkDirect], ..usual() },
                "bulk-direct takes 1024 to",
            ),
            (Plan { mechanisms: Vec::new(), ..usual() }, "give a mechanism"),
        ] {
            let error = plan.check().expect_err(hint).to_string();
            assert!(error.contains(hint), "{error}");
        }
    }

    #[test]
    fn a_plan_is_found_again_in_its_words() {
        for plan in [Plan::default(), Plan::of_suite(true), Plan::of_suite(false)] {
            assert!(plan.check().is_ok());
            assert_eq!(Plan::of_options(&plan.options()), Some(plan));
        }
        assert_eq!(Plan::of_options(&BTreeMap::new()), None);
    }

    /// They are to take about a minute.
    #[test]
    fn everything_is_few_rows() {
        assert_eq!(Plan::default().cases().len(), 242);
    }

    #[test]
    fn a_mechanism_of_one_size_has_one_row() {
        let plan = Plan {
            mechanisms: vec![Mechanism::Write, Mechanism::Wide],
            sizes: vec![0, 48, 1 << 20],
            ..Plan::default()
        };
        let rows: Vec<_> = plan
            .cases()
            .into_iter()
            .map(|case| (case.mechanism, case.threads, case.bytes))
            .collect();
        let wide = |threads, bytes| (Mechanism::Wide, threads, bytes);
        assert_eq!(
            rows,
            [(Mechanism::Write, 1, 8), wide(1, 0), wide(1, 48), wide(2, 0), wide(2, 48)]
        );
    }
}
