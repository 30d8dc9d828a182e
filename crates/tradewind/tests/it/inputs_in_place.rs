//! Inputs in memory of the segment that other ranks read after their owner has them back.

use std::ops::ControlFlow;
use std::sync::Barrier;
use std::time::Duration;
use tradewind::interop::while_waiting;
use tradewind::{
    Algorithm, Algorithms, Communicator, Error, Op, Request, Result, SharedBuffer, local,
};

testing::tests![
    a_returned_input_may_change_before_other_ranks_have_read_it,
    a_returned_input_may_be_passed_again_and_then_change,
    a_returned_input_may_be_dropped_before_other_ranks_have_read_it,
    a_dropped_request_leaves_its_input_to_the_other_ranks,
    a_change_waits_for_readers_only_where_no_memory_is_left_for_a_copy,
    a_change_that_waits_for_readers_may_have_a_deadline,
    an_input_takes_no_other_memory_and_moves_only_while_it_is_read,
    an_input_is_free_once_the_reader_has_dropped_its_request_and_communicator,
    the_bytes_of_dropped_inputs_are_free_again,
];

/// More than a cell holds, so that the ranks read it in place.
const COUNT: usize = 20_000;

/// Value of an element of a rank's input in a round.
fn value(rank: u32, round: u64) -> u64 {
    u64::from(rank) * 1000 + round
}

fn input(world: &Communicator, elements: usize, round: u64) -> Result<SharedBuffer<u64>> {
    let mut buffer = world.alloc::<u64>(elements)?;
    buffer.fill(value(world.rank(), round));
    Ok(buffer)
}

/// A request that is complete for the first rank, before the others have read anything.
type Started<'a> = Box<dyn FnOnce() -> Result<Option<(SharedBuffer<u64>, Vec<u64>)>> + 'a>;

fn two<'a>(
    request: Result<Request<'a, (SharedBuffer<u64>, SharedBuffer<u64>)>>,
) -> Result<Started<'a>> {
    let request = request?;
    Ok(Box::new(move || {
        let (input, output) = request.wait()?;
        Ok(Some((input, output.to_vec())))
    }))
}

/// Starts a collective with buffers of the segment. Returns the elements that it delivers.
fn start<'a>(world: &Communicator, number: usize, round: u64) -> Result<(Started<'a>, Vec<u64>)> {
    let ranks = world.size();
    let size = ranks as usize;
    let rank = world.rank();
    let of = |rank| vec![value(rank, round); COUNT];
    let all = || (0..ranks).flat_map(of).collect::<Vec<_>>();
    let sum = |ranks: std::ops::Range<u32>| {
        vec![ranks.map(|rank| value(rank, round)).sum::<u64>(); COUNT]
    };
    let one = || input(world, COUNT, round);
    let each = || input(world, COUNT * size, round);
    let out = |blocks: usize| world.alloc::<u64>(COUNT * blocks);
    let counts = vec![COUNT; size];
    Ok(match number {
        0 => (two(world.ialltoall(each()?, out(size)?))?, all()),
        1 => (two(world.iallgather(one()?, out(size)?))?, all()),
        2 => (two(world.iallreduce(one()?, out(1)?, Op::Sum))?, sum(0..ranks)),
        3 => (two(world.iscan(one()?, out(1)?, Op::Sum))?, sum(0..rank + 1)),
        4 => (two(world.ialltoallv(each()?, &counts, out(size)?, &counts))?, all()),
        5 => {
            let sums = two(world.ireduce_scatter_block(each()?, out(1)?, Op::Sum))?;
            (sums, sum(0..ranks))
        }
        6 => {
            let everyone: Vec<u32> = (0..ranks).collect();
            let neighbors = world.neighbors(&everyone, &everyone)?;
            (two(neighbors.ineighbor_alltoall(each()?, out(size)?))?, all())
        }
        7 => {
            let everyone: Vec<u32> = (0..ranks).collect();
            let neighbors = world.neighbors(&everyone, &everyone)?;
            (two(neighbors.ineighbor_allgather(one()?, out(size)?))?, all())
        }
        8 => (two(world.iscatter(each()?, out(1)?, 0))?, of(0)),
        9 => {
            let (input, output) = (one()?, out(size)?);
            let request = world.igather(input, output, 1)?;
            let expected = if rank == 1 { all() } else { vec![0; COUNT * size] };
            (two(Ok(request))?, expected)
        }
        _ => {
            let request = world.ibcast(one()?, 0)?;
            let wait = move || {
                let buffer = request.wait()?;
                let values = buffer.to_vec();
                Ok(Some((buffer, values)))
            };
            (Box::new(wait), of(0))
        }
    })
}

const COLLECTIVES: usize = 11;

/// Runs `body` on all ranks, with flat collectives. All ranks meet at the barrier.
fn flat(ranks: u32, body: impl Fn(&Communicator, &Barrier) -> Result<()> + Sync) {
    let barrier = Barrier::new(ranks as usize);
    let join = Some(Algorithm::Join);
    local(ranks, |world| {
        let world = world.with_algorithms(Algorithms {
            bcast: join,
            scatter: join,
            gather: join,
            allgather: join,
            alltoall: join,
            allreduce: join,
            reduce_scatter: join,
            scan: join,
            neighbor: join,
            ..Algorithms::default()
        });
        body(&world, &barrier)
    })
    .expect("every rank gets the bytes of the start");
}

/// Runs `use_input` on rank 0 with the input of each collective, after its wait and before those of
/// the other ranks, which must get the bytes of the start.
fn before_the_others(
    ranks: u32,
    use_input: impl Fn(&Communicator, SharedBuffer<u64>) -> Result<()> + Sync,
) {
    flat(ranks, |world, barrier| {
        for number in 0..COLLECTIVES {
            for round in 0..4 {
                let (wait, expected) = start(world, number, round)?;
                barrier.wait();
                if world.rank() != 0 {
                    barrier.wait();
                }
                let outcome = wait()?;
                if let Some((input, output)) = outcome {
                    assert!(output == expected, "collective {number}, round {round}");
                    if world.rank() == 0 {
                        use_input(world, input)?;
                        barrier.wait();
                    }
                }
            }
        }
        Ok(())
    });
}

fn a_returned_input_may_change_before_other_ranks_have_read_it() {
    for ranks in [2, 3] {
        before_the_others(ranks, |_, mut input| {
            let before = input[0];
            let passed_at = input.as_ptr();
            assert!(input.iter().all(|value| *value == before));
            input[7] = u64::MAX;
            assert!(ranks != 2 || input.as_ptr() != passed_at);
            assert!(
                input
                    .iter()
                    .enumerate()
                    .all(|(index, value)| { *value == if index == 7 { u64::MAX } else { before } })
            );
            input.fill(u64::MAX);
            Ok(())
        });
    }
}

fn a_returned_input_may_be_dropped_before_other_ranks_have_read_it() {
    before_the_others(2, |world, input| {
        let elements = input.len();
        drop(input);
        // Whatever memory is free is used now.
        for _ in 0..3 {
            world.alloc::<u64>(elements)?.fill(u64::MAX);
        }
        Ok(())
    });
}

fn a_returned_input_may_be_passed_again_and_then_change() {
    flat(2, |world, barrier| {
        let mut outputs = vec![vec![0u64; 2 * COUNT]; 6];
        if world.rank() == 0 {
            let mut buffer = world.alloc::<u64>(COUNT)?;
            for (round, output) in (0..).zip(&mut outputs) {
                // Two calls read the same bytes in place.
                if round % 2 == 0 {
                    buffer.fill(value(0, round));
                }
                buffer = world.iallgather(buffer, output)?.wait()?.0;
            }
            buffer.fill(u64::MAX);
            barrier.wait();
        } else {
            let mut requests = Vec::new();
            for (round, output) in (0..).zip(&mut outputs) {
                requests.push(world.iallgather(input(world, COUNT, round)?, output)?);
            }
            barrier.wait();
            for request in requests {
                request.wait()?;
            }
        }
        for (round, output) in (0..).zip(&outputs) {
            assert!(output[..COUNT].iter().all(|element| *element == value(0, round / 2 * 2)));
            assert!(output[COUNT..].iter().all(|element| *element == value(1, round)));
        }
        Ok(())
    });
}

fn a_dropped_request_leaves_its_input_to_the_other_ranks() {
    flat(2, |world, barrier| {
        for round in 0..20 {
            let mine = input(world, 2 * COUNT, round)?;
            let theirs = world.alloc::<u64>(2 * COUNT)?;
            if world.rank() == 0 {
                drop(world.ialltoall(mine, theirs)?);
                for _ in 0..3 {
                    world.alloc::<u64>(2 * COUNT)?.fill(u64::MAX);
                }
                barrier.wait();
            } else {
                barrier.wait();
                let (_, theirs) = world.ialltoall(mine, theirs)?.wait()?;
                assert!(theirs[..COUNT].iter().all(|element| *element == value(0, round)));
            }
        }
        Ok(())
    });
}

/// Allocates what is left of this rank's part of the segment, down to pieces of a page.
fn fill_memory(world: &Communicator) -> Vec<SharedBuffer<u8>> {
    let mut kept = Vec::new();
    for bytes in (12..32).rev().map(|bits| 1 << bits) {
        kept.extend(std::iter::from_fn(|| world.alloc::<u8>(bytes).ok()));
    }
    kept
}

fn a_change_waits_for_readers_only_where_no_memory_is_left_for_a_copy() {
    flat(2, |world, _| {
        let mut mine = input(world, COUNT, 3)?;
        let mut sum = vec![0u64; COUNT];
        if world.rank() == 0 {
            let _kept = fill_memory(world);
            // Needs no memory.
            let request = world.iallreduce(mine, &mut sum, Op::Sum)?;
            assert!(!request.is_queued());
            mine = request.wait()?.0;
            let before = mine.as_ptr();
            // The other rank has its result moved aside in its barrier, before its wait.
            mine.fill(u64::MAX);
            assert_eq!(mine.as_ptr(), before);
            world.barrier()?;
        } else {
            let request = world.iallreduce(mine, &mut sum, Op::Sum)?;
            world.barrier()?;
            request.wait()?;
        }
        assert!(sum.iter().all(|element| *element == value(0, 3) + value(1, 3)));
        Ok(())
    });
}

fn a_change_that_waits_for_readers_may_have_a_deadline() {
    const SHORT: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(60);
    flat(2, |world, barrier| {
        let mine = input(world, COUNT, 3)?;
        let mut sum = vec![0u64; COUNT];
        if world.rank() == 0 {
            let kept = fill_memory(world);
            let mut mine = world.iallreduce(mine, &mut sum, Op::Sum)?.wait()?.0;
            barrier.wait();
            // The other rank reads at the next barrier only.
            let error = mine.writable_within(SHORT).expect_err("no space, and no read");
            let Error::Timeout { after, waiting_for } = &error else { panic!("{error}") };
            let ranks: Vec<u32> = waiting_for.iter().map(|straggler| straggler.rank).collect();
            assert_eq!((*after, &ranks[..]), (SHORT, &[1][..]));
            assert!(error.is_timeout() && mine.iter().all(|element| *element == value(0, 3)));
            let give_up = || ControlFlow::Break(());
            let given_up = while_waiting(give_up, || mine.writable_within(LONG).map(drop));
            assert!(matches!(given_up, Err(Error::GivenUp)), "{given_up:?}");
            barrier.wait();
            // What fails cannot be reported here, so the change waits for the read all the same.
            while_waiting(give_up, || mine.fill(7));
            // With space no rank is waited for.
            let mut mine = world.iallreduce(mine, &mut sum, Op::Sum)?.wait()?.0;
            drop(kept);
            barrier.wait();
            mine.writable_within(Duration::ZERO)?.fill(0);
            barrier.wait();
        } else {
            let request = world.iallreduce(mine, &mut sum, Op::Sum)?;
            barrier.wait();
            barrier.wait();
            let mine = request.wait()?.0;
            assert!(sum.iter().all(|element| *element == value(0, 3) + value(1, 3)));
            let request = world.iallreduce(mine, &mut sum, Op::Sum)?;
            barrier.wait();
            barrier.wait();
            request.wait()?;
        }
        assert!(sum.iter().all(|element| *element == 7 + value(1, 3)));
        world.barrier()
    });
}

fn an_input_takes_no_other_memory_and_moves_only_while_it_is_read() {
    flat(2, |world, barrier| {
        let mut sum = world.alloc::<u64>(COUNT)?;
        let mut mine = input(world, COUNT, 0)?;
        for round in 0..4 {
            mine.fill(value(world.rank(), round));
            let used = world.allocated_bytes();
            let request = world.iallreduce(mine, sum, Op::Sum)?;
            barrier.wait();
            if world.rank() != 0 {
                barrier.wait();
            }
            assert_eq!(world.allocated_bytes(), used, "nothing is staged");
            (mine, sum) = request.wait()?;
            let before = mine.as_ptr();
            if world.rank() == 0 {
                mine[0] = 1;
                assert_ne!(mine.as_ptr(), before);
                let moved = mine.as_ptr();
                mine[1] = 1;
                assert_eq!(mine.as_ptr(), moved);
                barrier.wait();
            } else {
                // The first rank has read it.
                mine[0] = 1;
                assert_eq!(mine.as_ptr(), before);
            }
            barrier.wait();
            assert!(sum.iter().all(|sum| *sum == value(0, round) + value(1, round)));
            // Frees what the change has left to the reader.
            drop(world.alloc::<u64>(1)?);
            assert_eq!(world.allocated_bytes(), used);
        }
        Ok(())
    });
}

fn an_input_is_free_once_the_reader_has_dropped_its_request_and_communicator() {
    flat(2, |world, barrier| {
        let before = world.allocated_bytes();
        let dup = world.dup()?;
        let mine = input(world, COUNT, 1)?;
        let theirs = world.alloc::<u64>(2 * COUNT)?;
        let request = dup.iallgather(mine, theirs)?;
        barrier.wait();
        // Complete on both ranks, and fetched by neither.
        drop(request);
        drop(dup);
        barrier.wait();
        // The first allocation frees the input, and with it the communicator of this rank; the
        // second one what both ranks have released of it.
        drop(world.alloc::<u64>(1)?);
        barrier.wait();
        drop(world.dup()?);
        world.barrier()?;
        assert!(world.allocated_bytes() < before + 8 * COUNT as u64);
        Ok(())
    });
}

fn the_bytes_of_dropped_inputs_are_free_again() {
    local(2, |world| {
        // Many times the memory of a rank.
        for round in 0..3000 {
            let mine = input(&world, COUNT, round)?;
            let theirs = world.alloc::<u64>(2 * COUNT)?;
            let (mut mine, theirs) = world.iallgather(mine, theirs)?.wait()?;
            mine.fill(u64::MAX);
            assert_eq!(theirs[..1], [value(0, round)]);
            assert_eq!(theirs[COUNT..=COUNT], [value(1, round)]);
        }
        Ok(())
    })
    .expect("no memory is lost");
}
