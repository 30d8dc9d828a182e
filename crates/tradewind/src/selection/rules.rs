//! What a communicator goes by when the caller leaves the algorithm open: the job's decision table,
//! or built-in rules.
//!
//! The table is found by whoever makes the job, so that every rank has the same
//! ([`engine::Decisions`]); what it says about this communicator's number of ranks is worked out
//! when the communicator is made. A small join asks for one number only.

use crate::placement::Placement;
use crate::selection::algorithms::{Choice, ChoiceReason, Choosable};
use crate::selection::explanation::{Explanation, Reason};
use collectives::{Algorithm, Collective};
use engine::Decisions;
use engine::node::{EngineKind, Node};
use models::decision::{self, DecisionTable, Levels, Plan, Query, Row};
use models::file::FileError;
use models::machine::Topology;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

/// Has each new decision said on standard error.
const EXPLAIN: &str = "TRADEWIND_EXPLAIN";

/// The table that the job's ranks go by, if there is one. Rank 0 warns of one that is no use.
pub(crate) fn of_job(node: &Node, rank: u32) -> Option<Arc<DecisionTable>> {
    let decisions = node.decisions().ok().flatten()?;
    let read = table(&decisions);
    let use_it = node.settle_decisions(read.is_ok());
    if rank == 0
        && let Some(warning) = warning(&decisions, &read, use_it)
    {
        eprintln!("tradewind: {warning}");
    }
    // Ranks that see the machine differently go by what the first of them has seen.
    let table = match read {
        Err(FileError::OtherMachine { .. }) if use_it => unchecked(&decisions),
        read => read,
    };
    table.ok().filter(|_| use_it).map(Arc::new)
}

fn table(decisions: &Decisions) -> Result<DecisionTable, FileError> {
    match &decisions.content {
        Ok(bytes) => {
            DecisionTable::from_bytes_for(&decisions.path, bytes, Topology::here().fingerprint())
        }
        Err(_) => unchecked(decisions),
    }
}

/// The table, whichever machine it is of.
fn unchecked(Decisions { path, content }: &Decisions) -> Result<DecisionTable, FileError> {
    match content {
        Ok(bytes) => DecisionTable::from_bytes(path, bytes),
        Err(why) => {
            let (kind, source) =
                (&models::file::Kind::DECISION_TABLE, std::io::Error::other(why.clone()));
            Err(FileError::Unreadable { path: path.clone(), kind, source })
        }
    }
}

/// What is wrong with a table, in one line with the way out.
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

/// What a communicator goes by.
#[derive(Debug)]
pub(crate) struct SelectionRules {
    table: Option<Arc<DecisionTable>>,
    ranks: u32,
    engine: EngineKind,
    placement: Placement,
    /// Whether a join that is asked for needs no further look.
    joins_directly: bool,
    /// Below so many bytes the answer is a join, by operation.
    joins_below: [u64; Collective::ALL.len()],
    /// What the table says, by operation.
    rows: Vec<Option<Row>>,
    /// What has been said, if decisions are to be said.
    said: Option<Mutex<HashSet<String>>>,
}

/// Whether decisions are to be said.
pub(crate) fn explanations_enabled() -> bool {
    std::env::var_os(EXPLAIN).is_some_and(|value| !value.is_empty() && value != "0")
}

/// Those that this process has come across. They are few, one for each number of ranks, and
/// requests refer to them without counting.
static KNOWN: Mutex<Vec<&'static SelectionRules>> = Mutex::new(Vec::new());

impl SelectionRules {
    /// Those for so many ranks.
    pub(crate) fn of(
        table: Option<Arc<DecisionTable>>,
        ranks: u32,
        engine: EngineKind,
        placement: Placement,
    ) -> &'static Self {
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let requested_collective = (ranks, engine, placement);
        let same = |rules: &&&SelectionRules| {
            (rules.ranks, rules.engine, rules.placement) == requested_collective
                && rules.table == table
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
        table: Option<Arc<DecisionTable>>,
        (ranks, engine, placement): (u32, EngineKind, Placement),
        explanations_enabled: bool,
    ) -> Self {
        let row = |operation: &Collective| {
            let query = Query { operation: *operation, ranks, ranks_per_node: ranks, bytes: 0 };
            table.as_ref()?.row(&query).ok().cloned()
        };
        let rows: Vec<Option<Row>> = Collective::ALL.iter().map(row).collect();
        let mut joins_below = [0; Collective::ALL.len()];
        let joins_directly = placement == Placement::OneNode && !explanations_enabled;
        // With the caller engine, between nodes, and where every decision is looked at, none is
        // settled beforehand.
        if engine == EngineKind::Peers && joins_directly {
            joins_below
                .iter_mut()
                .zip(&rows)
                .for_each(|(below, row)| *below = row.as_ref().map_or(u64::MAX, joins));
        }
        SelectionRules {
            table,
            ranks,
            engine,
            placement,
            joins_directly,
            joins_below,
            rows,
            said: explanations_enabled.then(Mutex::default),
        }
    }

    /// The same for another number of ranks.
    pub(crate) fn for_ranks(&self, ranks: u32, placement: Placement) -> &'static Self {
        SelectionRules::of(self.table.clone(), ranks, self.engine, placement)
    }

    /// How the ranks lie on nodes.
    pub(crate) fn placement(&self) -> Placement {
        self.placement
    }

    /// The number of ranks.
    pub(crate) fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Who runs operations.
    pub(crate) fn engine(&self) -> EngineKind {
        self.engine
    }

    /// Below so many bytes an operation that nobody forces is a join.
    #[inline]
    pub(crate) fn joins_below(&self, operation: Collective) -> u64 {
        self.joins_below[operation as usize]
    }

    /// What the table says, if there is one and it says anything that can be done here.
    pub(crate) fn plan(&self, operation: Collective, bytes: u64) -> Option<Plan> {
        let row = self.rows[operation as usize].as_ref()?;
        row.range(bytes).ok().map(|range| range.plan).filter(|plan| plan.levels == Levels::One)
    }

    /// Whether a join that is asked for needs no further look: it can be had, and not every
    /// decision is to be said.
    #[inline]
    pub(crate) fn joins_directly(&self) -> bool {
        self.joins_directly
    }

    /// Why this was chosen.
    pub(crate) fn explain<A: Choosable>(&self, choice: &Choice<A>, bytes: u64) -> Explanation {
        let query =
            Query { operation: A::OPERATION, ranks: self.ranks, ranks_per_node: self.ranks, bytes };
        let (engine, nodes) = match self.placement {
            Placement::OneNode => (self.engine.name(), 1),
            Placement::Nodes(layout) => (layout.backend, layout.nodes),
        };
        let reason = match choice.why {
            ChoiceReason::Forced => Reason::Forced,
            ChoiceReason::RankOrder => Reason::RankOrder,
            ChoiceReason::SeveralNodes => Reason::SeveralNodes,
            ChoiceReason::Open if nodes > 1 => Reason::BetweenNodes,
            ChoiceReason::Open if self.engine == EngineKind::Caller => Reason::CallerEngine,
            ChoiceReason::Open => {
                Reason::Decision(decision::decide(self.table.as_deref(), &query).origin)
            }
        };
        Explanation::new(query, choice, (engine, nodes), reason)
    }

    /// Says a decision that was not said before.
    pub(crate) fn log_decision<A: Choosable>(&self, choice: &Choice<A>, bytes: u64) {
        let Some(said) = &self.said else { return };
        let explanation = self.explain(choice, bytes);
        // The size alone makes no decision another one.
        let new =
            said.lock().unwrap_or_else(PoisonError::into_inner).insert(explanation.without_bytes());
        if new {
            eprintln!("tradewind: {explanation}");
        }
    }
}

/// Up to which size a row's ranges are all joins.
fn joins(row: &Row) -> u64 {
    let mut end = 0;
    for range in &row.ranges {
        if range.from != end || range.plan != Plan::of(Algorithm::Join) {
            return end;
        }
        end = range.to.unwrap_or(u64::MAX);
    }
    end
}
