//! Runs schedules in the operating system's kernel.

mod arena;
mod bell;
mod error;
mod fault;
mod interface;
mod layout;
mod loader;
mod prepared;
mod rank;
mod system;
mod tender;
pub mod wire;

pub use error::LoadError;
pub use fault::Fault;
pub use interface::Interface;
pub use loader::{Handles, JobDescription, Loader};
pub use rank::Rank;
