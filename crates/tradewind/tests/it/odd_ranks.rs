//! Ranks that do not do as the others: each rank gets an error that names the odd one.

use tradewind::{
    Algorithm, Algorithms, Communicator, EngineKind, Error, Exit, Op, Result, local, local_with,
};

testing::tests![
    an_error_of_ranks_in_different_collectives_names_where_each_is,
    ranks_with_different_sizes_are_told_so,
    a_linked_collective_that_meets_another_is_found_too,
    a_rank_that_leaves_or_panics_is_named,
    tests_find_what_waits_find,
    communicators_without_the_failed_rank_remain_usable,
    the_cause_precedes_its_consequence,
    sizes_that_take_different_ways_are_told_apart_before_any_work,
];

const ENGINES: [EngineKind; 2] = [EngineKind::Peers, EngineKind::Caller];

/// Runs ranks of which rank 1 does something else. Returns every rank's error.
fn with_an_odd_rank(
    engine: EngineKind,
    ranks: u32,
    usual: impl Fn(&Communicator) -> Result<()> + Sync,
    odd: impl Fn(&Communicator) -> Result<()> + Sync,
) -> Vec<Option<Error>> {
    let errors = std::sync::Mutex::new((0..ranks).map(|_| None).collect::<Vec<_>>());
    let outcome = local_with(ranks, engine, |world| {
        for _ in 0..17 {
            world.barrier()?;
        }
        let outcome = if world.rank() == 1 { odd(&world) } else { usual(&world) };
        errors.lock().expect("no panic")[world.rank() as usize] = outcome.err();
        Ok(())
    });
    drop(outcome);
    errors.into_inner().expect("no panic")
}

fn an_error_of_ranks_in_different_collectives_names_where_each_is() {
    // No rank checks before all have arrived.
    let barrier = std::sync::Barrier::new(4);
    let errors = with_an_odd_rank(
        EngineKind::Peers,
        4,
        |world| {
            let (mine, mut sum) = ([1u32], [0]);
            let request = world.iallreduce(&mine, &mut sum, Op::Sum)?;
            barrier.wait();
            request.wait().map(|_| ())
        },
        |world| {
            let request = world.ibarrier()?;
            barrier.wait();
            request.wait()
        },
    );
    for error in errors {
        let text = error.expect("every rank has an error").to_string();
        assert_eq!(text, "3 of 4 ranks are in allreduce #17, rank 1 is in barrier #17");
    }
}

fn ranks_with_different_sizes_are_told_so() {
    let barrier = std::sync::Barrier::new(3);
    let errors = with_an_odd_rank(
        EngineKind::Peers,
        3,
        |world| {
            let (mine, mut sum) = ([1u32], [0]);
            let request = world.iallreduce(&mine, &mut sum, Op::Sum)?;
            barrier.wait();
            request.wait().map(|_| ())
        },
        |world| {
            let (mine, mut sum) = ([1u64], [0]);
            let request = world.iallreduce(&mine, &mut sum, Op::Sum)?;
            barrier.wait();
            request.wait().map(|_| ())
        },
    );
    for error in errors {
        let text = error.expect("every rank has an error").to_string();
        assert_eq!(
            text,
            "2 of 3 ranks are in allreduce #17 of 4 bytes, rank 1 is in allreduce #17 of 8 bytes"
        );
    }
}

fn a_linked_collective_that_meets_another_is_found_too() {
    for engine in ENGINES {
        let bruck = Algorithms {
            alltoall: Some(Algorithm::Bruck),
            barrier: Some(Algorithm::Dissemination),
            ..Algorithms::default()
        };
        let errors = with_an_odd_rank(
            engine,
            4,
            |world| world.with_algorithms(bruck).alltoall(&[0u8; 4], &mut [0; 4]),
            |world| world.with_algorithms(bruck).barrier(),
        );
        for error in errors {
            let text = error.expect("every rank has an error").to_string();
            // Under the caller engine the barriers before were linked, which is a collective of its
            // own.
            let number = if engine == EngineKind::Peers { 17 } else { 18 };
            // It is found as soon as two ranks differ, perhaps before all have come.
            assert!(text.contains(&format!("in alltoall #{number}")), "{text}");
            assert!(text.contains(&format!("rank 1 is in barrier #{number}")), "{text}");
        }
    }
}

fn a_rank_that_leaves_or_panics_is_named() {
    for engine in ENGINES {
        let errors = with_an_odd_rank(engine, 4, |world| world.barrier(), |_| Ok(()));
        for (rank, error) in errors.into_iter().enumerate().filter(|(rank, _)| *rank != 1) {
            match error {
                Some(Error::RankFailed { rank: 1, how: Exit::Left }) => {}
                other => panic!("rank {rank} got {other:?}"),
            }
        }
    }
    let outcome = local(3, |world| {
        assert!(world.rank() != 2, "as planned");
        match world.barrier() {
            Err(error) if error.failed_rank() == Some(2) => Ok(()),
            other => panic!("rank {} got {other:?}", world.rank()),
        }
    });
    match outcome {
        Err(Error::Panicked { rank: 2, message }) => {
            assert!(message.contains("as planned"), "{message}")
        }
        other => panic!("the panic is reported, not {other:?}"),
    }
}

fn tests_find_what_waits_find() {
    let polls = |world: &Communicator| {
        let mut request = world.ibarrier()?;
        while !request.test()? {
            std::thread::yield_now();
        }
        Ok(())
    };
    let other = |world: &Communicator| world.bcast(&mut [0u8; 4], 1);
    for engine in ENGINES {
        for error in with_an_odd_rank(engine, 3, polls, |_| Ok(())).into_iter().step_by(2) {
            match error {
                Some(Error::RankFailed { rank: 1, how: Exit::Left }) => {}
                other => panic!("{engine:?}: {other:?}"),
            }
        }
        for error in with_an_odd_rank(engine, 3, polls, other).into_iter().step_by(2) {
            let text = error.expect("these ranks have an error").to_string();
            assert!(text.contains("rank 1 is in bcast"), "{text}");
        }
    }
}

fn communicators_without_the_failed_rank_remain_usable() {
    let outcome = local(3, |world| {
        let half = world.split(Some(world.rank() / 2), 0)?.expect("every rank has a colour");
        assert!(world.rank() != 2, "as planned");
        match world.barrier() {
            Err(error) if error.failed_rank() == Some(2) => {}
            other => panic!("rank {} got {other:?}", world.rank()),
        }
        let mut sum = [0];
        half.allreduce(&[world.rank() + 1], &mut sum, Op::Sum)?;
        assert_eq!(sum, [3]);
        Ok(())
    });
    assert!(matches!(outcome, Err(Error::Panicked { rank: 2, .. })), "{outcome:?}");
}

fn the_cause_precedes_its_consequence() {
    let outcome = local(4, |world| match world.rank() {
        // It leaves with its error, and the others wait for it.
        3 => world.bcast(&mut [0u8], 7),
        _ => world.barrier(),
    });
    assert!(matches!(outcome, Err(Error::Argument { .. })), "{outcome:?}");
}

fn sizes_that_take_different_ways_are_told_apart_before_any_work() {
    // The small contribution lies beside the count, the large one in an arena: ranks that worked on
    // them as they are would read places that no rank wrote.
    let errors = with_an_odd_rank(
        EngineKind::Peers,
        2,
        |world| world.allreduce(&[1u64], &mut [0], Op::Sum),
        |world| world.allreduce(&vec![1u64; 1 << 17], &mut vec![0; 1 << 17], Op::Sum),
    );
    for error in errors {
        let text = error.expect("every rank has an error").to_string();
        assert!(text.contains("of 8 bytes") && text.contains("of 1048576 bytes"), "{text}");
    }
}
