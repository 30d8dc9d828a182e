//! Which algorithm to use: candidates by the models, a decision table made from them, and a
//! decision for a query.
//!
//! [`CostModel`](crate::costs::CostModel) predicts the cost of every algorithm that has a model.
//! [`DecisionTable::build`] does that over a [`Grid`] and keeps the winners by ranges of sizes.
//! [`decide`] looks a [`Query`] up, and falls back to the [built-in rules](rules) where there is
//! no table or the table has a gap; the [`Decision`] says in words what was chosen, and why.

mod build;
mod decide;
mod equal_graphs;
mod lookup;
mod refine;
pub mod rules;
mod table;

pub use crate::query::{CallForm, Query, private_bytes};
pub use build::Grid;
pub use decide::{Decision, Origin, Reason, decide};
pub use equal_graphs::pooled;
pub use lookup::MatchedRow;
pub use refine::Measured;
pub use table::{DecisionTable, Evidence, Gap, Range, Row, RunnerUp, TableError, Times};
