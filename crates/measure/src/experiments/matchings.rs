//! Random matchings (Bokhari 1995, section 6, figure 4): every rank exchanges messages with one
//! other, chosen at random. If where tasks lie did not matter, all matchings would take the same
//! time.

use super::entry::SuiteEntry;
use super::pairs::{ExchangeCase, step};
use crate::harness::timer::Batches;
use crate::harness::{Experiment, JobShape, Setting};
use crate::results::{Axis, Figure, Part, Point, Role, Table, Value, values};
use crate::rows::{Exchange, Pairs, Pattern, Row, Run, What};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use std::collections::{BTreeMap, BTreeSet};

/// Two pairs: fewer ranks have one matching only.
const FEWEST_RANKS: u32 = 4;

/// The experiment.
pub const ENTRY: SuiteEntry = SuiteEntry {
    name: "matchings",
    title: "Random matchings",
    about: "Pairs of ranks are drawn at random until every rank has a partner, and all pairs exchange \
            messages at the same time. A matching's time is the median over its batches, each being the \
            slowest rank's. If where ranks lie did not matter, the times of all matchings would lie \
            close together.",
    source: "Bokhari 1995, section 6 and figure 4",
    steps,
    view,
};

/// Of so few ranks that all matchings are one it only says so.
fn steps(setting: &Setting) -> Experiment {
    let batches = setting.choose(
        Batches { rounds: 3, microseconds: 100.0 },
        Batches { rounds: 9, microseconds: 1_000.0 },
    );
    let shape = match (&setting.nodes, &setting.map) {
        (Some(nodes), _) => JobShape::bound(setting, nodes.size().min(64) & !1),
        (None, Some(map)) => JobShape::on(ranks(setting.cores.len()), map),
        (None, None) => JobShape::on(ranks(setting.cores.len()), &setting.cores),
    };
    let ranks = shape.ranks;
    if ranks < FEWEST_RANKS {
        let why = format!(
            "Matchings say nothing here: {ranks} ranks have one matching only, and the ping-pong \
             measures it. Nothing was measured; {FEWEST_RANKS} ranks are enough."
        );
        return Experiment::not_here(ENTRY.name, setting, &why);
    }
    let sizes: Vec<u64> = (0..=16_384).step_by(setting.choose(8_192, 2_048)).collect();
    let mut random = SmallRng::seed_from_u64(setting.seed);
    let steps = (0..setting.choose(8, 256)).map(|number| {
        let pairs = Pairs::Matching(matching(ranks, &mut random));
        let case = ExchangeCase::new(pairs, Pattern::Exchange);
        let what = format!("matching {} of {ranks} ranks", number + 1);
        step(what, &shape, sizes.iter().map(|bytes| case.sized(*bytes)).collect(), batches)
    });
    Experiment::new(ENTRY.name, setting, steps).noting_crowds()
}

/// A rank for each core, up to 64 as in the report; where there are few cores, several a core, so
/// that there is something to match.
fn ranks(cores: usize) -> u32 {
    match cores as u32 {
        few if few < 4 => 8,
        many => many.min(64) & !1,
    }
}

/// The partner of each rank; all matchings are equally likely.
fn matching(ranks: u32, random: &mut SmallRng) -> Vec<u32> {
    let mut order: Vec<u32> = (0..ranks).collect();
    order.shuffle(random);
    let mut partners = vec![0; ranks as usize];
    for pair in order.chunks_exact(2) {
        partners[pair[0] as usize] = pair[1];
        partners[pair[1] as usize] = pair[0];
    }
    partners
}

/// Shows nothing where nothing was measured.
fn view(run: &Run, part: &mut Part) {
    let all = Timed::all(run);
    let Some(first) = run.rows().next() else { return };
    let place = if first.nodes > 1 { "node" } else { "core" };
    let sizes: Vec<u64> = by(&all, |one| Some(one.bytes)).into_keys().collect();
    // The shortest and the longest messages suffice to show how matchings differ.
    let ends: BTreeSet<u64> =
        [sizes.first(), sizes.last()].into_iter().flatten().copied().collect();
    part.figures =
        vec![spread(&all, place), distribution(&all, &ends), distance(&all, &ends, place)];
    part.tables = vec![variations(run), every_matching(&all, &sizes, place, first)];
}

/// Time of a matching with messages of one length.
struct Timed<'r> {
    /// Number of the matching, from 1.
    number: u64,
    partners: &'r [u32],
    /// Number of pairs that share a node, or on one node a core.
    together: usize,
    bytes: u64,
    /// The median.
    time: f64,
}

impl<'r> Timed<'r> {
    fn all(run: &'r Run) -> Vec<Self> {
        let timed = |(number, row): (u64, &'r Row)| match &row.what {
            What::Exchange(Exchange { pairs: Pairs::Matching(partners), .. }) => Some(Timed {
                number: number + 1,
                partners,
                together: together(partners, row),
                bytes: row.bytes,
                time: row.median(),
            }),
            _ => None,
        };
        let steps = run.found.iter();
        let rows = steps.flat_map(|(number, step)| step.rows.iter().map(|row| (*number, row)));
        rows.filter_map(timed).collect()
    }
}

/// Pairs of ranks in one place: a node, or on one node a core.
fn together(partners: &[u32], row: &Row) -> usize {
    let place = |rank: usize| match row.node_of_rank.get(rank) {
        Some(node) => Some(*node as usize),
        None => row.bound().get(rank).copied(),
    };
    let pairs = partners.iter().map(|partner| *partner as usize).enumerate();
    pairs.filter(|(rank, partner)| rank < partner && place(*rank) == place(*partner)).count()
}

/// Times in groups, those without a key in none.
fn by<K: Ord>(all: &[Timed<'_>], key: impl Fn(&Timed<'_>) -> Option<K>) -> BTreeMap<K, Vec<f64>> {
    let mut groups: BTreeMap<K, Vec<f64>> = BTreeMap::new();
    for one in all {
        if let Some(key) = key(one) {
            groups.entry(key).or_default().push(one.time);
        }
    }
    groups
}

fn spread(all: &[Timed<'_>], place: &str) -> Figure {
    let title = "Exchange over random matchings";
    let mut figure = Figure::by_length("spread", title, "time of an exchange");
    for (bytes, times) in by(all, |one| Some(one.bytes)) {
        figure.add("all", Role::Measured, Point::of(bytes as f64, &times));
    }
    for ((pairs, bytes), times) in by(all, |one| Some((one.together, one.bytes))) {
        let curve = format!("{pairs} pairs share a {place}");
        figure.add(&curve, Role::Measured, Point::of(bytes as f64, &times));
    }
    figure
}

fn distribution(all: &[Timed<'_>], ends: &BTreeSet<u64>) -> Figure {
    let x = Axis { unit: "%".to_owned(), ..Axis::number("share of the matchings") };
    let y = Axis::microseconds("time of an exchange");
    let mut figure = Figure::new("distribution", "Distribution over the matchings", x, y);
    for (bytes, mut times) in by(all, |one| ends.get(&one.bytes)) {
        times.sort_by(f64::total_cmp);
        for (rank, time) in times.iter().enumerate() {
            let share = 100.0 * (rank + 1) as f64 / times.len() as f64;
            figure.add(&format!("{bytes} bytes"), Role::Measured, Point::exact(share, *time));
        }
    }
    figure
}

fn distance(all: &[Timed<'_>], ends: &BTreeSet<u64>, place: &str) -> Figure {
    let x = Axis::number(&format!("pairs that share a {place}"));
    let y = Axis::microseconds("time of an exchange");
    let mut figure = Figure::new("distance", "Exchange against where partners lie", x, y);
    for ((bytes, pairs), times) in by(all, |one| Some((ends.get(&one.bytes)?, one.together))) {
        let point = Point::of(pairs as f64, &times);
        figure.add(&format!("{bytes} bytes"), Role::Measured, point);
    }
    figure
}

/// Times of each length over the matchings, the shortest length first.
pub(super) fn variation(run: &Run) -> Vec<Point> {
    let lengths = by(&Timed::all(run), |one| Some(one.bytes));
    lengths.into_iter().map(|(bytes, times)| Point::of(bytes as f64, &times)).collect()
}

/// Time of the slowest matching over that of the fastest.
pub(super) fn slowest_over_fastest(length: &Point) -> Option<f64> {
    Some(length.maximum? / length.minimum?).filter(|ratio| ratio.is_finite())
}

fn variations(run: &Run) -> Table {
    let row = |one: &Point| {
        let ratio = slowest_over_fastest(one);
        let Point { x, minimum, lower_quartile, median, upper_quartile, maximum, .. } = *one;
        values![x, minimum, lower_quartile, median, upper_quartile, maximum, ratio]
    };
    Table::new(
        ["variation", "Variation over the matchings"],
        "bytes | fastest (µs) | lower quartile (µs) | median (µs) | upper quartile (µs) | slowest (µs) | \
         slowest / fastest",
        "The slowest matching over the fastest; the report finds 1.25 to more than 2.",
        variation(run).iter().map(row).collect(),
    )
}

fn every_matching(all: &[Timed<'_>], sizes: &[u64], place: &str, first: &Row) -> Table {
    let row = |matching: &[Timed<'_>]| {
        let Timed { number, partners, together, .. } = matching[0];
        let names = partners.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
        let times = sizes.iter().map(|bytes| {
            Value::from(matching.iter().find(|one| one.bytes == *bytes).map(|one| one.time))
        });
        values![number, names, together].into_iter().chain(times).collect()
    };
    let cores = first.cores.as_ref().map(|cores| format!(" on {} cores", cores.number()));
    let caption = format!("Among {} ranks{}.", first.ranks, cores.unwrap_or_default());
    let mut columns = format!("matching | partners | pairs that share a {place}");
    columns.extend(sizes.iter().map(|bytes| format!(" | {bytes} bytes (µs)")));
    let matchings = all.chunk_by(|one, next| one.number == next.number);
    Table::new(["matchings", "Every matching"], &columns, &caption, matchings.map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_rank_has_a_partner_that_has_it(half in 1u32..32, seed in any::<u64>()) {
            let partners = matching(2 * half, &mut SmallRng::seed_from_u64(seed));
            for (rank, partner) in partners.iter().enumerate() {
                prop_assert_ne!(rank, *partner as usize);
                prop_assert_eq!(partners[*partner as usize] as usize, rank);
            }
        }
    }

    #[test]
    fn ranks_are_even_and_enough_to_be_matched() {
        assert_eq!([1, 2, 3, 4, 5, 64, 100].map(ranks), [8, 8, 8, 4, 4, 64, 64]);
    }

    #[test]
    fn pairs_in_one_place_are_counted_once() {
        let row = |partners: &[u32]| {
            let exchange = Exchange::posted(Pairs::Matching(partners.to_vec()), Pattern::Exchange);
            Row::trial(What::Exchange(exchange), 4, 0, &[1.0])
        };
        let on_cores = |partners: &[u32]| {
            let cores = Some(crate::rows::Cores::Bound(vec![0, 1, 0, 1]));
            together(partners, &Row { cores, ..row(partners) })
        };
        assert_eq!([on_cores(&[2, 3, 0, 1]), on_cores(&[1, 0, 3, 2])], [2, 0]);
        let on_nodes = |partners: &[u32]| {
            let node_of_rank = vec![0, 0, 1, 1];
            together(partners, &Row { node_of_rank, ..row(partners) })
        };
        assert_eq!([on_nodes(&[2, 3, 0, 1]), on_nodes(&[1, 0, 3, 2])], [0, 2]);
    }

    #[test]
    fn a_seed_draws_the_same_matchings_again() {
        let setting = Setting { quick: true, ..Setting::default() };
        let names = |setting: &Setting| {
            let mut random = SmallRng::seed_from_u64(setting.seed);
            (0..5).map(|_| matching(8, &mut random)).collect::<Vec<_>>()
        };
        assert_eq!(names(&setting), names(&setting));
        assert_ne!(names(&setting), names(&Setting { seed: 7, ..setting.clone() }));
    }
}
