//! Tests of graphs, schedules, file formats and checks.

#![expect(clippy::unwrap_used, reason = "a test without its input should fail")]

mod arithmetic_floats;
mod arithmetic_forms;
mod arithmetic_integers;
mod arithmetic_other;
mod binary;
mod check_global;
mod check_race;
mod check_rank;
mod depth;
mod hostile;
mod join;
mod random_graphs;
mod samples;
mod schedule_damage;
mod schedule_properties;
mod text;
