//! Programs that were started separately and meet by name.
//!
//! One program publishes a name ([`Job::publish`]), any number of others connect with it
//! ([`Job::connect`]). Both belong to the same user; neither needs to be a rank of a job. A message
//! has up to [`MAX_MESSAGE_BYTES`] bytes. Messages of a connection arrive complete, once and in the
//! order in which they were sent; a receiver that does not receive blocks its own senders only.
//!
//! Each connection is a ring in memory that the two programs share; the user's name server on the
//! node creates it and starts with the first program that needs it. The receiver validates every
//! word, so the programs need not trust each other.
//!
//! A program can [exclude](PublishedPort::refuse) a client, and [give its name](PublishedPort::move_to)
//! to another program while its clients go on: no message is lost or reordered
//! (`examples/hand_over.rs`).
//!
//! ```no_run
//! use tradewind::Job;
//! use tradewind::names::PeerEvent;
//!
//! # fn main() -> Result<(), tradewind::names::PeerError> {
//! // In one program:
//! let mut squares = Job::publish("squares")?;
//! while let Ok(event) = squares.recv() {
//!     let PeerEvent::Message { client, bytes } = event else { continue };
//!     let number = i64::from_le_bytes(bytes.try_into().expect("eight bytes"));
//!     squares.reply(client, &(number * number).to_le_bytes())?;
//! }
//! // In another one:
//! let mut client = Job::connect("squares")?;
//! client.send(&7i64.to_le_bytes())?;
//! assert_eq!(client.recv()?, &49i64.to_le_bytes());
//! # Ok(())
//! # }
//! ```

use crate::job::Job;
pub use ::names::{
    Client, ConnectedPort, MAX_CLIENTS, MAX_MESSAGE_BYTES, PeerError, PeerEvent, PublishedPort,
};

impl Job {
    /// Publishes a name for programs that were started separately: letters, digits, dots, dashes
    /// and underscores, at most 64. This process need not be a rank.
    ///
    /// The name belongs to this user on this node until the returned port is dropped or the process
    /// ends. `tradewind names` lists what is published.
    ///
    /// # Errors
    /// [`PeerError::Taken`] if another process has published the name;
    /// [`PeerError::InvalidName`]; [`PeerError::Start`] if the name server cannot be started.
    pub fn publish(name: &str) -> Result<PublishedPort, PeerError> {
        ::names::publish(name)
    }

    /// Connects with the program that has published a name.
    ///
    /// # Errors
    /// [`PeerError::Unknown`], which lists the names that are published;
    /// [`PeerError::InvalidName`]; [`PeerError::Start`] if the name server cannot be started.
    pub fn connect(target: &str) -> Result<ConnectedPort, PeerError> {
        ::names::connect(target)
    }
}
