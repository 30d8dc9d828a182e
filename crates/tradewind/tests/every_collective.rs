//! Every collective in every form, by every algorithm, against a plain reference: any number of ranks and any root, odd and
//! zero sizes, in place and not, private and shared buffers mixed between the ranks, both engines.

use std::cell::Cell;
use tradewind::{
    Algorithms, AllgatherAlgorithm, AllreduceAlgorithm, AlltoallAlgorithm, BcastAlgorithm, Communicator, EngineKind,
    ExscanAlgorithm, GatherAlgorithm, InPlace, NeighborAlgorithm, Op, ReduceAlgorithm, ReduceScatterAlgorithm, Result,
    ScanAlgorithm, ScatterAlgorithm, fold, local_with,
};

const ENGINES: [EngineKind; 2] = [EngineKind::Peers, EngineKind::Caller];
/// Elements of a block: nothing, inside a line, inside a cell, beyond it.
const COUNTS: [usize; 5] = [0, 1, 5, 70, 700];

/// The forms of a call.
#[derive(Clone, Copy, Debug)]
enum Form {
    Blocking,
    Nonblocking,
    Shared,
    Persistent,
}

/// How a call is made: the form, and whether in place; another one for every call and rank.
#[derive(Debug, Default)]
struct Turn(Cell<usize>);

impl Turn {
    fn next(&self, rank: u32) -> (Form, bool) {
        let turn = self.0.get();
        self.0.set(turn + 1);
        let mixed = turn + rank as usize;
        let form = [Form::Blocking, Form::Nonblocking, Form::Shared, Form::Persistent][mixed % 4];
        (form, (turn / 4 + rank as usize / 3).is_multiple_of(2))
    }
}

/// Makes a call in a form: `$input` is none in place, `$output` what the output holds before. Gives what it holds after.
macro_rules! call {
    ($world:expr, $form:expr, $input:expr, $output:expr, |$from:ident, $to:ident|
     $blocking:expr, $nonblocking:expr, $persistent:expr) => {{
        let input: Option<Vec<_>> = $input;
        let mut output: Vec<_> = $output;
        let shared = |values: &[_]| -> Result<_> {
            let mut buffer = $world.alloc(values.len())?;
            buffer.copy_from_slice(values);
            Ok(buffer)
        };
        match ($form, &input) {
            (Form::Blocking, Some(input)) => {
                let ($from, $to) = (input, &mut output[..]);
                $blocking?;
            }
            (Form::Blocking, None) => {
                let ($from, $to) = (InPlace, &mut output[..]);
                $blocking?;
            }
            (Form::Nonblocking, Some(input)) => {
                let ($from, $to) = (input, &mut output);
                $nonblocking?.wait()?;
            }
            (Form::Nonblocking, None) => {
                let ($from, $to) = (InPlace, &mut output);
                $nonblocking?.wait()?;
            }
            (Form::Shared, Some(input)) => {
                let ($from, $to) = (shared(input)?, shared(&output)?);
                let (mut from, to) = $nonblocking?.wait()?;
                assert!(from[..] == input[..], "an input is left as it was");
                // The buffer is this rank's again: whoever is slower must not see this.
                from.fill(bytemuck::Zeroable::zeroed());
                output.copy_from_slice(&to);
            }
            (Form::Shared, None) => {
                let ($from, $to) = (InPlace, shared(&output)?);
                let ((), mut to) = $nonblocking?.wait()?;
                output.copy_from_slice(&to);
                to.fill(bytemuck::Zeroable::zeroed());
            }
            (Form::Persistent, Some(input)) => {
                $persistent?.start(input, &mut output)?.wait()?;
            }
            (Form::Persistent, None) => {
                $persistent?.start(InPlace, &mut output)?.wait()?;
            }
        }
        output
    }};
}

/// What is there before a collective writes.
const UNTOUCHED: u64 = 0x5555_5555_5555_5555;

/// What `rank` contributes.
fn value(rank: u32, index: usize) -> u64 {
    (u64::from(rank) + 3).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(index as u32 % 64) ^ index as u64
}

fn values(rank: u32, count: usize) -> Vec<u64> {
    (0..count).map(|index| value(rank, index)).collect()
}

/// The contributions of these ranks combined from the left.
fn combined(ranks: impl Iterator<Item = u32>, count: usize, combine: impl Fn(u64, u64) -> u64) -> Vec<u64> {
    let mut contributions = ranks.map(|rank| values(rank, count));
    let first = contributions.next().unwrap_or_else(|| vec![UNTOUCHED; count]);
    contributions.fold(first, |left, right| left.into_iter().zip(right).map(|(a, b)| combine(a, b)).collect())
}

/// The rank's own block at its place in an output, for a call in place.
fn with_own_block(rank: u32, sizes: &[usize]) -> Vec<u64> {
    let block = |other: u32| {
        if other == rank { values(rank, sizes[rank as usize]) } else { vec![UNTOUCHED; sizes[other as usize]] }
    };
    (0..sizes.len() as u32).flat_map(block).collect()
}

/// Blocks of different sizes, some of them empty.
fn uneven(ranks: u32, count: usize) -> Vec<usize> {
    (0..ranks as usize).map(|rank| if rank % 3 == 1 { 0 } else { count + rank * 2 }).collect()
}

/// Runs a body with the default algorithms on every number of ranks, and with each that is forced on some.
fn every_job<A: Copy + std::fmt::Display + Sync>(
    algorithms: &[A],
    force: impl Fn(A) -> Algorithms + Sync,
    body: impl Fn(&Communicator, &Turn) -> Result<()> + Sync,
) {
    for engine in ENGINES {
        for ranks in 1..=9 {
            let run = |world: Communicator| {
                let turn = Turn(Cell::new(ranks as usize));
                body(&world, &turn)?;
                if ![2, 3, 5, 8].contains(&ranks) {
                    return Ok(());
                }
                for algorithm in algorithms {
                    body(&world.with_algorithms(force(*algorithm)), &turn)?;
                }
                Ok(())
            };
            local_with(ranks, engine, run).unwrap_or_else(|error| panic!("{engine}, {ranks} ranks: {error}"));
        }
    }
}

fn roots(world: &Communicator) -> [u32; 2] {
    [0, world.size() * 2 / 3]
}

#[test]
fn allgather_gives_everyone_all_blocks() {
    let force = |algorithm| Algorithms { allgather: Some(algorithm), ..Default::default() };
    every_job(AllgatherAlgorithm::ALL, force, |world, turn| {
        let (rank, size) = (world.rank(), world.size());
        for count in COUNTS {
            let (form, in_place) = turn.next(rank);
            let sizes = vec![count; size as usize];
            let input = (!in_place).then(|| values(rank, count));
            let output = if in_place { with_own_block(rank, &sizes) } else { vec![UNTOUCHED; count * size as usize] };
            let all = call!(
                world,
                form,
                input,
                output,
                |from, to| world.allgather(from, to),
                world.iallgather(from, to),
                world.allgather_init::<u64>(count)
            );
            let expected: Vec<u64> = (0..size).flat_map(|rank| values(rank, count)).collect();
            assert!(all == expected, "{form:?}, in place {in_place}, count {count}");
        }
        Ok(())
    });
}

#[test]
fn allgatherv_gives_everyone_all_blocks() {
    let force = |algorithm| Algorithms { allgather: Some(algorithm), ..Default::default() };
    every_job(AllgatherAlgorithm::ALL, force, |world, turn| {
        let (rank, size) = (world.rank(), world.size());
        for count in COUNTS {
            let (form, in_place) = turn.next(rank);
            let sizes = uneven(size, count);
            let input = (!in_place).then(|| values(rank, sizes[rank as usize]));
            let output = if in_place { with_own_block(rank, &sizes) } else { vec![UNTOUCHED; sizes.iter().sum()] };
            let all = call!(
                world,
                form,
                input,
                output,
                |from, to| world.allgatherv(from, to, &sizes),
                world.iallgatherv(from, to, &sizes),
                world.allgatherv_init::<u64>(&sizes)
            );
            let expected: Vec<u64> = (0..size).flat_map(|rank| values(rank, sizes[rank as usize])).collect();
            assert!(all == expected, "{form:?}, in place {in_place}, count {count}");
        }
        Ok(())
    });
}

#[test]
fn gather_gives_the_root_all_blocks_and_leaves_the_others_alone() {
    let force = |algorithm| Algorithms { gather: Some(algorithm), ..Default::default() };
    every_job(GatherAlgorithm::ALL, force, |world, turn| {
        let (rank, size) = (world.rank(), world.size());
        for (count, root) in COUNTS.into_iter().flat_map(|count| roots(world).map(|root| (count, root))) {
            let (form, in_place) = turn.next(rank);
            let (sizes, in_place) = (vec![count; size as usize], in_place && rank == root);
            let input = (!in_place).then(|| values(rank, count));
            // Elsewhere the output may have any length.
            let before = match (in_place, rank == root) {
                (true, _) => with_own_block(rank, &sizes),
                (_, true) => vec![UNTOUCHED; count * size as usize],
                _ => vec![UNTOUCHED; rank as usize],
            };
            let got = call!(
                world,
                form,
                input,
                before.clone(),
                |from, to| world.gather(from, to, root),
                world.igather(from, to, root),
                world.gather_init::<u64>(count, root)
            );
            let expected: Vec<u64> = (0..size).flat_map(|rank| values(rank, count)).collect();
            assert!(got == if rank == root { expected } else { before }, "{form:?}, {in_place}, {count}, root {root}");
        }
        Ok(())
    });
}

#[test]
fn gatherv_gives_the_root_all_blocks_and_leaves_the_others_alone() {
    let force = |algorithm| Algorithms { gather: Some(algorithm), ..Default::default() };
    let some =
        [GatherAlgorithm::Flat, GatherAlgorithm::Chain, GatherAlgorithm::PipelinedChain, GatherAlgorithm::Binomial];
    every_job(&some, force, |world, turn| {
        let (rank, size) = (world.rank(), world.size());
        for (count, root) in COUNTS.into_iter().flat_map(|count| roots(world).map(|root| (count, root))) {
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
            let got = call!(
                world,
                form,
                input,
                before.clone(),
                |from, to| world.gatherv(from, to, counts, root),
                world.igatherv(from, to, counts, root),
                world.gatherv_init::<u64>(mine, counts, root)
            );
            let expected: Vec<u64> = (0..size).flat_map(|rank| values(rank, sizes[rank as usize])).collect();
            assert!(got == if rank == root { expected } else { before }, "{form:?}, {in_place}, {count}, root {root}");
        }
        Ok(())
    });
}

#[test]
fn scatter_and_scatterv_give_everyone_its_block() {
    let force = |algorithm| Algorithms { scatter: Some(algorithm), ..Default::default() };
    every_job(ScatterAlgorithm::ALL, force, |world, turn| {
        let (rank, size) = (world.rank(), world.size());
        for (count, root) in COUNTS.into_iter().flat_map(|count| roots(world).map(|root| (count, root))) {
            let (form, _) = turn.next(rank);
            for sizes in [vec![count; size as usize], uneven(size, count)] {
                let equal = sizes.iter().all(|size| *size == count);
                let all: Vec<u64> = (0..size).flat_map(|rank| values(rank, sizes[rank as usize])).collect();
                let (all, counts): (_, &[usize]) = if rank == root { (all, &sizes) } else { (vec![], &[]) };
                let mine = sizes[rank as usize];
                let got = if equal {
                    call!(
                        world,
                        form,
                        Some(all),
                        vec![UNTOUCHED; mine],
                        |from, to| world.scatter(from, to, root),
                        world.iscatter(from, to, root),
                        world.scatter_init::<u64>(mine, root)
                    )
                } else {
                    call!(
                        world,
                        form,
                        Some(all),
                        vec![UNTOUCHED; mine],
                        |from, to| world.scatterv(from, counts, to, root),
                        world.iscatterv(from, counts, to, root),
                        world.scatterv_init::<u64>(counts, mine, root)
                    )
                };
                assert!(got == values(rank, mine), "{form:?}, count {count}, root {root}");
            }
        }
        Ok(())
    });
}

#[test]
fn the_root_of_a_scatter_may_keep_its_block_in_place() {
    every_job(
        &[ScatterAlgorithm::Binomial],
        |algorithm| Algorithms { scatter: Some(algorithm), ..Default::default() },
        |world, _| {
            let (rank, size) = (world.rank(), world.size());
            for (count, root) in COUNTS.into_iter().flat_map(|count| roots(world).map(|root| (count, root))) {
                let mut mine = vec![UNTOUCHED; count];
                if rank != root {
                    world.scatter(&[], &mut mine, root)?;
                    assert!(mine == values(rank, count));
                    world.iscatterv(&[], &[], &mut mine, root)?.wait()?;
                    assert!(mine == values(rank, count));
                    continue;
                }
                let all: Vec<u64> = (0..size).flat_map(|rank| values(rank, count)).collect();
                world.scatter(&all, InPlace, root)?;
                world.iscatterv(&all, &vec![count; size as usize], InPlace, root)?.wait()?;
            }
            Ok(())
        },
    );
}

#[test]
fn alltoall_and_alltoallv_exchange_blocks() {
    let force = |algorithm| Algorithms { alltoall: Some(algorithm), ..Default::default() };
    let all = AlltoallAlgorithm::ALL;
    every_job(all, force, |world, turn| {
        let (rank, size) = (world.rank(), world.size());
        for count in COUNTS {
            let (form, in_place) = turn.next(rank);
            let block = |from: u32, to: u32, count: usize| values(from * 100 + to, count);
            let mine: Vec<u64> = (0..size).flat_map(|to| block(rank, to, count)).collect();
            let expected: Vec<u64> = (0..size).flat_map(|from| block(from, rank, count)).collect();
            let output = if in_place { mine.clone() } else { vec![UNTOUCHED; mine.len()] };
            let got = call!(
                world,
                form,
                (!in_place).then_some(mine),
                output,
                |from, to| world.alltoall(from, to),
                world.ialltoall(from, to),
                world.alltoall_init::<u64>(count)
            );
            assert!(got == expected, "{form:?}, in place {in_place}, count {count}");

            // In place the block of a pair has one size in both directions.
            let sent_to = |from: u32, to: u32| {
                let other = if to % 3 == 1 { 0 } else { count + (2 * from + to) as usize };
                if in_place_of(count) { count + (from + to) as usize } else { other }
            };
            let in_place = in_place && in_place_of(count);
            let sent: Vec<usize> = (0..size).map(|to| sent_to(rank, to)).collect();
            let received: Vec<usize> = (0..size).map(|from| sent_to(from, rank)).collect();
            let mine: Vec<u64> = (0..size).flat_map(|to| block(rank, to, sent_to(rank, to))).collect();
            let expected: Vec<u64> = (0..size).flat_map(|from| block(from, rank, sent_to(from, rank))).collect();
            let output = if in_place { mine.clone() } else { vec![UNTOUCHED; expected.len()] };
            let got = call!(
                world,
                form,
                (!in_place).then_some(mine),
                output,
                |from, to| world.alltoallv(from, &sent, to, &received),
                world.ialltoallv(from, &sent, to, &received),
                world.alltoallv_init::<u64>(&sent, &received)
            );
            assert!(got == expected, "{form:?}, in place {in_place}, count {count}, different sizes");
        }
        Ok(())
    });
}

/// Whether blocks of this count have one size in both directions.
fn in_place_of(count: usize) -> bool {
    count % 2 == 1
}

#[test]
fn bcast_gives_everyone_the_roots_buffer() {
    let force = |algorithm| Algorithms { bcast: Some(algorithm), ..Default::default() };
    every_job(BcastAlgorithm::ALL, force, |world, turn| {
        let rank = world.rank();
        for (count, root) in COUNTS.into_iter().flat_map(|count| roots(world).map(|root| (count, root))) {
            let mut buffer = if rank == root { values(root, count) } else { vec![UNTOUCHED; count] };
            match turn.next(rank).0 {
                Form::Blocking => world.bcast(&mut buffer, root)?,
                Form::Nonblocking => world.ibcast(&mut buffer, root)?.wait()?,
                Form::Shared => {
                    let mut shared = world.alloc(count)?;
                    shared.copy_from_slice(&buffer);
                    buffer.copy_from_slice(&world.ibcast(shared, root)?.wait()?);
                }
                Form::Persistent => world.bcast_init::<u64>(count, root)?.start_bcast(&mut buffer)?.wait()?,
            }
            assert!(buffer == values(root, count), "count {count}, root {root}");
        }
        Ok(())
    });
}

#[test]
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

#[test]
fn reductions_by_every_algorithm() {
    let each = |set: &dyn Fn(&mut Algorithms)| {
        let mut algorithms = Algorithms::default();
        set(&mut algorithms);
        algorithms
    };
    let mut all = Vec::new();
    all.extend(ReduceAlgorithm::ALL.iter().map(|a| each(&|set| set.reduce = Some(*a))));
    all.extend(AllreduceAlgorithm::ALL.iter().map(|a| each(&|set| set.allreduce = Some(*a))));
    all.extend(ReduceScatterAlgorithm::ALL.iter().map(|a| each(&|set| set.reduce_scatter = Some(*a))));
    all.extend(ScanAlgorithm::ALL.iter().map(|a| each(&|set| set.scan = Some(*a))));
    all.extend(ExscanAlgorithm::ALL.iter().map(|a| each(&|set| set.exscan = Some(*a))));
    for ranks in [2, 5, 8] {
        for engine in ENGINES {
            local_with(ranks, engine, |world| {
                let turn = Turn::default();
                for algorithms in &all {
                    let world = world.with_algorithms(*algorithms);
                    reductions(&world, &turn, Op::Sum, u64::wrapping_add)?;
                    reductions(&world, &turn, Op::Difference, u64::wrapping_sub)?;
                }
                Ok(())
            })
            .unwrap_or_else(|error| panic!("{engine}, {ranks} ranks: {error}"));
        }
    }
}

/// Every reduction with an operation that is computed on the other side by `combine`.
fn reductions(world: &Communicator, turn: &Turn, op: Op, combine: impl Fn(u64, u64) -> u64 + Copy) -> Result<()> {
    let (rank, size) = (world.rank(), world.size());
    for count in COUNTS {
        let mine = values(rank, count);
        let all = combined(0..size, count, combine);
        let about = |what: &str, form: Form, in_place: bool| {
            format!("{what}, {op:?}, {form:?}, in place {in_place}, count {count}, {:?}", world.algorithms())
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
        let (input, output) = if in_place { (None, mine.clone()) } else { (Some(mine.clone()), vec![UNTOUCHED; own]) };
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
        assert!(got == expected, "{op:?}, {form:?}, in place {in_place}, {sizes:?}, {:?}", world.algorithms());
    }
    Ok(())
}

/// A matrix of 2 × 2: its product is associative and not commutative.
type Matrix = [u32; 4];

fn product(left: &mut Matrix, right: &Matrix) {
    let [a, b, c, d] = *left;
    let entry =
        |x: u32, y: u32, column: usize| x.wrapping_mul(right[column]).wrapping_add(y.wrapping_mul(right[column + 2]));
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

#[test]
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
                    if in_place { (None, mine) } else { (Some(mine), vec![[7; 4]; length.min(count)]) }
                };
                let (form, in_place) = turn.next(rank);
                let (input, output) = give(in_place, count);
                let got = call!(
                    world,
                    form,
                    input,
                    output,
                    |from, to| world.allreduce(from, to, own()),
                    world.iallreduce(from, to, own()),
                    world.allreduce_init(count, own())
                );
                assert!(got == products(0..size, count), "{form:?}, in place {in_place}, count {count}");

                let (form, in_place) = turn.next(rank);
                let (input, output) = give(in_place, count);
                let got = call!(
                    world,
                    form,
                    input,
                    output,
                    |from, to| world.scan(from, to, own()),
                    world.iscan(from, to, own()),
                    world.scan_init(count, own())
                );
                assert!(got == products(0..rank + 1, count), "scan, {form:?}, in place {in_place}, count {count}");

                let (form, in_place) = turn.next(rank);
                let (input, output) = give(in_place, count);
                let expected = if rank == 0 { output.clone() } else { products(0..rank, count) };
                let got = call!(
                    world,
                    form,
                    input,
                    output,
                    |from, to| world.exscan(from, to, own()),
                    world.iexscan(from, to, own()),
                    world.exscan_init(count, own())
                );
                assert!(got == expected, "exscan, {form:?}, in place {in_place}, count {count}");

                let (form, in_place) = turn.next(rank);
                let root = size - 1;
                let (input, output) = give(in_place && rank == root, count);
                let expected = if rank == root { products(0..size, count) } else { output.clone() };
                let got = call!(
                    world,
                    form,
                    input,
                    output,
                    |from, to| world.reduce(from, to, own(), root),
                    world.ireduce(from, to, own(), root),
                    world.reduce_init(count, own(), root)
                );
                assert!(got == expected, "reduce, {form:?}, in place {in_place}, count {count}");

                for sizes in [vec![count; size as usize], uneven(size, count)] {
                    let (form, in_place) = turn.next(rank);
                    let total: usize = sizes.iter().sum();
                    let (start, mine) = (sizes[..rank as usize].iter().sum::<usize>(), sizes[rank as usize]);
                    let output = if in_place { matrices(rank, total) } else { vec![[7; 4]; mine] };
                    let input = (!in_place).then(|| matrices(rank, total));
                    let mut expected = output.clone();
                    expected[..mine].copy_from_slice(&products(0..size, total)[start..start + mine]);
                    let got = if sizes.iter().all(|size| *size == count) {
                        call!(
                            world,
                            form,
                            input,
                            output,
                            |from, to| world.reduce_scatter_block(from, to, own()),
                            world.ireduce_scatter_block(from, to, own()),
                            world.reduce_scatter_block_init(count, own())
                        )
                    } else {
                        call!(
                            world,
                            form,
                            input,
                            output,
                            |from, to| world.reduce_scatter(from, to, &sizes, own()),
                            world.ireduce_scatter(from, to, &sizes, own()),
                            world.reduce_scatter_init(&sizes, own())
                        )
                    };
                    assert!(got == expected, "reduce_scatter, {form:?}, in place {in_place}, {sizes:?}");
                }
            }
            Ok(())
        },
    );
}

#[test]
fn neighbours_exchange_blocks_of_any_size_along_any_edges() {
    let force = |algorithm| Algorithms { neighbor: Some(algorithm), ..Default::default() };
    every_job(NeighborAlgorithm::ALL, force, |world, turn| {
        let (rank, size) = (world.rank(), world.size());
        // Two edges to the next rank, one to the one after it, one to oneself; on few ranks they are parallel.
        let steps = [1, 2, 1, 0];
        let next = steps.map(|step| (rank + step) % size);
        let before = steps.map(|step| (rank + 2 * size - step) % size);
        let graph = world.neighbors(&before, &next)?;
        // The k-th edge from a to b in a's list is the k-th from a in b's, and both lists have the steps in one order.
        let count_of =
            |from: u32, edge: usize, count: usize| if edge == 1 { 0 } else { count + (from as usize + edge) % 4 };
        let block = |from: u32, edge: usize, count: usize| values(from * 8 + edge as u32, count);
        for count in COUNTS {
            let (form, _) = turn.next(rank);
            let mine: Vec<u64> = (0..4).flat_map(|edge| block(rank, edge, count)).collect();
            let expected: Vec<u64> = (0..4).flat_map(|edge| block(before[edge], edge, count)).collect();
            let got = call!(
                world,
                form,
                Some(mine),
                vec![UNTOUCHED; 4 * count],
                |from, to| graph.neighbor_alltoall(from, to),
                graph.ineighbor_alltoall(from, to),
                graph.neighbor_alltoall_init::<u64>(count)
            );
            assert!(got == expected, "{form:?}, count {count}");

            let sent = [0, 1, 2, 3].map(|edge| count_of(rank, edge, count));
            let received = [0, 1, 2, 3].map(|edge| count_of(before[edge], edge, count));
            let mine: Vec<u64> = (0..4).flat_map(|edge| block(rank, edge, sent[edge])).collect();
            let expected: Vec<u64> = (0..4).flat_map(|edge| block(before[edge], edge, received[edge])).collect();
            let got = call!(
                world,
                form,
                Some(mine),
                vec![UNTOUCHED; expected.len()],
                |from, to| graph.neighbor_alltoallv(from, &sent, to, &received),
                graph.ineighbor_alltoallv(from, &sent, to, &received),
                graph.neighbor_alltoallv_init::<u64>(&sent, &received)
            );
            assert!(got == expected, "{form:?}, count {count}, different sizes");

            let expected: Vec<u64> = before.iter().flat_map(|from| values(*from, count)).collect();
            let got = call!(
                world,
                form,
                Some(values(rank, count)),
                vec![UNTOUCHED; 4 * count],
                |from, to| graph.neighbor_allgather(from, to),
                graph.ineighbor_allgather(from, to),
                graph.neighbor_allgather_init::<u64>(count)
            );
            assert!(got == expected, "allgather, {form:?}, count {count}");

            let length = |rank: u32| count + rank as usize % 3;
            let received = before.map(length);
            let expected: Vec<u64> = before.iter().flat_map(|from| values(*from, length(*from))).collect();
            let got = call!(
                world,
                form,
                Some(values(rank, length(rank))),
                vec![UNTOUCHED; expected.len()],
                |from, to| graph.neighbor_allgatherv(from, to, &received),
                graph.ineighbor_allgatherv(from, to, &received),
                graph.neighbor_allgatherv_init::<u64>(length(rank), &received)
            );
            assert!(got == expected, "allgatherv, {form:?}, count {count}");
        }
        Ok(())
    });
}

#[test]
fn what_lies_beyond_the_edge_of_a_grid_is_left_alone() {
    let force = |algorithm| Algorithms { neighbor: Some(algorithm), ..Default::default() };
    every_job(NeighborAlgorithm::ALL, force, |world, turn| {
        let (rank, size) = (world.rank(), world.size());
        let line = world.cartesian(&[size], &[false])?;
        for count in [1, 30] {
            let (form, _) = turn.next(rank);
            let mine: Vec<u64> = vec![rank.into(); 2 * count];
            let got = call!(
                world,
                form,
                Some(mine),
                vec![UNTOUCHED; 2 * count],
                |from, to| line.neighbor_alltoall(from, to),
                line.ineighbor_alltoall(from, to),
                line.neighbor_alltoall_init::<u64>(count)
            );
            let value = |other: Option<u32>| other.filter(|other| *other < size).map_or(UNTOUCHED, u64::from);
            let expected = [value(rank.checked_sub(1)), value(Some(rank + 1))].map(|value| vec![value; count]).concat();
            assert_eq!(got, expected, "{form:?}");
        }
        // Results that are moved out of their slots leave it alone, too.
        let mine = [rank; 2];
        let mut outputs = vec![[77u32; 2]; 100];
        let requests: Vec<_> =
            outputs.iter_mut().map(|output| line.ineighbor_alltoall(&mine, output)).collect::<Result<_>>()?;
        tradewind::wait_all(requests)?;
        let expected = [rank.checked_sub(1).unwrap_or(77), if rank + 1 < size { rank + 1 } else { 77 }];
        assert!(outputs.iter().all(|output| *output == expected), "{outputs:?}");
        Ok(())
    });
}
