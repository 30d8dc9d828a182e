//! The part before anything is measured, and the names in it.

use super::names::figure;
use crate::harness::{JobShape, Setting};
use crate::results::{Axis, Figure, Part, Table};
use collectives::Collective;
use tradewind::EngineKind;

pub(super) const ERRORS: &str = "errors";
pub(super) const SUMMARY: &str = "summary";
pub(super) const CONSTANTS: &str = "constants";
pub(super) const CONTENTION: &str = "contention";
pub(super) const GUIDELINES: &str = "guidelines";
pub(super) const ANOMALIES: &str = "anomalies";

const BY_PLOGP: &str = ", pLogP";
const BY_SHARING: &str = ", sharing";

/// The curve that the formulas predict for this one.
pub(super) fn by_plogp(curve: &str) -> String {
    format!("{curve}{BY_PLOGP}")
}

/// The curve that the model of sharing predicts for this one.
pub(super) fn by_sharing(curve: &str) -> String {
    format!("{curve}{BY_SHARING}")
}

/// Returns true if a curve was predicted by the model of sharing, and for which.
pub(super) fn is_by_sharing(curve: &str) -> bool {
    curve.ends_with(BY_SHARING)
}

pub(super) fn outline(setting: &Setting, ranks: &[u32], operations: &[Collective]) -> Part {
    let mut part = Part::new("models", "Predicted against measured");
    part.about =
        "Every algorithm of an operation takes turns with the others; a point is the time \
                  from a common start until the slowest rank is done, on the fastest of several \
                  visits. Dashed are predictions. Those named pLogP come from the formulas of \
                  tables 1 to 3 and the parameters in machine.json, with what a run costs besides \
                  its messages: each rank works for itself. Those named sharing come from a \
                  simulation of the engine: the rank that enables an operation executes it, for \
                  any rank, and ranks of one core take turns; its constants are fitted \
                  to the simplest algorithm of each operation, which the tables mark, and predict \
                  all others."
            .to_owned();
    part.source = "Barchet-Estefanel, Mounié 2004, sections 3 to 5".to_owned();
    for ranks in ranks {
        let shape = JobShape::on(*ranks, setting.map.as_deref().unwrap_or(&setting.cores));
        let engines: &[EngineKind] = if shape.is_crowded() {
            &[EngineKind::Peers]
        } else {
            &[EngineKind::Peers, EngineKind::Caller]
        };
        for engine in engines {
            for operation in operations {
                let name = figure(*operation, *ranks, *engine);
                let title = format!("{operation}, {}, {engine} engine", shape.describe());
                let (x, y) =
                    (Axis::bytes("bytes").logarithmic(), Axis::microseconds("time").logarithmic());
                part.figures.push(Figure::new(&name, &title, x, y));
            }
        }
        if shape.is_crowded() {
            part.notes
                .push(format!("More ranks than cores, which take turns: {}.", shape.describe()));
        }
    }
    let mut table = |name: &str, title: &str, caption: &str, columns: &[&str]| {
        let columns = columns.iter().map(|column| (*column).to_owned()).collect();
        let name = name.to_owned();
        let title = title.to_owned();
        let caption = caption.to_owned();
        part.tables.push(Table { name, title, caption, columns, rows: Vec::new() });
    };
    let about_errors = "Relative errors of predictions against medians, over all sizes.";
    let columns = [
        "operation",
        "algorithm",
        "ranks",
        "engine",
        "model",
        "median error",
        "worst error",
        "sizes",
        "fitted",
    ];
    table(ERRORS, "How far predictions are off", about_errors, &columns);
    let caption = "Over all algorithms of the paper's tables 1 and 2 (bcast and scatter) without \
                   joins, and over all others; algorithms that the constants were fitted to are \
                   left out of the model of sharing's errors.";
    let columns =
        ["algorithms", "ranks", "engine", "model", "median error", "worst error", "points"];
    table(SUMMARY, "How far predictions are off, in all", caption, &columns);
    let columns = ["ranks", "what", "size (bytes)", "cost (µs)"];
    table(
        CONSTANTS,
        "Constants of the model of sharing",
        "Fitted to the simplest algorithm of each operation.",
        &columns,
    );
    let caption = "The ratio is fitted to every other size of the direct exchange and tested on \
                   the sizes between. Bounds are those of table 3, where machine.json is there, \
                   and with the peers engine those of the model of sharing: all work spread over \
                   the cores, and all of it on one, by constants that are fitted without the \
                   all-to-all.";
    let columns = [
        "ranks",
        "engine",
        "bounds",
        "ratio",
        "quartiles",
        "sizes fitted",
        "sizes tested",
        "median error",
        "worst error",
    ];
    table(CONTENTION, "The contention ratio γ of the all-to-all", caption, &columns);
    let caption = "What should hold, where it does not by more than a tenth. Each side is the best \
                   algorithm measured.";
    let columns = ["guideline", "ranks", "bytes", "left (µs)", "right (µs)", "ratio"];
    table(GUIDELINES, "Guidelines that are broken", caption, &columns);
    let caption = "Sizes up to 4 KiB that take at least a fifth longer than the next larger one \
                   (2004, section 3.1).";
    let columns = [
        "operation",
        "algorithm",
        "ranks",
        "bytes",
        "time (µs)",
        "larger (bytes)",
        "time (µs) of the larger",
    ];
    table(ANOMALIES, "Anomalies of small messages", caption, &columns);
    part
}
