//! The interface of what carries messages between two ranks and can be measured, and rounds over
//! it.

use models::survey::{Rounds, SizeTimes};

/// Carries messages between two ranks and measures their times: a machine, or a simulation in
/// tests. Both ranks make the same calls.
pub trait Transport {
    /// Error of a message.
    type Error;

    /// Messages of this size take part in every round from now on.
    ///
    /// # Errors
    /// When they cannot be made ready.
    fn add(&mut self, bytes: u64) -> Result<(), Self::Error>;

    /// Returns the size that the first rank passes, if it passes one.
    ///
    /// # Errors
    /// When a rank is gone.
    fn agree(&self, bytes: Option<u64>) -> Result<Option<u64>, Self::Error> {
        Ok(bytes)
    }

    /// Goes through all sizes once, in the order in which they were added.
    ///
    /// # Errors
    /// When something goes wrong on the way.
    fn round(&mut self) -> Result<Vec<Reading>, Self::Error>;
}

/// Readings of the clock around the messages of one size. Times in microseconds, with what it takes
/// to read the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lap {
    /// Number of repetitions.
    pub count: u32,
    /// All of them, in microseconds.
    pub microseconds: f64,
}

impl Lap {
    /// One of them, without the time of reading the clock.
    fn each(self, nothing: f64) -> f64 {
        (self.microseconds - nothing) / f64::from(self.count.max(1))
    }
}

/// Extent of the rounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundsPlan {
    /// Sizes that are measured in any case, in bytes; 0 among them.
    pub sizes: Vec<u64>,
    /// Number of sizes that may be added where curves bend.
    pub most_added: usize,
    /// Rounds over all sizes.
    pub rounds: usize,
}

impl Default for RoundsPlan {
    /// 0, 1, 2, 4 … 1 MiB.
    fn default() -> Self {
        RoundsPlan {
            sizes: std::iter::once(0).chain((0..=20).map(|power| 1 << power)).collect(),
            most_added: 12,
            rounds: 18,
        }
    }
}

impl RoundsPlan {
    /// Few sizes and rounds, to see that it works.
    pub fn quick() -> Self {
        RoundsPlan {
            sizes: vec![0, 1, 64, 1 << 10, 4 << 10, 16 << 10, 128 << 10],
            most_added: 3,
            rounds: 9,
        }
    }
}

/// Rounds between two looks at the curves, and what is discarded at the start.
const LOOK: usize = 3;

/// Goes through rounds with what carries the messages. Both ranks call this.
///
/// First come short looks at the curves, after each of which a size is added where one
/// [bends](Rounds::bend). These rounds are discarded: they touch the memory. Then all sizes take
/// turns in every round, so that each sees every state that the machine goes through.
///
/// # Errors
/// The error of the transport.
pub fn rounds_of<T: Transport>(
    transport: &mut T,
    plan: &RoundsPlan,
) -> Result<Vec<Vec<Reading>>, T::Error> {
    let mut sizes = plan.sizes.clone();
    sizes.sort_unstable();
    sizes.dedup();
    sizes.iter().try_for_each(|bytes| transport.add(*bytes))?;
    for _ in 0..plan.most_added {
        let bend = times_of(&rounds(transport, LOOK)?).bend();
        let Some(bytes) = transport.agree(bend)? else { break };
        transport.add(bytes)?;
    }
    rounds(transport, LOOK)?;
    rounds(transport, plan.rounds)
}

fn rounds<T: Transport>(transport: &mut T, count: usize) -> Result<Vec<Vec<Reading>>, T::Error> {
    (0..count).map(|_| transport.round()).collect()
}

/// Times of messages from readings of the clock.
pub fn times_of(rounds: &[Vec<Reading>]) -> Rounds {
    let mut all = Rounds::default();
    for round in rounds {
        let mut nothing: Vec<f64> = round.iter().map(|reading| reading.nothing).collect();
        nothing.sort_by(f64::total_cmp);
        let nothing = nothing.get(nothing.len() / 2).copied().unwrap_or(0.0);
        let arrival = |reading: &Reading| reading.round_trips.each(nothing) / 2.0;
        // k messages and an empty answer take k g(m) + 2 L + g(0), and 2 (L + g(0)) is a round trip.
        let zero = round.iter().find(|reading| reading.bytes == 0);
        let round_trip = zero.map_or(0.0, |zero| 2.0 * arrival(zero));
        let beyond = |reading: &Reading| reading.stream.microseconds - nothing - round_trip;
        let gap = zero.map_or(0.0, |zero| {
            beyond(zero) / f64::from(zero.stream.count.saturating_sub(1).max(1))
        });
        for reading in round {
            let SizeTimes { arrival: arrivals, stream, send, receive } =
                all.0.entry(reading.bytes).or_default();
            arrivals.push(arrival(reading));
            stream.push((beyond(reading) + gap) / f64::from(reading.stream.count.max(1)));
            let overhead = |lap: Lap| (lap.count > 0).then(|| lap.each(nothing));
            send.extend(overhead(reading.sends));
            receive.extend(overhead(reading.receives));
        }
    }
    all
}
