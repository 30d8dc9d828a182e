//! The costs of collectives: the machine, measured parameters, predictions, and the choice of an
//! algorithm.
//!
//! The crate measures nothing, communicates nothing and reads no clock. **Times are microseconds**
//! and **sizes are bytes** throughout.
//!
//! | module | content |
//! |---|---|
//! | [`machine`] | cores, caches and sockets of this machine; classes of pairs of cores by distance; the machine's fingerprint |
//! | [`statistics`] | quantiles of repeated measurements |
//! | [`parameters`] | latency L, overheads os(m) and or(m), gap g(m): measured at some sizes, linear between them; one set for each class of pairs |
//! | [`survey`] | these parameters from the times of messages |
//! | [`formulas`] | one function for each formula, with its source; its page has the table of all of them |
//! | [`costs`] | the costs of one level of a machine; predicts every algorithm, with its best segment size or degree |
//! | [`prediction`] | every plan of a call on every engine of a measured machine, with its predicted time |
//! | [`calibration`] | corrections of parameters between nodes, fitted to times of collectives |
//! | [`builtin`] | parameters for jobs between nodes without measurements |
//! | [`simulation`] | a collective simulated by processes that execute each other's operations and share cores |
//! | [`fit`] | lines, broken lines and contention ratio fitted to measurements, with their uncertainty |
//! | [`decision`] | decision tables, built-in rules, decisions and their reasons |
//! | [`machine_file`] | `machine.json`, and the difference of two such files |
//! | [`mpi_table`] | blocking collectives that are faster than those of an MPI library |
//! | [`file`](mod@file) | versioned files, validated when read, replaced atomically when written |
//!
//! The models are those of the parameterised LogP model. Kielmann, Bal, Verstoep: "Fast Measurement
//! of LogP Parameters for Message Passing Platforms", 2000; Barchet-Estefanel, Mounié: "Performance
//! Characterisation of Intra-Cluster Collective Communications", 2004; the fits of times against
//! lengths and of barriers are those of Bokhari: "Communication Overhead on the Intel Paragon, IBM
//! SP2 & Meiko CS-2", ICASE Interim Report 28, 1995.
//!
//! [`Models`](prediction::Models) predicts calls, and has an example.
#![forbid(unsafe_code)]

pub mod builtin;
pub mod calibration;
pub mod costs;
pub mod decision;
pub mod file;
pub mod fit;
pub mod formulas;
pub mod machine;
pub mod machine_file;
pub mod mpi_table;
pub mod parameters;
pub mod prediction;
mod query;
pub mod simulation;
pub mod statistics;
pub mod survey;
