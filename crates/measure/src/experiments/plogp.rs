//! The parameters of pLogP, by the method of Kielmann, Bal and Verstoep ("Fast Measurement of LogP
//! Parameters for Message Passing Platforms", IPPS Workshops 2000, Lecture Notes in Computer
//! Science 1800), for the transport that algorithms of [`collectives`] use: sends and receives of
//! linked schedules. [`models::survey`] computes them from the times in the rows.
//!
//! Everything runs inside schedules, with clock readings as operations between the messages. So
//! what is measured is what a message of an algorithm pays, and not the call that starts a run,
//! which is measured apart.
//!
//! | row | how |
//! |---|---|
//! | gap, of size 0 | saturation: many messages in a row, an answer to the last one: k messages take k g + 2 L + g(0) |
//! | latency | half of RTT(m) = 2 (L + g(m)) |
//! | gap | a message in a stream of such messages |
//! | send overhead | sends in a row to a rank that does not receive them yet |
//! | receive overhead | receives in a row of messages that have come. Kielmann's request, delay and reply: here the sender reports when all is sent, so no delay is guessed |
//!
//! Round trips carry the message both ways, and each is sent on from where it was received. The
//! paper sends an empty answer to save time. But memory of which the peer's cache has no part is
//! read and written faster than memory that has just come from there, and what algorithms pass on
//! is of the second kind.
//!
//! **Owner of an overhead.** Under the *caller* engine a rank runs its own operations, and an
//! overhead is its processor's, as in the model: these are the
//! [`engines`](models::machine_file::Machine::engines) of a machine, and what the models of
//! message-passing algorithms are about. Under the *peers* engine the rank that completes an
//! operation runs its successors. One process carries a chain through all ranks; no message is
//! under way, L has no meaning, and os and or are the two parts of what a message takes of that
//! process. They are measured too, and kept apart.
//!
//! **Same core.** Two ranks that share a core take turns: their L is mostly a switch by the kernel.
//!
//! **Repeatability.** A machine changes its speed for seconds at a time. So every size is measured
//! in every round, the classes and engines take turns in passes over the whole time, and what
//! counts is the fastest quarter of all rounds.
//!
//! [`rounds_of`] needs neither a clock nor a communicator: it goes over any [`Transport`].

mod contention;
mod experiment;
mod found;
mod lone_message;
mod machine;
mod nodes;
mod noise;
mod pair;
mod part;
mod patterns;
mod progress;
mod starts;
mod transport;

pub use machine::{check_machine, write_machine};
pub use part::{PLOGP, PROGRESS};
pub use transport::{Lap, Reading, RoundsPlan, Transport, rounds_of, times_of};

use crate::harness::{Error, Experiment, Setting};
use models::machine_file::Engine;
use tradewind::{CallForm, Communicator};

/// The steps of [`PLOGP`].
fn experiment(setting: &Setting) -> Experiment {
    match &setting.nodes {
        Some(nodes) => nodes::experiment(setting, nodes),
        None => experiment::on_one_node(setting),
    }
}

/// The engine that runs nonblocking collectives between the nodes of a job where nothing selects
/// another one. All ranks call this.
///
/// # Errors
/// When a rank is gone.
pub fn engine_between_nodes(world: &Communicator) -> Result<Engine, Error> {
    pair::engine_of_calls(world, CallForm::Nonblocking)
}
