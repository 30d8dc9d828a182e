//! Message passing on one node: a mechanism for every size of message, in one shared segment.
//!
//! The queues are those of StarT-Voyager (Ang, Chiou, Rudolph, Arvind: *Message Passing Support for Multi-grained,
//! Multi-threading, and Multi-tasking Environments*, 1996) in software; channels and remote memory commands follow Rosing
//! and Saltz (*Low Latency Messages on Distributed Memory Multiprocessors*, 1995).

pub mod append;
mod barrier;
pub mod basic;
mod bell;
pub mod channel;
pub mod dma;
mod ends;
pub mod event;
pub mod express;
mod form;
pub mod handlers;
pub mod lane;
pub mod lines;
pub mod name;
pub mod one_poll;
mod order;
mod patience;
mod peer;
mod poll_set;
pub mod post;
pub mod queue;
mod refusal;
pub mod remote;
pub mod ring;
pub mod table;
pub mod tag_on;
mod users;
mod waiting;
mod wakeup;
pub mod window;
pub mod word;

pub use shm::sync;

use shm::futex;
