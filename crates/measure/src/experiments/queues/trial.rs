//! Measures a mechanism with one size: rounds in which it and the floor take turns.

use super::message_path::{Floor, MessagePath};
use super::phases::{batches, largest, round_trips, stream};
use super::plan::{Case, Plan};
use super::row::{QueueRow, over_rounds};
use crate::harness::Error;
use tradewind::{Communicator, Op};

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

/// Repetitions within a round, the same on all ranks.
#[derive(Clone, Copy, Debug)]
struct TrialCounts {
    floor: u64,
    trips: u64,
    stream: u64,
    batch: u64,
    batches: u64,
}

/// Times of the rounds, in nanoseconds.
#[derive(Debug, Default)]
struct Rounds {
    floor: Vec<f64>,
    latency: Vec<f64>,
    ratio: Vec<f64>,
    gap: Vec<f64>,
    send: Vec<f64>,
    receive: Vec<f64>,
}

/// Measures it. All ranks call this and get the same row, except that those of rank 1 mean nothing.
pub(super) fn measure<W: MessagePath>(
    world: &Communicator,
    floor: &mut [Floor],
    ways: &mut [W],
    case: Case,
    plan: &Plan,
) -> Result<QueueRow, Error> {
    ways.iter_mut().for_each(|way| way.resize(case.bytes));
    let counts = counts(world, floor, ways, case, plan)?;
    check(world, ways, case)?;
    let mut rounds = Rounds::default();
    for round in 0..plan.rounds {
        one_round(world, floor, ways, case, counts, round, &mut rounds)?;
    }
    check(world, ways, case)?;
    Ok(row(case, plan, counts, &rounds))
}

/// Half a round trip of the floor; `None` between nodes, which have none.
fn floor_trips(
    world: &Communicator,
    floor: &mut [Floor],
    count: u64,
) -> Result<Option<f64>, Error> {
    if floor.is_empty() {
        return Ok(None);
    }
    round_trips(world, floor, 1, count).map(Some)
}

/// Settles how often things are done: each takes about a quarter of the round.
fn counts<W: MessagePath>(
    world: &Communicator,
    floor: &mut [Floor],
    ways: &mut [W],
    case: Case,
    plan: &Plan,
) -> Result<TrialCounts, Error> {
    let threads = case.threads as usize;
    floor_trips(world, floor, FIRST_LOOK)?;
    round_trips(world, ways, threads, FIRST_LOOK)?;
    let floor_ns = floor_trips(world, floor, FIRST_LOOK)?.unwrap_or(0.0);
    let seen = [floor_ns, round_trips(world, ways, threads, FIRST_LOOK)?];
    let [floor_ns, way_ns] = largest(world, seen)?.map(|time| time.max(1.0));
    let gap_ns = match world.nodes() {
        1 => way_ns,
        _ => {
            let count = ((FIRST_STREAM_NS / way_ns) as u64).clamp(16, FIRST_STREAM);
            stream(world, ways, threads, count)?.max(1.0)
        }
    };
    let slice = plan.row_ms as f64 * 1e6 / f64::from(plan.rounds) / 4.0;
    let many = |time: f64, least| ((slice / time) as u64).clamp(least, 1_000_000);
    let batch = (ways[0].capacity() / threads).min(MOST_IN_A_BATCH / threads) as u64;
    let per_thread = |count: u64| (count / u64::from(case.threads)).max(4);
    Ok(TrialCounts {
        floor: many(2.0 * floor_ns, 16),
        trips: per_thread(many(2.0 * way_ns, 4)),
        stream: per_thread(many(gap_ns, 16)),
        batch,
        batches: many(AROUND_A_BATCH * f64::from(case.threads) + 2.0 * way_ns * batch as f64, 3),
    })
}

fn one_round<W: MessagePath>(
    world: &Communicator,
    floor: &mut [Floor],
    ways: &mut [W],
    case: Case,
    counts: TrialCounts,
    round: u32,
    rounds: &mut Rounds,
) -> Result<(), Error> {
    let threads = case.threads as usize;
    let mut floor_ns = None;
    let mut latency_ns = 0.0;
    // The order alternates, so that neither profits from it.
    for turn in 0..2 {
        if (turn + round).is_multiple_of(2) {
            floor_ns = floor_trips(world, floor, counts.floor)?;
        } else {
            latency_ns = round_trips(world, ways, threads, counts.trips)?;
        }
    }
    rounds.latency.push(latency_ns);
    if let Some(floor_ns) = floor_ns {
        rounds.floor.push(floor_ns);
        rounds.ratio.push(latency_ns / floor_ns.max(f64::MIN_POSITIVE));
    }
    rounds.gap.push(stream(world, ways, threads, counts.stream)?);
    if counts.batch > 0 {
        let [send, receive] = batches(world, ways, threads, counts.batch, counts.batches)?;
        rounds.send.push(send);
        rounds.receive.push(receive);
    }
    Ok(())
}

/// Returns true if what came last was right, on both ranks.
fn check<W: MessagePath>(world: &Communicator, ways: &[W], case: Case) -> Result<(), Error> {
    let wrong = u32::from(!ways.iter().all(MessagePath::is_right));
    let mut all = [0];
    world.allreduce(&[wrong * (world.rank() + 1)], &mut all, Op::Maximum)?;
    match all[0].checked_sub(1) {
        None => Ok(()),
        Some(rank) => Err(Error::WrongData {
            rank,
            what: format!("{} of {} bytes", case.mechanism, case.bytes),
        }),
    }
}

fn row(case: Case, plan: &Plan, counts: TrialCounts, rounds: &Rounds) -> QueueRow {
    let gap_ns = over_rounds(&rounds.gap);
    QueueRow {
        mechanism: case.mechanism,
        threads: case.threads,
        bytes: case.bytes,
        send_ns: over_rounds(&rounds.send),
        receive_ns: over_rounds(&rounds.receive),
        latency_ns: over_rounds(&rounds.latency),
        gap_ns,
        floor_ns: over_rounds(&rounds.floor),
        ratio: over_rounds(&rounds.ratio),
        megabytes_per_second: gap_ns
            .filter(|gap| gap.median > 0.0)
            .map(|gap| case.bytes as f64 * 1e3 / gap.median),
        processor_percent: None,
        rounds: plan.rounds,
        round_trips: counts.trips * u64::from(case.threads),
    }
}
