//! Unusual uses of collectives that succeed: many at once, dropped requests, elements of no size,
//! repeated starts.

use crate::job_kinds::KINDS;
use tradewind::{InPlace, Op, Request, fold, local, wait_all};

testing::tests![
    hundreds_of_every_kind_may_be_under_way,
    roots_and_leaves_may_run_far_ahead,
    dropped_requests_delay_no_rank,
    elements_of_no_size_are_elements,
    persistent_collectives_with_roots_and_sizes_can_be_started_again_and_again,
];

fn hundreds_of_every_kind_may_be_under_way() {
    for kind in KINDS {
        kind.run(3, |world| {
            let (rank, size) = (world.rank(), 3);
            let mine = [rank; 3];
            let lengths = [0, 1, 2];
            let block = vec![rank; rank as usize];
            let mut all = vec![[7u32; 3]; 300];
            let mut requests: Vec<Request<'_, _>> = Vec::new();
            for (turn, output) in all.iter_mut().enumerate() {
                let root = turn as u32 / 8 % size;
                let sum = fold(|a: &mut u32, b: &u32| *a += b);
                requests.push(match turn % 8 {
                    0 => world.iallgather(&mine[..1], &mut output[..])?,
                    1 => world.igather(&mine[..1], &mut output[..], root)?,
                    2 => world.iscatter(&mine[..], &mut output[..1], root)?,
                    3 => world.iscan(&mine[..], &mut output[..], Op::Sum)?,
                    4 => world.iexscan(&mine[..], &mut output[..], Op::Sum)?,
                    5 => world.iallgatherv(&block[..], &mut output[..], &lengths)?,
                    6 => world.ireduce(&mine[..], &mut output[..], Op::Maximum, root)?,
                    _ => world.ireduce_scatter_block(&mine[..], &mut output[..1], sum)?,
                });
            }
            // The last ones first: earlier results are moved out of the way meanwhile.
            requests.reverse();
            wait_all(requests)?;
            for (turn, output) in all.iter().enumerate() {
                let root = turn as u32 / 8 % size;
                let expected = match turn % 8 {
                    0 => [0, 1, 2],
                    1 if rank == root => [0, 1, 2],
                    2 => [root, 7, 7],
                    3 => [[0, 1, 3][rank as usize]; 3],
                    4 => [[7, 0, 1][rank as usize]; 3],
                    5 => [1, 2, 2],
                    6 if rank == root => [2; 3],
                    7 => [3, 7, 7],
                    _ => [7; 3],
                };
                assert_eq!(
                    *output,
                    expected,
                    "{kind}, turn {}, root {root}, rank {rank}",
                    turn % 8
                );
            }
            Ok(())
        })
        .expect("all of them complete");
    }
}

fn roots_and_leaves_may_run_far_ahead() {
    local(2, |world| {
        let mine = vec![world.rank(); 300];
        let mut all = vec![0; 600];
        for root in [0, 1] {
            for _ in 0..500 {
                world.gather(&mine, &mut all, root)?;
            }
            assert!(world.rank() != root || all == [vec![0; 300], vec![1; 300]].concat());
            let mut part = vec![9; 300];
            for _ in 0..500 {
                world.scatter(&all, &mut part, root)?;
            }
            assert!(part == mine);
        }
        Ok(())
    })
    .expect("those behind catch up");
}

fn dropped_requests_delay_no_rank() {
    for kind in KINDS {
        kind.run(3, |world| {
            for round in 0..200u32 {
                let (mine, mut all) = ([round; 3], [0; 9]);
                let sum = fold(|a: &mut u32, b: &u32| *a += b);
                match round % 6 {
                    0 => drop(world.igather(&mine, &mut all, round % 3)?),
                    1 => drop(world.iscatter(&all[..], &mut [0; 3], round % 3)?),
                    2 => std::mem::forget(world.iscan(&mine, &mut [0; 3], sum)?),
                    3 => drop(world.ireduce(
                        world.alloc::<u32>(3000)?,
                        world.alloc::<u32>(3000)?,
                        Op::Sum,
                        1,
                    )?),
                    4 => drop(
                        world.iallgather(world.alloc::<u32>(900)?, world.alloc::<u32>(2700)?)?,
                    ),
                    _ => drop(world.iallgatherv(&mine, &mut all, &[3, 3, 3])?),
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

fn elements_of_no_size_are_elements() {
    for kind in KINDS {
        kind.run(3, |world| {
            let (none, mut nothing) = ([(); 3], [(); 3]);
            world.allgather(&none[..1], &mut nothing)?;
            world.alltoall(&none, &mut nothing)?;
            world.gather(&none[..1], &mut nothing, 1)?;
            world.scatter(&none, &mut nothing[..1], 1)?;
            world.allgatherv(&none, &mut nothing, &[0, 3, 5])?;
            world.alltoallv(&none, &[1, 2, 3], &mut nothing, &[4, 5, 6])?;
            let keep = || fold(|_: &mut (), _: &()| {});
            world.allreduce(&none, &mut nothing, keep())?;
            world.reduce_scatter_block(&none, &mut nothing[..1], keep())?;
            let mut empty: [u64; 0] = [];
            world.exscan(&[], &mut empty, Op::Sum)?;
            world.reduce(&[], &mut empty, Op::Quotient, 2)?;
            world.barrier()
        })
        .expect("nothing is moved, in order");
    }
}

fn persistent_collectives_with_roots_and_sizes_can_be_started_again_and_again() {
    for kind in KINDS {
        kind.run(3, |world| {
            let rank = world.rank();
            let gather = world.gather_init::<u32>(1, 1)?;
            let reduce =
                world.reduce_init::<u32>(2, fold(|a: &mut u32, b: &u32| *a = 10 * *a + b), 2)?;
            let exchange = world.alltoallv_init::<u32>(&[1; 3], &[1; 3])?;
            for round in 0..100 {
                let mut all = vec![0; if rank == 1 { 3 } else { 0 }];
                gather.start(&[rank + round], &mut all)?.wait()?;
                assert!(rank != 1 || all == [round, round + 1, round + 2]);
                let mut digits = vec![0; if rank == 2 { 2 } else { 0 }];
                reduce.start(&[rank + 1, 9], &mut digits)?.wait()?;
                assert!(rank != 2 || digits == [123, 999]);
                let mut values = [rank; 3];
                exchange.start(InPlace, &mut values)?.wait()?;
                assert_eq!(values, [0, 1, 2]);
            }
            Ok(())
        })
        .expect("every start succeeds");
    }
}
