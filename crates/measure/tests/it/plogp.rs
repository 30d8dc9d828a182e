//! Parameters from a simulated transport of which they are known, and from the real one.
#![expect(clippy::unwrap_used, reason = "a test that cannot make its own input should fail")]

use crate::part_on_threads;
use measure::experiments::find;
use measure::experiments::plogp::{Lap, Reading, RoundsPlan, Transport, rounds_of, times_of};
use measure::harness::{Doubts, Setting};
use models::parameters::{Parameters, ParametersError, Point};
use models::survey::Survey;
use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::convert::Infallible;

testing::tests![
    a_quiet_machine_gives_back_its_parameters,
    parameters_follow_from_times_as_worked_by_hand,
    a_gap_is_never_less_than_in_a_stream,
    sizes_are_added_where_a_curve_jumps_and_nowhere_else,
    clocks_that_stand_still_give_zeros_and_not_negative_times,
    the_line_of_an_overhead_goes_on_where_it_has_no_meaning,
    noise_does_not_matter,
    a_machine_under_load_is_doubted,
    gaps_that_fall_are_doubted,
    the_real_transport_has_parameters,
];

/// Cost of reading the clock, in microseconds.
const LOOK: f64 = 0.04;

/// Two processors and the way between them, by the rules of pLogP.
struct Simulated {
    network: Parameters,
    sizes: Vec<u64>,
    random: SmallRng,
    /// Each time varies by this share, and …
    jitter: f64,
    /// … in this share of the rounds the whole machine is at a quarter of its speed, …
    slow: f64,
    /// … or at every size at most so many times slower than its normal speed, …
    slowest: f64,
    /// … and this share of the times has an interrupt of 50 µs in it.
    interrupts: f64,
}

impl Simulated {
    fn quiet(network: Parameters) -> Self {
        Simulated {
            network,
            sizes: Vec::new(),
            random: SmallRng::seed_from_u64(7),
            jitter: 0.0,
            slow: 0.0,
            slowest: 1.0,
            interrupts: 0.0,
        }
    }

    fn noisy(network: Parameters, seed: u64) -> Self {
        let random = SmallRng::seed_from_u64(seed);
        Simulated { random, jitter: 0.03, slow: 0.3, interrupts: 0.02, ..Self::quiet(network) }
    }

    /// The time as a clock shows it in a round in which times are multiplied by this factor.
    fn shown(&mut self, time: f64, slowdown: f64) -> f64 {
        let jitter = 1.0 + self.random.random_range(-1.0..=1.0) * self.jitter;
        let interrupt = if self.random.random_bool(self.interrupts) { 50.0 } else { 0.0 };
        time * jitter * slowdown + interrupt + LOOK
    }

    /// When the last of these messages has arrived, each sent a gap after the one before.
    fn arrival(&self, bytes: u64, messages: u32) -> f64 {
        let (mut may_send, mut arrived) = (0.0, 0.0);
        for _ in 0..messages {
            arrived = may_send + self.network.latency() + self.network.gap(bytes);
            may_send += self.network.gap(bytes);
        }
        arrived
    }
}

impl Transport for Simulated {
    type Error = Infallible;

    fn add(&mut self, bytes: u64) -> Result<(), Infallible> {
        self.sizes.push(bytes);
        Ok(())
    }

    fn round(&mut self) -> Result<Vec<Reading>, Infallible> {
        let slowdown = if self.random.random_bool(self.slow) { 4.0 } else { 1.0 };
        let lap = |count, microseconds| Lap { count, microseconds };
        let sizes = self.sizes.clone();
        let read = |bytes: u64| {
            let slowdown = slowdown * self.random.random_range(1.0..=self.slowest);
            let there_and_back = 2.0 * self.arrival(bytes, 1);
            let stream = self.arrival(bytes, 16) + self.arrival(0, 1);
            let (send, receive) =
                (self.network.send_overhead(bytes), self.network.receive_overhead(bytes));
            Reading {
                bytes,
                nothing: self.shown(0.0, slowdown),
                round_trips: lap(8, self.shown(8.0 * there_and_back, slowdown)),
                stream: lap(16, self.shown(stream, slowdown)),
                sends: lap(8, self.shown(8.0 * send, slowdown)),
                receives: lap(8, self.shown(8.0 * receive, slowdown)),
            }
        };
        Ok(sizes.into_iter().map(read).collect())
    }
}

fn survey_of(rounds: &[Vec<Reading>]) -> Result<Survey, ParametersError> {
    times_of(rounds).survey()
}

fn doubts_of(found: &Survey) -> Doubts {
    found.signs.into()
}

fn surveyed(mut simulated: Simulated, plan: &RoundsPlan) -> Survey {
    let Ok(rounds) = rounds_of(&mut simulated, plan);
    survey_of(&rounds).unwrap()
}

/// Compares with what is known, at sizes between the measured ones too.
fn assert_near(found: &Parameters, known: &Parameters, share: f64) {
    let near = |what: &str, found: f64, known: f64| {
        assert!(
            (found - known).abs() <= share * known + 1e-9,
            "{what}: {found} found, {known} known"
        );
    };
    near("L", found.latency(), known.latency());
    for bytes in [0, 1, 3, 100, 4096, 5000, 70_000, 1 << 20] {
        near(&format!("g({bytes})"), found.gap(bytes), known.gap(bytes));
        near(&format!("os({bytes})"), found.send_overhead(bytes), known.send_overhead(bytes));
        near(&format!("or({bytes})"), found.receive_overhead(bytes), known.receive_overhead(bytes));
    }
}

fn linear() -> Parameters {
    Parameters::linear(1.0, (0.08, 0.0001), (0.05, 0.0002), (0.2, 0.0004)).unwrap()
}

/// A jump at 4 KiB, as where messages above a limit take another way.
fn with_a_jump() -> Parameters {
    let point = |bytes: u64, at: f64| Point {
        bytes,
        send_overhead: 0.1 * at,
        receive_overhead: 0.2 * at,
        gap: 0.4 * at,
    };
    Parameters::new(
        1.0,
        vec![point(0, 1.0), point(4096, 5.0), point(4097, 20.0), point(1 << 20, 400.0)],
    )
    .unwrap()
}

fn a_quiet_machine_gives_back_its_parameters() {
    let found = surveyed(Simulated::quiet(linear()), &RoundsPlan::default());
    assert_near(&found.parameters, &linear(), 1e-6);
    assert!(!doubts_of(&found).is_disturbed(), "{:?}", found.signs);
    let sizes: Vec<u64> = found.parameters.points().iter().map(|point| point.bytes).collect();
    assert_eq!(sizes, RoundsPlan::default().sizes, "a straight line needs no more sizes");
}

/// RTT(0) = 2.4, so L + g(0) = 1.2. Sixteen empty messages and an answer: 16 × 0.2 + 2 × 1.0 + 0.2
/// = 5.4, so that 15 gaps are 5.4 − 2.4 = 3.0, g(0) = 0.2 and L = 1.0. At 1000 bytes RTT = 3.2, and
/// g = 1.6 − 1.0.
fn parameters_follow_from_times_as_worked_by_hand() {
    let lap = |count, microseconds| Lap { count, microseconds };
    let reading = |bytes, round_trip, stream| Reading {
        bytes,
        nothing: 0.04,
        round_trips: lap(10, 10.0 * round_trip + 0.04),
        stream: lap(16, stream + 0.04),
        sends: lap(4, 0.4 + 0.04),
        receives: lap(5, 0.25 + 0.04),
    };
    let round = vec![reading(0, 2.4, 5.4), reading(1000, 3.2, 16.0 * 0.5 + 2.2)];
    let found = survey_of(&[round.clone(), round]).unwrap();
    let network = &found.parameters;
    let is = |found: f64, expected: f64| {
        assert!((found - expected).abs() < 1e-9, "{found} is not {expected}")
    };
    is(network.latency(), 1.0);
    is(network.gap(0), 0.2);
    is(network.gap(1000), 0.6);
    is(network.send_overhead(0), 0.1);
    is(network.receive_overhead(1000), 0.05);
    is(found.stream[&1000].quantiles.median, 0.5);
    assert_eq!(found.samples.round_trip.values, [2.4, 2.4]);
}

/// Where a stream shows a longer gap than round trips do, the way is what holds messages up.
fn a_gap_is_never_less_than_in_a_stream() {
    let mut simulated = Simulated::quiet(linear());
    let plan = RoundsPlan { rounds: 3, ..RoundsPlan::quick() };
    let Ok(mut rounds) = rounds_of(&mut simulated, &plan);
    // Longer messages as well: a gap never falls with the size.
    for reading in rounds.iter_mut().flatten().filter(|reading| reading.bytes >= 1024) {
        reading.stream.microseconds += 16.0 * 3.0;
    }
    let found = survey_of(&rounds).unwrap();
    assert!((found.parameters.gap(1024) - (linear().gap(1024) + 3.0)).abs() < 1e-6);
}

fn sizes_are_added_where_a_curve_jumps_and_nowhere_else() {
    let found = surveyed(Simulated::quiet(with_a_jump()), &RoundsPlan::default());
    let usual = RoundsPlan::default().sizes;
    let added: Vec<u64> = found
        .parameters
        .points()
        .iter()
        .map(|point| point.bytes)
        .filter(|bytes| !usual.contains(bytes))
        .collect();
    assert!(
        !added.is_empty() && added.iter().all(|bytes| (4097..16384).contains(bytes)),
        "{added:?}"
    );
    let nearest = added[0];
    assert!(nearest <= 4096 + 512, "the jump is closed in on: {added:?}");
}

fn clocks_that_stand_still_give_zeros_and_not_negative_times() {
    let reading = |bytes| Reading { bytes, nothing: 1.0, ..Reading::default() };
    let found = survey_of(&[vec![reading(0), reading(8)]]).unwrap();
    assert_eq!(
        (found.parameters.latency(), found.parameters.gap(8), found.parameters.send_overhead(0)),
        (0.0, 0.0, 0.0)
    );
    assert_eq!(doubts_of(&found).to_string(), "100 % of the times are not above 0");
    assert!(survey_of(&[]).is_err());
    assert!(survey_of(&[vec![reading(8), reading(16)]]).is_err(), "there is no size 0");
}

/// os is 1 + m/100 as far as it was measured; or was measured nowhere.
fn the_line_of_an_overhead_goes_on_where_it_has_no_meaning() {
    let lap = |count, microseconds| Lap { count, microseconds };
    let reading = |bytes: u64| Reading {
        bytes,
        nothing: 0.0,
        round_trips: lap(1, 20.0 + bytes as f64 / 10.0),
        stream: lap(2, 10.0),
        sends: lap(u32::from(bytes <= 200), 1.0 + bytes as f64 / 100.0),
        receives: Lap::default(),
    };
    let found = survey_of(&[[0, 100, 200, 300, 40_000].map(reading).to_vec()]).unwrap();
    let network = &found.parameters;
    let overheads = [0, 100, 200, 300].map(|bytes| network.send_overhead(bytes));
    assert_eq!(overheads, [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(network.send_overhead(40_000), 401.0);
    assert_eq!(network.receive_overhead(300), 0.0);
    assert!(found.samples.sizes[3].send_overhead.values.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Jitter, interrupts, and a machine that is slow in three rounds of ten.
    fn noise_does_not_matter(
        seed: u64,
        latency in 0.5f64..5.0,
        os in (0.05f64..0.5, 0.00005f64..0.001),
        or in (0.05f64..0.5, 0.00005f64..0.001),
        gap in (0.1f64..0.8, 0.0001f64..0.002),
    ) {
        let known = Parameters::linear(latency, os, or, gap).unwrap();
        let plan = RoundsPlan { most_added: 0, rounds: 90, ..RoundsPlan::default() };
        let found = surveyed(Simulated::noisy(known.clone(), seed), &plan);
        prop_assert!(!doubts_of(&found).is_disturbed(), "{:?}", found.signs);
        prop_assert!((found.parameters.latency() - latency).abs() < 0.05 * (latency + gap.0));
        for bytes in [0, 1, 256, 4096, 65536, 1 << 20] {
            let (found, known) = (&found.parameters, &known);
            let near = |found: f64, known: f64| (found - known).abs() < 0.05 * known;
            prop_assert!(near(found.arrival(bytes), known.arrival(bytes)), "L + g({})", bytes);
            prop_assert!(near(found.send_overhead(bytes), known.send_overhead(bytes)), "os({})", bytes);
            prop_assert!(near(found.receive_overhead(bytes), known.receive_overhead(bytes)), "or({})", bytes);
            prop_assert!((found.gap(bytes) - known.gap(bytes)).abs() < 0.05 * known.arrival(bytes), "g({})", bytes);
        }
    }
}

/// Other processes make each size up to six times as slow, in each round by another factor: the
/// fastest rounds are not near each other.
fn a_machine_under_load_is_doubted() {
    let mut simulated = Simulated::quiet(linear());
    simulated.slowest = 6.0;
    let found = surveyed(simulated, &RoundsPlan::default());
    assert!(doubts_of(&found).is_disturbed(), "{:?}", found.signs);
    assert!(doubts_of(&found).to_string().starts_with("the fastest rounds differ by "));
}

/// Load that hits the shorter messages only: what follows them seems to be faster.
fn gaps_that_fall_are_doubted() {
    let mut simulated = Simulated::quiet(linear());
    let Ok(mut rounds) = rounds_of(&mut simulated, &RoundsPlan::default());
    for reading in rounds.iter_mut().flatten().filter(|reading| reading.bytes == 1) {
        reading.round_trips.microseconds += 8.0 * 2.0 * 3.0;
    }
    let found = survey_of(&rounds).unwrap();
    // The gaps of 2 bytes to 4 KiB are below 70 % of that of one byte, 3.2 µs.
    let shorter =
        found.parameters.points().iter().filter(|point| (2..=4096).contains(&point.bytes));
    let percent = 100.0 * shorter.count() as f64 / found.parameters.points().len() as f64;
    let expected = format!("{percent:.0} % of the gaps are below those of shorter messages");
    assert_eq!(doubts_of(&found).to_string(), expected);
}

/// All of it on the real engine, in the quick form: the results are times, however long they are.
fn the_real_transport_has_parameters() {
    let setting = Setting { quick: true, ..Setting::default() };
    let part = part_on_threads(&find("plogp").unwrap().experiment(&setting)).unwrap();
    assert!(part.complete);
    let rows = &part.table("parameters").unwrap().rows;
    let classes = models::machine::Topology::here().pairs().len();
    assert_eq!(rows.len(), 2 * classes, "two engines");
    // A barrier, and two operations of two sizes, each in two forms.
    assert_eq!(part.table("flat").unwrap().rows.len(), 2 * (1 + 2 * 2));
    assert_eq!(part.table("sharing").unwrap().rows.len(), 1);
    assert!(part.table("contention").unwrap().rows.len() <= 2 * classes);
    assert_eq!(part.table("machine").unwrap().rows.len(), 5);
    for figure in &part.figures {
        assert_eq!(figure.series.len(), 2 * classes, "{}", figure.name);
        for series in &figure.series {
            assert!(
                series.points.len() >= RoundsPlan::quick().sizes.len() && series.points[0].x == 0.0,
                "{}",
                series.name
            );
        }
    }
    for series in &part.figure("arrival").unwrap().series {
        assert!(series.points.iter().all(|point| point.median > 0.0), "{series:?}");
    }
}
