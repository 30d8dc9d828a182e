//! Programs written by hand, with their expected results.
//!
//! Every vector runs several rounds with different bytes in each, so that stale data of an earlier
//! round is detected.

mod arithmetic;
mod blocks;
mod build;
mod edges;
mod faults;
mod joins;
mod messages;
mod wildcards;

use crate::conformance::vector::Vector;

/// Returns all vectors.
pub fn all() -> Vec<Vector> {
    let groups = [
        arithmetic::vectors(),
        blocks::vectors(),
        messages::vectors(),
        edges::vectors(),
        wildcards::vectors(),
        joins::vectors(),
        faults::vectors(),
    ];
    groups.into_iter().flatten().collect()
}
