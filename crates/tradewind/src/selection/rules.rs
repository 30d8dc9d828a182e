//! The rules that select algorithms where the caller sets none: the job's decision table, or
//! built-in rules.
//!
//! The rows for a communicator's number of ranks are looked up when it is made; for a small join one
//! comparison remains.

use super::choice::{ChoiceReason, SelectedAlgorithm};
use super::explanation::{Explanation, Reason};
use super::job_table::JobTable;
use crate::placement::{InRanks, Placement};
use collectives::{Algorithm, Choice, Collective, Levels};
use engine::node::EngineKind;
use launch::environment::{EXPLAIN, Environment, InternodeEngine, Lookup};
use models::builtin;
use models::decision::rules::{MachineClass, on_one_node};
use models::decision::{self, CallForm, Grid, Origin, Query, Range, Row};
use models::machine_file::Engine;
use models::prediction::{USUALLY_HELD, runs_in_ranks};
use std::collections::HashSet;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Most segments of a message. Where a decision table has more, another plan runs.
const MOST_SEGMENTS: u64 = 1024;

/// Rows by form and collective, for one number of ranks and placement.
type Rows = [Vec<Option<Row>>; CallForm::ALL.len()];

/// Selection rules for one number of ranks and placement.
#[derive(Debug)]
pub(crate) struct SelectionRules {
    table: JobTable,
    ranks: u32,
    engine: EngineKind,
    placement: Placement,
    /// The user demands the kernel engine between nodes wherever it can run.
    demands_kernel: bool,
    /// A join that the caller sets is taken without further checks.
    joins_directly: bool,
    /// By form and collective: messages shorter than this are joins.
    joins_below: [[u64; Collective::ALL.len()]; CallForm::ALL.len()],
    /// By form and collective: the row of the table.
    rows: Rows,
    /// By form and collective: the row of the built-in parameters between nodes, built at its first
    /// use.
    builtin: [[OnceLock<Option<Row>>; Collective::ALL.len()]; CallForm::ALL.len()],
    /// Decisions that have been printed, if they are to be.
    printed: Option<Mutex<HashSet<String>>>,
}

/// Returns `true` if `TRADEWIND_EXPLAIN` enables explanations.
pub(crate) fn explanations_enabled() -> bool {
    Environment.get(EXPLAIN).is_some_and(|value| !value.is_empty() && value != "0")
}

/// All rules of this process, leaked: they are few, one for each number of ranks and placement, and
/// requests refer to them without a reference count.
static KNOWN: Mutex<Vec<&'static SelectionRules>> = Mutex::new(Vec::new());

impl SelectionRules {
    /// The rules for this number of ranks.
    pub(crate) fn of(
        table: JobTable,
        ranks: u32,
        engine: EngineKind,
        placement: Placement,
    ) -> &'static Self {
        let wanted = (ranks, engine, placement);
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |rules: &&&SelectionRules| {
            (rules.ranks, rules.engine, rules.placement) == wanted && rules.table == table
        };
        if let Some(rules) = known.iter().find(is_same) {
            return rules;
        }
        let rules: &'static SelectionRules =
            Box::leak(Box::new(SelectionRules::new(table, wanted, explanations_enabled())));
        known.push(rules);
        rules
    }

    fn new(
        table: JobTable,
        (ranks, engine, placement): (u32, EngineKind, Placement),
        explanations_enabled: bool,
    ) -> Self {
        let row = |form: CallForm, operation: &Collective| {
            let query = query(form, *operation, ranks, placement, 0);
            table.table()?.row(&query).ok().cloned()
        };
        let rows = [CallForm::Blocking, CallForm::Nonblocking].map(|form| {
            Collective::ALL.iter().map(|operation| row(form, operation)).collect::<Vec<_>>()
        });
        let mut joins_below = [[0; Collective::ALL.len()]; CallForm::ALL.len()];
        let joins_directly = matches!(placement, Placement::OneNode(_)) && !explanations_enabled;
        // With the caller engine, between nodes, and where decisions are printed, every call takes the
        // long way.
        if engine == EngineKind::Peers && joins_directly {
            for form in CallForm::ALL.iter().copied() {
                for operation in Collective::ALL.iter().copied() {
                    let own = rows[form as usize][operation as usize].as_ref();
                    let row = own.or_else(|| built_in(form, operation, ranks, placement));
                    joins_below[form as usize][operation as usize] = row.map_or(u64::MAX, joins);
                }
            }
        }
        SelectionRules {
            table,
            ranks,
            engine,
            placement,
            demands_kernel: matches!(Environment.internode_engine(), Ok(InternodeEngine::Kernel)),
            joins_directly,
            joins_below,
            rows,
            builtin: std::array::from_fn(|_| std::array::from_fn(|_| OnceLock::new())),
            printed: explanations_enabled.then(Mutex::default),
        }
    }

    /// The rules for another number of ranks, with the same table and engine.
    pub(crate) fn for_ranks(&self, ranks: u32, placement: Placement) -> &'static Self {
        SelectionRules::of(self.table.clone(), ranks, self.engine, placement)
    }

    /// Placement of the ranks on nodes.
    pub(crate) fn placement(&self) -> Placement {
        self.placement
    }

    /// Returns `true` if calls of this size may run by a plan. A table's last range has no end, so a
    /// message in it may have more segments than a graph should have.
    pub(crate) fn admits(&self, collective: Collective, plan: &Choice, bytes: u64) -> bool {
        let has_way = match self.placement {
            Placement::OneNode(_) => plan.levels == Levels::One,
            Placement::Nodes(layout) => {
                plan.algorithm != Algorithm::Join
                    && (plan.levels == Levels::One || layout.ranks_per_node.is_some())
            }
        };
        let too_many = |segment: NonZeroU64| bytes / segment > MOST_SEGMENTS;
        has_way
            && collective.algorithms().contains(&plan.algorithm)
            && !plan.segment_bytes.is_some_and(too_many)
    }

    /// A call among these ranks as the models know it.
    pub(crate) fn query(&self, form: CallForm, operation: Collective, bytes: u64) -> Query {
        query(form, operation, self.ranks, self.placement, bytes)
    }

    /// Number of ranks.
    pub(crate) fn ranks(&self) -> u32 {
        self.ranks
    }

    /// The engine on a node.
    pub(crate) fn engine(&self) -> EngineKind {
        self.engine
    }

    /// Messages shorter than this are joins, unless the caller sets an algorithm.
    #[inline]
    pub(crate) fn joins_below(&self, form: CallForm, operation: Collective) -> u64 {
        self.joins_below[form as usize][operation as usize]
    }

    /// The row of the table, if there is one.
    pub(crate) fn row(&self, form: CallForm, operation: Collective) -> Option<&Row> {
        self.rows[form as usize][operation as usize].as_ref()
    }

    /// The range of the table, if there is one. A plan that runs in the ranks with the connections that
    /// tables are made for, and in the node services with those of this job, or the other way round, is
    /// no choice for this job.
    pub(crate) fn range(
        &self,
        form: CallForm,
        operation: Collective,
        bytes: u64,
    ) -> Option<&Range> {
        let range = self.row(form, operation)?.range(bytes).ok()?;
        let query = self.query(form, operation, bytes);
        let runs_in_ranks =
            |held| range.engine != Some(Engine::Kernel) && runs_in_ranks(&range.plan, &query, held);
        let here = self.held().unwrap_or(0);
        (runs_in_ranks(USUALLY_HELD) == runs_in_ranks(here)).then_some(range)
    }

    /// Bytes that each connection between ranks with a node each holds; 0 where the node services run all
    /// nonblocking collectives, and `None` on one node.
    fn held(&self) -> Option<u64> {
        let Placement::Nodes(layout) = self.placement else { return None };
        Some(match layout.in_ranks {
            // Ranks that do not lie alike on all nodes count as one a node, too.
            _ if layout.nodes != self.ranks => 0,
            InRanks::Nothing => 0,
            InRanks::Blocking(held) => held,
            InRanks::All => u64::MAX,
        })
    }

    /// Returns `true` if the user demands the kernel engine between nodes wherever it can run.
    pub(crate) fn demands_kernel(&self) -> bool {
        self.demands_kernel
    }

    /// The row of the built-in parameters: on one node for its class, between nodes for the engines
    /// that the job has.
    fn built_in_row(&self, form: CallForm, operation: Collective) -> Option<&Row> {
        /// Largest size that the models are asked about; the plan for it goes on for longer ones.
        const LARGEST: u64 = 4 << 20;
        let Placement::Nodes(layout) = self.placement else {
            return built_in(form, operation, self.ranks, self.placement);
        };
        let build = || {
            let has = |engine| match engine {
                Engine::Kernel => layout.backend == Engine::Kernel.name(),
                _ if self.demands_kernel => false,
                Engine::Direct => layout.in_ranks != InRanks::Nothing,
                _ => true,
            };
            let models = builtin::models().clone().only(has);
            // Ranks that do not lie alike on all nodes count as one a node, too.
            let models = match layout.in_ranks {
                InRanks::Blocking(held) if layout.nodes == self.ranks => {
                    models.with_connected_ranks(held)
                }
                _ => models,
            };
            let shape = self.query(form, operation, 0);
            Row::build(&models, &shape, &Grid::usual(Vec::new(), Vec::new(), LARGEST).bytes)
        };
        self.builtin[form as usize][operation as usize].get_or_init(build).as_ref()
    }

    /// The range of the built-in parameters.
    pub(crate) fn built_in_range(
        &self,
        form: CallForm,
        operation: Collective,
        bytes: u64,
    ) -> Option<&Range> {
        self.built_in_row(form, operation)?.range(bytes).ok()
    }

    /// Returns `true` if a join that the caller sets needs no further checks: it can be executed,
    /// and decisions are not printed.
    #[inline]
    pub(crate) fn joins_directly(&self) -> bool {
        self.joins_directly
    }

    /// Explains a choice.
    pub(crate) fn explain(&self, selected: &SelectedAlgorithm, bytes: u64) -> Explanation {
        let SelectedAlgorithm { form, collective, .. } = *selected;
        let query = self.query(form, collective, bytes);
        let (engine, nodes) = match self.placement {
            Placement::OneNode(_) => (self.engine.name(), 1),
            Placement::Nodes(layout) => {
                let backend = selected.engine.map_or(layout.backend, Engine::name);
                (layout.engine_of(form, backend), layout.nodes)
            }
        };
        let reason = match selected.why {
            ChoiceReason::Forced => Reason::Forced,
            ChoiceReason::RankOrder => Reason::RankOrder,
            ChoiceReason::CommonOrder => Reason::CommonOrder,
            ChoiceReason::AnyOrder => Reason::AnyOrder,
            ChoiceReason::SeveralNodes => Reason::SeveralNodes,
            ChoiceReason::Open if nodes == 1 && self.engine == EngineKind::Caller => {
                Reason::CallerEngine
            }
            ChoiceReason::Open if nodes > 1 && self.range(form, collective, bytes).is_none() => {
                let why = decision::Reason::NoNodes;
                let row = self.built_in_row(form, collective);
                let range = row.and_then(|row| Some((row, row.range(bytes).ok()?)));
                Reason::Decision(match range {
                    Some((row, range)) => Origin::built_in(why, range, row.error),
                    None => Origin::BuiltIn(why),
                })
            }
            ChoiceReason::Open => match &self.table {
                JobTable::Unusable(why) => Reason::UnusableTable(why.to_string()),
                JobTable::None | JobTable::Table(_) => {
                    let class = match self.placement {
                        Placement::OneNode(class) => class,
                        Placement::Nodes(_) => MachineClass::SharedCores,
                    };
                    let row = self.row(form, collective);
                    let range = self.range(form, collective, bytes);
                    Reason::Decision(match row.zip(range) {
                        Some((row, range)) => Origin::table(row, range),
                        None => decision::decide(self.table.table(), &query, class).origin,
                    })
                }
            },
        };
        let table = match (&self.table, &reason) {
            (JobTable::Table(used), Reason::Decision(Origin::Table { .. })) => {
                Some(used.path.to_path_buf())
            }
            _ => None,
        };
        Explanation { table, ..Explanation::new(query, selected, (engine, nodes), reason) }
    }

    /// Prints a decision that was not printed before, if decisions are to be printed. The user has
    /// requested them by a variable, so they need no logger.
    pub(crate) fn log_decision(&self, selected: &SelectedAlgorithm, bytes: u64) {
        let Some(printed) = &self.printed else { return };
        let explanation = self.explain(selected, bytes);
        // Decisions that differ in the size only are one.
        let new = printed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(explanation.without_bytes());
        if new {
            eprintln!("tradewind: {explanation}");
        }
    }
}

/// A call as the models know it. Ranks that do not lie alike on all nodes count as one a node.
fn query(
    form: CallForm,
    operation: Collective,
    ranks: u32,
    placement: Placement,
    bytes: u64,
) -> Query {
    let ranks_per_node = match placement {
        Placement::OneNode(_) => ranks,
        Placement::Nodes(layout) => layout.ranks_per_node.map_or(1, NonZeroU32::get),
    };
    Query { operation, form, ranks, ranks_per_node, bytes }
}

/// The row of the built-in parameters on one node.
fn built_in(
    form: CallForm,
    operation: Collective,
    ranks: u32,
    placement: Placement,
) -> Option<&'static Row> {
    let Placement::OneNode(class) = placement else { return None };
    on_one_node(&query(form, operation, ranks, placement, 0), class)
}

/// Size below which all ranges of a row are joins.
fn joins(row: &Row) -> u64 {
    let mut end = 0;
    for range in &row.ranges {
        if range.from != end || range.plan != Choice::of(Algorithm::Join) {
            return end;
        }
        end = range.to.unwrap_or(u64::MAX);
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::NodeLayout;
    use models::decision::{DecisionTable, Times};
    use models::machine::Fingerprint;
    use std::path::Path;

    /// Rules of a job with four nodes and these connections, whose table has one step for all sizes,
    /// chosen with connections that hold so many bytes.
    fn rules(in_ranks: InRanks) -> &'static SelectionRules {
        let engine = Some(Engine::Agent);
        let range = Range {
            from: 0,
            to: None,
            plan: Choice::of(Algorithm::RotatedDirect),
            engine,
            at: 8,
            time: Times::predicted(1.0),
            runner_up: None,
        };
        let row = Row {
            operation: Collective::Allreduce,
            form: CallForm::Nonblocking,
            ranks: 4,
            ranks_per_node: 1,
            error: None,
            disturbed: None,
            ranges: vec![range],
        };
        let table = DecisionTable::new(Fingerprint::default(), vec![row]).expect("it can be");
        let bytes = table.to_bytes().expect("it can be written");
        let table = JobTable::of_bytes(Path::new("of/the/job"), &bytes);
        let backend = Engine::Agent.name();
        let layout = NodeLayout { nodes: 4, ranks_per_node: None, backend, in_ranks };
        SelectionRules::of(table, 4, EngineKind::Peers, Placement::Nodes(layout))
    }

    #[test]
    fn a_plan_in_the_ranks_is_chosen_by_jobs_with_its_connections_only() {
        let connected = InRanks::Blocking(USUALLY_HELD);
        let chooses = |in_ranks, bytes| {
            rules(in_ranks).range(CallForm::Nonblocking, Collective::Allreduce, bytes).is_some()
        };
        for (in_ranks, expected) in
            [(connected, true), (InRanks::Nothing, false), (InRanks::Blocking(64), false)]
        {
            assert_eq!(chooses(in_ranks, 800), expected, "{in_ranks:?}");
            // No connection holds it, so the services run it in any job.
            assert!(chooses(in_ranks, 4 << 20), "{in_ranks:?}");
        }
    }
}
