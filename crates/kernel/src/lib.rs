//! Runs schedules in the operating system's kernel.

mod arena;
mod bell;
mod error;
mod layout;
mod loader;
mod prepared;
mod rank;
mod system;

pub use error::LoadError;
pub use loader::{Handles, JobDescription, Loader, Peer};
pub use rank::{Fault, Rank};
