//! Bringing the ranks' figures together, so that all ranks see the same and act alike.

use crate::harness::error::Error;
use serde::Serialize;
use serde::de::DeserializeOwned;
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

/// Returns the value of rank 0 on all ranks. The other ranks pass `None`.
pub(crate) fn of_first<T: Serialize + DeserializeOwned>(
    world: &Communicator,
    own: Option<&T>,
) -> Result<T, Error> {
    of_rank(world, 0, own)
}

/// Returns the value of a rank on all ranks. The other ranks pass `None`.
pub(crate) fn of_rank<T: Serialize + DeserializeOwned>(
    world: &Communicator,
    rank: u32,
    own: Option<&T>,
) -> Result<T, Error> {
    let mut bytes = match own {
        Some(value) => serde_json::to_vec(value).map_err(std::io::Error::from)?,
        None => Vec::new(),
    };
    let mut length = [bytes.len() as u64];
    world.bcast(&mut length, rank)?;
    bytes.resize(length[0] as usize, 0);
    world.bcast(&mut bytes, rank)?;
    Ok(serde_json::from_slice(&bytes).map_err(std::io::Error::from)?)
}
