//! The chain (Bokhari 1995, section 7, figure 5): rank i exchanges with rank n - 1 - i, so that all
//! messages cross the middle.

use crate::harness::timer::Batches;
use crate::harness::{Error, Experiment, Finding, JobShape, Setting, Step, StepContext};
use crate::pairs::{Exchange, Pattern, Receive};
use crate::results::{Axis, Figure, Part, Point, Role, Table, Value};
use std::collections::BTreeSet;

const FIGURE: &str = "chain";
const TABLE: &str = "factors";
/// Two pairs, the fewest that can contend, need a core for each of their ranks.
const FEWEST_CORES: usize = 4;

/// The experiment. On fewer cores than two pairs need it has no steps, and a finding with the
/// reason.
pub fn experiment(setting: &Setting) -> Experiment {
    let batches = setting.choose(
        Batches { rounds: 3, microseconds: 200.0 },
        Batches { rounds: 21, microseconds: 5_000.0 },
    );
    let cores = setting.map.as_ref().unwrap_or(&setting.cores);
    let different = match &setting.nodes {
        Some(nodes) => nodes.all_cores() as usize,
        None => cores.iter().collect::<BTreeSet<_>>().len(),
    };
    if different < FEWEST_CORES {
        return Experiment::new(not_measured(different), []);
    }
    // As in the report up to 32 ranks, but no more than four a core.
    let most = match &setting.nodes {
        Some(nodes) => nodes.size().clamp(2, 32).ilog2(),
        None => (4 * setting.cores.len() as u32).clamp(2, 32).ilog2(),
    };
    let mut crowded = Vec::new();
    let mut steps = Vec::new();
    for ranks in (1..=setting.choose(2.min(most), most)).map(|power| 1 << power) {
        let shape = match setting.nodes {
            Some(_) => JobShape::bound(setting, ranks),
            None => JobShape::on(ranks, cores),
        };
        if shape.is_crowded() {
            crowded.push(shape.describe());
        }
        for bytes in setting.shuffled((0..=16_000).step_by(setting.choose(8_000, 1_000))) {
            let what = format!("chain of {ranks} ranks, {bytes} bytes");
            steps.push(Step::new(what, shape.clone(), batches.milliseconds() + 5, move |here| {
                measure(here, bytes, batches)
            }));
        }
    }
    Experiment::new(outline(&crowded), steps).concluding(conclude)
}

/// The part on so few cores: without a curve or a factor, which would show turns of the scheduler.
fn not_measured(cores: usize) -> Part {
    let mut part = outline(&[]);
    part.figures.clear();
    part.notes.push(format!(
        "The chain says nothing here: two pairs contend only where each of their {FEWEST_CORES} \
         ranks has a core, and there {} {cores}. Nothing was measured.",
        if cores == 1 { "is" } else { "are" }
    ));
    part
}

fn outline(crowded: &[String]) -> Part {
    let mut part = Part::new("contention", "Contention");
    part.about =
        "In a chain of n ranks, rank i exchanges messages with rank n - 1 - i, all at the \
                  same time, so that n / 2 pairs contend for what lies between the two halves: a \
                  link of the report's mesh, the caches and the memory of a node, the network of \
                  several nodes. Ranks of one node are bound to cores in turn; a point is the time \
                  of an exchange, for each batch that of the slowest rank."
            .to_owned();
    part.source = "Bokhari 1995, section 7 and figure 5".to_owned();
    let x = Axis::bytes("message length");
    let y = Axis::microseconds("time of an exchange");
    part.figures.push(Figure::new(FIGURE, "Exchange in a chain", x, y));
    part.tables.push(Table {
        name: TABLE.to_owned(),
        title: "Against one pair".to_owned(),
        caption: "Medians; the report's mesh loses a factor of almost 3 at a contention of 16."
            .to_owned(),
        columns: ["pairs", "bytes", "time (µs)", "over one pair"].map(str::to_owned).to_vec(),
        rows: Vec::new(),
    });
    if !crowded.is_empty() {
        part.notes.push(format!(
            "More ranks than cores, which take turns: {}. What is seen there is turns of the \
             scheduler more than contention.",
            crowded.join(", ")
        ));
    }
    part
}

fn measure(here: &StepContext<'_>, bytes: u64, batches: Batches) -> Result<Vec<Finding>, Error> {
    let world = here.world;
    let partner = world.size() - 1 - world.rank();
    let mut exchange =
        Exchange::link(world, Some(partner), bytes, Pattern::Exchange, Receive::Posted)?;
    let times = exchange.time(world, batches)?;
    let pairs = world.size() / 2;
    let name = format!("{pairs} {}", if pairs == 1 { "pair" } else { "pairs" });
    let crowded = if here.shape.is_crowded() { ", more ranks than cores" } else { "" };
    Ok(vec![Finding::measured(
        FIGURE,
        &format!("{name}{crowded}"),
        Point::of(bytes as f64, &times),
    )])
}

/// Compares the times of all pairs with that of one pair.
fn conclude(part: &mut Part) -> Result<(), Error> {
    let curves = part.figure(FIGURE).map(|figure| figure.series.clone()).unwrap_or_default();
    let alone = curves.first().map(|curve| curve.points.clone()).unwrap_or_default();
    let mut rows = Vec::new();
    for curve in curves.iter().filter(|curve| curve.role == Role::Measured) {
        let pairs = curve.name.split(' ').next().and_then(|pairs| pairs.parse::<f64>().ok());
        for end in [curve.points.first(), curve.points.last()].into_iter().flatten() {
            let one = alone.iter().find(|point| point.x == end.x);
            let ratio = one.map_or(Value::None, |one| Value::Number(end.median / one.median));
            rows.push(vec![
                pairs.map_or(Value::None, Value::Number),
                end.x.into(),
                end.median.into(),
                ratio,
            ]);
        }
    }
    part.replace_rows(TABLE, rows);
    Ok(())
}
