//! Communicators whose ranks are on several nodes, simulated in this process.

mod choices;
mod lengths_of_pairs;
mod other_libraries;

use std::time::Duration;
use tradewind::{Algorithm, Algorithms, Communicator, Op, Result, local_nodes};

testing::tests![
    splits_of_a_job_on_several_nodes_are_communicators_like_any_other,
    communicators_of_several_nodes_do_not_take_each_others_messages,
    neighbours_on_shared_nodes_exchange_short_blocks_and_long_ones,
    edges_that_only_one_rank_lists_are_named_on_all_nodes,
    a_time_out_names_ranks_and_nodes_and_is_no_end,
    a_blocking_call_and_a_nonblocking_one_are_a_mismatch,
    a_short_collective_and_a_long_one_are_a_mismatch,
    a_rank_that_computes_after_its_start_delays_no_other,
    what_a_blocking_call_leaves_is_sent_while_its_rank_makes_no_call,
    a_rank_without_credit_waits_for_no_call_of_a_rank_that_has_started,
    an_integer_divided_by_zero_is_told_and_the_rest_is_there,
    a_node_without_ranks_is_no_node,
    ranks_in_different_collectives_are_told,
    a_rank_that_leaves_is_named_by_its_number_in_the_communicator,
    waiting_for_other_nodes_does_not_delay_the_own_node,
];

fn splits_of_a_job_on_several_nodes_are_communicators_like_any_other() {
    local_nodes(&[3, 2], |world| {
        let (rank, size) = (world.rank(), world.size());
        assert_eq!((size, world.nodes()), (5, 2));
        // Two that cross nodes, in reverse order, one of one rank of one node, and none.
        let color = [Some(0), Some(1), None, Some(0), Some(1)][rank as usize];
        let part = world.split(color, -i64::from(rank))?;
        match part {
            None => assert_eq!(rank, 2),
            Some(part) => {
                assert_eq!((part.size(), part.nodes()), (2, 2));
                let mut members = [0; 2];
                part.allgather(&[rank], &mut members)?;
                assert_eq!(members, if color == Some(0) { [3, 0] } else { [4, 1] });
                let again = part.dup()?;
                let mut sum = [0];
                again.allreduce(&[rank], &mut sum, Op::Sum)?;
                assert_eq!(sum, [members[0] + members[1]]);
            }
        }
        // On one node again, from a communicator that is not.
        let here = world.split_by_node()?;
        assert_eq!((here.size(), here.nodes()), (if rank < 3 { 3 } else { 2 }, 1));
        let mut sum = [0];
        here.allreduce(&[rank], &mut sum, Op::Sum)?;
        assert_eq!(sum, [if rank < 3 { 3 } else { 7 }]);
        drop(here.bulk(0, 1, 4096)?);
        Ok(())
    })
    .expect("the job is sound");
}

fn communicators_of_several_nodes_do_not_take_each_others_messages() {
    local_nodes(&[1, 2], |world| {
        let (first, second) = (world.dup()?, world.dup()?);
        let (mut a, mut b) = ([0], [0]);
        // In another order on every rank.
        let start = |comm: &Communicator, value: u32| {
            comm.iallreduce(vec_of(value), vec![0].leak(), Op::Sum)
        };
        fn vec_of(value: u32) -> &'static [u32] {
            vec![value].leak()
        }
        if world.rank() == 1 {
            let (x, y) = (start(&first, 1)?, start(&second, 100)?);
            y.wait()?;
            x.wait()?;
        } else {
            let (y, x) = (start(&second, 100)?, start(&first, 1)?);
            x.wait()?;
            y.wait()?;
        }
        first.allreduce(&[1], &mut a, Op::Sum)?;
        second.allreduce(&[100], &mut b, Op::Sum)?;
        assert_eq!((a, b), ([3], [300]));
        Ok(())
    })
    .expect("the job is sound");
}

/// Two edges to the next rank, one to the one after it, one to oneself.
fn with_steps(world: &Communicator) -> Result<(tradewind::Neighbors, [u32; 4])> {
    let (rank, size) = (world.rank(), world.size());
    let steps = [1, 2, 1, 0];
    let before = steps.map(|step| (rank + 2 * size - step) % size);
    Ok((world.neighbors(&before, &steps.map(|step| (rank + step) % size))?, before))
}

/// A block of each edge, and one of each rank, of so many elements.
fn neighbors_exchange(world: &Communicator, count: usize) -> Result<()> {
    let rank = world.rank();
    let (graph, before) = with_steps(world)?;
    let of_edge =
        |from: u32, edge: u32| (0..count as u32).map(move |index| from << 24 | edge << 16 | index);
    let given: Vec<u32> = (0..4).flat_map(|edge| of_edge(rank, edge)).collect();
    let expected: Vec<u32> = (0..4).flat_map(|edge| of_edge(before[edge as usize], edge)).collect();
    let mut got = vec![0; given.len()];
    graph.neighbor_alltoall(&given, &mut got)?;
    assert_eq!(got, expected, "{count} elements");
    // As many bytes again, in elements of another type.
    let mut bytes = vec![0; 4 * got.len()];
    graph.neighbor_alltoall(bytemuck::cast_slice::<u32, u8>(&given), &mut bytes)?;
    assert_eq!(bytes, bytemuck::cast_slice::<u32, u8>(&expected));
    let expected: Vec<u32> = before.iter().flat_map(|from| of_edge(*from, 9)).collect();
    let mine: Vec<u32> = of_edge(rank, 9).collect();
    // Prepared, and run more than once.
    let gather = graph.neighbor_allgather_init::<u32>(count)?;
    for _ in 0..3 {
        let mut got = vec![0; 4 * count];
        gather.start(&mine, &mut got)?.wait()?;
        assert_eq!(got, expected, "{count} elements gathered");
    }
    Ok(())
}

fn neighbours_on_shared_nodes_exchange_short_blocks_and_long_ones() {
    for nodes in [&[3][..], &[2, 2], &[3, 1, 2], &[1, 1, 1], &[4, 3]] {
        // 128 elements are the most that are put together.
        local_nodes(nodes, |world| {
            [1, 0, 128, 129, 3000].iter().try_for_each(|count| neighbors_exchange(&world, *count))
        })
        .expect("the job is sound");
    }
    // Where the caller says what a node is, on one node and on several.
    let per_node = |ranks: u32| tradewind::Algorithms {
        neighbor: Some(Algorithm::Direct),
        ranks_per_node: std::num::NonZeroU32::new(ranks),
        ..Default::default()
    };
    let body = |world: &Communicator| {
        [1, 2, 3]
            .iter()
            .try_for_each(|ranks| neighbors_exchange(&world.with_algorithms(per_node(*ranks)), 40))
    };
    local_nodes(&[3, 4], |world| body(&world)).expect("the job is sound");
    tradewind::local(5, |world| body(&world)).expect("the job is sound");
}

fn edges_that_only_one_rank_lists_are_named_on_all_nodes() {
    let said = errors(&[2, 2], |world| {
        // Rank 1 has no rank to send to, but rank 2 waits for it.
        let (sources, destinations): (&[u32], &[u32]) = match world.rank() {
            2 => (&[1], &[]),
            _ => (&[], &[]),
        };
        let graph = world.neighbors(sources, destinations)?;
        let exchange = graph.neighbor_alltoall_init::<u32>(1)?;
        let mut got = vec![0; sources.len()];
        exchange.start(&[], &mut got)?.wait()?;
        Ok(())
    });
    for error in said {
        let error = error.expect("nothing comes from rank 1").to_string();
        assert!(
            error.contains("rank 1 lists rank 2 0 times as a destination, which lists it 1 times"),
            "{error}"
        );
    }
}

fn a_time_out_names_ranks_and_nodes_and_is_no_end() {
    let late = std::sync::Barrier::new(2);
    local_nodes(&[1, 1], |world| {
        if world.rank() == 1 {
            late.wait();
            return world.ibarrier()?.wait();
        }
        let mut request = world.ibarrier()?;
        let error =
            request.wait_timeout(Duration::from_millis(20)).expect_err("rank 1 has not come");
        assert!(error.is_timeout(), "{error}");
        late.wait();
        request.wait()
    })
    .expect("the job is sound");
}

/// Blocking calls run inside the ranks, nonblocking ones in the node service: neither form waits
/// for the other.
fn a_blocking_call_and_a_nonblocking_one_are_a_mismatch() {
    for blocking in [0, 1] {
        local_nodes(&[1, 1], |world| {
            world.barrier()?;
            let outcome =
                if world.rank() == blocking { world.barrier() } else { world.ibarrier()?.wait() };
            let error = outcome.expect_err("the forms differ");
            assert!(matches!(error, tradewind::Error::Mismatch { .. }), "{error}");
            assert!(error.to_string().contains("in the blocking form on one side only"), "{error}");
            Ok(())
        })
        .expect("the job is sound");
    }
}

/// They run on different backends, so that neither meets a message of the other.
fn a_short_collective_and_a_long_one_are_a_mismatch() {
    let said = errors(&[1, 1], |world| {
        let given = vec![1u8; if world.rank() == 0 { 2 } else { 4 << 20 }];
        world.ialltoall(&given, &mut vec![0; given.len()])?.wait()?;
        Ok(())
    });
    for error in said {
        let error = error.expect("both have an error");
        assert!(matches!(error, tradewind::Error::Mismatch { .. }), "{error}");
    }
}

fn a_rank_that_computes_after_its_start_delays_no_other() {
    let all_have_it = std::sync::Barrier::new(3);
    local_nodes(&[1, 1, 1], |world| {
        let given = [world.rank(); 3];
        let mut taken = [0; 3];
        let direct = Some(Algorithm::RotatedDirect);
        let world = world.with_algorithms(Algorithms { alltoall: direct, ..world.algorithms() });
        let mut request = world.ialltoall(&given, &mut taken)?;
        if world.rank() == 0 {
            // Makes no call until the others have their results.
            all_have_it.wait();
            while !request.test()? {
                std::thread::yield_now();
            }
            drop(request);
        } else {
            request.wait()?;
            all_have_it.wait();
        }
        assert_eq!(taken, [0, 1, 2]);
        Ok(())
    })
    .expect("the job is sound");
}

/// The root returns from many calls before the other rank comes. The system does not take all their
/// messages, and the root then makes calls that use no connection of its own.
fn what_a_blocking_call_leaves_is_sent_while_its_rank_makes_no_call() {
    const CALLS: u32 = 900;
    let root_has_returned = std::sync::Barrier::new(2);
    local_nodes(&[1, 1], |world| {
        if world.rank() == 1 {
            root_has_returned.wait();
        }
        for call in 0..CALLS {
            let mut block = vec![if world.rank() == 0 { call } else { 0 }; 2048];
            world.bcast(&mut block, 0)?;
            assert!(block.iter().all(|word| *word == call), "call {call}");
        }
        if world.rank() == 1 {
            return world.send(&[1u8], 0, 0);
        }
        root_has_returned.wait();
        // Rank 1 sends it after its last call.
        let mut answer = [0u8];
        world.irecv(&mut answer, 1, 0)?.wait_timeout(Duration::from_secs(60))
    })
    .expect("no rank waits for ever");
}

/// Rank 2 takes none of the messages of rank 0, which then asks rank 1 for permission to send. Rank
/// 1 has started the collective, and makes calls that use no connection of its own.
fn a_rank_without_credit_waits_for_no_call_of_a_rank_that_has_started() {
    const STARTS: usize = 1100;
    let has_started = std::sync::Barrier::new(2);
    let are_through = std::sync::Barrier::new(3);
    let body = |world: Communicator| {
        let rank = world.rank();
        let exhausts = world.split((rank != 1).then_some(0), 0)?;
        let pair = world.split((rank != 2).then_some(0), 0)?;
        let mut blocks = vec![vec![1u8; 8192]; STARTS];
        let mut sum = [0];
        let broadcasts = |blocks| start_broadcasts(exhausts.as_ref(), blocks);
        match (rank, &pair) {
            (0, Some(pair)) => {
                has_started.wait();
                let started = broadcasts(&mut blocks)?;
                pair.iallreduce(&[1], &mut sum, Op::Sum)?.wait()?;
                world.send(&[1u8], 1, 0)?;
                are_through.wait();
                tradewind::wait_all(started)?;
            }
            (1, Some(pair)) => {
                let request = pair.iallreduce(&[1], &mut sum, Op::Sum)?;
                has_started.wait();
                // Rank 0 sends it after the end of the collective.
                let mut word = [0u8];
                world.irecv(&mut word, 0, 0)?.wait_timeout(Duration::from_secs(60))?;
                request.wait()?;
                are_through.wait();
            }
            _ => {
                are_through.wait();
                tradewind::wait_all(broadcasts(&mut blocks)?)?;
                return Ok(());
            }
        }
        assert_eq!(sum, [2]);
        Ok(())
    };
    local_nodes(&[1, 1, 1], body).expect("no rank waits for ever");
}

fn start_broadcasts<'a>(
    comm: Option<&Communicator>,
    blocks: &'a mut [Vec<u8>],
) -> Result<Vec<tradewind::Request<'a>>> {
    let Some(comm) = comm else { return Ok(Vec::new()) };
    blocks.iter_mut().map(|block| comm.ibcast(block.as_mut_slice(), 0)).collect()
}

fn an_integer_divided_by_zero_is_told_and_the_rest_is_there() {
    local_nodes(&[2, 1], |world| -> Result<()> {
        let mut quotient = [0, 0];
        let outcome = world.allreduce(
            &[[48, 5], [4, 0], [3, 1]][world.rank() as usize],
            &mut quotient,
            Op::Quotient,
        );
        if world.rank() == 0 {
            let error = outcome.expect_err("an element is divided by 0").to_string();
            assert!(error.contains("division by zero"), "{error}");
            assert_eq!(quotient, [4, 0]);
        } else {
            outcome?;
            assert_eq!(quotient, [4, 0]);
        }
        Ok(())
    })
    .expect("the job is sound");
}

fn a_node_without_ranks_is_no_node() {
    let error = local_nodes(&[1, 0], |_| Ok(())).expect_err("no node is there").to_string();
    assert!(error.contains("node 1"), "{error}");
}

/// Runs a body on ranks whose errors are kept. Returns the text of each.
fn errors(
    nodes: &[u32],
    body: impl Fn(&Communicator) -> Result<()> + Sync,
) -> Vec<Option<tradewind::Error>> {
    let said =
        std::sync::Mutex::new((0..nodes.iter().sum()).map(|_: u32| None).collect::<Vec<_>>());
    // A rank that has its error does not leave before the others have theirs, which they would have
    // of that.
    let all = std::sync::Barrier::new(nodes.iter().sum::<u32>() as usize);
    local_nodes(nodes, |world| {
        if let Err(error) = body(&world) {
            said.lock().expect("no rank panics")[world.rank() as usize] = Some(error);
        }
        all.wait();
        Ok(())
    })
    .expect("errors are kept, not returned");
    said.into_inner().expect("no rank panics")
}

fn ranks_in_different_collectives_are_told() {
    let said = errors(&[1, 1], |world| match world.rank() {
        0 => world.allreduce(&[1u8], &mut [0], Op::Sum),
        _ => world.barrier(),
    });
    let texts: Vec<String> = said.iter().flatten().map(ToString::to_string).collect();
    let expected = [
        "rank 0 is in allreduce #0, rank 1 is in barrier #0",
        "rank 1 is in barrier #0, rank 0 is in allreduce #0",
    ];
    assert_eq!(texts, expected);
    let said = errors(&[1, 1], |world| {
        let mut sum = vec![0; 1 + world.rank() as usize];
        world.barrier()?;
        world.allreduce(&vec![1u8; sum.len()], &mut sum, Op::Sum)
    });
    for error in said {
        let text = error.expect("both have an error").to_string();
        assert!(
            text.contains("in allreduce #1: they differ in something else, such as size"),
            "{text}"
        );
    }
}

fn a_rank_that_leaves_is_named_by_its_number_in_the_communicator() {
    let gone = std::sync::Barrier::new(2);
    local_nodes(&[1, 2], |world| {
        let Some(part) = world.split((world.rank() != 1).then_some(0), -i64::from(world.rank()))?
        else {
            return Ok(());
        };
        // Rank 2 of the job is rank 0 of its part, and has left.
        if world.rank() == 2 {
            drop((part, world));
            gone.wait();
            return Ok(());
        }
        gone.wait();
        let error = part.barrier().expect_err("the other one is gone");
        assert_eq!(error.failed_rank(), Some(0), "{error}");
        Ok(())
    })
    .expect("the others are not to blame");
}

fn waiting_for_other_nodes_does_not_delay_the_own_node() {
    local_nodes(&[2, 1], |world| {
        let here = world.split_by_node()?;
        // More than there are slots for: some are started by later calls of each rank.
        let requests: Vec<_> = (0..300).map(|_| here.ibarrier()).collect::<Result<_>>()?;
        if world.rank() == 0 {
            world.barrier()?;
        }
        tradewind::wait_all(requests)?;
        if world.rank() != 0 {
            world.barrier()?;
        }
        Ok(())
    })
    .expect("no rank waits for ever");
}
