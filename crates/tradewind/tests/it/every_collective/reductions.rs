//! Reductions with operations that the library knows.

use super::harness::{COUNTS, Form, Turn, UNTOUCHED, combined, every_job, roots, uneven, values};
use crate::job_kinds::KINDS;
use tradewind::{Algorithms, Collective, Communicator, InPlace, Op, Result};

testing::tests![reductions_combine_what_they_should_in_rank_order, reductions_by_every_algorithm,];

/// Collectives that reduce.
const REDUCTIONS: [Collective; 5] = [
    Collective::Allreduce,
    Collective::Scan,
    Collective::Exscan,
    Collective::Reduce,
    Collective::ReduceScatter,
];

fn reductions_combine_what_they_should_in_rank_order() {
    every_job(
        &[0],
        |_: i32| Algorithms::default(),
        |world, turn| {
            for collective in REDUCTIONS {
                reduce(world, turn, collective, (Op::Sum, u64::wrapping_add))?;
                reduce(world, turn, collective, (Op::Difference, u64::wrapping_sub))?;
                // An operation of another kind, on some numbers of ranks.
                if world.size() % 3 == 1 {
                    reduce(world, turn, collective, (Op::Xor, |a, b| a ^ b))?;
                }
            }
            Ok(())
        },
    );
}

fn reductions_by_every_algorithm() {
    let set = |collective, algorithm| {
        let mut algorithms = Algorithms::default();
        let of_collective = match collective {
            Collective::Allreduce => &mut algorithms.allreduce,
            Collective::Scan => &mut algorithms.scan,
            Collective::Exscan => &mut algorithms.exscan,
            Collective::Reduce => &mut algorithms.reduce,
            _ => &mut algorithms.reduce_scatter,
        };
        *of_collective = Some(algorithm);
        algorithms
    };
    for ranks in [2, 5, 8] {
        for kind in KINDS {
            kind.run(ranks, |world| {
                let turn = Turn::default();
                for collective in REDUCTIONS {
                    for algorithm in collective.algorithms() {
                        let world = world.with_algorithms(set(collective, *algorithm));
                        reduce(&world, &turn, collective, (Op::Sum, u64::wrapping_add))?;
                        reduce(&world, &turn, collective, (Op::Difference, u64::wrapping_sub))?;
                    }
                }
                Ok(())
            })
            .unwrap_or_else(|error| panic!("{kind}, {ranks} ranks: {error}"));
        }
    }
}

/// Reduces blocks of all sizes with an operation that is computed on the other side by a function.
fn reduce(
    world: &Communicator,
    turn: &Turn,
    collective: Collective,
    (op, combine): (Op, fn(u64, u64) -> u64),
) -> Result<()> {
    let (rank, size) = (world.rank(), world.size());
    for count in COUNTS {
        if collective == Collective::ReduceScatter {
            reduce_scatters(world, turn, (op, count), combine)?;
            continue;
        }
        let (own, some) = ([rank], roots(world));
        let roots: &[u32] = if collective == Collective::Reduce { &some } else { &own };
        for &root in roots {
            let (form, in_place) = turn.next(rank);
            let in_place = in_place && rank == root;
            let mine = values(rank, count);
            let untouched = vec![UNTOUCHED; count];
            let (input, output) = if in_place { (None, mine) } else { (Some(mine), untouched) };
            // The ranks whose contributions this rank gets.
            let contributors = match collective {
                Collective::Scan => 0..rank + 1,
                Collective::Exscan => 0..rank,
                Collective::Reduce if rank != root => 0..0,
                _ => 0..size,
            };
            let expected = match contributors.len() {
                0 => output.clone(),
                _ => combined(contributors, count, combine),
            };
            let got = match collective {
                Collective::Scan => {
                    call!(world.[scan, iscan, scan_init] |from, to| (from, to, op) (count, op),
                        form, input, output)
                }
                Collective::Exscan => {
                    call!(world.[exscan, iexscan, exscan_init] |from, to| (from, to, op) (count, op),
                        form, input, output)
                }
                Collective::Reduce => {
                    call!(world.[reduce, ireduce, reduce_init]
                        |from, to| (from, to, op, root) (count, op, root), form, input, output)
                }
                _ => {
                    call!(world.[allreduce, iallreduce, allreduce_init]
                        |from, to| (from, to, op) (count, op), form, input, output)
                }
            };
            assert!(
                got == expected,
                "{collective}, {op:?}, {form:?}, in place {in_place}, count {count}, root {root}, {:?}",
                world.algorithms()
            );
        }
    }
    Ok(())
}

fn reduce_scatters(
    world: &Communicator,
    turn: &Turn,
    (op, count): (Op, usize),
    combine: impl Fn(u64, u64) -> u64 + Copy,
) -> Result<()> {
    let (rank, size) = (world.rank(), world.size());
    for sizes in [vec![count; size as usize], uneven(size, count)] {
        let (form, in_place) = turn.next(rank);
        let total: usize = sizes.iter().sum();
        let (start, own) = (sizes[..rank as usize].iter().sum::<usize>(), sizes[rank as usize]);
        let block = &combined(0..size, total, combine)[start..start + own];
        let mine = values(rank, total);
        // In place the result replaces the beginning.
        let (input, output) = if in_place {
            (None, mine.clone())
        } else {
            (Some(mine.clone()), vec![UNTOUCHED; own])
        };
        let mut expected = output.clone();
        expected[..own].copy_from_slice(block);
        let got = if sizes.iter().all(|size| *size == count) {
            call!(world.[reduce_scatter_block, ireduce_scatter_block, reduce_scatter_block_init]
                |from, to| (from, to, op) (count, op), form, input, output)
        } else {
            call!(world.[reduce_scatter, ireduce_scatter, reduce_scatter_init]
                |from, to| (from, to, &sizes, op) (&sizes, op), form, input, output)
        };
        assert!(
            got == expected,
            "{op:?}, {form:?}, in place {in_place}, {sizes:?}, {:?}",
            world.algorithms()
        );
    }
    Ok(())
}
