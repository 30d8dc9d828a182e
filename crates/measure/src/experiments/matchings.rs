//! Random matchings (Bokhari 1995, section 6, figure 4): every rank exchanges messages with one
//! other, chosen at random. If where tasks lie did not matter, all matchings would take the same
//! time.

use crate::harness::timer::Batches;
use crate::harness::{Error, Experiment, Finding, JobShape, Setting, Step, StepContext};
use crate::pairs::{Exchange, Pattern, Receive};
use crate::results::{Axis, Figure, Part, Point, Role, Series, Table, Value};
use models::statistics::median;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use std::collections::BTreeMap;

const SPREAD: &str = "spread";
const DISTRIBUTION: &str = "distribution";
const DISTANCE: &str = "distance";
const TABLE: &str = "matchings";
/// Two pairs: fewer ranks have one matching only.
const FEWEST_RANKS: u32 = 4;
const VARIATION: &str = "variation";
const VARIATION_COLUMNS: [&str; 7] = [
    "bytes",
    "fastest (µs)",
    "lower quartile (µs)",
    "median (µs)",
    "upper quartile (µs)",
    "slowest (µs)",
    "slowest / fastest",
];

/// The experiment.
pub fn experiment(setting: &Setting) -> Experiment {
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
        return Experiment::new(not_measured(&shape), []);
    }
    let sizes: Vec<u64> = (0..=16_384).step_by(setting.choose(8_192, 2_048)).collect();
    let mut random = StdRng::seed_from_u64(setting.seed);
    let outline = outline(&shape, &sizes);
    let steps = (0..setting.choose(8, 256)).map(|number| {
        let partners = matching(ranks, &mut random);
        let sizes = sizes.clone();
        let milliseconds = (batches.milliseconds() + 4) * sizes.len() as u64;
        let what = format!("matching {} of {ranks} ranks", number + 1);
        Step::new(what, shape.clone(), milliseconds, move |here| {
            measure(here, number, &partners, &sizes, batches)
        })
    });
    let steps: Vec<Step> = steps.collect();
    let kind = kind_of_place(&shape);
    Experiment::new(outline, steps).concluding(move |part| conclude(part, &sizes, kind))
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
fn matching(ranks: u32, random: &mut StdRng) -> Vec<u32> {
    let mut order: Vec<u32> = (0..ranks).collect();
    order.shuffle(random);
    let mut partners = vec![0; ranks as usize];
    for pair in order.chunks_exact(2) {
        partners[pair[0] as usize] = pair[1];
        partners[pair[1] as usize] = pair[0];
    }
    partners
}

/// The place of each rank: its node, or on one node its core.
fn places(shape: &JobShape) -> Vec<usize> {
    match &shape.nodes {
        Some(nodes) => (0..shape.ranks).map(|rank| nodes.node_of(rank)).collect(),
        None => shape.cores.clone(),
    }
}

fn kind_of_place(shape: &JobShape) -> &'static str {
    if shape.nodes.is_some() { "node" } else { "core" }
}

/// Pairs of ranks that share a place.
fn in_one_place(partners: &[u32], places: &[usize]) -> usize {
    let place = |rank: usize| places.get(rank);
    (0..partners.len())
        .filter(|rank| {
            *rank < partners[*rank] as usize && place(*rank) == place(partners[*rank] as usize)
        })
        .count()
}

/// The part for so few ranks that all matchings are one.
fn not_measured(shape: &JobShape) -> Part {
    let mut part = outline(shape, &[]);
    part.figures.clear();
    part.tables.clear();
    part.notes.push(format!(
        "Matchings say nothing here: {} ranks have one matching only, and the ping-pong measures \
         it. Nothing was measured; {FEWEST_RANKS} ranks are enough.",
        shape.ranks
    ));
    part
}

fn outline(shape: &JobShape, sizes: &[u64]) -> Part {
    let mut part = Part::new("matchings", "Random matchings");
    part.about =
        "Pairs of ranks are drawn at random until every rank has a partner, and all pairs \
                  exchange messages at the same time. A matching's time is the median over its \
                  batches, each being the slowest rank's. If where ranks lie did not matter, the \
                  times of all matchings would lie close together."
            .to_owned();
    part.source = "Bokhari 1995, section 6 and figure 4".to_owned();
    let y = || Axis::microseconds("time of an exchange");
    part.figures.push(Figure::new(
        SPREAD,
        "Exchange over random matchings",
        Axis::bytes("message length"),
        y(),
    ));
    let x = Axis {
        label: "share of the matchings".to_owned(),
        unit: "%".to_owned(),
        ..Axis::number("")
    };
    part.figures.push(Figure::new(DISTRIBUTION, "Distribution over the matchings", x, y()));
    let x = Axis::number(&format!("pairs that share a {}", kind_of_place(shape)));
    part.figures.push(Figure::new(DISTANCE, "Exchange against where partners lie", x, y()));
    part.tables.push(Table {
        name: VARIATION.to_owned(),
        title: "Variation over the matchings".to_owned(),
        caption: "The slowest matching over the fastest; the report finds 1.25 to more than 2."
            .to_owned(),
        columns: VARIATION_COLUMNS.map(str::to_owned).to_vec(),
        rows: Vec::new(),
    });
    let times = sizes.iter().map(|bytes| format!("{bytes} bytes (µs)"));
    part.tables.push(Table {
        name: TABLE.to_owned(),
        title: "Every matching".to_owned(),
        caption: String::new(),
        columns: ["matching".to_owned(), "partners".to_owned()]
            .into_iter()
            .chain([format!("pairs that share a {}", kind_of_place(shape))])
            .chain(times)
            .collect(),
        rows: Vec::new(),
    });
    part.notes.push(format!(
        "{}{}.",
        shape.describe(),
        if shape.is_crowded() { ": more ranks than cores, which take turns" } else { "" }
    ));
    part
}

fn measure(
    here: &StepContext<'_>,
    number: u32,
    partners: &[u32],
    sizes: &[u64],
    batches: Batches,
) -> Result<Vec<Finding>, Error> {
    let world = here.world;
    let partner = partners[world.rank() as usize];
    let mut times = Vec::new();
    for bytes in sizes {
        let mut exchange =
            Exchange::link(world, Some(partner), *bytes, Pattern::Exchange, Receive::Posted)?;
        times.push(Value::Number(median(&exchange.time(world, batches)?)));
    }
    let names = partners.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
    let head = [
        f64::from(number + 1).into(),
        names.into(),
        (in_one_place(partners, &places(here.shape)) as f64).into(),
    ];
    Ok(vec![Finding::row(TABLE, head.into_iter().chain(times))])
}

/// Fills the figures with the matchings' times.
fn conclude(part: &mut Part, sizes: &[u64], place: &str) -> Result<(), Error> {
    let rows: Vec<Vec<f64>> = part
        .table(TABLE)
        .map(|table| table.rows.iter().map(|row| numbers(row)).collect())
        .unwrap_or_default();
    if rows.is_empty() {
        return Ok(());
    }
    let mut by_distance: BTreeMap<u64, Vec<&Vec<f64>>> = BTreeMap::new();
    for row in &rows {
        by_distance.entry(row[2] as u64).or_default().push(row);
    }
    let curve = |name: String, points| Series { name, role: Role::Measured, points };
    let (mut spread, mut distribution, mut distance, mut variation) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let at = |rows: &[&Vec<f64>], column: usize| {
        rows.iter().map(|row| row[column]).collect::<Vec<f64>>()
    };
    let all: Vec<&Vec<f64>> = rows.iter().collect();
    let over_sizes = |rows: &[&Vec<f64>]| {
        sizes
            .iter()
            .enumerate()
            .map(|(index, bytes)| Point::of(*bytes as f64, &at(rows, 3 + index)))
            .collect()
    };
    spread.push(curve("all".to_owned(), over_sizes(&all)));
    for (pairs, rows) in &by_distance {
        spread.push(curve(format!("{pairs} pairs share a {place}"), over_sizes(rows)));
    }
    for (index, bytes) in sizes.iter().enumerate() {
        let mut times = at(&all, 3 + index);
        times.sort_by(f64::total_cmp);
        let point = Point::of(*bytes as f64, &times);
        let Point { minimum, lower_quartile, median, upper_quartile, maximum, .. } = point;
        let [least, lower, upper, most] =
            [minimum, lower_quartile, upper_quartile, maximum].map(|value| value.unwrap_or(median));
        let row = [*bytes as f64, least, lower, median, upper, most, most / least];
        variation.push(row.map(Value::Number).to_vec());
        // The shortest and the longest suffice.
        if index == 0 || index + 1 == sizes.len() {
            let share = |rank: usize| 100.0 * (rank + 1) as f64 / times.len() as f64;
            let points = times
                .iter()
                .enumerate()
                .map(|(rank, time)| Point::exact(share(rank), *time))
                .collect();
            distribution.push(curve(format!("{bytes} bytes"), points));
            let points = by_distance
                .iter()
                .map(|(pairs, rows)| Point::of(*pairs as f64, &at(rows, 3 + index)))
                .collect();
            distance.push(curve(format!("{bytes} bytes"), points));
        }
    }
    part.replace_series(SPREAD, Role::Measured, spread);
    part.replace_series(DISTRIBUTION, Role::Measured, distribution);
    part.replace_series(DISTANCE, Role::Measured, distance);
    part.replace_rows(VARIATION, variation);
    Ok(())
}

fn numbers(row: &[Value]) -> Vec<f64> {
    row.iter().map(|value| if let Value::Number(number) = value { *number } else { 0.0 }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_rank_has_a_partner_that_has_it(half in 1u32..32, seed in any::<u64>()) {
            let partners = matching(2 * half, &mut StdRng::seed_from_u64(seed));
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
    fn pairs_on_one_core_are_counted_once() {
        assert_eq!(in_one_place(&[2, 3, 0, 1], &[0, 1, 0, 1]), 2);
        assert_eq!(in_one_place(&[1, 0, 3, 2], &[0, 1, 0, 1]), 0);
    }

    #[test]
    fn a_seed_draws_the_same_matchings_again() {
        let setting = Setting { quick: true, ..Setting::default() };
        let names = |setting: &Setting| {
            let mut random = StdRng::seed_from_u64(setting.seed);
            (0..5).map(|_| matching(8, &mut random)).collect::<Vec<_>>()
        };
        assert_eq!(names(&setting), names(&setting));
        assert_ne!(names(&setting), names(&Setting { seed: 7, ..setting.clone() }));
    }
}
