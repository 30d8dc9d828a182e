//! The interface of what carries messages between two ranks and can be measured.

use serde::{Deserialize, Serialize};

/// Carries messages between two ranks and measures their times: a machine, or a simulation in
/// tests.
pub trait Transport {
    /// Error of a message.
    type Error;

    /// Messages of this size take part in every round from now on.
    ///
    /// # Errors
    /// When they cannot be made ready.
    fn add(&mut self, bytes: u64) -> Result<(), Self::Error>;

    /// Goes through all sizes once, in the order in which they were added.
    ///
    /// # Errors
    /// When something goes wrong on the way.
    fn round(&mut self) -> Result<Vec<Reading>, Self::Error>;
}

/// Readings of the clock around the messages of one size. Times in microseconds, with what it takes
/// to read the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reading {
    /// The size of the messages.
    pub bytes: u64,
    /// Around nothing.
    pub nothing: f64,
    /// From a message's send until it has come back; this many times in a row.
    pub round_trips: Lap,
    /// From the first send of a stream until an empty answer to its last message has come.
    pub stream: Lap,
    /// Around sends without receives; of none where the overhead has no meaning.
    pub sends: Lap,
    /// Around receives of messages that have come; of none where the overhead has no meaning.
    pub receives: Lap,
}

/// The time of several things in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lap {
    /// Number of repetitions.
    pub count: u32,
    /// All of them, in microseconds.
    pub microseconds: f64,
}

impl Lap {
    /// One of them, without the time of reading the clock.
    pub(super) fn each(self, nothing: f64) -> f64 {
        (self.microseconds - nothing) / f64::from(self.count.max(1))
    }
}
