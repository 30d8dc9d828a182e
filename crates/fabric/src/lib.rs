//! Messages between nodes through libfabric, which is opened at run time.
//!
//! [`Library::open`] opens the library, versions 1.17 to 2.x. An [`Endpoint`] sends and receives
//! reliable messages through one of its providers, and reads memory that a peer has
//! [registered](Endpoint::register). It has the rules of all providers: what needs registered
//! memory, which messages are injected, what can be waited for. Nothing of libfabric is needed to
//! build this crate; [`abi`] has the layouts.

pub mod abi;
mod arena;
mod endpoint;
mod error;
mod library;
mod memory;
mod open;
mod provider;
mod search;

pub use endpoint::{Endpoint, Event, Peer, Received, SendBuffer};
pub use error::Error;
pub use library::{Functions, Library};
pub use memory::{Access, Memory, Remote};
pub use provider::{Choice, LongMessages, Provider, Selection};
pub use search::{Request, providers};
