//! Corrections of a table by measurements.

use super::table::{Range, Row, RunnerUp, Times};
use crate::machine_file::Engine;
use collectives::{Algorithm, Choice};

/// Factor of the best time up to which the plan of the models is kept: the table does not record
/// chance.
const SLACK: f64 = 1.03;
/// The same between nodes, where times of one graph differ by more.
const SLACK_BETWEEN_NODES: f64 = 1.1;
/// Factor of the best time up to which a flat collective counts as equally good: it needs no
/// schedule, and a rank that only sends returns earlier from it. The trials do not show the latter,
/// because their roots alternate: of broadcasts of 1 KiB between two ranks they found a chain to be
/// faster, which takes twice as long in a stream from one root (0.9 and 0.45 µs).
const FLAT_SLACK: f64 = 1.1;
/// The same if the middle halves of the repetitions overlap: the faster one then changes from run
/// to run.
const OVERLAPPING: f64 = 1.2;

/// Factor of the best time up to which the engine of the models is kept: plans on two engines are
/// measured in different jobs, each at a speed of its own for a while.
const ENGINE_SLACK: f64 = 1.25;

/// A plan that was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// The plan.
    pub plan: Choice,
    /// The engine between nodes that ran it, if there are several.
    pub engine: Option<Engine>,
    /// Median time, in microseconds.
    pub median: f64,
    /// Between these times lies the middle half of the repetitions.
    pub quartiles: [f64; 2],
}

impl Measured {
    fn is(&self, range: &Range) -> bool {
        (self.plan, self.engine) == (range.plan, range.engine)
    }

    /// Returns `true` if a flat collective of this time is as good as the best.
    fn is_as_good_as(&self, best: &Measured) -> bool {
        let overlaps = self.quartiles[0] <= best.quartiles[1];
        let most = if overlaps { OVERLAPPING } else { FLAT_SLACK };
        self.median <= most * best.median
    }
}

impl Row {
    /// Adds what was measured for messages of `bytes` bytes. The plan of the models stays if it is
    /// about as fast as the best; otherwise the best one takes its place for the sizes from `window.0`
    /// up to `window.1`, which may have no end. Plans on another engine must be faster by more: than
    /// what was measured on the engine of the models, or than their plan is predicted to be there.
    /// `predict` returns the models' time of a plan for these bytes.
    pub fn refine(
        &mut self,
        bytes: u64,
        window: (u64, Option<u64>),
        measured: &[Measured],
        predict: impl Fn(Option<Engine>, &Choice) -> Option<f64>,
    ) {
        let current = self.range(bytes).ok().copied();
        let fastest = |of_engine: Option<Engine>| {
            let of = measured.iter().filter(|one| of_engine.is_none() || one.engine == of_engine);
            of.min_by(|one, other| one.median.total_cmp(&other.median))
        };
        let Some(best) = fastest(None) else { return };
        let of_engine = current.and_then(|range| fastest(range.engine));
        let best = of_engine.filter(|own| own.median <= ENGINE_SLACK * best.median).unwrap_or(best);
        let is_untimed = |range: &Range| range.engine != best.engine && of_engine.is_none();
        let untimed = current.filter(is_untimed);
        let untimed = untimed.and_then(|range| predict(range.engine, &range.plan));
        if untimed.is_some_and(|time| time <= ENGINE_SLACK * best.median) {
            return;
        }
        let times = |one: &Measured| Times {
            predicted: predict(one.engine, &one.plan),
            measured: Some(one.median),
        };
        let flat = measured
            .iter()
            .find(|one| one.plan.algorithm == Algorithm::Join && one.is_as_good_as(best));
        let kept = measured.iter().find(|one| {
            let slack = if one.engine.is_some() { SLACK_BETWEEN_NODES } else { SLACK };
            one.median <= slack * best.median && current.is_some_and(|range| one.is(&range))
        });
        let chosen = flat.or(kept).unwrap_or(best);
        let is_other = |one: &&Measured| {
            (one.plan.algorithm, one.plan.levels, one.engine)
                != (chosen.plan.algorithm, chosen.plan.levels, chosen.engine)
        };
        let others = measured.iter().filter(is_other);
        let next = others.min_by(|one, other| one.median.total_cmp(&other.median));
        let runner_up =
            next.map(|next| RunnerUp { plan: next.plan, engine: next.engine, time: times(next) });
        let runner_up = runner_up.or(current.and_then(|range| range.runner_up));
        let plan = chosen.plan;
        let engine = chosen.engine;
        let time = times(chosen);
        match self.ranges.iter_mut().find(|range| range.contains(bytes)) {
            Some(range) if chosen.is(range) => {
                if range.time.measured.is_none() {
                    *range = Range { at: bytes, time, runner_up, ..*range };
                }
            }
            _ => {
                let (from, to) = window;
                self.carve(Range { from, to, plan, engine, at: bytes, time, runner_up });
            }
        }
    }

    /// Puts a range in the place of what the row has for its sizes.
    fn carve(&mut self, new: Range) {
        let mut ranges = Vec::new();
        for range in &self.ranges {
            let below = Range { to: Some(range.end().min(new.from)), ..*range };
            if range.from < new.from {
                ranges.push(below);
            }
        }
        ranges.push(new);
        for range in &self.ranges {
            if let Some(end) = new.to
                && range.to.is_none_or(|to| to > end)
            {
                ranges.push(Range { from: range.from.max(end), ..*range });
            }
        }
        self.ranges.clear();
        for range in ranges {
            match self.ranges.last_mut() {
                Some(last) if last.is_same_choice(&range) && last.to == Some(range.from) => {
                    last.to = range.to;
                    if last.time.measured.is_none() && range.time.measured.is_some() {
                        (last.at, last.time, last.runner_up) =
                            (range.at, range.time, range.runner_up);
                    }
                }
                _ => self.ranges.push(range),
            }
        }
    }
}

impl Range {
    /// Returns `true` if messages of this size are in the range.
    pub fn contains(&self, bytes: u64) -> bool {
        self.from <= bytes && self.to.is_none_or(|to| bytes < to)
    }

    /// Returns `true` if both have one plan and engine.
    fn is_same_choice(&self, other: &Range) -> bool {
        (self.plan, self.engine) == (other.plan, other.engine)
    }

    /// The first size beyond, or the largest number.
    fn end(&self) -> u64 {
        self.to.unwrap_or(u64::MAX)
    }
}
