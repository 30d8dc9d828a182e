//! Message passing on one node: a mechanism for every size of message, in one shared segment.
//!
//! The queues are those of StarT-Voyager (Ang, Chiou, Rudolph, Arvind: *Message Passing Support for
//! Multi-grained, Multi-threading, and Multi-tasking Environments*, 1996) in software; channels and
//! remote memory commands follow Rosing and Saltz (*Low Latency Messages on Distributed Memory
//! Multiprocessors*, 1995).
//!
//! | to send | take | senders, receivers |
//! |---|---|---|
//! | five bytes, as an active message | [`express`] | any, any |
//! | up to 48 bytes | [`cache_line`] (wide Express; the shared form of Basic) | any, any |
//! | messages of some hundred bytes, several at once | [`basic`] | one, one |
//! | the same data to many | [`tag_on`] | any, any |
//! | number after number | [`channel`] | one, one |
//! | to memory of another process, without its taking part | [`window`], [`append`] | any, one |
//! | to one of hundreds of queues of a process, few of them busy | [`hall`] | any, one |
//! | much, from private memory to private memory | [`bulk`] | one, one |
//! | up to 4,088 bytes to a name: a port of this job, or of one that need not be trusted | [`post`], through halls or over [`lane`]s | as the post office allows |
//!
//! [`one_poll`] receives from the first non-empty queue of hundreds at the price of one. Waiting is
//! a short look and then sleep everywhere, and a sleeper costs a sender nothing until there is one.
//! Processes of one job share a segment and trust each other; different jobs meet in lanes only,
//! where every word is checked.

pub mod append;
pub mod basic;
mod bell;
pub mod bulk;
pub mod cache_line;
pub mod channel;
mod consumers;
pub mod departures;
mod ends;
pub mod error;
pub mod event;
pub mod express;
pub mod handlers;
pub mod lane;
mod liveness;
mod message;
pub mod name;
pub mod one_poll;
mod order;
mod patience;
pub mod post;
mod process_table;
pub mod queue;
pub mod receive_queues;
pub mod table;
pub mod tag_on;
mod waiting;
mod wakeup;
pub mod window;

pub use shm::sync;

use shm::{fence, futex};
