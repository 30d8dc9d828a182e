//! Which algorithm is best when: the decision table of a machine, and its regret.
//!
//! The models of `machine.json` predict every plan of a call, each with its best segment size or
//! degree. An [`experiment`] for a [`Purpose`] times some of them, each of which becomes a row beside
//! those of the predictions. Everything else is a function of rows.
//!
//! [`Purpose::Decision`]: the candidates with predictions within the models' own error of the best,
//! most used sizes first, until the time is over. The [table](table::on_one_node) is built from
//! the models, [at the speed](at_speed) that the clock has found, and corrected where the clock
//! disagrees. Between nodes the models are [corrected](table::corrected) first, by times of every plan
//! at few sizes ([`Purpose::Calibration`]), and the predictions of single plans by their own times
//! ([`table::of_table`]).
//!
//! [`Purpose::Check`]: all candidates at sizes that the table was not made from, in another job. The
//! losses are the times of the choices of the models and of the table over the best.

mod calls;
mod candidates;
mod losses;
mod measure;
mod part;
mod purpose;
mod speed;
pub mod table;
mod timed;
#[cfg(test)]
mod trial;

pub use candidates::{EFFORT, MEASURE_ALL, MODELS_ONLY, UNTIL};
pub use losses::losses_between_nodes;
pub use measure::experiment;
pub use part::{CALIBRATION, DECISIONS, REGRET};
pub use purpose::{Purpose, between_nodes};
pub use speed::at_speed;
