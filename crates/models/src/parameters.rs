//! The parameters of one class of pairs: latency, overheads and gap as functions of the message
//! size.
//!
//! Kielmann, Bal, Verstoep: "Fast Measurement of LogP Parameters for Message Passing Platforms",
//! IPPS Workshops 2000, Lecture Notes in Computer Science 1800: the parameters are kept at measured
//! sizes only, and are linear between them.

mod classes;
mod plogp;

pub use classes::Classes;
pub(crate) use plogp::LONGEST;
pub use plogp::{Parameters, ParametersError, Point};
