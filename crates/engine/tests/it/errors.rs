//! Errors: their texts, and calls after them.

use crate::ranks::{members, on_each};
use engine::node::EngineKind;
use engine::signature::{CallKind, Signature};
use engine::{Error, Exit, while_waiting};
use std::ops::ControlFlow;

#[test]
fn a_mismatch_names_the_smaller_party() {
    let all = Signature::new(CallKind::Allreduce, 8, 0);
    let odd = Signature::new(CallKind::Barrier, 0, 0);
    let error = Error::Mismatch { sequence: 17, calls: vec![all, odd, all, all] };
    assert_eq!(error.to_string(), "3 of 4 ranks are in allreduce #17, rank 1 is in barrier #17");
}

#[test]
fn a_rank_that_has_not_come_is_in_no_collective() {
    let none = Signature::new(CallKind::None, 0, 0);
    let calls =
        vec![Signature::new(CallKind::Bcast, 8, 0), Signature::new(CallKind::Barrier, 0, 0), none];
    let text = Error::Mismatch { sequence: 3, calls }.to_string();
    assert_eq!(
        text,
        "rank 0 is in bcast #3, rank 1 is in barrier #3, rank 2 has not started this collective"
    );
}

#[test]
fn a_mismatch_of_arguments_shows_them() {
    let error = Error::Mismatch {
        sequence: 2,
        calls: vec![
            Signature::new(CallKind::Allreduce, 8, 1),
            Signature::new(CallKind::Allreduce, 16, 1),
        ],
    };
    assert_eq!(
        error.to_string(),
        "rank 0 is in allreduce #2 of 8 bytes, rank 1 is in allreduce #2 of 16 bytes"
    );
}

/// The other rank arrives after this one has given up, and waits for what does not come.
#[test]
fn a_split_after_one_that_was_given_up_fails() {
    let members = members(2, EngineKind::Peers).expect("the job has memory");
    on_each(members, |communicator, barrier| {
        if communicator.rank() == 0 {
            let split = || communicator.split(Some(0), 0);
            let given_up = while_waiting(|| ControlFlow::Break(()), split);
            assert!(matches!(given_up, Err(Error::GivenUp)), "{given_up:?}");
            let broken = communicator.split(Some(0), 0);
            assert!(matches!(broken, Err(Error::Broken)), "{broken:?}");
            barrier.wait();
            return Ok(());
        }
        barrier.wait();
        let alone = communicator.split(Some(0), 0);
        assert!(matches!(alone, Err(Error::RankFailed { rank: 0, how: Exit::Left })), "{alone:?}");
        Ok(())
    })
    .expect("no rank fails");
}
