//! What collectives cost, predicted: parameters, models, fits and the choice of an algorithm.
//! Nothing here measures, communicates or knows a clock; **times are microseconds** and **sizes are
//! bytes** throughout.
//!
//! | room | one job |
//! |---|---|
//! | [`parameters`] | latency L, overheads os(m) and or(m), gap g(m): measured at some sizes, straight lines between |
//! | [`pair_class`] | parameters for each distance of two ranks, and what stands in for a distance nobody has measured |
//! | [`models`] | one function for each formula, with its source; its page has the table of all of them |
//! | [`segment`] | the search for the best segment size |
//! | [`costs`] | all that one level of a machine costs; predicts any algorithm by name, with its best segment size or degree |
//! | [`sharing`] | what a collective costs where processes execute each other's operations and share cores, played through |
//! | [`fit`] | lines, broken lines, contention ratio and joins from measurements, with their uncertainty |
//! | [`select`] | candidates, decision tables, decisions and their reasons |
//! | [`machine`], [`fingerprint`] | `machine.json`, and whose it is |
//! | [`file`](mod@file) | how files are read with doubt and written whole |
//!
//! The models are those of the parameterised LogP model. Kielmann, Bal, Verstoep: "Fast Measurement
//! of LogP Parameters for Message Passing Platforms", 2000; Barchet-Estefanel, Mounié: "Performance
//! Characterisation of Intra-Cluster Collective Communications", 2004; the fits of times against
//! lengths and of barriers are those of Bokhari: "Communication Overhead on the Intel Paragon, IBM
//! SP2 & Meiko CS-2", ICASE Interim Report 28, 1995.
//!
//! ```
//! use plogp::costs::Costs;
//! use plogp::operation::{Algorithm, Operation};
//! use plogp::parameters::Parameters;
//! use plogp::select::{Prices, Query};
//!
//! // A gigabit Ethernet, about: 50 µs, and 8 ns a byte.
//! let costs = Costs::of_messages(Parameters::linear(50.0, (3.0, 0.001), (4.0, 0.001), (10.0, 0.008))?);
//! let prices = Prices { inside: &costs, between: None, available: &|_, _, _| true };
//! let best = |bytes| {
//!     let query = Query { operation: Operation::Bcast, ranks: 16, ranks_per_node: 16, bytes };
//!     prices.candidates(&query)[0].plan.algorithm
//! };
//! assert_eq!(best(1), Algorithm::Dary);
//! assert_eq!(best(16 << 20), Algorithm::TwoTree);
//! # Ok::<(), plogp::parameters::ParametersError>(())
//! ```
#![forbid(unsafe_code)]

#[macro_use]
mod names;

pub mod agreement;
pub mod costs;
pub mod file;
pub mod fingerprint;
pub mod fit;
pub mod machine;
pub mod models;
pub mod operation;
pub mod pair_class;
pub mod parameters;
pub mod segment;
pub mod select;
pub mod sharing;

pub use names::UnknownName;
