//! Every collective by every algorithm against what it must give: any rank count, odd and zero
//! sizes, private and shared buffers mixed, every kind of job.

use crate::job_kinds::KINDS;
use tradewind::{Algorithms, Collective, Communicator, DataType, Op, Result, local};

testing::tests![
    no_rank_leaves_a_barrier_before_all_have_come,
    sums_have_the_same_bits_on_all_ranks,
    masks_are_combined_bit_by_bit,
    a_long_call_that_waits_does_not_match_one_that_does_not,
    long_blocking_collectives_stream_any_length,
    an_integer_division_by_zero_in_a_stream_leaves_the_communicator_whole,
];

const RANKS: [u32; 6] = [1, 2, 3, 4, 5, 8];

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

/// Rounding makes the order of a sum visible; the longer vector is beyond a chunk.
fn sums_have_the_same_bits_on_all_ranks() {
    every_job(|world| {
        for count in [5, 40_000] {
            let mine: Vec<f64> =
                (0..count).map(|index| 1.0 / f64::from(world.rank() + 3) + index as f64).collect();
            for algorithm in Collective::Allreduce.algorithms() {
                let algorithms = Algorithms { allreduce: Some(*algorithm), ..Default::default() };
                let world = world.with_algorithms(algorithms);
                let mut sum = vec![0.0; count];
                world.allreduce(&mine, &mut sum, Op::Sum)?;
                let parts = (0..world.size()).map(|rank| 1.0 / f64::from(rank + 3)).sum::<f64>();
                for (index, value) in sum.iter().enumerate() {
                    let expected = parts + f64::from(world.size()) * index as f64;
                    assert!(
                        (value - expected).abs() < 1e-6,
                        "{algorithm}: {value}, not {expected}"
                    );
                }
                let bits: Vec<u64> = sum.iter().map(|value| value.to_bits()).collect();
                let (mut low, mut high) = (vec![0; count], vec![0; count]);
                world.allreduce(&bits, &mut low, Op::Minimum)?;
                world.allreduce(&bits, &mut high, Op::Maximum)?;
                assert!(low == high, "{algorithm}, {count} elements");
            }
            let mut difference = vec![0i64; count];
            world.allreduce(&vec![1i64 << world.rank(); count], &mut difference, Op::Difference)?;
            let expected = 1 - (1..world.size()).map(|rank| 1i64 << rank).sum::<i64>();
            assert!(difference.iter().all(|value| *value == expected), "in rank order");
        }
        Ok(())
    });
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
