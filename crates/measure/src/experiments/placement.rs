//! Placement of two ranks (Bokhari 1995, section 6: "the effects of placement"): each on a core of
//! its own, both on one core, not bound at all, and every mapping of two ranks to cores.

use super::curves::{drawn, point, ratios};
use super::entry::SuiteEntry;
use super::pairs::{ExchangeCase, batches, step};
use crate::harness::{Experiment, JobShape, Setting};
use crate::results::{Axis, Categories, Colour, Figure, Map, Part};
use crate::rows::{Pairs, Pattern, Row, Run};
use models::machine::{PairClass, Topology};
use std::collections::BTreeSet;

/// Number of cores up to which all pairs are measured.
const MOST_CORES: usize = 16;
/// The length that every mapping is measured with, and no other placement.
const LENGTH: u64 = 1024;

/// The experiment.
pub const ENTRY: SuiteEntry = SuiteEntry {
    name: "placement",
    title: "Where two ranks lie",
    about: "Round trips between two ranks, divided by the two messages of each, under the engine that \
            programs use unless they ask for another. Ranks that share a core take turns on it.",
    source: "Bokhari 1995, sections 6 and 8",
    steps,
    view,
};

fn steps(setting: &Setting) -> Experiment {
    let case = ExchangeCase::new(Pairs::Chain, Pattern::RoundTrip);
    let mut steps = Vec::new();
    for (pair, shape) in placements(setting) {
        let name = pair.map_or_else(|| shape.describe(), |class| class.to_string());
        let case = ExchangeCase { pair, ..case.clone() };
        steps.extend(case.sweep(setting, &shape, &name, 8_000));
    }
    let all = setting.cores.len();
    let cores = &setting.cores[..all.min(MOST_CORES)];
    let mappings = cores.iter().flat_map(|first| cores.iter().map(move |second| [*first, *second]));
    steps.extend(mappings.map(|mapping| {
        let what = format!("ranks on cores {} and {}", mapping[0], mapping[1]);
        step(what, &JobShape::on(2, &mapping), vec![case.sized(LENGTH)], batches(setting))
    }));
    let note = format!("Mappings to the first {} of {all} cores only.", cores.len());
    Experiment::new(ENTRY.name, setting, steps).noting((cores.len() < all).then_some(note))
}

/// The nearest and the farthest that two ranks can be, by the machine's classes of pairs, and not
/// bound at all.
fn placements(setting: &Setting) -> Vec<(Option<PairClass>, JobShape)> {
    if let Some(map) = &setting.map {
        return vec![(None, JobShape::on(2, map))];
    }
    let bound = Topology::here().pairs().into_iter().map(|(class, (one, other))| {
        (Some(class), JobShape::on(2, &[one as usize, other as usize]))
    });
    bound.chain([(None, JobShape::unbound(setting, 2))]).collect()
}

fn view(run: &Run, part: &mut Part) {
    let x = Axis::bytes("message length");
    let y = Axis::microseconds("time of a message").logarithmic();
    let figure = Figure::new("placement", "Message against placement", x, y);
    let (mapped, placed): (Vec<&Row>, Vec<&Row>) = run.rows().partition(|row| row.bytes == LENGTH);
    part.figures.push(drawn(figure, placed, |row| {
        let curve = match (row.pair, row.bound()) {
            (Some(class), _) => class.to_string(),
            (None, [one, other]) => format!("cores {one} and {other}"),
            (None, _) => "not bound".to_owned(),
        };
        Some((curve, point(row, row.bytes as f64, 0.5)))
    }));
    part.maps.extend(map(&mapped));
}

fn map(rows: &[&Row]) -> Option<Map> {
    let cores: BTreeSet<usize> = rows.iter().flat_map(|row| row.bound()).copied().collect();
    let place = |core: &usize| cores.iter().position(|known| known == core);
    let time = |row: &&Row| match row.bound() {
        [first, second] => Some((place(second)?, place(first)?, row.median() / 2.0)),
        _ => None,
    };
    let times: Vec<(usize, usize, f64)> = rows.iter().filter_map(time).collect();
    let names: Vec<String> = cores.iter().map(usize::to_string).collect();
    (!times.is_empty()).then(|| Map {
        name: "mappings".to_owned(),
        title: format!("Every mapping of two ranks to cores, {LENGTH} bytes"),
        caption: "Time of a message over that of the fastest mapping, medians.".to_owned(),
        columns: Categories { label: "core of rank 1".to_owned(), names: names.clone() },
        rows: Categories { label: "core of rank 0".to_owned(), names },
        colour: Colour::ByRatio,
        cells: ratios(&times, |time| format!("{time:.3} µs")),
    })
}
