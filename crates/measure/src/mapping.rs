//! A mapping of ranks to cores: proposed from the traffic between each two ranks, and from the cost
//! of a message between each two cores. That this should not be left to chance is the central
//! finding of the 1995 report.

use crate::results::{Part, Value};

/// Upper bound of the passes over all exchanges; every pass improves the mapping.
const MOST_PASSES: usize = 100;

/// Bytes between each two ranks, both directions together.
#[derive(Clone, Debug, PartialEq)]
pub struct Traffic {
    ranks: usize,
    bytes: Vec<f64>,
}

/// Reason why a text is no traffic matrix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TrafficError {
    /// A word that is no number of bytes.
    #[error(
        "line {line}: {word:?} is no number of bytes: give a row of numbers for each rank, one \
         number for each rank"
    )]
    Word {
        /// From 1.
        line: usize,
        /// The word.
        word: String,
    },
    /// A row of another length than there are rows.
    #[error(
        "line {line} has {found} numbers, and there are {rows} rows: give as many numbers in each \
         row as there are rows"
    )]
    Row {
        /// From 1.
        line: usize,
        /// Its numbers.
        found: usize,
        /// Rows in all.
        rows: usize,
    },
    /// There is nothing.
    #[error("there are no rows: give one for each of at least two ranks")]
    Empty,
}

impl Traffic {
    /// No traffic yet among so many ranks.
    pub fn new(ranks: usize) -> Self {
        Traffic { ranks, bytes: vec![0.0; ranks * ranks] }
    }

    /// A row for each rank: the bytes that it sends to each, divided by commas, semicolons or
    /// blanks. Empty lines and those that begin with `#` are passed over.
    ///
    /// ```
    /// use measure::mapping::Traffic;
    /// let traffic = Traffic::parse("0, 100\n50, 0\n")?;
    /// assert_eq!(traffic.between(0, 1), 150.0);
    /// # Ok::<(), measure::mapping::TrafficError>(())
    /// ```
    ///
    /// # Errors
    /// [`TrafficError`], which names the line.
    pub fn parse(text: &str) -> Result<Self, TrafficError> {
        let mut rows: Vec<(usize, Vec<f64>)> = Vec::new();
        let lines = text
            .lines()
            .zip(1..)
            .filter(|(line, _)| !line.trim().is_empty() && !line.trim_start().starts_with('#'));
        for (text, line) in lines {
            let words =
                text.split(|letter: char| letter.is_whitespace() || letter == ',' || letter == ';');
            let number = |word: &str| match word.parse::<f64>() {
                Ok(number) if number >= 0.0 && number.is_finite() => Ok(number),
                _ => Err(TrafficError::Word { line, word: word.to_owned() }),
            };
            rows.push((
                line,
                words.filter(|word| !word.is_empty()).map(number).collect::<Result<_, _>>()?,
            ));
        }
        if rows.len() < 2 {
            return Err(TrafficError::Empty);
        }
        let mut traffic = Traffic::new(rows.len());
        for (rank, (line, row)) in rows.iter().enumerate() {
            if row.len() != rows.len() {
                return Err(TrafficError::Row { line: *line, found: row.len(), rows: rows.len() });
            }
            row.iter().enumerate().for_each(|(other, bytes)| traffic.add(rank, other, *bytes));
        }
        Ok(traffic)
    }

    /// Adds a message. Messages to the sender itself and of ranks that do not exist are ignored.
    pub fn add(&mut self, from: usize, to: usize, bytes: f64) {
        if from != to && from < self.ranks && to < self.ranks {
            self.bytes[from * self.ranks + to] += bytes;
            self.bytes[to * self.ranks + from] += bytes;
        }
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Bytes that two ranks exchange.
    pub fn between(&self, one: usize, other: usize) -> f64 {
        self.bytes[one * self.ranks + other]
    }
}

/// Costs of a message between each two cores, with the cores' numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Distances {
    cores: Vec<usize>,
    costs: Vec<f64>,
}

impl Distances {
    /// Between these cores, by the places of two of them.
    pub fn new(cores: &[usize], cost: impl Fn(usize, usize) -> f64) -> Self {
        let costs =
            (0..cores.len()).flat_map(|one| (0..cores.len()).map(move |other| (one, other)));
        Distances {
            costs: costs.map(|(one, other)| cost(one, other)).collect(),
            cores: cores.to_vec(),
        }
    }

    /// Returns the distances measured by the experiment on
    /// [placement](crate::experiments::placement); `None` if it has not measured every mapping.
    pub fn of(placement: &Part) -> Option<Self> {
        let map = placement.maps.first()?;
        let cores: Vec<usize> =
            map.rows.names.iter().map(|name| name.parse().ok()).collect::<Option<_>>()?;
        let cost = |one, other| {
            map.cells
                .iter()
                .find(|cell| (cell.row, cell.column) == (one, other))
                .and_then(|cell| cell.value)
        };
        let mut costs = Vec::new();
        for one in 0..cores.len() {
            for other in 0..cores.len() {
                // Both directions are on the way of a round trip.
                costs.push(f64::midpoint(cost(one, other)?, cost(other, one)?));
            }
        }
        Some(Distances { cores, costs })
    }

    fn cost(&self, one: usize, other: usize) -> f64 {
        self.costs[one * self.cores.len() + other]
    }
}

/// A mapping and what it is worth.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// The core of each rank.
    pub cores: Vec<usize>,
    /// The sum of all bytes, each times what a message costs between the cores of its ranks.
    pub cost: f64,
    /// The same for ranks on cores in turn.
    pub cost_in_turn: f64,
}

impl Proposal {
    /// Share of the cost that it saves, from 0 to 1.
    pub fn gain(&self) -> f64 {
        if self.cost_in_turn > 0.0 { 1.0 - self.cost / self.cost_in_turn } else { 0.0 }
    }

    /// The proposal as a row of a table.
    pub fn row(&self) -> Vec<Value> {
        let cores = self.cores.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        vec![cores.into(), self.cost.into(), self.cost_in_turn.into(), (self.gain() * 100.0).into()]
    }
}

/// Proposes a mapping. No core gets more ranks than it has to: ranks compute too.
///
/// Ranks are placed one after the other: next the one with the most traffic to the placed ones, on
/// the core where that costs least. Then two ranks change places, or one moves, as long as anything
/// gets better (the exchanges of Kernighan and Lin, "An Efficient Heuristic Procedure for
/// Partitioning Graphs", Bell System Technical Journal 49(2), 1970, one at a time). Starting from
/// ranks in turn as well, so that it is never worse than that.
pub fn propose(traffic: &Traffic, distances: &Distances) -> Proposal {
    let places = distances.cores.len().max(1);
    let in_turn: Vec<usize> = (0..traffic.ranks).map(|rank| rank % places).collect();
    let cost_in_turn = cost(traffic, distances, &in_turn);
    let candidates = [
        improved(traffic, distances, in_turn),
        improved(traffic, distances, greedy(traffic, distances)),
    ];
    let cost_of = |mapping: &Vec<usize>| cost(traffic, distances, mapping);
    let best = candidates
        .into_iter()
        .min_by(|one, other| cost_of(one).total_cmp(&cost_of(other)))
        .unwrap_or_default();
    let cores =
        best.iter().map(|place| distances.cores.get(*place).copied().unwrap_or(0)).collect();
    Proposal { cost: cost_of(&best), cores, cost_in_turn }
}

fn cost(traffic: &Traffic, distances: &Distances, places: &[usize]) -> f64 {
    (0..traffic.ranks).map(|rank| cost_of_rank(traffic, distances, places, rank)).sum::<f64>() / 2.0
}

fn cost_of_rank(traffic: &Traffic, distances: &Distances, places: &[usize], rank: usize) -> f64 {
    let others = (0..traffic.ranks).filter(|other| *other != rank);
    others
        .map(|other| traffic.between(rank, other) * distances.cost(places[rank], places[other]))
        .sum()
}

/// The most ranks that a core has to take.
fn most_on_a_core(traffic: &Traffic, distances: &Distances) -> usize {
    traffic.ranks.div_ceil(distances.cores.len().max(1))
}

fn greedy(traffic: &Traffic, distances: &Distances) -> Vec<usize> {
    let most = most_on_a_core(traffic, distances);
    let mut placed: Vec<(usize, usize)> = Vec::new();
    let mut taken = vec![0; distances.cores.len()];
    let mut left: Vec<usize> = (0..traffic.ranks).collect();
    while !left.is_empty() {
        let said = |rank: usize| {
            // The first one is that with the most traffic.
            let to_all: f64 = (0..traffic.ranks).map(|other| traffic.between(rank, other)).sum();
            let to_placed: f64 =
                placed.iter().map(|(other, _)| traffic.between(rank, *other)).sum();
            (to_placed, to_all)
        };
        let next = (0..left.len()).max_by(|one, other| {
            said(left[*one]).partial_cmp(&said(left[*other])).unwrap_or(std::cmp::Ordering::Equal)
        });
        let rank = left.swap_remove(next.unwrap_or(0));
        let cost = |place: usize| -> f64 {
            placed
                .iter()
                .map(|(other, at)| traffic.between(rank, *other) * distances.cost(place, *at))
                .sum()
        };
        let free = (0..taken.len()).filter(|place| taken[*place] < most);
        let place = free
            .min_by(|one, other| {
                cost(*one).total_cmp(&cost(*other)).then(taken[*one].cmp(&taken[*other]))
            })
            .unwrap_or(0);
        placed.push((rank, place));
        if let Some(taken) = taken.get_mut(place) {
            *taken += 1;
        }
    }
    let mut places = vec![0; traffic.ranks];
    placed.into_iter().for_each(|(rank, place)| places[rank] = place);
    places
}

/// Changes one thing after the other, as long as it gets better by more than rounding.
fn improved(traffic: &Traffic, distances: &Distances, mut places: Vec<usize>) -> Vec<usize> {
    let most = most_on_a_core(traffic, distances);
    for _ in 0..MOST_PASSES {
        let before = cost(traffic, distances, &places);
        for one in 0..traffic.ranks {
            for place in 0..distances.cores.len() {
                let fits = places.iter().filter(|taken| **taken == place).count() < most;
                let old = cost_of_rank(traffic, distances, &places, one);
                let from = std::mem::replace(&mut places[one], place);
                if !fits || cost_of_rank(traffic, distances, &places, one) >= old {
                    places[one] = from;
                }
            }
            for other in one + 1..traffic.ranks {
                let of_both = |places: &[usize]| {
                    cost_of_rank(traffic, distances, places, one)
                        + cost_of_rank(traffic, distances, places, other)
                };
                let old = of_both(&places);
                places.swap(one, other);
                if of_both(&places) >= old {
                    places.swap(one, other);
                }
            }
        }
        if cost(traffic, distances, &places) >= before * (1.0 - 1e-12) {
            break;
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Two sockets of two cores: 1 inside, 3 between; a core with itself costs nothing but is full
    /// with one rank.
    fn two_sockets() -> Distances {
        Distances::new(&[0, 1, 2, 3], |one, other| if one / 2 == other / 2 { 1.0 } else { 3.0 })
    }

    #[test]
    fn communicating_ranks_are_put_together() {
        // 0 talks to 2 and 1 to 3; in turn both would talk across: 100 × 3 + 100 × 3, together 100
        // × 1 + 100 × 1.
        let mut traffic = Traffic::new(4);
        traffic.add(0, 2, 100.0);
        traffic.add(1, 3, 100.0);
        let proposal = propose(&traffic, &two_sockets());
        assert_eq!((proposal.cost_in_turn, proposal.cost), (600.0, 200.0));
        assert!((proposal.gain() - 2.0 / 3.0).abs() < 1e-12);
        assert_eq!(proposal.cores[0] / 2, proposal.cores[2] / 2);
        assert_eq!(proposal.cores[1] / 2, proposal.cores[3] / 2);
    }

    #[test]
    fn silence_costs_nothing_and_gains_nothing() {
        let proposal = propose(&Traffic::new(3), &two_sockets());
        assert_eq!((proposal.cost, proposal.gain(), proposal.cores.len()), (0.0, 0.0, 3));
    }

    #[test]
    fn what_is_no_matrix_is_named_with_its_line() {
        let said = |text: &str| Traffic::parse(text).expect_err(text).to_string();
        assert!(said("# bytes\n0 1\n2 x\n").contains("line 3") && said("0 1\n2 -1").contains("-1"));
        assert!(said("0 1 2\n1 0\n").contains("line 1 has 3 numbers"));
        assert!(said("").contains("no rows") && said("0\n").contains("at least two"));
        assert!(said("0 NaN\n0 0").contains("NaN"));
    }

    /// All mappings with no more ranks a core than needed.
    fn best_of_all(traffic: &Traffic, distances: &Distances) -> f64 {
        let ranks = traffic.ranks;
        let cores = distances.cores.len();
        let all = (0..cores.pow(ranks as u32)).map(|code| {
            (0..ranks).map(|rank| code / cores.pow(rank as u32) % cores).collect::<Vec<_>>()
        });
        let balanced = |places: &Vec<usize>| {
            (0..cores).all(|core| {
                places.iter().filter(|at| **at == core).count()
                    <= most_on_a_core(traffic, distances)
            })
        };
        all.filter(balanced)
            .map(|places| cost(traffic, distances, &places))
            .fold(f64::INFINITY, f64::min)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 60, ..ProptestConfig::default() })]

        #[test]
        fn a_proposal_is_balanced_true_and_never_worse_than_in_turn(
            ranks in 2usize..6, cores in 1usize..4, bytes in prop::collection::vec(0.0f64..1e6, 36), costs in prop::collection::vec(0.1f64..10.0, 16),
        ) {
            let mut traffic = Traffic::new(ranks);
            for one in 0..ranks {
                for other in 0..ranks {
                    traffic.add(one, other, bytes[one * 6 + other]);
                }
            }
            let numbers: Vec<usize> = (0..cores).map(|core| 10 + core).collect();
            let distances = Distances::new(&numbers, |one, other| costs[one.min(other) * 4 + one.max(other)]);
            let proposal = propose(&traffic, &distances);
            let places: Vec<usize> = proposal.cores.iter().map(|core| core - 10).collect();
            prop_assert!((cost(&traffic, &distances, &places) - proposal.cost).abs() <= 1e-9 * proposal.cost.max(1.0));
            prop_assert!(proposal.cost <= proposal.cost_in_turn * (1.0 + 1e-12));
            for place in 0..cores {
                prop_assert!(places.iter().filter(|at| **at == place).count() <= ranks.div_ceil(cores));
            }
            let best = best_of_all(&traffic, &distances);
            prop_assert!(proposal.cost >= best * (1.0 - 1e-9));
        }
    }
}
