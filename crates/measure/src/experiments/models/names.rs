//! Names of figures and curves, and the plans that they are of.

use crate::results::Part;
use collectives::{Choice, Collective};
use std::collections::BTreeSet;
use std::num::NonZeroU64;
use tradewind::EngineKind;

/// Names of curves that are bounds.
pub(super) const LOWER: &str = "lower bound";
pub(super) const UPPER: &str = "upper bound";

/// Segments of the segmented algorithms.
pub(super) fn segments() -> Vec<NonZeroU64> {
    [8 << 10, 64 << 10].into_iter().filter_map(NonZeroU64::new).collect()
}

/// The figure that a collective's times stand in.
pub(super) fn figure(operation: Collective, ranks: u32, engine: EngineKind) -> String {
    format!("{}-{ranks}-{engine}", operation.name().replace('_', "-"))
}

/// The curve of a plan.
pub(super) fn curve(plan: &Choice) -> String {
    plan.to_string()
}

/// Returns the numbers of ranks of which the part has figures.
pub(super) fn numbers_of_ranks(part: &Part) -> BTreeSet<u32> {
    part.figures.iter().filter_map(|figure| figure.name.rsplit('-').nth(1)?.parse().ok()).collect()
}
