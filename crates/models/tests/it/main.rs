//! Tests of the models.

#![expect(clippy::unwrap_used, reason = "a test that cannot make its own input should fail")]

mod agreement;
mod files;
mod fits;
mod formulas;
mod hostile;
mod linked_programs;
mod network_rules;
mod node_work;
mod order_statistics;
mod recorded;
mod refinement;
mod sample_machine;
mod segments;
mod selection;
mod simulation;
mod timed_plans;
mod topology;
