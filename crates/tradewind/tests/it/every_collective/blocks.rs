//! Blocks that are moved: gather, scatter, all-to-all, broadcast and their kin.

use super::harness::{COUNTS, Form, UNTOUCHED, every_job, roots, uneven, values, with_own_block};
use tradewind::{Algorithm, Algorithms, Collective, InPlace, Result, local};

testing::tests![
    allgather_gives_everyone_all_blocks,
    allgatherv_gives_everyone_all_blocks,
    gather_gives_the_root_all_blocks_and_leaves_the_others_alone,
    gatherv_gives_the_root_all_blocks_and_leaves_the_others_alone,
    scatter_and_scatterv_give_everyone_its_block,
    the_root_of_a_scatter_may_keep_its_block_in_place,
    alltoall_and_alltoallv_exchange_blocks,
    blocks_of_different_sizes_need_no_memory,
    bcast_gives_everyone_the_roots_buffer,
];

fn allgather_gives_everyone_all_blocks() {
    let force = |algorithm| Algorithms { allgather: Some(algorithm), ..Default::default() };
    every_job(Collective::Allgather.algorithms(), force, |world, turn| {
        let (rank, size) = (world.rank(), world.size());
        for count in COUNTS {
            let (form, in_place) = turn.next(rank);
            let sizes = vec![count; size as usize];
            let input = (!in_place).then(|| values(rank, count));
            let output = if in_place {
                with_own_block(rank, &sizes)
            } else {
                vec![UNTOUCHED; count * size as usize]
            };
            let all = call!(world.[allgather, iallgather, allgather_init]
                |from, to| (from, to) (count), form, input, output);
            let expected: Vec<u64> = (0..size).flat_map(|rank| values(rank, count)).collect();
            assert!(all == expected, "{form:?}, in place {in_place}, count {count}");
        }
        Ok(())
    });
}

fn allgatherv_gives_everyone_all_blocks() {
    let force = |algorithm| Algorithms { allgather: Some(algorithm), ..Default::default() };
    every_job(Collective::Allgather.algorithms(), force, |world, turn| {
        let (rank, size) = (world.rank(), world.size());
        for count in COUNTS {
            let (form, in_place) = turn.next(rank);
            let sizes = uneven(size, count);
            let input = (!in_place).then(|| values(rank, sizes[rank as usize]));
            let output = if in_place {
                with_own_block(rank, &sizes)
            } else {
                vec![UNTOUCHED; sizes.iter().sum()]
            };
            let all = call!(world.[allgatherv, iallgatherv, allgatherv_init]
                |from, to| (from, to, &sizes) (&sizes), form, input, output);
            let expected: Vec<u64> =
                (0..size).flat_map(|rank| values(rank, sizes[rank as usize])).collect();
            assert!(all == expected, "{form:?}, in place {in_place}, count {count}");
        }
        Ok(())
    });
}

fn gather_gives_the_root_all_blocks_and_leaves_the_others_alone() {
    let force = |algorithm| Algorithms { gather: Some(algorithm), ..Default::default() };
    every_job(Collective::Gather.algorithms(), force, |world, turn| {
        let (rank, size) = (world.rank(), world.size());
        for (count, root) in
            COUNTS.into_iter().flat_map(|count| roots(world).map(|root| (count, root)))
        {
            let (form, in_place) = turn.next(rank);
            let (sizes, in_place) = (vec![count; size as usize], in_place && rank == root);
            let input = (!in_place).then(|| values(rank, count));
            // Elsewhere the output may have any length.
            let before = match (in_place, rank == root) {
                (true, _) => with_own_block(rank, &sizes),
                (_, true) => vec![UNTOUCHED; count * size as usize],
                _ => vec![UNTOUCHED; rank as usize],
            };
            let got = call!(world.[gather, igather, gather_init]
                |from, to| (from, to, root) (count, root), form, input, before.clone());
            let expected: Vec<u64> = (0..size).flat_map(|rank| values(rank, count)).collect();
            assert!(
                got == if rank == root { expected } else { before },
                "{form:?}, {in_place}, {count}, root {root}"
            );
        }
        Ok(())
    });
}

fn gatherv_gives_the_root_all_blocks_and_leaves_the_others_alone() {
    // Not every rank knows the sizes, so the algorithm is always the same.
    let force = |algorithm| Algorithms { gather: Some(algorithm), ..Default::default() };
    every_job(&[Algorithm::Binomial], force, |world, turn| {
        let (rank, size) = (world.rank(), world.size());
        for (count, root) in
            COUNTS.into_iter().flat_map(|count| roots(world).map(|root| (count, root)))
        {
            let (form, in_place) = turn.next(rank);
            let (sizes, in_place) = (uneven(size, count), in_place && rank == root);
            let mine = sizes[rank as usize];
            let input = (!in_place).then(|| values(rank, mine));
            let before = match (in_place, rank == root) {
                (true, _) => with_own_block(rank, &sizes),
                (_, true) => vec![UNTOUCHED; sizes.iter().sum()],
                _ => vec![UNTOUCHED; rank as usize],
            };
            let counts: &[usize] = if rank == root { &sizes } else { &[] };
            let got = call!(world.[gatherv, igatherv, gatherv_init]
                |from, to| (from, to, counts, root) (mine, counts, root),
                form, input, before.clone());
            let expected: Vec<u64> =
                (0..size).flat_map(|rank| values(rank, sizes[rank as usize])).collect();
            assert!(
                got == if rank == root { expected } else { before },
                "{form:?}, {in_place}, {count}, root {root}"
            );
        }
        Ok(())
    });
}

fn scatter_and_scatterv_give_everyone_its_block() {
    let force = |algorithm| Algorithms { scatter: Some(algorithm), ..Default::default() };
    every_job(Collective::Scatter.algorithms(), force, |world, turn| {
        let (rank, size) = (world.rank(), world.size());
        for (count, root) in
            COUNTS.into_iter().flat_map(|count| roots(world).map(|root| (count, root)))
        {
            let (form, _) = turn.next(rank);
            for sizes in [vec![count; size as usize], uneven(size, count)] {
                let equal = sizes.iter().all(|size| *size == count);
                let all: Vec<u64> =
                    (0..size).flat_map(|rank| values(rank, sizes[rank as usize])).collect();
                let (all, counts): (_, &[usize]) =
                    if rank == root { (all, &sizes) } else { (vec![], &[]) };
                let mine = sizes[rank as usize];
                let got = if equal {
                    call!(world.[scatter, iscatter, scatter_init]
                        |from, to| (from, to, root) (mine, root),
                        form, Some(all), vec![UNTOUCHED; mine])
                } else {
                    call!(world.[scatterv, iscatterv, scatterv_init]
                        |from, to| (from, counts, to, root) (mine, counts, root),
                        form, Some(all), vec![UNTOUCHED; mine])
                };
                assert!(got == values(rank, mine), "{form:?}, count {count}, root {root}");
            }
        }
        Ok(())
    });
}

fn the_root_of_a_scatter_may_keep_its_block_in_place() {
    every_job(
        &[Algorithm::Binomial],
        |algorithm| Algorithms { scatter: Some(algorithm), ..Default::default() },
        |world, _| {
            let (rank, size) = (world.rank(), world.size());
            for (count, root) in
                COUNTS.into_iter().flat_map(|count| roots(world).map(|root| (count, root)))
            {
                let mut mine = vec![UNTOUCHED; count];
                if rank != root {
                    world.scatter(&[], &mut mine, root)?;
                    assert!(mine == values(rank, count));
                    world.iscatterv(&[], &[], &mut mine, root)?.wait()?;
                    assert!(mine == values(rank, count));
                    mine.fill(UNTOUCHED);
                    world.scatterv(&[], &[], &mut mine, root)?;
                    assert!(mine == values(rank, count));
                    continue;
                }
                let all: Vec<u64> = (0..size).flat_map(|rank| values(rank, count)).collect();
                world.scatter(&all, InPlace, root)?;
                world.iscatterv(&all, &vec![count; size as usize], InPlace, root)?.wait()?;
                world.scatterv(&all, &vec![count; size as usize], InPlace, root)?;
            }
            Ok(())
        },
    );
}

fn alltoall_and_alltoallv_exchange_blocks() {
    let force = |algorithm| Algorithms { alltoall: Some(algorithm), ..Default::default() };
    let all = Collective::Alltoall.algorithms();
    every_job(all, force, |world, turn| {
        let (rank, size) = (world.rank(), world.size());
        // The longest blocks are beyond a chunk.
        for count in COUNTS.into_iter().chain([9000]) {
            let (form, in_place) = turn.next(rank);
            let block = |from: u32, to: u32, count: usize| values(from * 100 + to, count);
            let mine: Vec<u64> = (0..size).flat_map(|to| block(rank, to, count)).collect();
            let expected: Vec<u64> = (0..size).flat_map(|from| block(from, rank, count)).collect();
            let output = if in_place { mine.clone() } else { vec![UNTOUCHED; mine.len()] };
            let got = call!(world.[alltoall, ialltoall, alltoall_init]
                |from, to| (from, to) (count), form, (!in_place).then_some(mine), output);
            assert!(got == expected, "{form:?}, in place {in_place}, count {count}");

            // In place the block of a pair has one size in both directions.
            let sent_to = |from: u32, to: u32| {
                let other = if to % 3 == 1 { 0 } else { count + (2 * from + to) as usize };
                if in_place_of(count) { count + (from + to) as usize } else { other }
            };
            let in_place = in_place && in_place_of(count);
            let sent: Vec<usize> = (0..size).map(|to| sent_to(rank, to)).collect();
            let received: Vec<usize> = (0..size).map(|from| sent_to(from, rank)).collect();
            let mine: Vec<u64> =
                (0..size).flat_map(|to| block(rank, to, sent_to(rank, to))).collect();
            let expected: Vec<u64> =
                (0..size).flat_map(|from| block(from, rank, sent_to(from, rank))).collect();
            let output = if in_place { mine.clone() } else { vec![UNTOUCHED; expected.len()] };
            let got = call!(world.[alltoallv, ialltoallv, alltoallv_init]
                |from, to| (from, &sent, to, &received) (&sent, &received),
                form, (!in_place).then_some(mine), output);
            assert!(
                got == expected,
                "{form:?}, in place {in_place}, count {count}, different sizes"
            );
        }
        Ok(())
    });
}

fn blocks_of_different_sizes_need_no_memory() {
    local(2, |world| {
        let rank = world.rank();
        // All memory of the rank that would open the streams, in ever smaller buffers.
        let mut buffers = Vec::new();
        for bytes in (12..33).rev().map(|bits| 1 << bits) {
            buffers.extend(std::iter::from_fn(|| world.alloc::<u8>(bytes).ok()));
        }
        for turn in 0..3 {
            let mine = values(rank, 2);
            let mut all = [UNTOUCHED; 4];
            if turn == 1 && rank == 0 {
                // In place, which takes another way.
                all[..2].copy_from_slice(&mine);
                world.gatherv(InPlace, &mut all, &[2, 2], 0)?;
            } else {
                world.gatherv(&mine, &mut all, &[2, 2], 0)?;
            }
            assert!(rank == 1 || all[..2] == values(0, 2) && all[2..] == values(1, 2));
            let mut back = [UNTOUCHED; 2];
            world.scatterv(&all, &[2, 2], &mut back, 0)?;
            assert_eq!(back[..], mine);
            if turn == 1 {
                all.copy_from_slice(&values(rank, 4));
                world.alltoallv(InPlace, &[], &mut all, &[2, 2])?;
            } else {
                world.alltoallv(&values(rank, 4), &[2, 2], &mut all, &[2, 2])?;
            }
            let part = 2 * rank as usize..2 * rank as usize + 2;
            assert_eq!(all[..2], values(0, 4)[part.clone()]);
            assert_eq!(all[2..], values(1, 4)[part]);
        }
        Ok(())
    })
    .expect("cells suffice");
}

/// Whether blocks of this count have one size in both directions.
fn in_place_of(count: usize) -> bool {
    count % 2 == 1
}

fn bcast_gives_everyone_the_roots_buffer() {
    let force = |algorithm| Algorithms { bcast: Some(algorithm), ..Default::default() };
    every_job(Collective::Bcast.algorithms(), force, |world, turn| {
        let rank = world.rank();
        // The longest message is beyond a chunk.
        let counts = COUNTS.into_iter().chain([40_000]);
        for (count, root) in counts.flat_map(|count| roots(world).map(|root| (count, root))) {
            let mut buffer =
                if rank == root { values(root, count) } else { vec![UNTOUCHED; count] };
            match turn.next(rank).0 {
                Form::Blocking => world.bcast(&mut buffer, root)?,
                Form::Nonblocking => world.ibcast(&mut buffer, root)?.wait()?,
                Form::Shared => {
                    let mut shared = world.alloc(count)?;
                    shared.copy_from_slice(&buffer);
                    buffer.copy_from_slice(&world.ibcast(shared, root)?.wait()?);
                }
                Form::Persistent => {
                    world.bcast_init::<u64>(count, root)?.start(&mut buffer)?.wait()?
                }
            }
            assert!(buffer == values(root, count), "count {count}, root {root}");
        }
        Ok(())
    });
}
