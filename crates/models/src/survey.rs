//! Parameters of pLogP from the times of messages, by the method of Kielmann, Bal and Verstoep
//! ("Fast Measurement of LogP Parameters for Message Passing Platforms", IPPS Workshops 2000).
//!
//! | parameter | from |
//! |---|---|
//! | g(0) | messages in a stream |
//! | L | half a round trip is L + g(0) |
//! | g(m) | half a round trip is L + g(m), but never less than in a stream |
//! | os(m), or(m) | sends and receives in a row |

use crate::machine_file::{Samples, SizeSamples};
use crate::parameters::{Parameters, ParametersError, Point};
use crate::statistics::{Sample, median, never_falling, percentile, pooled};
use std::collections::BTreeMap;

/// Share of the rounds that count, from the fastest on.
///
/// Disturbances only lengthen a round: interrupts, other virtual machines on the same processor,
/// slower states of the memory. The faster rounds are reproducible between runs, while the very
/// fastest are chance; so the parameters are medians over the fastest quarter. All sizes together
/// select these rounds. A selection for each size would let the difference of two sizes contain
/// the difference of two states of the machine.
const COUNTED: f64 = 0.25;
/// Messages up to this size are short: every engine sends them before their receives.
const SHORT: u64 = goal::limits::EAGER_ON_NODE;
/// A gap below this share of that of a shorter message is no ripple of a curve.
const FALLEN: f64 = 0.7;

/// Times of the messages of one size in microseconds, one of each round.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SizeTimes {
    /// Half a round trip.
    pub arrival: Vec<f64>,
    /// A message of a stream of messages that do not wait for each other.
    pub stream: Vec<f64>,
    /// A send; none where the overhead has no meaning.
    pub send: Vec<f64>,
    /// A receive; none where the overhead has no meaning.
    pub receive: Vec<f64>,
}

/// Times of rounds over the same sizes, by size in bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rounds(pub BTreeMap<u64, SizeTimes>);

/// Parameters of one class of pairs under an engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Survey {
    /// The parameters.
    pub parameters: Parameters,
    /// The samples behind them.
    pub samples: Samples,
    /// The gap of each size in a stream of messages that do not wait for each other.
    pub stream: BTreeMap<u64, Sample>,
    /// Half a round trip of each size: L + g(m).
    pub arrival: BTreeMap<u64, Sample>,
    /// Signs of a disturbance.
    pub signs: Signs,
}

/// Signs of a disturbance in the times of a survey, as shares from 0 on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Signs {
    /// Distance of the quartiles of the rounds that count, over their median.
    pub spread: f64,
    /// Gaps that are far below that of a shorter message, among all sizes.
    pub falling: f64,
    /// Times that are not above zero, among all sizes.
    pub impossible: f64,
}

impl Rounds {
    /// The size to add: the first one in the middle between two others where a line through the two
    /// sizes before misses a curve (section 3 of the paper); `None` where all curves are straight.
    pub fn bend(&self) -> Option<u64> {
        let middle_of =
            |values: &Vec<f64>| if values.is_empty() { f64::NAN } else { median(values) };
        let of_size = |(bytes, times): (&u64, &SizeTimes)| {
            (*bytes, [&times.arrival, &times.send, &times.receive].map(middle_of))
        };
        let points: Vec<(u64, [f64; 3])> = self.0.iter().map(of_size).collect();
        points.windows(3).find_map(|window| {
            let [(before, first), (left, second), (right, third)] = window else { return None };
            let matters = 0.1 * third[0];
            let is_missed = |curve: usize| {
                let line = [(*before, first[curve]), (*left, second[curve])];
                is_missed(line, (*right, third[curve]), matters)
            };
            (0..3).any(is_missed).then(|| middle(*left, *right)).flatten()
        })
    }

    /// Parameters from these rounds.
    ///
    /// # Errors
    /// Fewer than two sizes, none of them 0, or times that cannot be.
    pub fn survey(&self) -> Result<Survey, ParametersError> {
        let counted = self.counted();
        let middle = |values: &[f64]| median(&of_rounds(values, &counted)).max(0.0);
        let mut send = self.overheads(&counted, |times| &times.send);
        let mut receive = self.overheads(&counted, |times| &times.receive);
        let empty = SizeTimes::default();
        let zero = self.0.get(&0).unwrap_or(&empty);
        // RTT(0) = 2 (L + g(0)), and no part of it is less than nothing.
        let alone = middle(&zero.arrival);
        let first_gap = middle(&zero.stream).min(alone);
        let latency = alone - first_gap;
        let mut points = Vec::new();
        let mut sizes = Vec::new();
        for (bytes, times) in &self.0 {
            let bytes = *bytes;
            let gaps: Vec<f64> = match bytes {
                0 => times.stream.clone(),
                _ => times.arrival.iter().map(|arrival| arrival - latency).collect(),
            };
            let gap = if bytes == 0 { first_gap } else { middle(&gaps).max(middle(&times.stream)) };
            let overhead = |known: Option<f64>, of: fn(&Point) -> f64| {
                known.unwrap_or_else(|| line_goes_on(&points, of, bytes, gap))
            };
            let send_overhead = overhead(send.remove(&bytes), |point| point.send_overhead);
            let receive_overhead = overhead(receive.remove(&bytes), |point| point.receive_overhead);
            points.push(Point { bytes, send_overhead, receive_overhead, gap });
            sizes.push(SizeSamples {
                bytes,
                send_overhead: sample(&times.send),
                receive_overhead: sample(&times.receive),
                gap: sample(&gaps),
            });
        }
        // A longer message does not take less. Where noise makes it seem so, segments of its size
        // would seem to be faster than they are.
        let mut gaps: Vec<f64> = points.iter().map(|point| point.gap).collect();
        let signs = self.signs(&counted, &gaps);
        never_falling(&mut gaps);
        points.iter_mut().zip(gaps).for_each(|(point, gap)| point.gap = gap);
        let round_trips: Vec<f64> = zero.arrival.iter().map(|arrival| 2.0 * arrival).collect();
        let samples = |of: fn(&SizeTimes) -> &Vec<f64>| {
            self.0.iter().map(|(bytes, times)| (*bytes, sample(of(times)))).collect()
        };
        Ok(Survey {
            parameters: Parameters::new(latency, points)?,
            samples: Samples { round_trip: sample(&round_trips), sizes },
            stream: samples(|times| &times.stream),
            arrival: samples(|times| &times.arrival),
            signs,
        })
    }

    /// Numbers of the rounds that count.
    fn counted(&self) -> Vec<usize> {
        let rounds = self.0.values().map(|times| times.arrival.len()).min().unwrap_or(0);
        let mut slowness = vec![0.0; rounds];
        for times in self.0.values() {
            let usual = median(&times.arrival).max(f64::MIN_POSITIVE);
            for (sum, arrival) in slowness.iter_mut().zip(&times.arrival) {
                // A value that is not above zero is no time; it must not make a round the fastest.
                *sum += if *arrival > 0.0 { (arrival / usual).ln() } else { f64::INFINITY };
            }
        }
        let mut order: Vec<usize> = (0..rounds).collect();
        order.sort_by(|one, other| slowness[*one].total_cmp(&slowness[*other]));
        order.truncate((rounds as f64 * COUNTED).ceil() as usize);
        order
    }

    /// An overhead of each size at which it has a meaning. Those of short messages are so near each
    /// other that noise lets some fall, between nodes below zero.
    fn overheads(
        &self,
        counted: &[usize],
        of: impl Fn(&SizeTimes) -> &Vec<f64>,
    ) -> BTreeMap<u64, f64> {
        let measured = self.0.iter().filter(|(_, times)| !of(times).is_empty());
        let (sizes, mut middles): (Vec<u64>, Vec<f64>) =
            measured.map(|(bytes, times)| (*bytes, median(&of_rounds(of(times), counted)))).unzip();
        let short = sizes.partition_point(|bytes| *bytes <= SHORT);
        pooled(&mut middles[..short]);
        sizes.into_iter().zip(middles.into_iter().map(|middle| middle.max(0.0))).collect()
    }

    /// Signs in the rounds that count and in the gaps that follow from them, one of each size.
    fn signs(&self, counted: &[usize], gaps: &[f64]) -> Signs {
        let mut spreads = Vec::new();
        let mut impossible = 0;
        for (times, gap) in self.0.values().zip(gaps) {
            let mut arrival = of_rounds(&times.arrival, counted);
            arrival.sort_by(f64::total_cmp);
            let [low, middle, high] = [0.25, 0.5, 0.75].map(|share| percentile(&arrival, share));
            if middle > 0.0 && *gap > 0.0 {
                spreads.push((high - low) / middle);
            } else {
                impossible += 1;
            }
        }
        let mut longest: f64 = 0.0;
        let is_below = |gap: &&f64| {
            longest = longest.max(**gap);
            **gap < FALLEN * longest
        };
        let falling = gaps.iter().filter(is_below).count();
        let share = |count: usize| count as f64 / gaps.len().max(1) as f64;
        Signs { spread: median(&spreads), falling: share(falling), impossible: share(impossible) }
    }
}

/// The values of these rounds.
fn of_rounds(values: &[f64], rounds: &[usize]) -> Vec<f64> {
    rounds.iter().filter_map(|round| values.get(*round).copied()).collect()
}

/// The overhead of a size at which it has no meaning: the line of the last two sizes goes on, up to
/// the gap, in which the message has passed the processors.
fn line_goes_on(points: &[Point], of: fn(&Point) -> f64, bytes: u64, gap: f64) -> f64 {
    let [.., left, right] = points else { return points.last().map_or(0.0, of) };
    let slope = (of(right) - of(left)).max(0.0) / (right.bytes - left.bytes) as f64;
    (of(right) + slope * (bytes - right.bytes) as f64).min(gap.max(of(right)))
}

/// To a tenth of a nanosecond: no clock is finer, and files keep every digit.
fn sample(values: &[f64]) -> Sample {
    Sample::of(values.iter().map(|value| (value * 1e4).round() / 1e4).collect())
}

/// Returns true if the line through the first two points misses the third by more than a quarter,
/// and by more than matters.
fn is_missed(line: [(u64, f64); 2], (right, third): (u64, f64), matters: f64) -> bool {
    const SHARE: f64 = 0.25;
    let [(before, first), (left, second)] = line;
    let slope = (second - first) / (left - before) as f64;
    let expected = second + slope * (right - left) as f64;
    let miss = (third - expected).abs();
    // Values that have no meaning are missed by no line.
    miss > matters && miss > SHARE * third.abs().max(expected.abs())
}

/// The size to add between two sizes; none if they are close enough.
fn middle(left: u64, right: u64) -> Option<u64> {
    /// Sizes end with cache lines.
    const LINE: u64 = 64;
    let near = LINE.max(left / 16);
    let middle = (left + (right - left) / 2).next_multiple_of(LINE);
    (right - left > near && middle < right).then_some(middle)
}
