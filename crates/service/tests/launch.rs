//! The launcher as other crates call it.

use engine::Exit;
use engine::node::EngineKind;
use service::launcher::{LaunchOptions, Outcome, Output, Stream, launch};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn options(ranks: u32) -> LaunchOptions {
    let mut options =
        LaunchOptions::new(ranks, EngineKind::Peers).expect("an untouched environment");
    // Tests run on several threads of one process; signals are one process's.
    options.passes_signals = false;
    options
}

fn shell(script: &str, options: LaunchOptions) -> Outcome {
    launch("sh".as_ref(), &["-c".into(), script.into()], options).expect("every system has sh")
}

#[test]
fn lines_come_with_rank_and_stream() {
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let copy = Arc::clone(&seen);
    let mut options = options(3);
    options.output = Output::Lines(Box::new(move |line| {
        let text = String::from_utf8_lossy(line.text).into_owned();
        copy.lock().expect("nobody panics").insert((line.rank, line.stream == Stream::Error, text));
        Ok(())
    }));
    options.environment.push(("WORD".into(), "told".into()));
    let outcome = shell("echo $WORD; echo $TRADEWIND_RANK of $TRADEWIND_SIZE >&2", options);
    assert_eq!(
        outcome,
        Outcome { failed: None, ended: vec![], out_of_time: false, asked_to_end: false }
    );
    let expected: BTreeSet<_> = (0..3)
        .flat_map(|rank| [(rank, false, "told".to_owned()), (rank, true, format!("{rank} of 3"))])
        .collect();
    assert_eq!(*seen.lock().expect("nobody panics"), expected);
}

#[test]
fn the_outcome_tells_who_failed_and_who_had_to_be_ended() {
    let mut options = options(3);
    options.grace = Duration::ZERO;
    let outcome = shell("[ $TRADEWIND_RANK = 1 ] && exit 6; exec sleep 1000", options);
    assert_eq!(
        outcome,
        Outcome {
            failed: Some((1, Exit::Exited(6))),
            ended: vec![0, 2],
            out_of_time: false,
            asked_to_end: false
        }
    );
    assert_eq!(outcome.exit_status(), 6);
}

#[test]
fn a_job_may_be_given_a_time() {
    let mut options = options(2);
    options.limit = Some(Duration::ZERO);
    let outcome = shell("exec sleep 1000", options);
    assert!(outcome.out_of_time);
    assert_eq!(outcome.ended, [0, 1]);
    assert_eq!(outcome.exit_status(), 124);
}

#[test]
fn a_sink_that_fails_closes_the_ranks_output() {
    let mut options = options(1);
    options.output = Output::Lines(Box::new(|_| Err(std::io::Error::other("enough"))));
    let outcome = shell("yes", options);
    assert!(outcome.failed.is_some(), "{outcome:?}");
}
