//! Messages between ranks and between programs: a mechanism for every size of message.
//!
//! All of them lie in shared memory of one node. Node services carry the messages between nodes, as
//! users of the same queues: [`internode`], `channel::carried`, `window::carried`, and
//! [`matching`] have their ends.
//!
//! The queues implement in software those of StarT-Voyager (Ang, Chiou, Rudolph, Arvind: *Message
//! Passing Support for Multi-grained, Multi-threading, and Multi-tasking Environments*, 1996).
//! Channels and remote memory commands follow Rosing and Saltz (*Low Latency Messages on
//! Distributed Memory Multiprocessors*, 1995).
//!
//! | Data | Module | Senders, receivers |
//! |---|---|---|
//! | messages of any length, selected by sender and tag | [`matching`] | any, any |
//! | five bytes, as an active message | [`express`] | any, any |
//! | up to 48 bytes | [`cache_line`] (also the shared form of Basic) | any, any |
//! | messages of some hundred bytes, several at once | [`basic`] | one, one |
//! | the same data to many receivers | [`tag_on`] | any, any |
//! | a stream of numbers | [`channel`] | one, one |
//! | one-sided access to memory of another process | [`window`], [`append`] | any, one |
//! | messages to one of hundreds of queues of a process, few of them active | [`receive_queues`] | any, one |
//! | large data, from private memory to private memory | [`bulk`] | one, one |
//!
//! [`one_poll`] receives from the first non-empty queue of hundreds at the cost of one. Every
//! waiting operation polls for a bounded time and then sleeps; a sleeper costs senders nothing
//! until there is one. Processes of one job share a segment and trust each other.

pub mod append;
pub mod basic;
pub mod bulk;
pub mod cache_line;
pub mod channel;
mod consumers;
pub mod error;
pub mod express;
pub mod handlers;
pub mod id;
pub mod internode;
pub mod matching;
mod message;
pub mod observed;
pub mod one_poll;
mod positions;
pub mod queue;
pub mod receive_queues;
pub mod remote_waits;
mod request;
mod slot_ring;
pub mod tag_on;
pub mod window;

pub use shm::{event, sync};

use shm::fence;
