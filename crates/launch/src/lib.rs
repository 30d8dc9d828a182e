//! The start of a job: the process's rank, the other ranks and their nodes.
//!
//! [`detect`] reads from the environment how this process was started: alone, by `tradewind run`,
//! or by another launcher. Ranks on several nodes exchange their addresses through the key-value
//! space of the process manager that has started them ([`bootstrap`]), such as [`pmi`]. Everything
//! that a job derives from its secret it derives by [`secret::Secret::derive`].
//!
//! [`environment`] is the table of all variables of tradewind, with their defaults and meanings.
#![forbid(unsafe_code)]

mod addresses;
pub mod bootstrap;
pub mod detect;
pub mod environment;
mod error;
mod launchers;
pub mod node_identity;
pub mod pmi;
pub mod secret;

pub use error::LaunchError;
