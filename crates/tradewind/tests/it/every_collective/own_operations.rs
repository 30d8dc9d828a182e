//! Reductions with an operation of the caller's own.

use super::harness::{Form, every_job, uneven, value};
use tradewind::{Algorithms, InPlace, Result, fold};

testing::tests![operations_of_ones_own_are_folded_in_rank_order,];

/// A matrix of 2 × 2: its product is associative and not commutative.
type Matrix = [u32; 4];

fn product(left: &mut Matrix, right: &Matrix) {
    let [a, b, c, d] = *left;
    let entry = |x: u32, y: u32, column: usize| {
        x.wrapping_mul(right[column]).wrapping_add(y.wrapping_mul(right[column + 2]))
    };
    *left = [entry(a, b, 0), entry(a, b, 1), entry(c, d, 0), entry(c, d, 1)];
}

fn matrices(rank: u32, count: usize) -> Vec<Matrix> {
    let entry = |index: usize, number: u32| value(rank, index).rotate_left(16 * number) as u32;
    (0..count).map(|index| std::array::from_fn(|number| entry(index, number as u32))).collect()
}

fn products(ranks: impl Iterator<Item = u32>, count: usize) -> Vec<Matrix> {
    let mut all = ranks.map(|rank| matrices(rank, count));
    let mut result = all.next().unwrap_or_default();
    for next in all {
        result.iter_mut().zip(&next).for_each(|(left, right)| product(left, right));
    }
    result
}

fn operations_of_ones_own_are_folded_in_rank_order() {
    let none: [i32; 1] = [0];
    every_job(
        &none,
        |_| Algorithms::default(),
        |world, turn| {
            let (rank, size) = (world.rank(), world.size());
            let own = || fold(product);
            for count in [0, 1, 3, 50, 200] {
                let give = |in_place: bool, length: usize| {
                    let mine = matrices(rank, count.max(length));
                    if in_place {
                        (None, mine)
                    } else {
                        (Some(mine), vec![[7; 4]; length.min(count)])
                    }
                };
                let (form, in_place) = turn.next(rank);
                let (input, output) = give(in_place, count);
                let got = call!(world.[allreduce, iallreduce, allreduce_init]
                    |from, to| (from, to, own()) (count, own()), form, input, output);
                assert!(
                    got == products(0..size, count),
                    "{form:?}, in place {in_place}, count {count}"
                );

                let (form, in_place) = turn.next(rank);
                let (input, output) = give(in_place, count);
                let got = call!(world.[scan, iscan, scan_init]
                    |from, to| (from, to, own()) (count, own()), form, input, output);
                assert!(
                    got == products(0..rank + 1, count),
                    "scan, {form:?}, in place {in_place}, count {count}"
                );

                let (form, in_place) = turn.next(rank);
                let (input, output) = give(in_place, count);
                let expected = if rank == 0 { output.clone() } else { products(0..rank, count) };
                let got = call!(world.[exscan, iexscan, exscan_init]
                    |from, to| (from, to, own()) (count, own()), form, input, output);
                assert!(got == expected, "exscan, {form:?}, in place {in_place}, count {count}");

                let (form, in_place) = turn.next(rank);
                let root = size - 1;
                let (input, output) = give(in_place && rank == root, count);
                let expected = if rank == root { products(0..size, count) } else { output.clone() };
                let got = call!(world.[reduce, ireduce, reduce_init]
                    |from, to| (from, to, own(), root) (count, own(), root), form, input, output);
                assert!(got == expected, "reduce, {form:?}, in place {in_place}, count {count}");

                for sizes in [vec![count; size as usize], uneven(size, count)] {
                    let (form, in_place) = turn.next(rank);
                    let total: usize = sizes.iter().sum();
                    let (start, mine) =
                        (sizes[..rank as usize].iter().sum::<usize>(), sizes[rank as usize]);
                    let output = if in_place { matrices(rank, total) } else { vec![[7; 4]; mine] };
                    let input = (!in_place).then(|| matrices(rank, total));
                    let mut expected = output.clone();
                    expected[..mine]
                        .copy_from_slice(&products(0..size, total)[start..start + mine]);
                    let got = if sizes.iter().all(|size| *size == count) {
                        call!(world.[reduce_scatter_block, ireduce_scatter_block, reduce_scatter_block_init]
                            |from, to| (from, to, own()) (count, own()), form, input, output)
                    } else {
                        call!(world.[reduce_scatter, ireduce_scatter, reduce_scatter_init]
                            |from, to| (from, to, &sizes, own()) (&sizes, own()),
                            form, input, output)
                    };
                    assert!(
                        got == expected,
                        "reduce_scatter, {form:?}, in place {in_place}, {sizes:?}"
                    );
                }
            }
            Ok(())
        },
    );
}
