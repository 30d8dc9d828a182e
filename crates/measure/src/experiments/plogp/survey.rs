//! From readings of a clock to parameters.

use super::transport::{Lap, Reading, Transport};
use crate::harness::{Doubts, Sign};
use models::machine_file::{Samples, SizeSamples};
use models::parameters::{Parameters, ParametersError, Point};
use models::statistics::{Sample, median, never_falling, percentile, pooled};
use std::collections::BTreeMap;

/// Extent of a measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SurveyPlan {
    /// Sizes that are measured in any case, in bytes; 0 among them.
    pub sizes: Vec<u64>,
    /// Number of sizes that may be added where curves bend.
    pub most_added: usize,
    /// Rounds over all sizes.
    pub rounds: usize,
}

impl Default for SurveyPlan {
    /// 0, 1, 2, 4 … 1 MiB.
    fn default() -> Self {
        SurveyPlan {
            sizes: std::iter::once(0).chain((0..=20).map(|power| 1 << power)).collect(),
            most_added: 12,
            rounds: 18,
        }
    }
}

impl SurveyPlan {
    /// Few sizes and rounds, to see that it works.
    pub fn quick() -> Self {
        SurveyPlan {
            sizes: vec![0, 1, 64, 1 << 10, 4 << 10, 16 << 10, 128 << 10],
            most_added: 3,
            rounds: 9,
        }
    }
}

/// Parameters of one class of pairs.
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
    /// Doubts that follow from the times.
    pub doubts: Doubts,
}

/// The share of the rounds that count, from the fastest on.
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

/// Rounds between two looks at the curves, and what is discarded at the start.
const LOOK: usize = 3;

/// Goes through rounds with what carries the messages.
///
/// First come short looks at the curves: where a line through the two sizes before misses a size,
/// the size in the middle of the gap is added (Kielmann et al. 2000, section 3). These rounds are
/// discarded: they touch the memory. Then all sizes take turns in every round, so that each sees
/// every state that the machine goes through.
///
/// # Errors
/// The error of the transport.
pub fn rounds_of<T: Transport>(
    transport: &mut T,
    plan: &SurveyPlan,
) -> Result<Vec<Vec<Reading>>, T::Error> {
    let mut sizes = plan.sizes.clone();
    sizes.sort_unstable();
    sizes.dedup();
    sizes.iter().try_for_each(|bytes| transport.add(*bytes))?;
    for _ in 0..plan.most_added {
        let Some(bytes) = Curves::of(&rounds(transport, LOOK)?).bend() else { break };
        transport.add(bytes)?;
    }
    rounds(transport, LOOK)?;
    rounds(transport, plan.rounds)
}

impl Survey {
    /// Evaluates rounds, all of the same sizes.
    ///
    /// # Errors
    /// Fewer than two sizes, none of them 0, or times that cannot be.
    pub fn of(rounds: &[Vec<Reading>]) -> Result<Self, ParametersError> {
        Curves::of(rounds).survey()
    }
}

fn rounds<T: Transport>(transport: &mut T, count: usize) -> Result<Vec<Vec<Reading>>, T::Error> {
    (0..count).map(|_| transport.round()).collect()
}

/// The values of every round, by size.
#[derive(Debug, Default)]
struct Curves {
    sizes: BTreeMap<u64, Values>,
}

#[derive(Debug, Default)]
struct Values {
    /// From a send until the message has been received: L + g(m).
    arrival: Vec<f64>,
    stream: Vec<f64>,
    send: Vec<f64>,
    receive: Vec<f64>,
}

impl Curves {
    fn of(rounds: &[Vec<Reading>]) -> Self {
        let mut curves = Curves::default();
        for round in rounds {
            let mut nothing: Vec<f64> = round.iter().map(|reading| reading.nothing).collect();
            nothing.sort_by(f64::total_cmp);
            let nothing = nothing.get(nothing.len() / 2).copied().unwrap_or(0.0);
            let arrival = |reading: &Reading| reading.round_trips.each(nothing) / 2.0;
            // k messages and an empty answer take k g(m) + 2 L + g(0), and 2 (L + g(0)) is a round
            // trip.
            let zero = round.iter().find(|reading| reading.bytes == 0);
            let round_trip = zero.map_or(0.0, |zero| 2.0 * arrival(zero));
            let beyond = |reading: &Reading| reading.stream.microseconds - nothing - round_trip;
            let gap = zero.map_or(0.0, |zero| {
                beyond(zero) / f64::from(zero.stream.count.saturating_sub(1).max(1))
            });
            for reading in round {
                let values = curves.sizes.entry(reading.bytes).or_default();
                values
                    .stream
                    .push((beyond(reading) + gap) / f64::from(reading.stream.count.max(1)));
                values.arrival.push(arrival(reading));
                let overhead = |lap: Lap| (lap.count > 0).then(|| lap.each(nothing));
                values.send.extend(overhead(reading.sends));
                values.receive.extend(overhead(reading.receives));
            }
        }
        curves
    }

    /// The first size in the middle between two others where a curve is not straight.
    fn bend(&self) -> Option<u64> {
        let points: Vec<(u64, [f64; 3])> = self
            .sizes
            .iter()
            .map(|(bytes, values)| {
                (
                    *bytes,
                    [&values.arrival, &values.send, &values.receive]
                        .map(|values| if values.is_empty() { f64::NAN } else { median(values) }),
                )
            })
            .collect();
        points.windows(3).find_map(|window| {
            let [(before, first), (left, second), (right, third)] = window else { return None };
            let matters = 0.1 * third[0];
            let is_missed = |curve: usize| {
                is_missed(
                    (*before, first[curve]),
                    (*left, second[curve]),
                    (*right, third[curve]),
                    matters,
                )
            };
            (0..3).any(is_missed).then(|| middle(*left, *right)).flatten()
        })
    }

    /// The rounds that count.
    fn counted(&self) -> Vec<usize> {
        let rounds = self.sizes.values().map(|values| values.arrival.len()).min().unwrap_or(0);
        let mut slowness = vec![0.0; rounds];
        for values in self.sizes.values() {
            let usual = median(&values.arrival).max(f64::MIN_POSITIVE);
            for (sum, arrival) in slowness.iter_mut().zip(&values.arrival) {
                // What is not positive is no time; it must not make a round the fastest.
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
        of: impl Fn(&Values) -> &Vec<f64>,
    ) -> BTreeMap<u64, f64> {
        let measured = self.sizes.iter().filter(|(_, values)| !of(values).is_empty());
        let (sizes, mut middles): (Vec<u64>, Vec<f64>) = measured
            .map(|(bytes, values)| (*bytes, median(&of_rounds(of(values), counted))))
            .unzip();
        let short = sizes.partition_point(|bytes| *bytes <= SHORT);
        pooled(&mut middles[..short]);
        sizes.into_iter().zip(middles.into_iter().map(|middle| middle.max(0.0))).collect()
    }

    fn survey(&self) -> Result<Survey, ParametersError> {
        let counted = self.counted();
        let middle = |values: &[f64]| median(&of_rounds(values, &counted)).max(0.0);
        let mut overheads = [
            self.overheads(&counted, |values| &values.send),
            self.overheads(&counted, |values| &values.receive),
        ];
        let empty = Values::default();
        let zero = self.sizes.get(&0).unwrap_or(&empty);
        // RTT(0) = 2 (L + g(0)), and no part of it is less than nothing.
        let alone = middle(&zero.arrival);
        let first_gap = middle(&zero.stream).min(alone);
        let latency = alone - first_gap;
        let mut points = Vec::new();
        let mut sizes = Vec::new();
        for (bytes, values) in &self.sizes {
            let gaps: Vec<f64> = match bytes {
                0 => values.stream.clone(),
                _ => values.arrival.iter().map(|arrival| arrival - latency).collect(),
            };
            let gap =
                if *bytes == 0 { first_gap } else { middle(&gaps).max(middle(&values.stream)) };
            let mut overhead = |side: usize, of: fn(&Point) -> f64| {
                let known = overheads[side].remove(bytes);
                known.unwrap_or_else(|| line_goes_on(&points, of, *bytes, gap))
            };
            let send_overhead = overhead(0, |point| point.send_overhead);
            let receive_overhead = overhead(1, |point| point.receive_overhead);
            points.push(Point { bytes: *bytes, send_overhead, receive_overhead, gap });
            sizes.push(SizeSamples {
                bytes: *bytes,
                send_overhead: sample(&values.send),
                receive_overhead: sample(&values.receive),
                gap: sample(&gaps),
            });
        }
        // A longer message does not take less. Where noise makes it seem so, segments of its size
        // would seem to be faster than they are.
        let mut gaps: Vec<f64> = points.iter().map(|point| point.gap).collect();
        let doubts = self.doubts(&counted, &gaps);
        never_falling(&mut gaps);
        points.iter_mut().zip(gaps).for_each(|(point, gap)| point.gap = gap);
        let round_trips: Vec<f64> = zero.arrival.iter().map(|arrival| 2.0 * arrival).collect();
        Ok(Survey {
            parameters: Parameters::new(latency, points)?,
            samples: Samples { round_trip: sample(&round_trips), sizes },
            stream: self
                .sizes
                .iter()
                .map(|(bytes, values)| (*bytes, sample(&values.stream)))
                .collect(),
            arrival: self
                .sizes
                .iter()
                .map(|(bytes, values)| (*bytes, sample(&values.arrival)))
                .collect(),
            doubts,
        })
    }

    /// Doubts about the rounds that count and the gaps that follow from them, one of each size.
    fn doubts(&self, counted: &[usize], gaps: &[f64]) -> Doubts {
        let mut spreads = Vec::new();
        let mut impossible = 0;
        for (values, gap) in self.sizes.values().zip(gaps) {
            let mut arrival = of_rounds(&values.arrival, counted);
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
        Doubts::of([
            (Sign::Spread, median(&spreads)),
            (Sign::FallingGaps, share(falling)),
            (Sign::Impossible, share(impossible)),
        ])
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
fn is_missed(
    (before, first): (u64, f64),
    (left, second): (u64, f64),
    (right, third): (u64, f64),
    matters: f64,
) -> bool {
    const SHARE: f64 = 0.25;
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
