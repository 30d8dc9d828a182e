//! Further costs of a message: pages that are touched for the first time, and waiting for each
//! message by itself.

use super::shared::each;
use crate::harness::clock::{microseconds, now_ns};
use crate::harness::timer::{Batches, calls};
use crate::harness::{Error, Finding, JobShape, Setting, Step, StepContext};
use crate::pairs::{Exchange, Pattern, Receive};
use crate::results::{Axis, Figure, Point};
use tradewind::{EngineKind, Op};

const PAGING: &str = "first-touch";
const BLOCKING: &str = "blocking";

pub(super) fn figures() -> [Figure; 2] {
    let mut paging = Figure::new(
        PAGING,
        "Pages that are touched for the first time",
        Axis::bytes("message length").logarithmic(),
        Axis::microseconds("time of a message").logarithmic(),
    );
    paging.caption =
        "Each message of a round trip goes to memory that was never touched, or to the same \
                      memory again; the first run of a schedule touches the library's own memory \
                      too. Everything else in this suite is measured in touched memory, after a \
                      first pass."
            .to_owned();
    let mut blocking = Figure::new(
        BLOCKING,
        "Blocking and nonblocking sends",
        Axis::bytes("message length"),
        Axis::microseconds("time of a message"),
    );
    blocking.caption =
        "A message in each direction. Nonblocking: both are started, then both are waited for. \
                        Blocking: each is waited for before the next is started."
            .to_owned();
    [paging, blocking]
}

/// Under the engine of the sweep before them, in the same job; between nodes under that of
/// nonblocking calls.
pub(super) fn steps(setting: &Setting, batches: Batches) -> Vec<Step> {
    let shape = JobShape::bound(setting, 2).with_engine(EngineKind::Caller);
    // Smaller memory is not given back to the system in between, so it cannot be untouched.
    let large = (17..=setting.choose(18, 21)).map(|exponent| 1_u64 << exponent);
    let fresh = setting.choose(3, 9);
    let paging = large.map(|bytes| {
        let milliseconds = 10 + fresh * bytes / 200_000;
        Step::new(
            format!("untouched pages, {bytes} bytes"),
            shape.clone(),
            milliseconds,
            move |here| first_touch(here, bytes, fresh as usize, batches),
        )
    });
    let sizes = setting.shuffled((0..=16_000).step_by(setting.choose(8_000, 1_000)));
    let blocking = sizes.into_iter().map(|bytes| {
        Step::new(
            format!("blocking sends, {bytes} bytes"),
            shape.clone(),
            batches.milliseconds() * 2,
            move |here| blocking(here, bytes, batches),
        )
    });
    paging.chain(blocking).collect()
}

fn first_touch(
    here: &StepContext<'_>,
    bytes: u64,
    fresh: usize,
    batches: Batches,
) -> Result<Vec<Finding>, Error> {
    let world = here.world;
    let mut exchange =
        Exchange::link(world, Some(1 - world.rank()), bytes, Pattern::RoundTrip, Receive::Posted)?;
    let mut first = Vec::new();
    let mut untouched = Vec::new();
    for _ in 0..fresh {
        // Zeroed memory of this size comes from the system, a page at the first touch. It is kept
        // for good: what is given back would come again, touched.
        let memory = vec![0; bytes as usize].leak();
        world.barrier()?;
        let begin = now_ns();
        exchange.once_into(memory)?;
        let time = microseconds(begin, now_ns());
        if first.is_empty() { first.push(time) } else { untouched.push(time) }
    }
    let touched = exchange.time(world, batches)?;
    let mut findings = Vec::new();
    for (curve, own) in [
        ("first run of a schedule", first),
        ("untouched memory", untouched),
        ("touched memory", touched),
    ] {
        let mut slowest = vec![0.0; own.len()];
        world.allreduce(&own, &mut slowest, Op::Maximum)?;
        findings.push(Finding::measured(PAGING, curve, Point::of(bytes as f64, &each(&slowest))));
    }
    Ok(findings)
}

fn blocking(here: &StepContext<'_>, bytes: u64, batches: Batches) -> Result<Vec<Finding>, Error> {
    let world = here.world;
    let link =
        |pattern| Exchange::link(world, Some(1 - world.rank()), bytes, pattern, Receive::Posted);
    let mut forth = link(Pattern::Forth)?;
    let mut back = link(Pattern::Back)?;
    let in_turn = batches.time(
        world,
        &mut calls(|| {
            forth.once()?;
            back.once()
        }),
    )?;
    let at_once = batches.time(world, &mut calls(|| forth.both(&mut back)))?;
    forth.check(world)?;
    back.check(world)?;
    let point = |times: &[f64]| Point::of(bytes as f64, &each(times));
    Ok(vec![
        Finding::measured(BLOCKING, "blocking", point(&in_turn)),
        Finding::measured(BLOCKING, "nonblocking", point(&at_once)),
    ])
}
