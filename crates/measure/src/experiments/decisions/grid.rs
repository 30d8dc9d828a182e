//! Ranks and sizes at which algorithms are compared, and the names that follow from them.

use crate::experiments::algorithms::CollectiveCall;
use crate::harness::timer::Budget;
use crate::harness::{Error, Finding, JobShape, Setting, Step, StepContext};
use crate::results::{Axis, Categories, Colour, Figure, Map, Point, Role};
use crate::rows::Row;
use collectives::{Choice, Collective};
use std::num::NonZeroU64;
use tradewind::{CallForm, EngineKind};

/// The file of the table in a directory of results.
pub const FILE: &str = "decision-table.json";
pub use crate::experiments::plogp::RANKS;
/// The option with the extent of the measurement.
pub const EFFORT: &str = "measure";
/// Value of [`EFFORT`]: nothing.
pub const MODELS_ONLY: &str = "models-only";
/// Value of [`EFFORT`]: every algorithm.
pub const MEASURE_ALL: &str = "measure-all";
/// The option with the end of the time for candidates, in milliseconds since the epoch.
pub const UNTIL: &str = "until";
/// Names of maps.
pub(super) const BY_MODELS: &str = "models";
pub(super) const BY_CLOCK: &str = "clock";
/// Sizes of a group of steps: all operations, forms and ranks come before the next group.
const GROUP: usize = 3;
/// Sizes of timed candidates, most used first.
pub(super) const SIZES: [u64; 14] = [
    8,
    1 << 10,
    64 << 10,
    64,
    4 << 10,
    1 << 20,
    512,
    16 << 10,
    256 << 10,
    1,
    2 << 10,
    8 << 10,
    32 << 10,
    128 << 10,
];

/// No collective takes more memory than this.
const MOST_MEMORY: u64 = 1 << 28;

const QUICK_OPERATIONS: [Collective; 3] =
    [Collective::Barrier, Collective::Bcast, Collective::Allreduce];

/// Ranks and sizes at which plans are compared.
pub(super) struct Grid {
    pub(super) operations: Vec<Collective>,
    pub(super) forms: Vec<CallForm>,
    pub(super) ranks: Vec<u32>,
    pub(super) bytes: Vec<u64>,
    budget: Budget,
}

impl Grid {
    /// These sizes in full, the first few of them for a look.
    pub(super) fn of(setting: &Setting, sizes: &[u64]) -> Self {
        let asked = setting
            .options
            .get(RANKS)
            .map(|list| list.split(',').filter_map(|one| one.parse().ok()).collect());
        let usual = || if setting.quick { vec![2] } else { vec![2, 4, 8] };
        Grid {
            operations: if setting.quick {
                QUICK_OPERATIONS.to_vec()
            } else {
                Collective::ALL.to_vec()
            },
            forms: CallForm::ALL.to_vec(),
            ranks: asked.filter(|ranks: &Vec<u32>| !ranks.is_empty()).unwrap_or_else(usual),
            bytes: if setting.quick { sizes[..3].to_vec() } else { sizes.to_vec() },
            budget: if setting.quick {
                Budget::QUICK
            } else {
                Budget { milliseconds: 30.0, most_rounds: 101 }
            },
        }
    }

    /// Every collective: blocking ones first, and most used sizes first.
    fn collectives(&self) -> Vec<CollectiveCall> {
        let mut all = Vec::new();
        for form in self.forms.iter().copied() {
            for (group, sizes) in self.bytes.chunks(GROUP).enumerate() {
                for ranks in self.ranks.iter().copied() {
                    for operation in self.operations.iter().copied() {
                        let sizes = match operation {
                            Collective::Barrier if group > 0 => &[],
                            Collective::Barrier => &[0][..],
                            _ => sizes,
                        };
                        let with = |bytes: &u64| CollectiveCall {
                            operation,
                            form,
                            ranks,
                            bytes: *bytes,
                            root: 0,
                        };
                        all.extend(sizes.iter().map(with));
                    }
                }
            }
        }
        all.retain(|collective| collective.memory() <= MOST_MEMORY);
        all
    }

    /// A step for each collective.
    pub(super) fn steps(
        &self,
        setting: &Setting,
        measure: impl Fn(
            &StepContext<'_>,
            &CollectiveCall,
            Budget,
            (usize, usize),
        ) -> Result<Vec<Finding>, Error>
        + Copy
        + Send
        + Sync
        + 'static,
    ) -> Vec<Step> {
        let step = |collective: CollectiveCall| {
            let shape = JobShape::bound(setting, collective.ranks).with_engine(EngineKind::Peers);
            let budget = self.budget;
            let place = self.place(&collective);
            let milliseconds = 2 * budget.milliseconds as u64;
            Step::new(collective.to_string(), shape, milliseconds, move |here| {
                measure(here, &collective, budget, place)
            })
        };
        self.collectives().into_iter().map(step).collect()
    }

    /// The column and the row of a collective in the map of its number of ranks.
    pub(super) fn place(&self, collective: &CollectiveCall) -> (usize, usize) {
        let column =
            self.columns().iter().position(|bytes| *bytes == collective.bytes).unwrap_or(0);
        let row = self
            .operations
            .iter()
            .position(|operation| *operation == collective.operation)
            .unwrap_or(0);
        (column, row)
    }

    /// The sizes, ascending.
    fn columns(&self) -> Vec<u64> {
        let mut columns = self.bytes.clone();
        columns.sort_unstable();
        columns
    }

    /// A figure for each operation, form and number of ranks.
    pub(super) fn figures(&self, setting: &Setting) -> Vec<Figure> {
        let mut figures = Vec::new();
        for ranks in &self.ranks {
            for operation in &self.operations {
                for form in &self.forms {
                    let shape = JobShape::bound(setting, *ranks);
                    let title = format!("{form} {operation}, {}", shape.describe());
                    figures.push(empty_figure(&figure(*operation, *form, *ranks), &title));
                }
            }
        }
        figures
    }

    /// A map for each number of ranks.
    pub(super) fn maps(
        &self,
        setting: &Setting,
        by: &str,
        title: &str,
        caption: &str,
        colour: Colour,
    ) -> Vec<Map> {
        let names =
            |all: Vec<String>, label: &str| Categories { label: label.to_owned(), names: all };
        let map = |ranks: &u32| Map {
            name: map_of(by, *ranks),
            title: format!("{title}, {}", JobShape::bound(setting, *ranks).describe()),
            caption: caption.to_owned(),
            columns: names(self.columns().iter().map(u64::to_string).collect(), "bytes"),
            rows: names(self.operations.iter().map(Collective::to_string).collect(), "operation"),
            colour,
            cells: Vec::new(),
        };
        self.ranks.iter().map(map).collect()
    }

    /// Which numbers of ranks share cores, in words.
    pub(super) fn notes(&self, setting: &Setting) -> Vec<String> {
        let shapes = self.ranks.iter().map(|ranks| JobShape::bound(setting, *ranks));
        let crowded: Vec<String> =
            shapes.filter(JobShape::is_crowded).map(|shape| shape.describe()).collect();
        if crowded.is_empty() {
            return Vec::new();
        }
        vec![format!("More ranks than cores, which take turns: {}.", crowded.join(", "))]
    }
}

/// Segments of the segmented algorithms.
pub(super) fn segments() -> Vec<NonZeroU64> {
    [8 << 10, 64 << 10].into_iter().filter_map(NonZeroU64::new).collect()
}

/// The map of a number of ranks.
pub(super) fn map_of(by: &str, ranks: u32) -> String {
    format!("{by}-{ranks}")
}

/// A figure of times over sizes.
pub(super) fn empty_figure(name: &str, title: &str) -> Figure {
    let y = Axis::microseconds("time").logarithmic();
    Figure::new(name, title, Axis::bytes("bytes").logarithmic(), y)
}

/// The points of plans with their predicted and their measured times.
pub(super) fn points(
    figure: &str,
    bytes: u64,
    predicted: &[(Choice, f64)],
    timed: &[Row],
) -> Vec<Finding> {
    let x = bytes as f64;
    let predicted = predicted.iter().map(|(plan, time)| {
        let name = format!("{plan}, predicted");
        Finding::point(figure, &name, Role::Predicted, Point::exact(x, *time))
    });
    let measured = timed.iter().filter_map(|row| {
        Some(Finding::measured(figure, &row.algorithm?.to_string(), Point::of(x, &row.times)))
    });
    predicted.chain(measured).collect()
}

/// The figure that a collective's times stand in.
pub(super) fn figure(operation: Collective, form: CallForm, ranks: u32) -> String {
    format!("{}-{ranks}-{form}", operation.name().replace('_', "-"))
}

/// The figure of a collective between nodes, with its number of ranks on each.
pub(super) fn figure_of(
    (operation, form, ranks, ranks_per_node): (Collective, CallForm, u32, u32),
) -> String {
    format!("{}-{ranks}x{ranks_per_node}-{form}", operation.name().replace('_', "-"))
}

/// The operation, form, number of ranks and number on each node of a figure, by its name.
pub(super) fn shape_of(name: &str) -> Option<(Collective, CallForm, u32, u32)> {
    let mut words = name.rsplitn(3, '-');
    let form = words.next()?.parse().ok()?;
    let ranks = words.next()?;
    let operation = words.next()?.replace('-', "_").parse().ok()?;
    let (ranks, ranks_per_node) = match ranks.split_once('x') {
        Some((ranks, per_node)) => (ranks.parse().ok()?, per_node.parse().ok()?),
        None => (ranks.parse().ok()?, ranks.parse().ok()?),
    };
    Some((operation, form, ranks, ranks_per_node))
}
