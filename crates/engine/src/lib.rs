//! Linking schedules and running them on one node: the caller and peers engines.
//!
//! The way of one collective through this crate:
//!
//! [`node`] (the job's segment, who is alive) → [`group`] (a communicator) → [`lane`] (numbered
//! runs and their slots) → either `ring` (a single join of all ranks: no linking) or [`linkage`]
//! (`linking` → `program` → `execute`; everything else) → `wait` → [`pending`] (test, wait, fetch).

mod arrivals;
mod attendance;
mod board;
pub mod call;
mod claims;
mod combiner;
mod decisions;
mod error;
mod execute;
mod fetch;
pub mod group;
pub mod lane;
pub mod linkage;
mod linking;
mod lists;
pub mod meeting;
pub mod member;
pub mod node;
mod parcel;
pub mod pending;
mod program;
mod ready;
mod ring;
mod run;
mod slots;
mod staging;
pub mod streams;
mod sync;
pub mod trace;
mod wait;
mod wildcard;
mod work;

pub use decisions::Decisions;
pub use error::{Departure, Error, Laggard, Outcome};
