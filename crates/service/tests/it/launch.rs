//! The launcher as other crates call it.

use engine::Exit;
use engine::node::EngineKind;
use service::launcher::{LaunchOptions, Outcome, Output, Stream, launch};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

testing::tests![
    lines_arrive_with_rank_and_stream,
    the_outcome_names_the_failed_rank_and_the_ended_ones,
    a_job_can_have_a_time_limit,
    a_sink_that_fails_closes_the_ranks_output,
];

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

fn lines_arrive_with_rank_and_stream() {
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let copy = Arc::clone(&seen);
    let mut options = options(3);
    options.output = Output::Lines(Box::new(move |line| {
        let text = String::from_utf8_lossy(line.text).into_owned();
        copy.lock().expect("no panic holds it").insert((
            line.rank,
            line.stream == Stream::Error,
            text,
        ));
        Ok(())
    }));
    options.environment.push(("WORD".into(), "given".into()));
    let outcome = shell("echo $WORD; echo $TRADEWIND_RANK of $TRADEWIND_SIZE >&2", options);
    assert_eq!(
        outcome,
        Outcome { failed: None, ended: vec![], out_of_time: false, interrupted: false }
    );
    let expected: BTreeSet<_> = (0..3)
        .flat_map(|rank| [(rank, false, "given".to_owned()), (rank, true, format!("{rank} of 3"))])
        .collect();
    assert_eq!(*seen.lock().expect("no panic holds it"), expected);
}

fn the_outcome_names_the_failed_rank_and_the_ended_ones() {
    let mut options = options(3);
    options.grace = Duration::ZERO;
    let outcome = shell("[ $TRADEWIND_RANK = 1 ] && exit 6; exec sleep 1000", options);
    assert_eq!(
        outcome,
        Outcome {
            failed: Some((1, Exit::Exited(6))),
            ended: vec![0, 2],
            out_of_time: false,
            interrupted: false
        }
    );
    assert_eq!(outcome.exit_status(), 6);
}

fn a_job_can_have_a_time_limit() {
    let mut options = options(2);
    options.limit = Some(Duration::ZERO);
    let outcome = shell("exec sleep 1000", options);
    assert!(outcome.out_of_time);
    assert_eq!(outcome.ended, [0, 1]);
    assert_eq!(outcome.exit_status(), 124);
}

fn a_sink_that_fails_closes_the_ranks_output() {
    let mut options = options(1);
    options.output = Output::Lines(Box::new(|_| Err(std::io::Error::other("enough"))));
    let outcome = shell("yes", options);
    assert!(outcome.failed.is_some(), "{outcome:?}");
}
