//! Message passing on one node: a mechanism for every size of message, in one shared segment.
//!
//! The queues are those of StarT-Voyager (Ang, Chiou, Rudolph, Arvind: *Message Passing Support for Multi-grained,
//! Multi-threading, and Multi-tasking Environments*, 1996) in software; channels and remote memory commands follow Rosing
//! and Saltz (*Low Latency Messages on Distributed Memory Multiprocessors*, 1995).

mod barrier;
pub mod basic;
pub mod channel;
pub mod lane;
pub mod name;
mod patience;
mod peer;
pub mod post;
pub mod table;
mod wakeup;

pub use shm::sync;

use shm::futex;
