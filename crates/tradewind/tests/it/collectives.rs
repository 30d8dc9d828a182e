//! Every collective by every algorithm against what it must give: any rank count, odd and zero
//! sizes, private and shared buffers mixed, every kind of job.

use crate::job_kinds::KINDS;
use tradewind::{Algorithms, Collective, Communicator, DataType, Op, Result, local};

testing::tests![
    no_rank_leaves_a_barrier_before_all_have_come,
    allreduce_gives_every_rank_the_same_right_bits,
    masks_are_combined_bit_by_bit,
    a_join_reduces_in_rank_order,
    alltoall_gives_part_j_of_rank_i_to_rank_j,
    bcast_gives_everyone_the_roots_buffer,
    neighbours_get_each_others_blocks,
    a_persistent_collective_can_be_started_again_and_again,
    a_long_call_that_waits_does_not_match_one_that_does_not,
    long_blocking_collectives_stream_any_length,
    an_integer_division_by_zero_in_a_stream_leaves_the_communicator_whole,
];

const RANKS: [u32; 6] = [1, 2, 3, 4, 5, 8];
/// Elements: nothing, inside a line, inside a cell, beyond it, beyond a chunk.
const COUNTS: [usize; 6] = [0, 1, 5, 200, 1000, 40_000];

fn every_job(body: impl Fn(&Communicator) -> Result<()> + Sync) {
    for kind in KINDS {
        for ranks in RANKS {
            kind.run(ranks, |world| body(&world))
                .unwrap_or_else(|error| panic!("{kind}, {ranks} ranks: {error}"));
        }
    }
}

fn no_rank_leaves_a_barrier_before_all_have_come() {
    use std::sync::atomic::{AtomicU32, Ordering};
    for kind in KINDS {
        for ranks in RANKS {
            let come = AtomicU32::new(0);
            kind.run(ranks, |world| {
                for algorithm in Collective::Barrier.algorithms() {
                    let chosen = world.with_algorithms(Algorithms {
                        barrier: Some(*algorithm),
                        ..Default::default()
                    });
                    for _ in 0..3 {
                        let before = come.load(Ordering::SeqCst) / ranks * ranks;
                        come.fetch_add(1, Ordering::SeqCst);
                        chosen.barrier()?;
                        assert!(
                            come.load(Ordering::SeqCst) >= before + ranks,
                            "{algorithm} on {ranks} ranks"
                        );
                        // No rank counts for the next round before all have checked this one.
                        world.barrier()?;
                    }
                }
                Ok(())
            })
            .expect("barriers succeed");
        }
    }
}

fn allreduce_gives_every_rank_the_same_right_bits() {
    every_job(|world| {
        for count in COUNTS {
            let value = |rank: u32, index: usize| (u64::from(rank) + 1) * (index as u64 + 3);
            let mine: Vec<u64> = (0..count).map(|index| value(world.rank(), index)).collect();
            let ranks = u64::from(world.size());
            let expected: Vec<u64> =
                (0..count as u64).map(|index| (index + 3) * (ranks * (ranks + 1) / 2)).collect();
            for algorithm in Collective::Allreduce.algorithms() {
                let algorithms = Algorithms { allreduce: Some(*algorithm), ..Default::default() };
                allreduce(&world.with_algorithms(algorithms), &mine, &expected)?;
            }
        }
        Ok(())
    });
}

fn allreduce(world: &Communicator, mine: &[u64], expected: &[u64]) -> Result<()> {
    let count = mine.len();
    let mut private = vec![u64::MAX; count];
    world.allreduce(mine, &mut private, Op::Sum)?;
    assert_eq!(private, expected);

    // Every second rank works in place, the others do not: all must agree all the same.
    for in_place in [0, 1, 2] {
        let shared = in_place == 2 || world.rank() % 2 == in_place;
        let mut result = vec![0; count];
        if shared {
            let mut from = world.alloc::<u64>(count)?;
            from.copy_from_slice(mine);
            let (from, to) = world.iallreduce(from, world.alloc::<u64>(count)?, Op::Sum)?.wait()?;
            assert_eq!(&from[..], mine, "an input is left as it was");
            result.copy_from_slice(&to);
        } else {
            world.iallreduce(mine, &mut result, Op::Sum)?.wait()?;
        }
        assert_eq!(result, expected, "in place: {shared}");
    }

    // Rounding makes the order visible: compare the bits of all ranks.
    let floats: Vec<f64> =
        (0..count).map(|index| 1.0 / f64::from(world.rank() + 3) + index as f64).collect();
    let mut sum = vec![0.0; count];
    world.allreduce(&floats, &mut sum, Op::Sum)?;
    let bits: Vec<u64> = sum.iter().map(|value| value.to_bits()).collect();
    let (mut low, mut high) = (vec![0; count], vec![0; count]);
    world.allreduce(&bits, &mut low, Op::Minimum)?;
    world.allreduce(&bits, &mut high, Op::Maximum)?;
    assert_eq!(low, high);
    Ok(())
}

type Combine = fn(u8, u8) -> u8;

fn masks_are_combined_bit_by_bit() {
    every_job(|world| {
        let bit = |op: Op| op.on_bytes(DataType::Bit);
        for bytes in [1, 13, 5000] {
            let mine = |rank: u32| (0..bytes).map(move |at| (at as u32 * 37 + rank * 11) as u8);
            let fold = |combine: Combine| -> Vec<u8> {
                let all = (0..world.size()).map(|rank| mine(rank).collect::<Vec<_>>());
                let fold = |one: Vec<u8>, other: Vec<u8>| {
                    one.into_iter().zip(other).map(|(one, other)| combine(one, other)).collect()
                };
                all.reduce(fold).expect("there are ranks")
            };
            let own: Vec<u8> = mine(world.rank()).collect();
            let cases: [(Op, Combine); 3] = [
                (Op::And, |one, other| one & other),
                (Op::Or, |one, other| one | other),
                (Op::Xor, |one, other| one ^ other),
            ];
            for (op, combine) in cases {
                let mut found = vec![0; bytes];
                world.allreduce(&own, &mut found, bit(op))?;
                assert_eq!(found, fold(combine), "{op:?} of {bytes} bytes");
                world.iallreduce(&own, &mut found, bit(op))?.wait()?;
                assert_eq!(found, fold(combine), "{op:?} of {bytes} bytes");
            }
            let refused = world.allreduce(&own, &mut vec![0; bytes], bit(Op::Sum));
            let refused = refused.expect_err("bits have no sum").to_string();
            assert!(refused.contains("add on bit"), "{refused}");
        }
        Ok(())
    });
}

fn a_join_reduces_in_rank_order() {
    every_job(|world| {
        for count in [1usize, 300, 30_000] {
            let mut difference = vec![0i64; count];
            world.allreduce(&vec![1i64 << world.rank(); count], &mut difference, Op::Difference)?;
            let expected = 1 - (1..world.size()).map(|rank| 1i64 << rank).sum::<i64>();
            assert!(difference.iter().all(|value| *value == expected));
        }
        Ok(())
    });
}

fn alltoall_gives_part_j_of_rank_i_to_rank_j() {
    every_job(|world| {
        let (rank, size) = (world.rank(), world.size());
        let block = |from: u32, to: u32, count: usize| {
            let first = (from * 1000 + to) as usize * 10_000;
            first..first + count
        };
        for count in [0, 1, 3, 70, 700, 9000] {
            let mine: Vec<usize> = (0..size).flat_map(|to| block(rank, to, count)).collect();
            let expected: Vec<usize> =
                (0..size).flat_map(|from| block(from, rank, count)).collect();
            for algorithm in Collective::Alltoall.algorithms() {
                let algorithms = Algorithms { alltoall: Some(*algorithm), ..Default::default() };
                alltoall(&world.with_algorithms(algorithms), &mine, &expected)?;
            }
        }
        Ok(())
    });
}

fn alltoall(world: &Communicator, mine: &[usize], expected: &[usize]) -> Result<()> {
    let rank = world.rank();
    for in_place in [0, 1, 2, 3] {
        // 0, 1: every second rank in place; 2: all; 3: none, and all wait.
        let mut result = vec![0; mine.len()];
        if in_place == 2 || (in_place < 2 && rank % 2 == in_place) {
            let mut from = world.alloc::<usize>(mine.len())?;
            from.copy_from_slice(mine);
            let (mut from, to) =
                world.ialltoall(from, world.alloc::<usize>(mine.len())?)?.wait()?;
            // The buffer is this rank's again: slower ranks must not see this.
            from.fill(usize::MAX);
            result.copy_from_slice(&to);
        } else if in_place == 3 {
            world.alltoall(mine, &mut result)?;
        } else {
            world.ialltoall(mine, &mut result)?.wait()?;
        }
        assert!(result == expected, "{} elements, buffers {in_place}", mine.len());
    }
    Ok(())
}

fn bcast_gives_everyone_the_roots_buffer() {
    every_job(|world| {
        for count in COUNTS {
            for root in [0, world.size() / 2, world.size() - 1] {
                let expected: Vec<u32> = (0..count as u32).map(|index| index ^ root).collect();
                for algorithm in Collective::Bcast.algorithms() {
                    let algorithms = Algorithms { bcast: Some(*algorithm), ..Default::default() };
                    bcast(&world.with_algorithms(algorithms), &expected, root)?;
                }
            }
        }
        Ok(())
    });
}

fn bcast(world: &Communicator, expected: &[u32], root: u32) -> Result<()> {
    let count = expected.len();
    let start = if world.rank() == root { expected.to_vec() } else { vec![u32::MAX; count] };
    let mut private = start.clone();
    world.bcast(&mut private, root)?;
    assert_eq!(private, expected, "{:?}, count {count}, root {root}", world.algorithms().bcast);
    for in_place in [0, 1, 2] {
        let mut result = start.clone();
        if in_place == 2 || world.rank() % 2 == in_place {
            let mut buffer = world.alloc::<u32>(count)?;
            buffer.copy_from_slice(&start);
            let mut buffer = world.ibcast(buffer, root)?.wait()?;
            result.copy_from_slice(&buffer);
            buffer.fill(7);
        } else {
            world.ibcast(&mut result, root)?.wait()?;
        }
        assert!(result == expected, "count {count}, root {root}, buffers {in_place}");
    }
    Ok(())
}

fn neighbours_get_each_others_blocks() {
    every_job(|world| {
        let (rank, size) = (world.rank(), world.size());
        // Everyone sends to the next two ranks; on few ranks these are the same rank, or this one.
        let next = [(rank + 1) % size, (rank + 2) % size];
        let before = [(rank + size - 1) % size, (rank + 2 * size - 2) % size];
        let ring = world.neighbors(&before, &next)?;
        for count in [0usize, 1, 100, 5000] {
            let mine: Vec<u32> = (0..2).flat_map(|edge| vec![rank * 2 + edge; count]).collect();
            let mut got = vec![u32::MAX; 2 * count];
            ring.neighbor_alltoall(&mine, &mut got)?;
            let expected: Vec<u32> =
                (0..2).flat_map(|edge| vec![before[edge as usize] * 2 + edge; count]).collect();
            assert_eq!(got, expected);
            // As many bytes again, in elements of another type.
            let mut bytes = vec![0; 8 * count];
            ring.neighbor_alltoall(bytemuck::cast_slice::<u32, u8>(&mine), &mut bytes)?;
            assert_eq!(bytes, bytemuck::cast_slice::<u32, u8>(&expected));

            let mut shared = world.alloc::<u32>(2 * count)?;
            shared.copy_from_slice(&mine);
            let (_, got) =
                ring.ineighbor_alltoall(shared, world.alloc::<u32>(2 * count)?)?.wait()?;
            assert_eq!(&got[..], &expected[..]);

            let mut gathered = vec![u32::MAX; 2 * count];
            ring.neighbor_allgather(&vec![rank; count], &mut gathered)?;
            let expected: Vec<u32> = before.iter().flat_map(|from| vec![*from; count]).collect();
            assert_eq!(gathered, expected);
        }
        Ok(())
    });
}

fn a_persistent_collective_can_be_started_again_and_again() {
    every_job(|world| {
        let barrier = world.barrier_init()?;
        let sum = world.allreduce_init::<u32>(3, Op::Sum)?;
        let exchange = world.alltoall_init::<u8>(2)?;
        let root = world.size() - 1;
        let bcast = world.bcast_init::<u16>(4, root)?;
        for round in 0..200u32 {
            barrier.start()?.wait()?;
            let mut total = [0; 3];
            sum.start(&[round, 1, world.rank()], &mut total)?.wait()?;
            assert_eq!(total[..2], [round * world.size(), world.size()]);
            let mine = vec![world.rank() as u8 ^ round as u8; 2 * world.size() as usize];
            let mut theirs = vec![0; mine.len()];
            exchange.start(&mine, &mut theirs)?.wait()?;
            assert!(
                theirs.chunks(2).zip(0u8..).all(|(part, rank)| part == [rank ^ round as u8; 2])
            );
            let mut values = if world.rank() == root { [round as u16; 4] } else { [0; 4] };
            bcast.start(&mut values)?.wait()?;
            assert_eq!(values, [round as u16; 4]);
        }
        Ok(())
    });
}

fn a_long_call_that_waits_does_not_match_one_that_does_not() {
    let outcome = local(2, |world| {
        let (mine, mut sum) = (vec![1u64; 40_000], vec![0; 40_000]);
        match world.rank() {
            0 => world.allreduce(&mine, &mut sum, Op::Sum),
            _ => world.iallreduce(&mine, &mut sum, Op::Sum)?.wait().map(|_| ()),
        }
    });
    let message = outcome.expect_err("a blocking and a nonblocking call do not match").to_string();
    assert!(message.contains("in the blocking form on one side only"), "{message}");
}

fn long_blocking_collectives_stream_any_length() {
    // The first that stream, around a piece, around four pieces, and longer than the ring of a
    // pair.
    let lengths = [512, 513, 2049, 4095, 4096, 4097, 131_071, 131_073, 5_000_001];
    local(2, |world| {
        for length in lengths {
            for turn in 0..3u8 {
                let value =
                    |rank: u32, at: usize| (at as u8).wrapping_mul(31) ^ (rank as u8) ^ turn;
                let mine: Vec<u8> = (0..length).map(|at| value(world.rank(), at)).collect();
                let mut result = vec![0; length];
                world.allreduce(&mine, &mut result, Op::Xor)?;
                assert!(
                    (0..length).all(|at| result[at] == value(0, at) ^ value(1, at)),
                    "allreduce, {length}"
                );
                let root = u32::from(turn) % 2;
                let mut buffer = if world.rank() == root { mine.clone() } else { vec![0; length] };
                world.bcast(&mut buffer, root)?;
                assert!((0..length).all(|at| buffer[at] == value(root, at)), "bcast, {length}");
                let even = length & !1;
                world.alltoall(&mine[..even], &mut result[..even])?;
                let half = even / 2;
                let from = |rank: u32, at: usize| value(rank, world.rank() as usize * half + at);
                assert!(
                    (0..half)
                        .all(|at| result[at] == from(0, at) && result[half + at] == from(1, at)),
                    "alltoall"
                );
            }
        }
        Ok(())
    })
    .expect("they all match");
}

fn an_integer_division_by_zero_in_a_stream_leaves_the_communicator_whole() {
    local(2, |world| {
        let (mine, mut result) = (vec![i64::from(world.rank() == 0); 10_000], vec![0; 10_000]);
        for _ in 0..2 {
            assert!(world.allreduce(&mine, &mut result, Op::Quotient).is_err(), "1 / 0");
        }
        world.allreduce(&mine, &mut result, Op::Sum)?;
        assert!(result.iter().all(|sum| *sum == 1));
        Ok(())
    })
    .expect("only the divisions fail");
}
