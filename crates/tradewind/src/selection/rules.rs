//! The rules that select algorithms where the caller sets none: the job's decision table, or
//! built-in rules.
//!
//! The process that creates the job reads the table, so that all ranks have the same one
//! ([`engine::Decisions`]). The rows for a communicator's number of ranks are looked up when it is
//! made; for a small join one comparison remains.

use super::choice::{ChoiceReason, SelectedAlgorithm};
use super::explanation::{Explanation, Reason};
use crate::placement::{InRanks, Placement};
use collectives::{Algorithm, Choice, Collective};
use engine::Decisions;
use engine::node::{EngineKind, Node};
use launch::environment::{EXPLAIN, Environment, InternodeEngine, Lookup};
use models::builtin;
use models::decision::rules::{MachineClass, on_one_node};
use models::decision::{self, CallForm, DecisionTable, Grid, Origin, Query, Range, Row};
use models::file::FileError;
use models::machine::Topology;
use models::machine_file::Engine;
use std::collections::HashSet;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The decision table of a job.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum JobTable {
    /// There is none.
    None,
    /// A table and the path of its file.
    Table(Arc<Path>, Arc<DecisionTable>),
    /// There is one that cannot be used, for this reason.
    Unusable(Arc<str>),
}

impl JobTable {
    /// The table in these bytes, of whichever machine; none if they are no table.
    pub(crate) fn of_bytes(path: &Path, bytes: &[u8]) -> Self {
        match DecisionTable::from_bytes(path, bytes) {
            Ok(table) => JobTable::Table(path.into(), Arc::new(table)),
            Err(_) => JobTable::None,
        }
    }

    fn table(&self) -> Option<&DecisionTable> {
        match self {
            JobTable::Table(_, table) => Some(table),
            JobTable::None | JobTable::Unusable(_) => None,
        }
    }
}

/// The job's decision table. Rank 0 warns of one that cannot be used.
pub(crate) fn of_job(node: &Node, rank: u32) -> JobTable {
    let Some(decisions) = node.decisions().ok().flatten() else { return JobTable::None };
    let read = table(&decisions);
    let use_it = node.settle_decisions(read.is_ok());
    let warning = warning(&decisions, &read, use_it);
    if rank == 0
        && let Some(warning) = &warning
    {
        log::warn!("{warning}");
    }
    // A rank that sees another topology than the others uses the table that the first rank has
    // accepted: all ranks must select alike.
    let table = match read {
        Err(FileError::OtherMachine { .. }) if use_it => unchecked(&decisions),
        read => read,
    };
    match table {
        Ok(table) if use_it => JobTable::Table(decisions.path.into(), Arc::new(table)),
        _ => JobTable::Unusable(warning.unwrap_or_default().into()),
    }
}

fn table(decisions: &Decisions) -> Result<DecisionTable, FileError> {
    match &decisions.content {
        Ok(bytes) => {
            DecisionTable::from_bytes_for(&decisions.path, bytes, Topology::here().fingerprint())
        }
        Err(_) => unchecked(decisions),
    }
}

/// The table, without a check of its machine.
fn unchecked(Decisions { path, content }: &Decisions) -> Result<DecisionTable, FileError> {
    match content {
        Ok(bytes) => DecisionTable::from_bytes(path, bytes),
        Err(why) => {
            let kind = &models::file::FileKind::DECISION_TABLE;
            let source = std::io::Error::other(why.clone());
            Err(FileError::Unreadable { path: path.clone(), kind, source })
        }
    }
}

/// The problem of a table, in one line with the way out.
fn warning(
    decisions: &Decisions,
    table: &Result<DecisionTable, FileError>,
    use_it: bool,
) -> Option<String> {
    let rules = "built-in rules choose the algorithms";
    match table {
        Err(_) if use_it => None,
        Err(error) => Some(format!("{error} ({rules})")),
        Ok(_) if !use_it => Some(format!(
            "{}: another rank takes it for that of another machine ({rules})",
            decisions.path.display()
        )),
        Ok(table) => {
            let gaps = table.gaps();
            let first = gaps.first()?;
            let more = if gaps.len() > 1 {
                format!(", and {} gaps more", gaps.len() - 1)
            } else {
                String::new()
            };
            let path = decisions.path.display();
            Some(format!(
                "{path}: {first}{more} ({rules} there): write a whole one with `tradewind tune`"
            ))
        }
    }
}

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
    rows: [Vec<Option<Row>>; CallForm::ALL.len()],
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
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = (ranks, engine, placement);
        let same = |rules: &&&SelectionRules| {
            (rules.ranks, rules.engine, rules.placement) == wanted && rules.table == table
        };
        if let Some(rules) = known.iter().find(same) {
            return rules;
        }
        let rules: &'static SelectionRules = Box::leak(Box::new(SelectionRules::new(
            table,
            (ranks, engine, placement),
            explanations_enabled(),
        )));
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
        // With the caller engine, between nodes, and where decisions are printed, every call takes
        // the long way.
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

    /// The range of the table, if there is one.
    pub(crate) fn range(
        &self,
        form: CallForm,
        operation: Collective,
        bytes: u64,
    ) -> Option<&Range> {
        self.rows[form as usize][operation as usize].as_ref()?.range(bytes).ok()
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
            let shape = query(form, operation, self.ranks, self.placement, 0);
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
        let query = query(form, collective, self.ranks, self.placement, bytes);
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
                JobTable::None | JobTable::Table(..) => {
                    let class = match self.placement {
                        Placement::OneNode(class) => class,
                        Placement::Nodes(_) => MachineClass::SharedCores,
                    };
                    Reason::Decision(decision::decide(self.table.table(), &query, class).origin)
                }
            },
        };
        let table = match (&self.table, &reason) {
            (JobTable::Table(path, _), Reason::Decision(Origin::Table { .. })) => {
                Some(path.to_path_buf())
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
