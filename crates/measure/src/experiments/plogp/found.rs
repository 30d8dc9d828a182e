//! Parameters from the rows of a run.

use super::{contention, starts};
use crate::harness::{Doubts, Error};
use crate::rows::{Quantity, Row, Run, StepRows, What};
use models::costs::StartCosts;
use models::machine::PairClass;
use models::machine_file::Engine;
use models::parameters::ParametersError;
use models::statistics::median;
use models::survey::{Rounds, SizeTimes, Survey};

/// Quantities of the times of messages, in the order of the rows of a size.
const QUANTITIES: [Quantity; 4] =
    [Quantity::Latency, Quantity::Gap, Quantity::SendOverhead, Quantity::ReceiveOverhead];

/// Parameters of a class of pairs under an engine.
pub(super) struct Messages {
    pub(super) engine: Engine,
    pub(super) class: PairClass,
    /// The cores of the two ranks, if they are bound.
    pub(super) cores: Vec<usize>,
    pub(super) survey: Survey,
    pub(super) start: StartCosts,
    /// γ, where the bounds of the direct exchange differ.
    pub(super) contention: Option<f64>,
    pub(super) doubts: Doubts,
    /// Something disturbed every pass.
    pub(super) is_always_disturbed: bool,
}

/// Rows of the messages of rounds.
pub(super) fn rows_of(rounds: &Rounds, row: impl Fn(Quantity, u64, &[f64]) -> Row) -> Vec<Row> {
    let of_size = |(bytes, times): (&u64, &SizeTimes)| {
        let SizeTimes { arrival, stream, send, receive } = times;
        let all = QUANTITIES.into_iter().zip([arrival, stream, send, receive]);
        let measured = all.filter(|(_, times)| !times.is_empty());
        measured.map(|(quantity, times)| row(quantity, *bytes, times)).collect::<Vec<_>>()
    };
    rounds.0.iter().flat_map(of_size).collect()
}

/// Rounds from rows of their messages.
fn rounds_of<'r>(rows: impl IntoIterator<Item = &'r Row>) -> Rounds {
    let mut rounds = Rounds::default();
    for row in rows.into_iter().filter(|row| row.what == What::Linked) {
        let SizeTimes { arrival, stream, send, receive } = rounds.0.entry(row.bytes).or_default();
        let all = QUANTITIES.into_iter().zip([arrival, stream, send, receive]);
        let own = all.filter(|(quantity, _)| *quantity == row.quantity);
        own.for_each(|(_, times)| times.extend(&row.times));
    }
    rounds
}

/// One pass over a class of pairs under an engine.
struct Pass<'r> {
    rows: &'r [Row],
    start: StartCosts,
    doubts: Doubts,
}

impl<'r> Pass<'r> {
    fn of(rows: &'r [Row]) -> Result<Self, ParametersError> {
        let survey = rounds_of(rows).survey()?;
        let start = starts::costs(rows, &survey.parameters);
        let load = Doubts::beside(rows.iter().filter(|row| row.pair.is_some()));
        Ok(Pass { rows, start, doubts: load.and(survey.signs.into()) })
    }

    fn taken_together(passes: &[&Self]) -> Result<(Survey, StartCosts, Doubts), ParametersError> {
        let middle =
            |of: fn(&Self) -> f64| median(&passes.iter().map(|pass| of(pass)).collect::<Vec<_>>());
        let start = StartCosts {
            fixed: middle(|pass| pass.start.fixed),
            per_byte: middle(|pass| pass.start.per_byte),
        };
        let survey = rounds_of(passes.iter().flat_map(|pass| pass.rows)).survey()?;
        let own = Doubts::from(survey.signs);
        let doubts = passes.iter().fold(own, |doubts, pass| doubts.and(pass.doubts));
        Ok((survey, start, doubts))
    }
}

/// Doubts about messages that follow from their times alone.
///
/// # Errors
/// Times that make no parameters.
pub(super) fn doubts_of_messages(rows: &[Row]) -> Result<Doubts, Error> {
    let survey = rounds_of(rows).survey().map_err(|error| Error::Impossible {
        what: format!("what was measured makes no parameters: {error}"),
        way_out: "measure again, with less going on beside".to_owned(),
    })?;
    Ok(survey.signs.into())
}

/// The engine and the class of the messages of a step.
fn subject(step: &StepRows) -> Option<(Engine, PairClass)> {
    let mut messages = step.rows.iter().filter(|row| row.what == What::Linked);
    messages.find_map(|row| Some((row.engine?, row.pair?)))
}

/// Sizes of the messages of a class of pairs under an engine; none if they were not measured.
pub(super) fn sizes(run: &Run, of: (Engine, PairClass)) -> Vec<u64> {
    let step = run.found.values().find(|step| step.whole && subject(step) == Some(of));
    step.map_or(Vec::new(), |step| rounds_of(&step.rows).0.into_keys().collect())
}

/// Parameters of each class of pairs under each engine, in the order in which they were measured:
/// from the passes that nothing disturbed, or from all if something disturbed every one. Times that
/// make no parameters are left out.
pub(super) fn messages(run: &Run) -> Vec<Messages> {
    let whole: Vec<&StepRows> = run.found.values().filter(|step| step.whole).collect();
    let mut subjects: Vec<(Engine, PairClass)> = Vec::new();
    for subject in whole.iter().filter_map(|step| subject(step)) {
        if !subjects.contains(&subject) {
            subjects.push(subject);
        }
    }
    let of_subject = |of: (Engine, PairClass)| {
        let steps: Vec<&StepRows> =
            whole.iter().copied().filter(|step| subject(step) == Some(of)).collect();
        let passes: Vec<Pass> = steps.iter().filter_map(|step| Pass::of(&step.rows).ok()).collect();
        let quiet: Vec<&Pass> = passes.iter().filter(|pass| !pass.doubts.is_disturbed()).collect();
        let is_always_disturbed = quiet.is_empty();
        let counted = if is_always_disturbed { passes.iter().collect() } else { quiet };
        let (survey, start, doubts) = Pass::taken_together(&counted).ok()?;
        let (engine, class) = of;
        let rows = || steps.iter().flat_map(|step| &step.rows).filter(|row| row.pair.is_some());
        let cores = rows().next().map_or(Vec::new(), |row| row.bound().to_vec());
        let contention = contention::fit(rows(), &survey.parameters, start);
        Some(Messages {
            engine,
            class,
            cores,
            survey,
            start,
            contention,
            doubts,
            is_always_disturbed,
        })
    };
    subjects.into_iter().filter_map(of_subject).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::rows::Load;

    /// A row of two ranks.
    pub(in crate::experiments::plogp) fn row(what: What, quantity: Quantity, times: &[f64]) -> Row {
        Row { quantity, cores: None, ..Row::trial(what, 2, 0, times) }
    }

    /// The rows of a pass at this slowdown.
    pub(in crate::experiments::plogp) fn pass(slowdown: f64, others: f64) -> StepRows {
        let times = |each: f64| SizeTimes {
            arrival: vec![each * slowdown; 4],
            stream: vec![each / 2.0 * slowdown; 4],
            send: vec![0.5 * slowdown; 4],
            receive: vec![0.25 * slowdown; 4],
        };
        let rounds = Rounds([(0, times(2.0)), (64, times(3.0))].into());
        let mut rows = rows_of(&rounds, |quantity, bytes, times| {
            row(What::Linked, quantity, times).sized(bytes)
        });
        let run = |bytes, time: f64| {
            row(What::RoundTrip, Quantity::Alone, &[time * slowdown]).sized(bytes)
        };
        rows.extend([run(0, 5.0), run(64, 5.0)]);
        let load = Some(Load { others, stolen: 0.0 });
        let of_pair = |row: Row| Row {
            pair: Some(PairClass::SameSocket),
            engine: Some(Engine::Caller),
            load,
            ..row
        };
        rows.into_iter().map(of_pair).collect::<Vec<_>>().into()
    }

    /// A run of these passes.
    pub(in crate::experiments::plogp) fn run(passes: Vec<StepRows>) -> Run {
        let name = "plogp".to_owned();
        let steps = passes.len() as u64;
        Run { name, steps, found: (0..).zip(passes).collect(), ..Run::default() }
    }

    /// One of three passes saw the machine at half its speed.
    #[test]
    fn passes_are_taken_together() {
        let run = run([1.0, 2.0, 1.0].map(|slowdown| pass(slowdown, 0.0)).to_vec());
        let found = messages(&run);
        let [Messages { survey, start, .. }] = found.as_slice() else { panic!("one class") };
        let network = &survey.parameters;
        assert_eq!((network.arrival(0), network.arrival(64), start.fixed), (2.0, 3.0, 1.0));
        assert_eq!((network.latency(), network.gap(64)), (1.0, 2.0));
        assert_eq!((network.send_overhead(64), network.receive_overhead(0)), (0.5, 0.25));
        assert_eq!(survey.samples.round_trip.values.len(), 12);
        assert_eq!(sizes(&run, (Engine::Caller, PairClass::SameSocket)), [0, 64]);
        assert!(sizes(&run, (Engine::Peers, PairClass::SameSocket)).is_empty());
    }

    /// A pass at twice the speed, under load, would count as the fastest.
    #[test]
    fn disturbed_passes_count_only_where_there_are_no_others() {
        let loaded = pass(0.5, 0.5);
        let of = |passes: Vec<StepRows>| {
            let found = messages(&run(passes)).pop().expect("one class");
            (found.survey.parameters.arrival(0), found.start.fixed, found.doubts.to_string())
        };
        let words = "other processes used 50 % of the cores".to_owned();
        assert_eq!(of(vec![loaded.clone()]), (1.0, 0.5, words));
        assert_eq!(of(vec![loaded, pass(1.0, 0.0)]), (2.0, 1.0, String::new()));
    }

    #[test]
    fn a_step_without_all_its_rows_does_not_count() {
        let damaged = StepRows { whole: false, ..pass(1.0, 0.0) };
        assert!(messages(&run(vec![damaged])).is_empty());
    }
}
