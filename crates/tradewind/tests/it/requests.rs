//! Requests in numbers, dropped, forgotten, late; communicators side by side.

use crate::job_kinds::KINDS;
use std::time::Duration;
use tradewind::{
    Algorithm, Algorithms, Communicator, Error, Op, Request, Result, interop, local, wait_all,
    wait_any,
};

testing::tests![
    any_number_of_collectives_may_be_under_way,
    large_collectives_may_be_under_way_in_numbers_too,
    dropped_and_forgotten_requests_delay_no_rank,
    test_says_when_and_wait_any_says_which,
    communicators_never_take_each_others_messages,
    threads_of_a_rank_may_share_it,
    any_number_of_shapes_may_be_linked,
    a_collective_that_has_failed_is_never_complete,
    few_slow_tests_find_a_mismatch,
    memory_has_the_alignment_of_its_elements,
    a_time_out_names_the_missing_ranks_and_can_be_waited_out,
    wrong_arguments_are_refused_before_anything_starts,
    a_communicator_may_go_while_others_still_fetch_from_it,
    waiting_on_one_communicator_goes_on_with_another,
];

fn any_number_of_collectives_may_be_under_way() {
    for kind in KINDS {
        kind.run(4, |world| {
            const RUNS: usize = 1000;
            let inputs: Vec<[u64; 2]> =
                (0..RUNS as u64).map(|run| [run, u64::from(world.rank())]).collect();
            let mut outputs = vec![[0u64; 2]; RUNS];
            let mut requests = Vec::new();
            for (input, output) in inputs.iter().zip(&mut outputs) {
                requests.push(world.iallreduce(input, output, Op::Sum)?);
            }
            // The last ones first: earlier results are moved out of the way meanwhile.
            while let Some(request) = requests.pop() {
                request.wait()?;
            }
            drop(requests);
            assert!(outputs.iter().zip(0u64..).all(|(output, run)| *output == [4 * run, 6]));
            Ok(())
        })
        .expect("all of them complete");
    }
}

fn large_collectives_may_be_under_way_in_numbers_too() {
    local(3, |world| {
        const COUNT: usize = 5000;
        let mine = vec![1.0f64; COUNT];
        let mut outputs = vec![vec![0.0; COUNT]; 100];
        let requests: Vec<Request<'_, _>> = outputs
            .iter_mut()
            .map(|output| world.iallreduce(&mine, output, Op::Sum))
            .collect::<Result<_>>()?;
        wait_all(requests)?;
        assert!(outputs.iter().flatten().all(|value| *value == 3.0));
        Ok(())
    })
    .expect("all of them complete");
}

fn dropped_and_forgotten_requests_delay_no_rank() {
    for kind in KINDS {
        kind.run(3, |world| {
            for round in 0..300u32 {
                let input = [round; 4];
                let mut output = [0u32; 4];
                match round % 3 {
                    0 => drop(world.iallreduce(&input, &mut output, Op::Sum)?),
                    1 => std::mem::forget(world.iallreduce(&input, &mut output, Op::Sum)?),
                    _ => drop(world.iallreduce(
                        world.alloc::<u32>(4000)?,
                        world.alloc::<u32>(4000)?,
                        Op::Sum,
                    )?),
                }
                let mut sum = [0];
                world.allreduce(&[1u32], &mut sum, Op::Sum)?;
                assert_eq!(sum, [3]);
            }
            Ok(())
        })
        .expect("the others go on");
    }
}

fn test_says_when_and_wait_any_says_which() {
    local(2, |world| {
        let mut outputs = [[0u32; 1]; 3];
        let inputs = [[1u32], [2], [3]];
        let mut requests: Vec<Request<'_, _>> = inputs
            .iter()
            .zip(&mut outputs)
            .map(|(input, output)| world.iallreduce(input, output, Op::Sum))
            .collect::<Result<_>>()?;
        let mut seen = Vec::new();
        while let Some(index) = wait_any(&mut requests)? {
            requests.remove(index).wait()?;
            seen.push(index);
        }
        drop(requests);
        assert_eq!(seen.len(), 3);
        assert_eq!(outputs, [[2], [4], [6]]);
        let mut request = world.ibarrier()?;
        while !request.test()? {
            std::thread::yield_now();
        }
        assert!(request.test()?, "a complete request stays complete");
        request.wait()
    })
    .expect("all complete");
}

fn communicators_never_take_each_others_messages() {
    for kind in KINDS {
        kind.run(6, |world| {
            let copy = world.dup()?;
            let Some(half) = world.split(Some(world.rank() % 2), -i64::from(world.rank()))? else {
                return Ok(());
            };
            assert_eq!(half.rank(), 2 - world.rank() / 2, "a smaller key comes first");
            for round in 0..50u32 {
                let (mut all, mut again, mut ours) = ([0], [0], [0]);
                let (a, b, c) = ([round], [round + 1], [world.rank()]);
                let first = world.iallreduce(&a, &mut all, Op::Sum)?;
                let second = copy.iallreduce(&b, &mut again, Op::Sum)?;
                let third = half.iallreduce(&c, &mut ours, Op::Sum)?;
                third.wait()?;
                second.wait()?;
                first.wait()?;
                assert_eq!(all, [6 * round]);
                assert_eq!(again, [6 * (round + 1)]);
                assert_eq!(ours, [if world.rank() % 2 == 0 { 6 } else { 9 }]);
            }
            Ok(())
        })
        .expect("all complete");
    }
    local(3, |world| {
        let color = (world.rank() > 0).then_some(7);
        let part = world.split(color, 0)?;
        assert_eq!(part.is_some(), world.rank() > 0);
        part.map_or(Ok(()), |part| part.barrier())
    })
    .expect("a rank without a colour belongs to none");
}

fn threads_of_a_rank_may_share_it() {
    for kind in KINDS {
        kind.run(2, |world| {
            let mine: Vec<Communicator> = (0..4).map(|_| world.dup()).collect::<Result<_>>()?;
            std::thread::scope(|scope| {
                let threads: Vec<_> = mine
                    .iter()
                    .map(|communicator| {
                        scope.spawn(move || -> Result<()> {
                            for round in 0..200u64 {
                                let mut sum = [0];
                                communicator.allreduce(&[round], &mut sum, Op::Sum)?;
                                assert_eq!(sum, [2 * round]);
                            }
                            Ok(())
                        })
                    })
                    .collect();
                threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
            })
        })
        .expect("all complete");
    }
}

/// Where other processes use the core between two tests, a thousand of them take seconds.
fn few_slow_tests_find_a_mismatch() {
    let outcome = local(2, |world| {
        if world.rank() == 1 {
            interop::record_external_collective(&world);
            return Ok(());
        }
        let mut request = world.ibarrier()?;
        for tests in 1.. {
            std::thread::sleep(Duration::from_millis(1));
            if let Err(error) = request.test() {
                assert!(matches!(error, Error::Mismatch { .. }), "{error}");
                assert!(tests < 1000, "{tests}");
                break;
            }
        }
        Ok(())
    });
    outcome.expect("the ranks end");
}

fn a_collective_that_has_failed_is_never_complete() {
    let failed = |outcome: Result<()>| assert!(matches!(outcome, Err(Error::RequestFailed)));
    local(3, |world| {
        let mine = [i64::from(world.rank() != 1)];
        let mut quotient = [0];
        let mut request = world.iallreduce(&mine, &mut quotient, Op::Quotient)?;
        let outcome = request.wait_timeout(Duration::from_secs(60));
        assert!(matches!(outcome, Err(Error::DivisionByZero { .. })), "{outcome:?}");
        failed(request.test().map(drop));
        failed(request.wait_timeout(Duration::from_secs(60)));
        failed(request.wait().map(drop));
        Ok(())
    })
    .expect("only the divisions fail");
}

/// Elements whose alignment exceeds that of a cache line.
#[derive(Clone, Copy)]
#[repr(C, align(512))]
struct Wide([u8; 512]);

// SAFETY: an array of bytes without padding, of which all values are valid.
unsafe impl bytemuck::Zeroable for Wide {}
// SAFETY: as above.
unsafe impl bytemuck::Pod for Wide {}

fn memory_has_the_alignment_of_its_elements() {
    local(2, |world| {
        for _ in 0..4 {
            let _between = world.alloc::<u8>(1)?;
            let mut wide = world.alloc::<Wide>(3)?;
            wide[2].0[511] = world.rank() as u8;
            assert_eq!((wide.len(), wide[2].0[511]), (3, world.rank() as u8));
        }
        Ok(())
    })
    .expect("the job succeeds");
}

/// A schedule is linked for each list of counts. The ranks drop the same ones from their caches, or
/// they would not agree on the next link.
fn any_number_of_shapes_may_be_linked() {
    local(3, |world| {
        let allgather = Some(Algorithm::Ring);
        let world = world.with_algorithms(Algorithms { allgather, ..Algorithms::default() });
        let before = world.allocated_bytes();
        let gather = |shape: usize| -> Result<()> {
            let counts = [shape % 50, shape / 50, 150 - shape % 50 - shape / 50];
            let mine = vec![world.rank() as u8; counts[world.rank() as usize]];
            let mut all = [9; 150];
            let request = world.iallgatherv(&mine, &mut all, &counts)?;
            // Dropped now and then, so that the schedule leaves the cache with a run.
            if shape.is_multiple_of(7) {
                return Ok(());
            }
            request.wait()?;
            let expected = (0..3).flat_map(|from| vec![from as u8; counts[from]]);
            assert!(all.iter().copied().eq(expected), "{counts:?}");
            Ok(())
        };
        let used = || -> Result<u64> {
            world.barrier()?;
            let mut sum = [0];
            world.allreduce(&[world.allocated_bytes() - before], &mut sum, Op::Sum)?;
            Ok(sum[0])
        };
        for shape in 0..1000 {
            gather(shape)?;
            gather(3)?;
        }
        let of_thousand = used()?;
        (1000..2400).try_for_each(gather)?;
        // Some that are in the cache and some that are not.
        (1000..2000).try_for_each(gather)?;
        let now = used()?;
        assert!(now < of_thousand / 2 * 3, "{now} bytes after {of_thousand}");
        Ok(())
    })
    .expect("the ranks agree");
}

fn a_time_out_names_the_missing_ranks_and_can_be_waited_out() {
    let barrier = std::sync::Barrier::new(2);
    local(2, |world| {
        if world.rank() == 1 {
            barrier.wait();
            return world.barrier();
        }
        let mut request = world.ibarrier()?;
        match request.wait_timeout(Duration::from_millis(20)) {
            Err(Error::Timeout { waiting_for, .. }) => {
                assert_eq!(
                    waiting_for.iter().map(|straggler| straggler.rank).collect::<Vec<_>>(),
                    [1]
                );
            }
            other => panic!("{other:?}"),
        }
        barrier.wait();
        request.wait()
    })
    .expect("the barrier completes after all");
}

fn wrong_arguments_are_refused_before_anything_starts() {
    local(2, |world| {
        let text = |outcome: Result<()>| outcome.expect_err("refused").to_string();
        assert!(text(world.bcast(&mut [0u8], 2)).contains("the root is 2, it must be below 2"));
        assert!(text(world.alltoall(&[0u8; 3], &mut [0; 3])).contains("multiple of 2, the number of ranks"));
        assert!(text(world.allreduce(&[0u8; 3], &mut [0; 4], Op::Sum)).contains(
            "allreduce: the input has 3 elements beside an output of 4 elements, it must have 4 elements"
        ));
        assert!(text(world.allreduce(&[0f32], &mut [0.0], Op::Xor)).contains("xor on f32"));
        assert!(text(world.cartesian(&[3], &[true]).map(|_| ())).contains("3"));
        world.barrier()
    })
    .expect("the job goes on");
}

fn a_communicator_may_go_while_others_still_fetch_from_it() {
    let barrier = std::sync::Barrier::new(2);
    local(2, |world| {
        let copy = world.dup()?;
        let mine = vec![world.rank() + 1; 20_000];
        let mut theirs = vec![0; 20_000];
        let request = copy.ialltoall(&mine, &mut theirs)?;
        barrier.wait();
        if world.rank() == 0 {
            request.wait()?;
            drop(copy);
            // Whatever memory is free again is used now.
            let mut other = world.alloc::<u32>(1 << 16)?;
            other.fill(77);
            barrier.wait();
        } else {
            barrier.wait();
            request.wait()?;
        }
        assert!(
            theirs[..10_000].iter().all(|value| *value == 1)
                && theirs[10_000..].iter().all(|value| *value == 2)
        );
        Ok(())
    })
    .expect("both have their results");
}

fn waiting_on_one_communicator_goes_on_with_another() {
    for kind in KINDS {
        kind.run(2, |world| {
            let copy = world.dup()?;
            let (input, mut output) = ([1u32], [0u32]);
            let request = world.iallreduce(&input, &mut output, Op::Sum)?;
            if world.rank() == 0 {
                copy.barrier()?;
                request.wait()?;
            } else {
                request.wait()?;
                copy.barrier()?;
            }
            assert_eq!(output, [2]);
            Ok(())
        })
        .expect("neither waits for ever");
    }
}
