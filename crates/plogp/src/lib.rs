//! placeholder
#![forbid(unsafe_code)]

#[macro_use]
mod names;

pub mod costs;
pub mod fit;
pub mod models;
pub mod operation;
pub mod pair_class;
pub mod parameters;
pub mod segment;

pub use names::UnknownName;
