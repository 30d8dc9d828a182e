//! Linked schedules: any graph, linked with the graphs of the other ranks.
//!
//! [`goal::link`] pairs sends with receives and counts the arrivals that enable each operation. This
//! module lays out the memory of the program's runs, counts arrivals during a run and executes the
//! operations that become enabled.

pub(crate) mod activation;
pub(crate) mod block;
pub(crate) mod executor;
pub(crate) mod frame;
mod lists;
mod matcher;
pub(crate) mod program;
