//! Cost of copying memory, per byte (Bokhari 1995, section 4), against size and alignment.

use super::curves::{drawn, point, ratios};
use super::entry::SuiteEntry;
use crate::harness::timer::{Batches, calls};
use crate::harness::{Error, Experiment, JobShape, Setting, Step, StepContext, agreement};
use crate::results::{Axis, Categories, Colour, Figure, Map, Part, Table, values};
use crate::rows::{Quantity, Row, Run, What};
use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;

/// A cache line: offsets are counted from multiples of it.
const LINE: u32 = 64;
/// Bytes copied to show the effect of alignment: within the nearest cache.
const SMALL: u64 = 4096;
/// Both offsets of the map go by this.
const STEP: u32 = 4;
/// Alignments that share a step.
const ALIGNMENTS_AT_ONCE: usize = 16;
/// Offsets of source and target in the sizes' curves.
const ALIGNMENTS: [(&str, u32, u32); 3] =
    [("both aligned", 0, 0), ("source off by 1", 1, 0), ("target off by 1", 0, 1)];
/// The offset of a curve, if the offsets of source and target have a place in it.
type OffsetOf = fn(u32, u32) -> Option<u32>;
/// Curves against an offset.
const OFFSETS: [(&str, OffsetOf); 3] = [
    ("source", |source, target| (target == 0).then_some(source)),
    ("target", |source, target| (source == 0).then_some(target)),
    ("both", |source, target| (source == target).then_some(source)),
];

/// A copy of so many bytes, with the offsets of its source and its target.
type CopyCase = (u64, u32, u32);

/// The experiment.
pub const ENTRY: SuiteEntry = SuiteEntry {
    name: "memory",
    title: "Copying memory",
    about: "The same two pieces of memory are copied again and again, with the copy of the standard \
            library (memcpy), after a first pass that touches every page. Offsets are bytes from a \
            multiple of 64. Of the nodes of a job, each machine is measured once.",
    source: "Bokhari 1995, section 4 and table 1",
    steps,
    view,
};

fn steps(setting: &Setting) -> Experiment {
    let batches = setting.choose(
        Batches { rounds: 5, microseconds: 50.0 },
        Batches { rounds: 11, microseconds: 2_000.0 },
    );
    let short = setting.choose(
        Batches { rounds: 3, microseconds: 20.0 },
        Batches { rounds: 7, microseconds: 300.0 },
    );
    let sizes: Vec<u64> = (4..=setting.choose(16, 26))
        .step_by(setting.choose(3, 1))
        .map(|power| 1 << power)
        .collect();
    // A rank of each node: one of each machine is needed.
    let nodes = setting.nodes.as_ref().map(|nodes| nodes.ranks.len() as u32);
    let alone = JobShape::bound(setting, nodes.unwrap_or(1));
    let mut steps = Vec::new();
    for bytes in sizes.iter().copied() {
        // The longest copies take longer than a batch.
        let milliseconds = batches.milliseconds() + (bytes >> 16);
        let cases = ALIGNMENTS.map(|(_, source, target)| (bytes, source, target)).to_vec();
        steps.push(step(format!("{bytes} bytes"), &alone, milliseconds, cases, batches));
    }
    let is_timed = |case: &CopyCase| {
        sizes.contains(&case.0) && ALIGNMENTS.iter().any(|(_, s, t)| (*s, *t) == (case.1, case.2))
    };
    let cases = setting.shuffled(alignments(setting).into_iter().filter(|case| !is_timed(case)));
    for (number, cases) in cases.chunks(ALIGNMENTS_AT_ONCE).enumerate() {
        let what = format!("alignments from {}", number * ALIGNMENTS_AT_ONCE + 1);
        steps.push(step(what, &alone, short.milliseconds(), cases.to_vec(), short));
    }
    let cores = setting.cores.len() as u32;
    if cores > 1 && setting.nodes.is_none() {
        let together = JobShape::bound(setting, cores);
        for bytes in sizes {
            let milliseconds = batches.milliseconds() + (bytes >> 15);
            let what = format!("{bytes} bytes on every core");
            steps.push(step(what, &together, milliseconds, vec![(bytes, 0, 0)], batches));
        }
    }
    Experiment::new(ENTRY.name, setting, steps)
}

/// Alignments of the curves against an offset, and of the map, each once.
fn alignments(setting: &Setting) -> BTreeSet<CopyCase> {
    let offsets = (0..LINE).step_by(setting.choose(16, 1));
    let curves = offsets.flat_map(|offset| [(offset, 0), (0, offset), (offset, offset)]);
    let step = (STEP * setting.choose(4, 1)) as usize;
    let squares = (0..LINE).step_by(step);
    let map =
        squares.clone().flat_map(|source| squares.clone().map(move |target| (source, target)));
    curves.chain(map).map(|(source, target)| (SMALL, source, target)).collect()
}

/// A step that times these copies, each in about so many milliseconds.
fn step(
    what: String,
    shape: &JobShape,
    milliseconds: u64,
    cases: Vec<CopyCase>,
    batches: Batches,
) -> Step {
    Step::new(what, shape.clone(), milliseconds * cases.len() as u64, move |here| {
        let row = |here: &StepContext<'_>, case: &CopyCase| copied(here, *case, batches);
        on_each_machine(here, |here| cases.iter().map(|case| row(here, case)).collect())
    })
}

/// Measures on one node, or on a rank of each machine in turn while the others sleep.
fn on_each_machine(
    here: &StepContext<'_>,
    measure: impl Fn(&StepContext<'_>) -> Result<Vec<Row>, Error>,
) -> Result<Vec<Row>, Error> {
    let world = here.world;
    let Some(nodes) = &here.shape.nodes else { return measure(here) };
    let alone = world.split(Some(world.rank()), 0)?;
    let mut all = Vec::new();
    for first in (0..nodes.size()).filter(|rank| nodes.is_first_of_machine(*rank)) {
        let own = match &alone {
            Some(world) if here.world.rank() == first => {
                Some(measure(&StepContext { world, ..*here })?)
            }
            _ => None,
        };
        world.ibarrier()?.wait()?;
        let rows: Vec<Row> = agreement::of_rank(world, first, own.as_ref())?;
        let node_of_rank = vec![nodes.node_of(first) as u32];
        all.extend(rows.into_iter().map(|row| Row { node_of_rank: node_of_rank.clone(), ..row }));
    }
    Ok(all)
}

fn copied(
    here: &StepContext<'_>,
    (bytes, source, target): CopyCase,
    batches: Batches,
) -> Result<Row, Error> {
    let room = (bytes + 2 * u64::from(LINE)) as usize;
    let from = vec![1_u8; room];
    let mut to = vec![0_u8; room];
    let from_at = from.as_ptr().align_offset(LINE as usize) + source as usize;
    let to_at = to.as_ptr().align_offset(LINE as usize) + target as usize;
    let from = &from[from_at..from_at + bytes as usize];
    let to = &mut to[to_at..to_at + bytes as usize];
    let mut copy = calls(|| {
        black_box(&mut *to).copy_from_slice(black_box(from));
        Ok(())
    });
    let times = batches.time(here.world, &mut copy)?;
    Ok(here.row(What::Copy { source, target }, Quantity::Alone, times).sized(bytes))
}

fn view(run: &Run, part: &mut Part) {
    let machines = machines(run);
    let axis = Axis { unit: "ns".to_owned(), ..Axis::number("time a byte") };
    let x = Axis::bytes("size").logarithmic();
    let mut by_size = Figure::new("size", "Copy against size", x, axis.clone().logarithmic());
    let title = format!("Copy of {SMALL} bytes against alignment");
    let mut by_offset = Figure::new("offset", &title, Axis::bytes("offset"), axis);
    for (machine, rows) in &machines {
        by_size = drawn(by_size, rows.iter().copied(), |row| {
            let ranks = match row.ranks {
                1 => String::new(),
                ranks => format!(", on {ranks} cores at once"),
            };
            let curve = format!("{}{ranks}{machine}", ALIGNMENTS[alignment(row)?].0);
            Some((curve, point(row, row.bytes as f64, of_a_byte(row))))
        });
        for (curve, offset) in OFFSETS {
            by_offset = drawn(by_offset, small(rows), |row| {
                let (source, target) = offsets(row)?;
                let offset = f64::from(offset(source, target)?);
                Some((format!("{curve}{machine}"), point(row, offset, of_a_byte(row))))
            });
        }
    }
    part.figures = vec![by_size, by_offset];
    part.maps = machines.iter().filter_map(|(machine, rows)| map(machine, rows)).collect();
    part.tables = machines.iter().map(|(machine, rows)| table(machine, rows)).collect();
}

/// Rows of each machine, with the end of the names of its curves: empty where there is one.
fn machines(run: &Run) -> Vec<(String, Vec<&Row>)> {
    let mut by_node: BTreeMap<Option<&u32>, Vec<&Row>> = BTreeMap::new();
    run.rows().for_each(|row| by_node.entry(row.node_of_rank.first()).or_default().push(row));
    let several = by_node.len() > 1;
    let named = |(number, rows): (u32, Vec<_>)| {
        (if several { format!(", machine {number}") } else { String::new() }, rows)
    };
    (1..).zip(by_node.into_values()).map(named).collect()
}

/// The offsets of a copy.
fn offsets(row: &Row) -> Option<(u32, u32)> {
    match row.what {
        What::Copy { source, target } => Some((source, target)),
        _ => None,
    }
}

/// Index of a copy's alignment among those of the sizes' curves.
fn alignment(row: &Row) -> Option<usize> {
    ALIGNMENTS.iter().position(|(_, source, target)| offsets(row) == Some((*source, *target)))
}

/// Copies by one rank that show the effect of alignment.
fn small<'r>(rows: &[&'r Row]) -> impl Iterator<Item = &'r Row> {
    rows.iter().copied().filter(|row| (row.ranks, row.bytes) == (1, SMALL))
}

/// Nanoseconds that a byte takes, for each microsecond of a copy.
fn of_a_byte(row: &Row) -> f64 {
    1e3 / row.bytes.max(1) as f64
}

fn map(machine: &str, rows: &[&Row]) -> Option<Map> {
    let square = |row: &Row| {
        let (source, target) = offsets(row)?;
        let is_shown = source.is_multiple_of(STEP) && target.is_multiple_of(STEP);
        let place = |offset: u32| (offset / STEP) as usize;
        is_shown.then(|| (place(target), place(source), row.median() * of_a_byte(row)))
    };
    let times: Vec<_> = small(rows).filter_map(square).collect();
    let names: Vec<String> =
        (0..LINE).step_by(STEP as usize).map(|offset| offset.to_string()).collect();
    (!times.is_empty()).then(|| Map {
        name: named("alignment", machine),
        title: format!("Copy of {SMALL} bytes against both alignments{machine}"),
        caption: "Time over that of the fastest alignment, medians.".to_owned(),
        columns: Categories { label: "offset of the target".to_owned(), names: names.clone() },
        rows: Categories { label: "offset of the source".to_owned(), names },
        colour: Colour::ByRatio,
        cells: ratios(&times, |time| format!("{time:.5} ns a byte")),
    })
}

/// The name of a machine's map or table.
fn named(name: &str, machine: &str) -> String {
    format!("{name}{}", machine.replace(", ", "-").replace(' ', "-"))
}

/// Nanoseconds a byte of each size, in each alignment of the curves; of several machines those of
/// the first.
pub(super) fn copies(run: &Run) -> BTreeMap<u64, [Option<f64>; ALIGNMENTS.len()]> {
    machines(run).first().map_or_else(BTreeMap::new, |(_, rows)| by_alignment(rows))
}

fn by_alignment(rows: &[&Row]) -> BTreeMap<u64, [Option<f64>; ALIGNMENTS.len()]> {
    let mut sizes: BTreeMap<u64, [Option<f64>; ALIGNMENTS.len()]> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.ranks == 1) {
        if let Some(at) = alignment(row) {
            sizes.entry(row.bytes).or_default()[at] = Some(row.median() * of_a_byte(row));
        }
    }
    sizes
}

fn table(machine: &str, rows: &[&Row]) -> Table {
    let row = |(bytes, [aligned, source, target]): (u64, [Option<f64>; 3])| {
        let bandwidth = aligned.filter(|time| *time > 0.0).map(|time| 1e3 / time);
        values![bytes, aligned, bandwidth, source, target]
    };
    Table::new(
        [&named("copy", machine), &format!("Copy a byte{machine}")],
        "size (bytes) | time a byte (ns) | bandwidth (MB/s) | source off by 1 | target off by 1",
        "Medians of aligned copies; a megabyte is 10⁶ bytes.",
        by_alignment(rows).into_iter().map(row).collect(),
    )
}
