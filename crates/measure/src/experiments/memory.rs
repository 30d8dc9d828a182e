//! Cost of copying memory, per byte (Bokhari 1995, section 4), against size and alignment.

use crate::harness::timer::{Batches, calls};
use crate::harness::{
    Error, Experiment, Finding, JobShape, Nodes, Setting, Step, StepContext, agreement,
};
use crate::results::{Axis, Categories, Colour, Figure, Map, Part, Point, Square, Table, Value};
use std::hint::black_box;
use tradewind::Communicator;

const SIZES: &str = "size";
const OFFSETS: &str = "offset";
const MAP: &str = "alignment";
const TABLE: &str = "copy";
/// A cache line: offsets are counted from multiples of it.
const LINE: usize = 64;
/// Bytes copied to show the effect of alignment: within the nearest cache.
const SMALL: usize = 4096;
/// Both offsets of the map go by this.
const STEP: usize = 4;
/// Offsets of source and target in the sizes' curves.
const ALIGNMENTS: [(&str, usize, usize); 3] =
    [("both aligned", 0, 0), ("source off by 1", 1, 0), ("target off by 1", 0, 1)];

/// The experiment.
pub fn experiment(setting: &Setting) -> Experiment {
    let batches = setting.choose(
        Batches { rounds: 5, microseconds: 50.0 },
        Batches { rounds: 11, microseconds: 2_000.0 },
    );
    let short = setting.choose(
        Batches { rounds: 3, microseconds: 20.0 },
        Batches { rounds: 7, microseconds: 300.0 },
    );
    let sizes: Vec<usize> = (4..=setting.choose(16, 26))
        .step_by(setting.choose(3, 1))
        .map(|power| 1 << power)
        .collect();
    // A rank of each node: one of each machine is needed.
    let nodes = setting.nodes.as_ref().map(|nodes| nodes.ranks.len() as u32);
    let alone = JobShape::bound(setting, nodes.unwrap_or(1));
    let machines = Names::of(setting.nodes.as_ref());
    let mut steps = Vec::new();
    for bytes in sizes.clone() {
        // The longest copies take longer than a batch.
        let milliseconds =
            (batches.milliseconds() + (bytes >> 16) as u64) * ALIGNMENTS.len() as u64;
        steps.push(Step::new(format!("{bytes} bytes"), alone.clone(), milliseconds, move |here| {
            on_each_machine(here, |world| by_size(world, bytes, batches))
        }));
    }
    for offset in setting.shuffled((0..LINE).step_by(setting.choose(16, 1))) {
        let what = format!("offset {offset}");
        steps.push(Step::new(what, alone.clone(), 3 * short.milliseconds(), move |here| {
            on_each_machine(here, |world| by_offset(world, offset, short))
        }));
    }
    for source in setting.shuffled((0..LINE).step_by(STEP * setting.choose(4, 1))) {
        let targets = setting.choose(4, 1);
        let milliseconds = short.milliseconds() * (LINE / STEP) as u64 / targets as u64;
        steps.push(Step::new(
            format!("source offset {source}"),
            alone.clone(),
            milliseconds,
            move |here| on_each_machine(here, |world| row_of_map(world, source, targets, short)),
        ));
    }
    let cores = setting.cores.len() as u32;
    if cores > 1 && setting.nodes.is_none() {
        let together = JobShape::bound(setting, cores);
        for bytes in sizes {
            let milliseconds = batches.milliseconds() + (bytes >> 15) as u64;
            steps.push(Step::new(
                format!("{bytes} bytes on every core"),
                together.clone(),
                milliseconds,
                move |here| {
                    let curve = format!("both aligned, on {cores} cores at once");
                    let times = copies(here.world, bytes, 0, 0, batches)?;
                    Ok(vec![Finding::measured(SIZES, &curve, Point::of(bytes as f64, &times))])
                },
            ));
        }
    }
    let outline = outline(&machines);
    Experiment::new(outline, steps).concluding(move |part| conclude(part, &machines))
}

/// Endings of the names of a machine's curves, and of its maps and tables.
struct Names {
    curve: String,
    name: String,
}

impl Names {
    /// Of each machine of these nodes; empty where there is one.
    fn of(nodes: Option<&Nodes>) -> Vec<Self> {
        match nodes.map_or(1, |nodes| nodes.cores.len()) {
            ..=1 => vec![Names { curve: String::new(), name: String::new() }],
            machines => (1..=machines).map(Names::of_machine).collect(),
        }
    }

    fn of_machine(number: usize) -> Self {
        Names { curve: format!(", machine {number}"), name: format!("-machine-{number}") }
    }

    /// The same finding under the machine's names.
    fn rename(&self, finding: Finding) -> Finding {
        match finding {
            Finding::Point { figure, series, role, point } => {
                Finding::Point { figure, series: series + &self.curve, role, point }
            }
            Finding::Cell { map, cell } => Finding::Cell { map: map + &self.name, cell },
            other => other,
        }
    }
}

/// Measures on one node, or on a rank of each machine in turn while the others sleep.
fn on_each_machine(
    here: &StepContext<'_>,
    measure: impl Fn(&Communicator) -> Result<Vec<Finding>, Error>,
) -> Result<Vec<Finding>, Error> {
    let world = here.world;
    let Some(nodes) = &here.shape.nodes else { return measure(world) };
    let alone = world.split(Some(world.rank()), 0)?;
    let mut all = Vec::new();
    let firsts = (0..nodes.size()).filter(|rank| nodes.is_first_of_machine(*rank));
    for (first, names) in firsts.zip(Names::of(Some(nodes))) {
        let own = alone.as_ref().filter(|_| world.rank() == first).map(&measure).transpose()?;
        world.ibarrier()?.wait()?;
        let found: Vec<Finding> = agreement::of_rank(world, first, own.as_ref())?;
        all.extend(found.into_iter().map(|finding| names.rename(finding)));
    }
    Ok(all)
}

fn outline(machines: &[Names]) -> Part {
    let mut part = Part::new("memory", "Copying memory");
    part.about =
        "The same two pieces of memory are copied again and again, with the copy of the standard \
                  library (memcpy), after a first pass that touches every page. Offsets are bytes \
                  from a multiple of 64. Of the nodes of a job, each machine is measured once."
            .to_owned();
    part.source = "Bokhari 1995, section 4 and table 1".to_owned();
    let y = || Axis { label: "time a byte".to_owned(), unit: "ns".to_owned(), ..Axis::number("") };
    part.figures.push(Figure::new(
        SIZES,
        "Copy against size",
        Axis::bytes("size").logarithmic(),
        y().logarithmic(),
    ));
    let title = format!("Copy of {SMALL} bytes against alignment");
    part.figures.push(Figure::new(OFFSETS, &title, Axis::bytes("offset"), y()));
    let names: Vec<String> = (0..LINE).step_by(STEP).map(|offset| offset.to_string()).collect();
    for machine in machines {
        part.maps.push(Map {
            name: format!("{MAP}{}", machine.name),
            title: format!("Copy of {SMALL} bytes against both alignments{}", machine.curve),
            caption: "Time over that of the fastest alignment, medians.".to_owned(),
            columns: Categories { label: "offset of the target".to_owned(), names: names.clone() },
            rows: Categories { label: "offset of the source".to_owned(), names: names.clone() },
            colour: Colour::ByRatio,
            cells: Vec::new(),
        });
        part.tables.push(Table {
            name: format!("{TABLE}{}", machine.name),
            title: format!("Copy a byte{}", machine.curve),
            caption: "Medians of aligned copies; a megabyte is 10⁶ bytes.".to_owned(),
            columns: [
                "size (bytes)",
                "time a byte (ns)",
                "bandwidth (MB/s)",
                "source off by 1",
                "target off by 1",
            ]
            .map(str::to_owned)
            .to_vec(),
            rows: Vec::new(),
        });
    }
    part
}

/// Nanoseconds a byte, for each batch.
fn copies(
    world: &Communicator,
    bytes: usize,
    source: usize,
    target: usize,
    batches: Batches,
) -> Result<Vec<f64>, Error> {
    let from = vec![1_u8; bytes + 2 * LINE];
    let mut to = vec![0_u8; bytes + 2 * LINE];
    let from_at = from.as_ptr().align_offset(LINE) + source;
    let to_at = to.as_ptr().align_offset(LINE) + target;
    let from = &from[from_at..from_at + bytes];
    let to = &mut to[to_at..to_at + bytes];
    let mut copy = calls(|| {
        black_box(&mut *to).copy_from_slice(black_box(from));
        Ok(())
    });
    let times = batches.time(world, &mut copy)?;
    Ok(times.into_iter().map(|time| time * 1e3 / bytes as f64).collect())
}

fn by_size(world: &Communicator, bytes: usize, batches: Batches) -> Result<Vec<Finding>, Error> {
    let curve = |(curve, source, target)| {
        let times = copies(world, bytes, source, target, batches)?;
        Ok(Finding::measured(SIZES, curve, Point::of(bytes as f64, &times)))
    };
    ALIGNMENTS.into_iter().map(curve).collect()
}

fn by_offset(world: &Communicator, offset: usize, batches: Batches) -> Result<Vec<Finding>, Error> {
    let curve = |(curve, source, target)| {
        let times = copies(world, SMALL, source, target, batches)?;
        Ok(Finding::measured(OFFSETS, curve, Point::of(offset as f64, &times)))
    };
    [("source", offset, 0), ("target", 0, offset), ("both", offset, offset)]
        .into_iter()
        .map(curve)
        .collect()
}

/// Cells with their time a byte; the ratio is made of it when all are there.
fn row_of_map(
    world: &Communicator,
    source: usize,
    step: usize,
    batches: Batches,
) -> Result<Vec<Finding>, Error> {
    let cell = |target: usize| {
        let time = models::statistics::median(&copies(world, SMALL, source, target, batches)?);
        let row = source / STEP;
        let column = target / STEP;
        let cell = Square {
            column,
            row,
            text: String::new(),
            value: None,
            detail: format!("{time:.5} ns a byte"),
        };
        Ok(Finding::Cell { map: MAP.to_owned(), cell })
    };
    (0..LINE).step_by(STEP * step).map(cell).collect()
}

fn conclude(part: &mut Part, machines: &[Names]) -> Result<(), Error> {
    for machine in machines {
        ratios(part, &format!("{MAP}{}", machine.name));
        let table = format!("{TABLE}{}", machine.name);
        part.replace_rows(&table, rows(part, &machine.curve));
    }
    Ok(())
}

/// Fills a map's cells with their ratios to the fastest alignment.
fn ratios(part: &mut Part, map: &str) {
    let Some(map) = part.maps.iter_mut().find(|known| known.name == map) else { return };
    let time =
        |cell: &Square| cell.detail.split(' ').next().and_then(|word| word.parse::<f64>().ok());
    let fastest = map.cells.iter().filter_map(time).fold(f64::INFINITY, f64::min);
    for cell in &mut map.cells {
        cell.value = time(cell).map(|time| time / fastest).filter(|ratio| ratio.is_finite());
        cell.text = cell.value.map(|ratio| format!("{ratio:.2}")).unwrap_or_default();
    }
}

/// The table of the curves with this ending.
fn rows(part: &Part, ending: &str) -> Vec<Vec<Value>> {
    let curve = |name: &str| {
        let name = format!("{name}{ending}");
        let curve = part.figure(SIZES).and_then(|figure| figure.curve(&name));
        curve.map(|curve| curve.points.clone()).unwrap_or_default()
    };
    let points = ALIGNMENTS.map(|(name, ..)| curve(name));
    let all = points[0].iter().zip(&points[1]).zip(&points[2]);
    let row = |((aligned, source), target): ((&Point, &Point), &Point)| {
        let bandwidth = 1e3 / aligned.median;
        [aligned.x, aligned.median, bandwidth, source.median, target.median]
            .map(Into::into)
            .to_vec()
    };
    all.map(row).collect()
}
