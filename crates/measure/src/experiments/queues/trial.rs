//! Times of a mechanism with one size: rounds in which it and the floor take turns.

use super::message_path::{End, Floor, MessagePath};
use super::open;
use super::phases::{batches, round_trips, stream};
use super::plan::Case;
use crate::harness::timer::Batches;
use crate::harness::{Error, StepContext, agreement};
use crate::rows::{Quantity, Row, What};
use tradewind::Communicator;

/// Round trips that warm up, and those of a first look.
const FIRST_LOOK: u64 = 24;
/// Messages of a batch at most: more would only leave the caches.
const MOST_IN_A_BATCH: usize = 256;
/// Messages of the first look at a stream between nodes, where a message takes much longer than the
/// next one follows: the most, and their time if none overlaps another.
const FIRST_STREAM: u64 = 4096;
const FIRST_STREAM_NS: f64 = 20e6;
/// About what two barriers, and starting threads, cost beside a batch, in nanoseconds.
const AROUND_A_BATCH: f64 = 10_000.0;

/// A mechanism between two ranks, and the floor; between nodes there is none.
struct Trial<'w, W> {
    world: &'w Communicator,
    case: Case,
    floor: Vec<End<Floor>>,
    ways: Vec<End<W>>,
}

/// Repetitions within a round, the same on all ranks; of a mechanism, for each thread.
#[derive(Clone, Copy, Debug)]
struct TrialCounts {
    floor: u64,
    trips: u64,
    stream: u64,
    batch: u64,
    batches: u64,
}

/// Nanoseconds in each round.
#[derive(Debug, Default)]
struct Rounds {
    floor: Vec<f64>,
    latency: Vec<f64>,
    gap: Vec<f64>,
    send: Vec<f64>,
    receive: Vec<f64>,
}

/// Times it. All ranks call this and get the same rows, except that those of rank 1 mean nothing.
pub(super) fn measure<W: MessagePath>(
    here: &StepContext<'_>,
    case: Case,
    extent: Batches,
    ways: Vec<W>,
) -> Result<Vec<Row>, Error> {
    let world = here.world;
    let has_floor = world.nodes() == 1 && !case.is_of_trips;
    let floor = if has_floor { vec![open::floor(world)?] } else { Vec::new() };
    let floor = End::all(floor, case.bytes);
    let ways = End::all(ways, case.bytes);
    let mut trial = Trial { world, case, floor, ways };
    let counts = trial.counts(extent)?;
    trial.check()?;
    let mut rounds = Rounds::default();
    for round in 0..extent.rounds {
        trial.round(counts, round, &mut rounds)?;
    }
    // This also keeps either rank from closing an end that the other still uses.
    trial.check()?;
    Ok(rows(here, case, counts, rounds))
}

fn rows(here: &StepContext<'_>, case: Case, counts: TrialCounts, rounds: Rounds) -> Vec<Row> {
    let TrialCounts { floor, trips, stream, batch, .. } = counts;
    let messages = What::Messages(case.mechanism);
    let timed = [
        (&messages, Quantity::Latency, trips, rounds.latency),
        (&messages, Quantity::Gap, stream, rounds.gap),
        (&messages, Quantity::SendOverhead, batch, rounds.send),
        (&messages, Quantity::ReceiveOverhead, batch, rounds.receive),
        (&What::Word, Quantity::Latency, floor, rounds.floor),
    ];
    let row = |(what, quantity, count, times): (&What, Quantity, u64, Vec<f64>)| {
        let threads = if *what == What::Word { 1 } else { case.threads };
        let times = times.into_iter().map(|nanoseconds| nanoseconds * 1e-3).collect();
        let row = here.row(what.clone(), quantity, times).sized(case.bytes);
        Row { threads: Some(threads), calls: count as u32 * threads, ..row }
    };
    timed.into_iter().filter(|(.., times)| !times.is_empty()).map(row).collect()
}

impl<W: MessagePath> Trial<'_, W> {
    fn threads(&self) -> usize {
        self.case.threads as usize
    }

    /// Half a round trip of the floor.
    fn floor(&mut self, count: u64) -> Result<Option<f64>, Error> {
        if self.floor.is_empty() {
            return Ok(None);
        }
        round_trips(self.world, &mut self.floor, 1, count).map(Some)
    }

    /// Half a round trip of the mechanism.
    fn latency(&mut self, count: u64) -> Result<f64, Error> {
        let threads = self.threads();
        round_trips(self.world, &mut self.ways, threads, count)
    }

    /// Repetitions with which each measurement takes about a quarter of a round, or the only one all
    /// of it.
    fn counts(&mut self, extent: Batches) -> Result<TrialCounts, Error> {
        let threads = self.threads();
        self.floor(FIRST_LOOK)?;
        self.latency(FIRST_LOOK)?;
        let seen = [self.floor(FIRST_LOOK)?.unwrap_or(0.0), self.latency(FIRST_LOOK)?];
        let seen = agreement::largest(self.world, &seen)?;
        let [floor_ns, way_ns] = [seen[0].max(1.0), seen[1].max(1.0)];
        let gap_ns = match self.world.nodes() {
            1 => way_ns,
            _ => {
                let count = ((FIRST_STREAM_NS / way_ns) as u64).clamp(16, FIRST_STREAM);
                stream(self.world, &mut self.ways, threads, count)?.max(1.0)
            }
        };
        let share = if self.case.is_of_trips { 1.0 } else { 0.25 };
        let slice = extent.microseconds * 1e3 * share;
        let many = |time: f64, least| ((slice / time) as u64).clamp(least, 1_000_000);
        let batch = (self.ways[0].capacity() / threads).min(MOST_IN_A_BATCH / threads) as u64;
        let per_thread = |count: u64| (count / threads as u64).max(4);
        let batch_ns = AROUND_A_BATCH * threads as f64 + 2.0 * way_ns * batch as f64;
        Ok(TrialCounts {
            floor: many(2.0 * floor_ns, 16),
            trips: per_thread(many(2.0 * way_ns, 4)),
            stream: per_thread(many(gap_ns, 16)),
            batch,
            batches: many(batch_ns, 3),
        })
    }

    fn round(&mut self, counts: TrialCounts, round: u32, rounds: &mut Rounds) -> Result<(), Error> {
        // The order alternates, so that neither profits from it.
        for turn in 0..2 {
            if (turn + round).is_multiple_of(2) {
                rounds.floor.extend(self.floor(counts.floor)?);
            } else {
                rounds.latency.push(self.latency(counts.trips)?);
            }
        }
        if self.case.is_of_trips {
            return Ok(());
        }
        let threads = self.threads();
        rounds.gap.push(stream(self.world, &mut self.ways, threads, counts.stream)?);
        if counts.batch > 0 {
            let TrialCounts { batch, batches: number, .. } = counts;
            let times = batches(self.world, &mut self.ways, threads, batch, number)?;
            rounds.send.push(times[0]);
            rounds.receive.push(times[1]);
        }
        Ok(())
    }

    /// Refuses what came last if it was wrong on either rank.
    fn check(&self) -> Result<(), Error> {
        let wrong = u32::from(!self.ways.iter().all(End::is_right));
        let own = [f64::from(wrong * (self.world.rank() + 1))];
        match (agreement::largest(self.world, &own)?[0] as u32).checked_sub(1) {
            None => Ok(()),
            Some(rank) => {
                let Case { mechanism, bytes, .. } = self.case;
                Err(Error::WrongData { rank, what: format!("{mechanism} of {bytes} bytes") })
            }
        }
    }
}
