//! Time against message length (Bokhari 1995, section 2, figures 1 and 2, table 1), by exchange and
//! by ping-pong, with the receive posted beforehand or not; pages that are touched for the first
//! time; blocking against nonblocking sends.

mod curves;
mod fits;
mod part;

use super::entry::SuiteEntry;
use super::pairs::{ExchangeCase, LONGEST, LinkedExchange, step};
use super::queues;
use crate::harness::clock::{microseconds, now_ns};
use crate::harness::timer::Batches;
use crate::harness::{Error, Experiment, JobShape, Setting, Step, StepContext, agreement};
use crate::rows::{Mechanism, Pairs, Pattern, Quantity, Receive, Row, StepRows};
use curves::LONGEST_SHORT;
pub(super) use fits::{Fit, fits};
use std::collections::BTreeSet;
use tradewind::{CallForm, EngineKind};

/// The experiment.
pub const ENTRY: SuiteEntry = SuiteEntry {
    name: "pingpong",
    title: "Time against message length",
    about: "Two ranks run a linked schedule for each message. Exchange: both send at once and then \
            receive; round trip: one sends and the other sends back. Both are divided by the two \
            messages that they move. Posted: the receive waits for nothing, so the bytes go where they \
            are wanted as they come (the report's forced messages). Not posted: the receive waits for \
            something else, so messages up to the eager limit wait in a mailbox and longer ones wait for \
            the receive (unforced). Between nodes each form of a call has an engine of its own. On one \
            node: engine caller: a rank executes its operations in its own calls, as in the report. \
            Peers: the rank that completes an operation also executes those that depend on it, so one \
            rank may execute both halves of a round trip. Wide queue and bulk are the queues' paths \
            beside the schedules. The first pass is discarded; a point is a time for each batch.",
    source: "Bokhari 1995, section 2, figures 1 and 2, table 1",
    steps,
    view: part::view,
};

fn steps(setting: &Setting) -> Experiment {
    let batches = setting.choose(
        Batches { rounds: 5, microseconds: 100.0 },
        Batches { rounds: 11, microseconds: 1_000.0 },
    );
    let long = (0..=LONGEST).step_by(setting.choose(2_000, 64));
    let short = (0..=LONGEST_SHORT).step_by(setting.choose(400, 16));
    let sizes = setting.shuffled(long.chain(short).collect::<BTreeSet<u64>>());
    let curves = |shape: JobShape, form: CallForm, words: String| {
        let measurements = if has_queues(&shape) { 6 } else { 4 };
        let milliseconds = batches.milliseconds() * measurements + 3;
        let step = move |bytes: &u64| {
            let bytes = *bytes;
            let what = format!("{bytes} bytes, {words}");
            Step::new(what, shape.clone(), milliseconds, move |here| {
                messages(here, form, bytes, batches)
            })
        };
        sizes.iter().map(step).collect::<Vec<_>>()
    };
    let shape = JobShape::bound(setting, 2);
    let [first, second] = match setting.nodes {
        None => [EngineKind::Caller, EngineKind::Peers].map(|engine| {
            let shape = shape.clone().with_engine(engine);
            curves(shape, CallForm::Nonblocking, format!("engine {engine}"))
        }),
        Some(_) => [CallForm::Blocking, CallForm::Nonblocking]
            .map(|form| curves(shape.clone(), form, format!("{form} calls"))),
    };
    // In the job of the curves before them.
    let more = more(setting, shape.with_engine(EngineKind::Caller), batches);
    let all = first.into_iter().chain(more).chain(second);
    Experiment::new(ENTRY.name, setting, all).noting_crowds()
}

/// Untouched memory, and blocking sends; between nodes under the engine of nonblocking calls.
fn more(setting: &Setting, shape: JobShape, batches: Batches) -> Vec<Step> {
    // Smaller memory is not given back to the system in between, so it cannot be untouched.
    let large = (17..=setting.choose(18, 21)).map(|exponent| 1_u64 << exponent);
    let fresh = setting.choose(3, 9);
    let paging = large.map(|bytes| {
        let milliseconds = 10 + fresh * bytes / 200_000;
        let what = format!("untouched pages, {bytes} bytes");
        Step::new(what, shape.clone(), milliseconds, move |here| {
            first_touch(here, bytes, fresh, batches)
        })
    });
    let sizes = setting.shuffled((0..=LONGEST).step_by(setting.choose(8_000, 1_000)));
    let blocking = sizes.into_iter().map(|bytes| {
        let what = format!("blocking sends, {bytes} bytes");
        let case = |pattern| ExchangeCase::new(Pairs::Chain, pattern).sized(bytes);
        step(what, &shape, [Pattern::InTurn, Pattern::AtOnce].map(case).to_vec(), batches)
    });
    paging.chain(blocking).collect()
}

/// Queues are measured beside the schedules that ranks execute in their own calls.
fn has_queues(shape: &JobShape) -> bool {
    shape.nodes.is_none() && shape.engine == EngineKind::Caller
}

/// Messages of one length by exchange and by round trip, and through queues.
fn messages(
    here: &StepContext<'_>,
    form: CallForm,
    bytes: u64,
    batches: Batches,
) -> Result<StepRows, Error> {
    let mut found = StepRows::from(Vec::new());
    for pattern in [Pattern::Exchange, Pattern::RoundTrip] {
        for receive in [Receive::Posted, Receive::Late] {
            let mut case = ExchangeCase::new(Pairs::Chain, pattern).sized(bytes);
            case.exchange.receive = receive;
            found.rows.push(ExchangeCase { form, ..case }.measure(here, batches)?);
        }
    }
    if has_queues(here.shape) {
        for mechanism in [Mechanism::Wide, Mechanism::Bulk] {
            let StepRows { rows, notes, .. } = queues::latency(here, mechanism, bytes, batches)?;
            found.rows.extend(rows);
            found.notes.extend(notes);
        }
    }
    Ok(found)
}

fn first_touch(
    here: &StepContext<'_>,
    bytes: u64,
    fresh: u64,
    batches: Batches,
) -> Result<Vec<Row>, Error> {
    let case = ExchangeCase::new(Pairs::Chain, Pattern::RoundTrip).sized(bytes);
    let mut linked = LinkedExchange::new(here.world, &case)?;
    let mut own = Vec::new();
    for _ in 0..fresh {
        linked.renew();
        here.world.barrier()?;
        let begin = now_ns();
        linked.once()?;
        own.push(microseconds(begin, now_ns()));
    }
    let mut first = agreement::largest(here.world, &own)?;
    let untouched = first.split_off(1);
    let touched = linked.time(here, batches)?;
    Ok(vec![
        linked.row(here, Quantity::First, first)?,
        linked.row(here, Quantity::Untouched, untouched)?,
        touched,
    ])
}
