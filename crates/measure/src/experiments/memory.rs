//! Cost of copying memory, per byte (Bokhari 1995, section 4), against size and alignment.

use crate::harness::repetition::Repetition;
use crate::harness::{Error, Experiment, Finding, JobShape, Setting, Step, StepContext};
use crate::results::{Axis, Categories, Colour, Figure, Map, Part, Point, Square, Table};
use std::hint::black_box;

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
    let laps = setting.choose(
        Repetition { laps: 5, microseconds: 50.0 },
        Repetition { laps: 11, microseconds: 2_000.0 },
    );
    let short = setting.choose(
        Repetition { laps: 3, microseconds: 20.0 },
        Repetition { laps: 7, microseconds: 300.0 },
    );
    let sizes: Vec<usize> = (4..=setting.choose(16, 26))
        .step_by(setting.choose(3, 1))
        .map(|power| 1 << power)
        .collect();
    let alone = JobShape::bound(setting, 1);
    let mut steps = Vec::new();
    for bytes in sizes.clone() {
        // The longest copies take longer than a lap.
        let milliseconds = (laps.milliseconds() + (bytes >> 16) as u64) * ALIGNMENTS.len() as u64;
        steps.push(Step::new(format!("{bytes} bytes"), alone.clone(), milliseconds, move |here| {
            by_size(here, bytes, laps)
        }));
    }
    for offset in setting.shuffled((0..LINE).step_by(setting.choose(16, 1))) {
        let what = format!("offset {offset}");
        steps.push(Step::new(what, alone.clone(), 3 * short.milliseconds(), move |here| {
            by_offset(here, offset, short)
        }));
    }
    for source in setting.shuffled((0..LINE).step_by(STEP * setting.choose(4, 1))) {
        let targets = setting.choose(4, 1);
        let milliseconds = short.milliseconds() * (LINE / STEP) as u64 / targets as u64;
        steps.push(Step::new(
            format!("source offset {source}"),
            alone.clone(),
            milliseconds,
            move |here| row_of_map(here, source, targets, short),
        ));
    }
    let cores = setting.cores.len() as u32;
    if cores > 1 {
        let together = JobShape::bound(setting, cores);
        for bytes in sizes {
            let milliseconds = laps.milliseconds() + (bytes >> 15) as u64;
            steps.push(Step::new(
                format!("{bytes} bytes on every core"),
                together.clone(),
                milliseconds,
                move |here| {
                    let curve = format!("both aligned, on {cores} cores at once");
                    let times = copies(here, bytes, 0, 0, laps)?;
                    Ok(vec![Finding::measured(SIZES, &curve, Point::of(bytes as f64, &times))])
                },
            ));
        }
    }
    Experiment::new(outline(), steps).concluding(conclude)
}

fn outline() -> Part {
    let mut part = Part::new("memory", "Copying memory");
    part.about =
        "The same two pieces of memory are copied again and again, with the copy of the standard \
                  library (memcpy), after a first pass that touches every page. Offsets are bytes \
                  from a multiple of 64."
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
    part.maps.push(Map {
        name: MAP.to_owned(),
        title: format!("Copy of {SMALL} bytes against both alignments"),
        caption: "Time over that of the fastest alignment, medians.".to_owned(),
        columns: Categories { label: "offset of the target".to_owned(), names: names.clone() },
        rows: Categories { label: "offset of the source".to_owned(), names },
        colour: Colour::ByRatio,
        cells: Vec::new(),
    });
    part.tables.push(Table {
        name: TABLE.to_owned(),
        title: "Copy a byte".to_owned(),
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
    part
}

/// Nanoseconds a byte, for each lap.
fn copies(
    here: &StepContext<'_>,
    bytes: usize,
    source: usize,
    target: usize,
    laps: Repetition,
) -> Result<Vec<f64>, Error> {
    let from = vec![1_u8; bytes + 2 * LINE];
    let mut to = vec![0_u8; bytes + 2 * LINE];
    let from_at = from.as_ptr().align_offset(LINE) + source;
    let to_at = to.as_ptr().align_offset(LINE) + target;
    let from = &from[from_at..from_at + bytes];
    let to = &mut to[to_at..to_at + bytes];
    let times = laps.time(here.world, |times| {
        for _ in 0..times {
            black_box(&mut *to).copy_from_slice(black_box(from));
        }
        Ok(())
    })?;
    Ok(times.into_iter().map(|time| time * 1e3 / bytes as f64).collect())
}

fn by_size(here: &StepContext<'_>, bytes: usize, laps: Repetition) -> Result<Vec<Finding>, Error> {
    let curve = |(curve, source, target)| {
        let times = copies(here, bytes, source, target, laps)?;
        Ok(Finding::measured(SIZES, curve, Point::of(bytes as f64, &times)))
    };
    ALIGNMENTS.into_iter().map(curve).collect()
}

fn by_offset(
    here: &StepContext<'_>,
    offset: usize,
    laps: Repetition,
) -> Result<Vec<Finding>, Error> {
    let curve = |(curve, source, target)| {
        let times = copies(here, SMALL, source, target, laps)?;
        Ok(Finding::measured(OFFSETS, curve, Point::of(offset as f64, &times)))
    };
    [("source", offset, 0), ("target", 0, offset), ("both", offset, offset)]
        .into_iter()
        .map(curve)
        .collect()
}

/// Cells with their time a byte; the ratio is made of it when all are there.
fn row_of_map(
    here: &StepContext<'_>,
    source: usize,
    step: usize,
    laps: Repetition,
) -> Result<Vec<Finding>, Error> {
    let cell = |target: usize| {
        let time = models::statistics::median(&copies(here, SMALL, source, target, laps)?);
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

fn conclude(part: &mut Part) -> Result<(), Error> {
    if let Some(map) = part.maps.iter_mut().find(|map| map.name == MAP) {
        let time =
            |cell: &Square| cell.detail.split(' ').next().and_then(|word| word.parse::<f64>().ok());
        let fastest = map.cells.iter().filter_map(time).fold(f64::INFINITY, f64::min);
        for cell in &mut map.cells {
            cell.value = time(cell).map(|time| time / fastest).filter(|ratio| ratio.is_finite());
            cell.text = cell.value.map(|ratio| format!("{ratio:.2}")).unwrap_or_default();
        }
    }
    let curve = |name| {
        part.figure(SIZES).and_then(|figure| figure.curve(name)).map(|curve| curve.points.clone())
    };
    let points = ALIGNMENTS.map(|(name, ..)| curve(name).unwrap_or_default());
    let rows =
        points[0].iter().zip(&points[1]).zip(&points[2]).map(|((aligned, source), target)| {
            let bandwidth = 1e3 / aligned.median;
            [aligned.x, aligned.median, bandwidth, source.median, target.median]
                .map(Into::into)
                .to_vec()
        });
    let rows = rows.collect();
    part.replace_rows(TABLE, rows);
    Ok(())
}
