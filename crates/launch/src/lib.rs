//! The start of a job: the process's rank, the other ranks and their nodes.
//!
//! [`detect`] reads from the environment how this process was started: alone, by `tradewind run`,
//! or by another launcher. Ranks on several nodes exchange their addresses ([`bootstrap`]) through
//! a key-value space ([`key_values`]): that of the process manager that has started them, by
//! [`pmi`] or [`pmix`], or one over TCP ([`store`]). [`process_manager`] connects with it.
//! Everything that a job derives from its secret it derives by [`secret::Secret::derive`].
//!
//! [`environment`] is the table of all variables of tradewind, with their defaults and meanings.
#![deny(unsafe_code)]

mod addresses;
pub mod bootstrap;
pub mod detect;
mod edit_distance;
pub mod environment;
mod error;
pub mod key_values;
mod launchers;
pub mod mpi_calls;
pub mod node_identity;
pub mod pmi;
pub mod pmix;
pub mod ports;
pub mod process_manager;
pub mod secret;
pub mod service_name;
pub mod store;

pub use error::LaunchError;
