//! Which algorithm is best when: the decision table of a machine, and its regret.
//!
//! [`experiment`] times the candidates of every operation, number of ranks and size of a grid side
//! by side; [`table`] makes ranges of sizes from the winners. Models leave out what they are sure
//! about, where `machine.json` has parameters: algorithms predicted to take more than five times as
//! long as the fastest is not measured. Between what is left they cannot decide, so the clock does.
//! Joins, which no model of messages knows, are always measured.
//!
//! [`regret`] then times all candidates, without leaving any out, at sizes that the table was not
//! made from, in another job: how long the chosen algorithm takes over the best.

mod choice;
mod regret;

pub use choice::table;
pub use regret::experiment as regret;

use crate::experiments::algorithms::{CollectiveCall, Plan, TimeBudget, settle};
use crate::experiments::models;
use crate::harness::{Error, Experiment, Finding, JobShape, Setting, Step, StepContext};
use crate::results::{Axis, Categories, Colour, Figure, Map, Part, Point, Table};
use collectives::{Algorithm, Collective};
use std::num::NonZeroU64;
use tradewind::EngineKind;

/// The file of the table in a directory of results.
pub const FILE: &str = "decision-table.json";
/// The option that says for which numbers of ranks: a list with commas.
pub const RANKS: &str = "ranks";
/// Candidates predicted to take this many times as long as the fastest are left out.
const SURE: f64 = 5.0;
/// No collective takes more memory than this.
const MOST_MEMORY: u64 = 1 << 28;

const LEFT_OUT: &str = "left-out";

/// Ranks and sizes at which plans are compared.
struct Grid {
    operations: Vec<Collective>,
    ranks: Vec<u32>,
    bytes: Vec<u64>,
    budget: TimeBudget,
}

impl Grid {
    /// These sizes in full, the first few of them for a look.
    fn of(setting: &Setting, sizes: &[u64]) -> Self {
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
            ranks: asked.filter(|ranks: &Vec<u32>| !ranks.is_empty()).unwrap_or_else(usual),
            bytes: if setting.quick { sizes[..3].to_vec() } else { sizes.to_vec() },
            budget: if setting.quick {
                TimeBudget::QUICK
            } else {
                TimeBudget { milliseconds: 50.0, most_rounds: 101 }
            },
        }
    }

    /// The sizes of an operation.
    fn bytes_of(&self, operation: Collective) -> &[u64] {
        if operation == Collective::Barrier { &[0] } else { &self.bytes }
    }

    /// Every collective, by number of ranks.
    fn collectives(&self) -> impl Iterator<Item = CollectiveCall> + '_ {
        let with_ranks = move |ranks: u32| {
            let of = move |operation: Collective| {
                let with =
                    move |bytes: &u64| CollectiveCall { operation, ranks, bytes: *bytes, root: 0 };
                self.bytes_of(operation).iter().map(with)
            };
            self.operations.iter().copied().flat_map(of)
        };
        self.ranks
            .iter()
            .copied()
            .flat_map(with_ranks)
            .filter(|collective| collective.memory() <= MOST_MEMORY)
    }

    /// A step for each collective.
    fn steps(
        &self,
        setting: &Setting,
        measure: impl Fn(
            &StepContext<'_>,
            &CollectiveCall,
            TimeBudget,
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
        self.collectives().map(step).collect()
    }

    /// The column and the row of a collective in the map of its number of ranks.
    fn place(&self, collective: &CollectiveCall) -> (usize, usize) {
        let column = self.bytes.iter().position(|bytes| *bytes == collective.bytes).unwrap_or(0);
        let row = self
            .operations
            .iter()
            .position(|operation| *operation == collective.operation)
            .unwrap_or(0);
        (column, row)
    }

    /// A map for each number of ranks.
    fn maps(&self, setting: &Setting, title: &str, caption: &str, colour: Colour) -> Vec<Map> {
        let names =
            |all: Vec<String>, label: &str| Categories { label: label.to_owned(), names: all };
        let map = |ranks: &u32| Map {
            name: map_of(*ranks),
            title: format!("{title}, {}", JobShape::bound(setting, *ranks).describe()),
            caption: caption.to_owned(),
            columns: names(self.bytes.iter().map(u64::to_string).collect(), "bytes"),
            rows: names(self.operations.iter().map(Collective::to_string).collect(), "operation"),
            colour,
            cells: Vec::new(),
        };
        self.ranks.iter().map(map).collect()
    }

    /// Which numbers of ranks share cores, in words.
    fn notes(&self, setting: &Setting) -> Vec<String> {
        let shapes = self.ranks.iter().map(|ranks| JobShape::bound(setting, *ranks));
        let crowded: Vec<String> =
            shapes.filter(JobShape::is_crowded).map(|shape| shape.describe()).collect();
        if crowded.is_empty() {
            return Vec::new();
        }
        vec![format!("More ranks than cores, which take turns: {}.", crowded.join(", "))]
    }
}

const QUICK_OPERATIONS: [Collective; 3] =
    [Collective::Barrier, Collective::Bcast, Collective::Allreduce];

/// Sizes that the table is made from, in the order in which a quick look takes them.
const SIZES: [u64; 13] = [
    1,
    64,
    8 << 10,
    8,
    512,
    2 << 10,
    4 << 10,
    32 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    512 << 10,
    1 << 20,
];

/// Segments of the segmented algorithms.
fn segments() -> Vec<NonZeroU64> {
    [8 << 10, 64 << 10].into_iter().filter_map(NonZeroU64::new).collect()
}

fn map_of(ranks: u32) -> String {
    format!("ranks-{ranks}")
}

/// The figure that a collective's times stand in.
fn figure(operation: Collective, ranks: u32) -> String {
    format!("{}-{ranks}", operation.name().replace('_', "-"))
}

/// The experiment that a table is made from.
pub fn experiment(setting: &Setting) -> Experiment {
    let mut grid = Grid::of(setting, &SIZES);
    grid.bytes.sort_unstable();
    let mut part = Part::new("decisions", "Which algorithm is best when");
    part.about = "The candidates of each operation, number of ranks and size take turns; those \
                  within 30 % of the fastest, and the join, do so again for longer. The fastest \
                  median wins, and a winner is kept for larger sizes as long as it is within 8 % \
                  of the best; so is a join, which needs no schedule, and also one within 30 % \
                  whose middle half of repetitions overlaps that of the best. Between two sizes \
                  the algorithm changes in the middle, or where the join changes its way. Models \
                  only leave out candidates that they predict to take more than five times as long \
                  as the fastest; the table says which. Joins are always measured."
        .to_owned();
    part.source = "Barchet-Estefanel, Mounié 2004, section 6".to_owned();
    for ranks in &grid.ranks {
        for operation in &grid.operations {
            let title = format!("{operation}, {}", JobShape::bound(setting, *ranks).describe());
            let (x, y) =
                (Axis::bytes("bytes").logarithmic(), Axis::microseconds("time").logarithmic());
            part.figures.push(Figure::new(&figure(*operation, *ranks), &title, x, y));
        }
    }
    let caption = "The algorithm that the decision table has for each size.";
    part.maps = grid.maps(setting, "Decisions", caption, Colour::ByText);
    part.tables.push(Table {
        name: LEFT_OUT.to_owned(),
        title: "Left out by the models".to_owned(),
        caption:
            "Candidates that were not measured, being predicted to take more than five times as \
             long as the fastest."
                .to_owned(),
        columns: ["operation", "ranks", "bytes", "candidates", "left out"]
            .map(str::to_owned)
            .to_vec(),
        rows: Vec::new(),
    });
    part.notes = grid.notes(setting);
    let steps = grid.steps(setting, measure);
    Experiment::new(part, steps).concluding(choice::fill_maps)
}

fn measure(
    here: &StepContext<'_>,
    collective: &CollectiveCall,
    budget: TimeBudget,
    _: (usize, usize),
) -> Result<Vec<Finding>, Error> {
    let all = collective.plans(&segments());
    let (plans, left_out) = keep(here, collective, all);
    let compared = settle(
        here.world,
        here.shape.shared_cores,
        collective,
        &plans,
        &Plan::of(Algorithm::Join),
        budget,
    )?;
    let figure = figure(collective.operation, collective.ranks);
    let point = |microseconds: &[f64]| Point::of(collective.bytes as f64, microseconds);
    let mut found: Vec<Finding> = compared
        .timed
        .iter()
        .map(|timed| {
            Finding::measured(&figure, &timed.plan.to_string(), point(&timed.microseconds))
        })
        .collect();
    if !left_out.is_empty() {
        let names = left_out.iter().map(Plan::to_string).collect::<Vec<_>>().join(", ");
        let numbers = [
            f64::from(collective.ranks),
            collective.bytes as f64,
            (plans.len() + left_out.len()) as f64,
        ];
        let row =
            std::iter::once(collective.operation.name().into()).chain(numbers.map(Into::into));
        found.push(Finding::row(LEFT_OUT, row.chain([names.into()])));
    }
    Ok(found)
}

/// Plans that are measured, and those that models are sure about. Every rank reads the same file
/// and comes to the same answer.
fn keep(
    here: &StepContext<'_>,
    collective: &CollectiveCall,
    all: Vec<Plan>,
) -> (Vec<Plan>, Vec<Plan>) {
    // The models are about ranks that have a core each.
    let costs = models::costs(here).filter(|_| !here.shape.is_crowded());
    let Some((costs, _)) = costs else { return (all, Vec::new()) };
    let CollectiveCall { operation, ranks, bytes, .. } = *collective;
    let price = |plan: &Plan| match plan.algorithm {
        Algorithm::Join => None,
        _ => costs.predict(operation, plan, ranks, bytes),
    };
    let least = all.iter().filter_map(price).fold(f64::INFINITY, f64::min);
    all.into_iter().partition(|plan| price(plan).is_none_or(|price| price <= SURE * least))
}
