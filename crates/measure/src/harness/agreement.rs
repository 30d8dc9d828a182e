//! Bringing the ranks' figures together, so that all ranks see the same and act alike.

use crate::harness::error::Error;
use tradewind::{Communicator, Element, Op};

fn combine<T: Element + Default>(world: &Communicator, own: &[T], op: Op) -> Result<Vec<T>, Error> {
    let mut all = vec![T::default(); own.len()];
    world.allreduce(own, &mut all, op)?;
    Ok(all)
}

/// Of each figure the largest that a rank has.
pub(crate) fn largest(world: &Communicator, own: &[f64]) -> Result<Vec<f64>, Error> {
    combine(world, own, Op::Maximum)
}

/// Of each figure the sum over the ranks.
pub(crate) fn sum(world: &Communicator, own: &[f64]) -> Result<Vec<f64>, Error> {
    combine(world, own, Op::Sum)
}

/// Of each moment the earliest.
pub(crate) fn earliest(world: &Communicator, own: &[i64]) -> Result<Vec<i64>, Error> {
    combine(world, own, Op::Minimum)
}

/// Of each moment the latest.
pub(crate) fn latest(world: &Communicator, own: &[i64]) -> Result<Vec<i64>, Error> {
    combine(world, own, Op::Maximum)
}
