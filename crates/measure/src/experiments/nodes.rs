//! Costs of collectives between nodes, by engine: the figures of the offload paper on this
//! machine.
//!
//! Schneider, Eckelmann, Hoefler, Rehm: "Kernel-Based Offload of Collective Operations", 2011,
//! figures 4 to 7. An [`Candidate`] is an engine with ranks on each node, one as a rule; every
//! measure is a [`Measure`] that is taken of all candidates in turns, [`ROUNDS`] times or more, so
//! that a machine that drifts drifts for all of them.
//!
//! The ranks are threads of one process, bound to a core each as far as there are cores. So the
//! processor time of the process is that of ranks, engines and, where a packet is received in its
//! sender's call, of the network, too.
//!
//! ```
//! use measure::experiments::nodes::{Candidate, SameNode, Measure, Setting, compare};
//! use network::backend::Backend;
//! use std::sync::Arc;
//!
//! // Two nodes that are threads: no network at all.
//! let clients = network::local::connect(&network::node_map::NodeMap::new(["a", "b"]))?;
//! let backends = clients.into_iter().map(|client| Arc::new(client) as Arc<dyn Backend>);
//! let candidates = [Candidate::new("agent", backends.collect())];
//! let setting = Setting { rounds: 1, ..Setting::quick() };
//! let rows = compare(&candidates, &[Measure::Barrier], &setting, &SameNode)?;
//! assert!(rows[0].median > 0.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cost;
mod floor;
mod lap;
mod measure;
mod part;
mod programs;
mod row;
mod session;
mod setting;

pub use floor::sockets;
pub use measure::{EXCHANGE_ROUNDS, ExchangePattern, LevelScheme, Measure};
pub use part::part;
pub use row::{Row, Target, Unit, targets};
pub use session::{Candidate, RankLocation, SameNode};
pub use setting::{ROUNDS, Setting};

use crate::harness::Error;
use crate::harness::computation::ComputeRate;
use session::Session;

/// Takes every measure of every candidate, in turns, with the ranks' threads on the cores of
/// `place`.
///
/// # Errors
/// The error of an engine, with its name.
pub fn compare(
    candidates: &[Candidate],
    measures: &[Measure],
    setting: &Setting,
    place: &dyn RankLocation,
) -> Result<Vec<Row>, Error> {
    let rate = ComputeRate::calibrate();
    let mut rows = Vec::new();
    for measure in measures {
        let mut columns = Vec::new();
        for candidate in candidates {
            columns.push(Session::prepare(candidate, *measure)?);
        }
        for _ in 0..setting.rounds {
            for session in columns.iter_mut().flatten() {
                session.take(setting, rate, place)?;
            }
        }
        for session in columns.into_iter().flatten() {
            rows.extend(session.finish());
        }
    }
    Ok(rows)
}
