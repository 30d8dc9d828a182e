//! Unusual uses of collectives that succeed: many at once, dropped requests, elements of no size,
//! repeated starts.

use crate::job_kinds::KINDS;
use tradewind::{Communicator, InPlace, Op, Request, Result, fold, local, wait_all};

testing::tests![
    hundreds_of_every_kind_may_be_under_way,
    roots_and_leaves_may_run_far_ahead,
    dropped_requests_delay_no_rank,
    elements_of_no_size_are_elements,
    persistent_collectives_can_be_started_again_and_again,
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

fn persistent_collectives_can_be_started_again_and_again() {
    for (kind, ranks) in KINDS.iter().flat_map(|kind| [1, 2, 3, 4, 5, 8].map(|ranks| (kind, ranks)))
    {
        kind.run(ranks, |world| started_again_and_again(&world))
            .unwrap_or_else(|error| panic!("{kind}, {ranks} ranks: {error}"));
    }
}

fn started_again_and_again(world: &Communicator) -> Result<()> {
    let (rank, size) = (world.rank(), world.size());
    let (root, blocks) = (size - 1, size as usize);
    let barrier = world.barrier_init()?;
    let sum = world.allreduce_init::<u32>(3, Op::Sum)?;
    let exchange = world.alltoall_init::<u8>(2)?;
    let bcast = world.bcast_init::<u16>(4, root)?;
    let gather = world.gather_init::<u32>(1, root)?;
    let digits = fold(|a: &mut u32, b: &u32| *a = a.wrapping_mul(10) + b);
    let reduce = world.reduce_init::<u32>(2, digits, 0)?;
    let transpose = world.alltoallv_init::<u32>(&vec![1; blocks], &vec![1; blocks])?;
    for round in 0..100u32 {
        barrier.start()?.wait()?;
        let mut total = [0; 3];
        sum.start(&[round, 1, rank], &mut total)?.wait()?;
        assert_eq!(total[..2], [round * size, size]);
        let mine = vec![rank as u8 ^ round as u8; 2 * blocks];
        let mut theirs = vec![0; mine.len()];
        exchange.start(&mine, &mut theirs)?.wait()?;
        assert!(theirs.chunks(2).zip(0u8..).all(|(part, from)| part == [from ^ round as u8; 2]));
        let mut values = if rank == root { [round as u16; 4] } else { [0; 4] };
        bcast.start(&mut values)?.wait()?;
        assert_eq!(values, [round as u16; 4]);
        let mut all = vec![0; if rank == root { blocks } else { 0 }];
        gather.start(&[rank + round], &mut all)?.wait()?;
        assert!(all.iter().copied().eq((0..size).filter(|_| rank == root).map(|one| one + round)));
        let mut number = vec![0; if rank == 0 { 2 } else { 0 }];
        reduce.start(&[rank + 1, 9], &mut number)?.wait()?;
        let of_digits = (1..=size).fold(0u32, |number, digit| number.wrapping_mul(10) + digit);
        assert!(rank != 0 || number[0] == of_digits);
        let mut ranks = vec![rank; blocks];
        transpose.start(InPlace, &mut ranks)?.wait()?;
        assert!(ranks.into_iter().eq(0..size));
    }
    Ok(())
}
