use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

#[test]
fn each_run_can_be_started_once_in_any_order() {
    let mut count = RunCount::default();
    assert!(count.start(1) && count.start(0) && count.start(3));
    assert!(!count.start(0) && !count.start(1) && !count.start(3));
    assert_eq!(count.next, 4);
    assert!(count.has_started(3) && !count.has_started(2));
    assert!(count.start(u64::MAX) && count.missing.len() as u64 <= MAX_MISSING);
}

/// Communicators of the reference, fewer than the ranges with exact counts.
const NUMBERS: u32 = 40;

#[derive(Clone, Debug)]
enum Step {
    Start {
        communicator: u32,
        sequence: u64,
    },
    /// Ends one of the communicators that the rank has.
    End(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1..NUMBERS, 0..6_u64)
            .prop_map(|(communicator, sequence)| Step::Start { communicator, sequence }),
        (1..NUMBERS).prop_map(Step::End),
    ]
}

/// The started runs of each communicator, and the communicators that the rank has.
#[derive(Default)]
struct Reference {
    started: HashMap<u32, BTreeSet<u64>>,
    ended: BTreeSet<u32>,
}

impl Reference {
    /// The numbers up to this one that the rank has no more, as far down as they follow each other.
    fn end(&mut self, communicator: u32) -> RangeInclusive<u32> {
        self.ended.insert(communicator);
        let is_left = |number: &u32| self.ended.contains(number);
        let first = (1..communicator).rev().take_while(is_left).last();
        first.unwrap_or(communicator)..=communicator
    }

    fn start(&mut self, communicator: u32, sequence: u64) -> Result<(), RefusedStart> {
        if self.ended.contains(&communicator) {
            return Err(RefusedStart::Ended);
        }
        let is_new = self.started.entry(communicator).or_default().insert(sequence);
        is_new.then_some(()).ok_or(RefusedStart::Repeated)
    }

    fn count(&self, communicator: u32) -> u64 {
        let runs = self.started.get(&communicator);
        runs.and_then(BTreeSet::last).map_or(0, |last| last + 1)
    }
}

proptest! {
    #[test]
    fn counts_of_few_communicators_are_those_of_a_plain_table(
        steps in prop::collection::vec(step(), 0..200)
    ) {
        let (mut counts, mut reference) = (RunCounts::default(), Reference::default());
        for step in steps {
            match step {
                Step::Start { communicator, sequence } => prop_assert_eq!(
                    counts.start(communicator, sequence),
                    reference.start(communicator, sequence)
                ),
                Step::End(communicator) => {
                    prop_assert!(counts.end(reference.end(communicator)));
                }
            }
            let list = counts.list();
            prop_assert!(list.is_sorted_by(|one, other| one.last < other.first), "{:?}", list);
            for number in 0..NUMBERS + 1 {
                let has_ended = reference.ended.contains(&number);
                prop_assert_eq!(StartedRuns::find(&list, number), reference.count(number));
                for sequence in 0..7 {
                    let runs = reference.started.get(&number);
                    let is_behind = has_ended || runs.is_some_and(|runs| runs.contains(&sequence));
                    prop_assert_eq!(counts.is_behind(number, sequence), is_behind);
                }
                let next = if has_ended { u64::MAX } else { reference.count(number) };
                prop_assert_eq!(counts.next(number), next);
            }
        }
    }
}

#[test]
fn any_number_of_ended_communicators_is_a_few_ranges() {
    let mut counts = RunCounts::default();
    // One that the rank keeps, without runs, and one with runs.
    let kept = [500, 700];
    counts.start(700, 0).expect("it is new");
    let of = |number: u32| u64::from(number % 7);
    for number in (1..50_000).filter(|number| !kept.contains(number)) {
        for sequence in 0..of(number) {
            counts.start(number, sequence).expect("it is new");
        }
        let below = kept.iter().rev().find(|kept| **kept < number).map_or(1, |kept| kept + 1);
        assert!(counts.end(below..=number));
        assert!(counts.ended.len() <= 3 && counts.live.len() == 1);
        assert!(counts.counts.len() == counts.order.len() && counts.order.len() <= EXACT);
    }
    let list = counts.list();
    let found = |number| StartedRuns::find(&list, number);
    assert!(list.is_sorted_by(|one, other| one.last < other.first), "{list:?}");
    assert!(
        (1..50_000)
            .filter(|number| !kept.contains(number))
            .all(|number| found(number) >= of(number))
    );
    assert!((49_000..50_000).all(|number| found(number) == of(number)), "the last ones are exact");
    assert_eq!((found(500), found(700), found(50_000)), (0, 1, 0));
    assert!(!counts.is_behind(500, 0) && counts.is_behind(499, 0) && counts.is_behind(501, 0));
    assert_eq!(counts.start(500, 0), Ok(()), "messages of an old one are still received");
}

/// Another rank may have a communicator, and wait in it, although its creation has failed here.
#[test]
fn numbers_without_a_communicator_here_have_no_runs() {
    let mut counts = RunCounts::default();
    for number in (3..30_000).step_by(3) {
        counts.start(number, 0).expect("it is new");
        assert!(counts.end(1..=number));
    }
    let list = counts.list();
    let found = |number| StartedRuns::find(&list, number);
    assert!((27_000..29_998).all(|number| found(number) == u64::from(number % 3 == 0)));
    assert!((3..27_000).step_by(3).all(|number| found(number) >= 1));
    assert!(list.len() <= EXACT + 1, "{}", list.len());
}

/// Their numbers are the lowest ones, and they ended last.
#[test]
fn communicators_that_end_together_at_the_exit_keep_their_counts() {
    let mut counts = RunCounts::default();
    for number in 1..=600 {
        (0..u64::from(number)).for_each(|run| counts.start(number, run).expect("it is new"));
    }
    for number in 601..3000 {
        counts.start(number, 7).expect("it is new");
        assert!(counts.end(601..=number));
    }
    (1..=600).for_each(|number| assert!(counts.end(number..=number)));
    let list = counts.list();
    assert!((1..=600).all(|number| StartedRuns::find(&list, number) == u64::from(number)));
    assert!((601..3000).all(|number| StartedRuns::find(&list, number) >= 8));
}

#[test]
fn a_rank_that_ends_what_no_rank_has_is_noticed() {
    let mut counts = RunCounts::default();
    let mut ended = (0..2 * MOST as u32).step_by(2).map(|number| counts.end(number..=number));
    assert!(ended.all(|is_right| is_right));
    assert!(!counts.end(u32::MAX..=u32::MAX));
    assert!(counts.end(0..=5));
    assert!(counts.end(0..=u32::MAX));
    #[expect(clippy::reversed_empty_ranges, reason = "what a rank writes may be so")]
    let reversed = 9..=3;
    assert!(counts.end(reversed));
}
