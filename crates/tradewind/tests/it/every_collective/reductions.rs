//! Reductions with operations that the library knows.

use super::harness::{COUNTS, Form, Turn, UNTOUCHED, combined, every_job, roots, uneven, values};
use crate::job_kinds::KINDS;
use tradewind::{Algorithms, Collective, Communicator, InPlace, Op, Result};

testing::tests![reductions_combine_what_they_should_in_rank_order, reductions_by_every_algorithm,];

fn reductions_combine_what_they_should_in_rank_order() {
    let subtract = |a: u64, b: u64| a.wrapping_sub(b);
    every_job(
        &[0],
        |_: i32| Algorithms::default(),
        |world, turn| {
            reductions(world, turn, Op::Sum, u64::wrapping_add)?;
            reductions(world, turn, Op::Difference, subtract)?;
            reductions(world, turn, Op::Xor, |a, b| a ^ b)
        },
    );
}

fn reductions_by_every_algorithm() {
    let each = |set: &dyn Fn(&mut Algorithms)| {
        let mut algorithms = Algorithms::default();
        set(&mut algorithms);
        algorithms
    };
    let mut all = Vec::new();
    all.extend(Collective::Reduce.algorithms().iter().map(|a| each(&|set| set.reduce = Some(*a))));
    all.extend(
        Collective::Allreduce.algorithms().iter().map(|a| each(&|set| set.allreduce = Some(*a))),
    );
    all.extend(
        Collective::ReduceScatter
            .algorithms()
            .iter()
            .map(|a| each(&|set| set.reduce_scatter = Some(*a))),
    );
    all.extend(Collective::Scan.algorithms().iter().map(|a| each(&|set| set.scan = Some(*a))));
    all.extend(Collective::Exscan.algorithms().iter().map(|a| each(&|set| set.exscan = Some(*a))));
    for ranks in [2, 5, 8] {
        for kind in KINDS {
            kind.run(ranks, |world| {
                let turn = Turn::default();
                for algorithms in &all {
                    let world = world.with_algorithms(*algorithms);
                    reductions(&world, &turn, Op::Sum, u64::wrapping_add)?;
                    reductions(&world, &turn, Op::Difference, u64::wrapping_sub)?;
                }
                Ok(())
            })
            .unwrap_or_else(|error| panic!("{kind}, {ranks} ranks: {error}"));
        }
    }
}

/// Every reduction with an operation that is computed on the other side by `combine`.
fn reductions(
    world: &Communicator,
    turn: &Turn,
    op: Op,
    combine: impl Fn(u64, u64) -> u64 + Copy,
) -> Result<()> {
    let (rank, size) = (world.rank(), world.size());
    for count in COUNTS {
        let mine = values(rank, count);
        let all = combined(0..size, count, combine);
        let about = |what: &str, form: Form, in_place: bool| {
            format!(
                "{what}, {op:?}, {form:?}, in place {in_place}, count {count}, {:?}",
                world.algorithms()
            )
        };
        let give = |in_place: bool| {
            let untouched = vec![UNTOUCHED; count];
            if in_place { (None, mine.clone()) } else { (Some(mine.clone()), untouched) }
        };
        let (form, in_place) = turn.next(rank);
        let (input, output) = give(in_place);
        let got = call!(
            world,
            form,
            input,
            output,
            |from, to| world.allreduce(from, to, op),
            world.iallreduce(from, to, op),
            world.allreduce_init::<u64>(count, op)
        );
        assert!(got == all, "{}", about("allreduce", form, in_place));

        let (form, in_place) = turn.next(rank);
        let (input, output) = give(in_place);
        let got = call!(
            world,
            form,
            input,
            output,
            |from, to| world.scan(from, to, op),
            world.iscan(from, to, op),
            world.scan_init::<u64>(count, op)
        );
        assert!(got == combined(0..rank + 1, count, combine), "{}", about("scan", form, in_place));

        let (form, in_place) = turn.next(rank);
        let (input, output) = give(in_place);
        let expected = if rank == 0 { output.clone() } else { combined(0..rank, count, combine) };
        let got = call!(
            world,
            form,
            input,
            output,
            |from, to| world.exscan(from, to, op),
            world.iexscan(from, to, op),
            world.exscan_init::<u64>(count, op)
        );
        assert!(got == expected, "{}", about("exscan", form, in_place));

        for root in roots(world) {
            let (form, in_place) = turn.next(rank);
            let in_place = in_place && rank == root;
            let (input, output) = give(in_place);
            let expected = if rank == root { all.clone() } else { output.clone() };
            let got = call!(
                world,
                form,
                input,
                output,
                |from, to| world.reduce(from, to, op, root),
                world.ireduce(from, to, op, root),
                world.reduce_init::<u64>(count, op, root)
            );
            assert!(got == expected, "root {root}, {}", about("reduce", form, in_place));
        }
        reduce_scatters(world, turn, (op, count), combine)?;
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
            call!(
                world,
                form,
                input,
                output,
                |from, to| world.reduce_scatter_block(from, to, op),
                world.ireduce_scatter_block(from, to, op),
                world.reduce_scatter_block_init::<u64>(count, op)
            )
        } else {
            call!(
                world,
                form,
                input,
                output,
                |from, to| world.reduce_scatter(from, to, &sizes, op),
                world.ireduce_scatter(from, to, &sizes, op),
                world.reduce_scatter_init::<u64>(&sizes, op)
            )
        };
        assert!(
            got == expected,
            "{op:?}, {form:?}, in place {in_place}, {sizes:?}, {:?}",
            world.algorithms()
        );
    }
    Ok(())
}
