//! Placement of two ranks (Bokhari 1995, section 6: "the effects of placement"): each on a core of
//! its own, both on one core, not bound at all, and every mapping of two ranks to cores.

use crate::harness::timer::Batches;
use crate::harness::{Error, Experiment, Finding, JobShape, Setting, Step, StepContext};
use crate::pairs::{Exchange, Pattern, Receive};
use crate::results::{Axis, Categories, Colour, Figure, Map, Part, Point, Square};
use models::statistics::median;

const FIGURE: &str = "placement";
const MAP: &str = "mappings";
/// Number of cores up to which all pairs are measured.
const MOST_CORES: usize = 16;
/// The length that every mapping is measured with.
const LENGTH: u64 = 1024;

/// The experiment.
pub fn experiment(setting: &Setting) -> Experiment {
    let batches = setting.choose(
        Batches { rounds: 3, microseconds: 200.0 },
        Batches { rounds: 21, microseconds: 5_000.0 },
    );
    let sizes: Vec<u64> = setting.shuffled((0..=16_000).step_by(setting.choose(8_000, 1_000)));
    let mut steps = Vec::new();
    for (name, shape) in placements(setting) {
        for bytes in sizes.clone() {
            let what = format!("{name}, {bytes} bytes");
            let name = name.clone();
            steps.push(Step::new(what, shape.clone(), batches.milliseconds() + 2, move |here| {
                let times = round_trips(here, bytes, batches)?;
                Ok(vec![Finding::measured(FIGURE, &name, Point::of(bytes as f64, &times))])
            }));
        }
    }
    let cores = &setting.cores[..setting.cores.len().min(MOST_CORES)];
    for (row, first) in cores.iter().enumerate() {
        for (column, second) in cores.iter().enumerate() {
            let what = format!("ranks on cores {first} and {second}");
            steps.push(Step::new(
                what,
                JobShape::on(2, &[*first, *second]),
                batches.milliseconds() + 2,
                move |here| {
                    let time = median(&round_trips(here, LENGTH, batches)?);
                    let cell = Square {
                        column,
                        row,
                        text: String::new(),
                        value: Some(time),
                        detail: format!("{time:.3} µs"),
                    };
                    Ok(vec![Finding::Cell { map: MAP.to_owned(), cell }])
                },
            ));
        }
    }
    Experiment::new(outline(cores, setting.cores.len()), steps).concluding(conclude)
}

/// The nearest and the farthest that two ranks can be, by the machine's classes of pairs, and not
/// bound at all.
fn placements(setting: &Setting) -> Vec<(String, JobShape)> {
    if let Some(map) = &setting.map {
        let shape = JobShape::on(2, map);
        let cores = shape.cores.iter().map(usize::to_string).collect::<Vec<_>>().join(" and ");
        return vec![(format!("cores {cores}"), shape)];
    }
    let pairs = models::machine::Topology::here().pairs();
    let bound = pairs.into_iter().map(|(class, (one, other))| {
        (class.to_string(), JobShape::on(2, &[one as usize, other as usize]))
    });
    bound.chain([("not bound".to_owned(), JobShape::unbound(setting, 2))]).collect()
}

fn outline(cores: &[usize], all: usize) -> Part {
    let mut part = Part::new("placement", "Where two ranks lie");
    part.about = "Round trips between two ranks, divided by the two messages of each, under the \
                  engine that programs use unless they ask for another. Ranks that share a core \
                  take turns on it."
        .to_owned();
    part.source = "Bokhari 1995, sections 6 and 8".to_owned();
    let (x, y) =
        (Axis::bytes("message length"), Axis::microseconds("time of a message").logarithmic());
    part.figures.push(Figure::new(FIGURE, "Message against placement", x, y));
    let names: Vec<String> = cores.iter().map(usize::to_string).collect();
    part.maps.push(Map {
        name: MAP.to_owned(),
        title: format!("Every mapping of two ranks to cores, {LENGTH} bytes"),
        caption: "Time of a message over that of the fastest mapping, medians.".to_owned(),
        columns: Categories { label: "core of rank 1".to_owned(), names: names.clone() },
        rows: Categories { label: "core of rank 0".to_owned(), names },
        colour: Colour::ByRatio,
        cells: Vec::new(),
    });
    if cores.len() < all {
        part.notes.push(format!("Mappings to the first {} of {all} cores only.", cores.len()));
    }
    part
}

fn round_trips(here: &StepContext<'_>, bytes: u64, batches: Batches) -> Result<Vec<f64>, Error> {
    let world = here.world;
    let partner = Some(1 - world.rank());
    let mut exchange = Exchange::link(world, partner, bytes, Pattern::RoundTrip, Receive::Posted)?;
    Ok(exchange.time(world, batches)?.into_iter().map(|time| time / 2.0).collect())
}

/// Times become ratios; the detail keeps the time.
fn conclude(part: &mut Part) -> Result<(), Error> {
    let Some(map) = part.maps.iter_mut().find(|map| map.name == MAP) else { return Ok(()) };
    let time =
        |cell: &Square| cell.detail.split(' ').next().and_then(|word| word.parse::<f64>().ok());
    let fastest = map.cells.iter().filter_map(time).fold(f64::INFINITY, f64::min);
    for cell in &mut map.cells {
        cell.value = time(cell).map(|time| time / fastest).filter(|ratio| ratio.is_finite());
        cell.text = cell.value.map(|ratio| format!("{ratio:.2}")).unwrap_or_default();
    }
    Ok(())
}
