//! Linked schedules: any graph, linked with the graphs of the other ranks.
//!
//! The linker pairs sends with receives and lays out the frames; a run counts arrivals and executes
//! the operations that become ready.

pub(crate) mod activation;
pub(crate) mod executor;
pub(crate) mod linker;
mod lists;
mod matcher;
pub(crate) mod program;
