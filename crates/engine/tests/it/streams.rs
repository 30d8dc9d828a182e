//! Long blocking collectives in pieces, also among more ranks than this machine may have cores for.

use engine::Error;
use engine::communicator::Communicator;
use engine::flat::{Edge, EdgeKey, FlatCollective, Pattern, VariableBlocks};
use engine::node::{EngineKind, JobOptions, Node};
use engine::signature::{CallKind, Signature};
use engine::streams::BlockingInput;
use goal::arithmetic::{Arithmetic, DataType};
use std::sync::Arc;

/// Block lengths: little more than a cell holds, a piece and a rest, and more than a ring of many
/// ranks holds.
const BLOCKS: [usize; 3] = [5000, 33_001, 300_000];

/// Runs on so many ranks, each of which takes itself to have a core: with all messages in rings,
/// and with long ones read from the sender's memory.
fn ranks(count: u32, body: impl Fn(&Arc<Communicator>) -> Result<(), Error> + Sync) {
    for single_copy in [u64::MAX, 20_000] {
        ranks_of(&options(count, single_copy), &body);
    }
}

fn options(count: u32, single_copy: u64) -> JobOptions {
    let single_copy = Some(single_copy);
    JobOptions { cores: 16, single_copy, ..JobOptions::new(count, EngineKind::Peers) }
}

fn ranks_of(options: &JobOptions, body: impl Fn(&Arc<Communicator>) -> Result<(), Error> + Sync) {
    let node = Node::create(options).expect("a node");
    let members: Vec<_> =
        (0..options.ranks).map(|rank| node.join(rank).expect("a member")).collect();
    std::thread::scope(|scope| {
        let body = &body;
        let run = |member| scope.spawn(move || body(&Communicator::world(Arc::new(member))?));
        let threads: Vec<_> = members.into_iter().map(run).collect();
        for thread in threads {
            thread.join().expect("no rank panics").expect("no rank fails");
        }
    });
}

/// What stands at a place of the block from one rank to another.
fn byte(from: u32, to: u32, at: usize) -> u8 {
    (at as u8).wrapping_mul(13) ^ (from as u8) << 4 ^ to as u8
}

fn block(from: u32, to: u32, length: usize) -> impl Iterator<Item = u8> {
    (0..length).map(move |at| byte(from, to, at))
}

fn stream(
    communicator: &Communicator,
    pattern: Pattern,
    kind: CallKind,
    bytes: usize,
    input: BlockingInput<'_>,
    memory: &mut [u8],
) -> Result<(), Error> {
    let flat = FlatCollective::new(pattern, bytes as u64, Signature::new(kind, bytes as u64, 0));
    assert!(communicator.streams(&flat), "{pattern:?} of {bytes} bytes");
    Ok(communicator.stream(&flat, input, memory).expect("there is memory for streams")?)
}

#[test]
fn blocks_arrive_at_their_destinations_among_any_number_of_ranks() {
    for count in [2, 3, 5, 8] {
        ranks(count, |communicator| {
            let me = communicator.rank();
            let all = || 0..count;
            for length in BLOCKS {
                let whole = length * count as usize;
                let mine: Vec<u8> = all().flat_map(|to| block(me, to, length)).collect();
                let expected: Vec<u8> = all().flat_map(|from| block(from, me, length)).collect();
                let mut got = vec![0; whole];
                stream(
                    communicator,
                    Pattern::Exchange,
                    CallKind::Alltoall,
                    whole,
                    BlockingInput::Apart(&mine),
                    &mut got,
                )?;
                assert!(got == expected, "exchange, {count} ranks, {length} bytes a block");
                let mut both = mine.clone();
                stream(
                    communicator,
                    Pattern::Exchange,
                    CallKind::Alltoall,
                    whole,
                    BlockingInput::InOutput(0..whole),
                    &mut both,
                )?;
                assert!(both == expected, "in place, {count} ranks, {length} bytes a block");
                for root in all() {
                    let is_root = me == root;
                    let own: Vec<u8> = block(me, root, length).collect();
                    let mut gathered = vec![0; if is_root { whole } else { 0 }];
                    let pattern = Pattern::GatherTo { root };
                    stream(
                        communicator,
                        pattern,
                        CallKind::Gather,
                        length,
                        BlockingInput::Apart(&own),
                        &mut gathered,
                    )?;
                    assert!(
                        !is_root
                            || gathered
                                .iter()
                                .copied()
                                .eq(all().flat_map(|from| block(from, root, length)))
                    );
                    let given: &[u8] = if is_root { &mine } else { &[] };
                    let mut part = vec![0; length];
                    let pattern = Pattern::Scatter { root };
                    stream(
                        communicator,
                        pattern,
                        CallKind::Scatter,
                        whole,
                        BlockingInput::Apart(given),
                        &mut part,
                    )?;
                    assert!(
                        part.iter().copied().eq(block(root, me, length)),
                        "scatter, {count} ranks, root {root}"
                    );
                }
            }
            Ok(())
        });
    }
}

/// Messages in one direction, in the other, and in both, of lengths that pass in the ring, in a
/// buffer, and in more than a buffer holds. In each direction there are more in sequence than there
/// are buffers.
#[test]
fn messages_arrive_in_every_order_of_their_directions() {
    const LENGTHS: [usize; 6] = [100, 131_071, 131_072, 262_145, 524_288, 524_289];
    for count in [2, 4] {
        ranks(count, |communicator| {
            // The low bits of a linear congruential generator repeat soon, so the high ones count.
            let mut state = 1_u64;
            let mut random = |below: usize| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) as usize % below
            };
            for _ in 0..100 {
                let (direction, length) = (random(3), LENGTHS[random(LENGTHS.len())]);
                let size = |from: u32, to: u32| match direction {
                    0 if from < to => length,
                    1 if from > to => length,
                    2 if from != to => length,
                    _ => 0,
                };
                exchange_of(communicator, size, size)?;
            }
            Ok(())
        });
    }
}

/// Lengths of blocks whose sizes only their two ranks have: nothing, beside a tag, behind it, one
/// position, more, a buffer between two ranks, and more than a ring holds.
const SIZES: [usize; 8] = [0, 1, 40, 41, 4096, 4097, 200_000, 2_500_000];

/// Exchanges blocks of these lengths, by sender and receiver.
fn exchange_of(
    communicator: &Communicator,
    sent: impl Fn(u32, u32) -> usize,
    received: impl Fn(u32, u32) -> usize,
) -> Result<(), Error> {
    let me = communicator.rank();
    let all = || 0..communicator.size();
    let blocks = VariableBlocks::new(
        all().map(|to| sent(me, to) as u64),
        all().map(|from| received(from, me) as u64),
    );
    let call = Signature::new(CallKind::Alltoallv, 0, 0);
    let collective = FlatCollective {
        blocks: Some(Arc::new(blocks)),
        ..FlatCollective::new(Pattern::Exchange, 0, call)
    };
    assert!(communicator.streams(&collective));
    let input: Vec<u8> = all().flat_map(|to| block(me, to, sent(me, to))).collect();
    let expected: Vec<u8> = all().flat_map(|from| block(from, me, received(from, me))).collect();
    let mut memory = vec![0; expected.len()];
    communicator
        .stream(&collective, BlockingInput::Apart(&input), &mut memory)
        .expect("there is memory for streams")?;
    assert!(memory == expected);
    Ok(())
}

#[test]
fn blocks_of_sizes_that_two_ranks_have_arrive() {
    for count in [2, 3, 7] {
        ranks(count, |communicator| {
            for turn in 0..2 * SIZES.len() {
                let size = |from: u32, to: u32| {
                    SIZES[(turn + 3 * from as usize + 5 * to as usize) % SIZES.len()]
                };
                exchange_of(communicator, size, size)?;
            }
            // Many short pieces, as many as pass the end of every ring.
            for turn in 0..600 {
                exchange_of(communicator, |_, _| turn % 50, |_, _| turn % 50)?;
            }
            Ok(())
        });
    }
}

#[test]
fn a_block_of_another_length_is_an_error_of_its_receiver_alone() {
    ranks(2, |communicator| {
        for sent in SIZES {
            for expected in SIZES.into_iter().filter(|expected| *expected != sent) {
                // Rank 1 expects another length from rank 0.
                let size = |from: u32, to: u32| if from == 0 && to == 1 { sent } else { 77 };
                let hoped = |from: u32, to: u32| if from == 0 && to == 1 { expected } else { 77 };
                let outcome = exchange_of(communicator, size, hoped);
                if communicator.rank() == 0 {
                    outcome?;
                } else {
                    let Err(Error::BlockLength {
                        from: 0,
                        to: 1,
                        sent: found,
                        expected: wanted,
                        ..
                    }) = outcome
                    else {
                        panic!("{outcome:?}");
                    };
                    assert_eq!((found, wanted), (sent as u64, expected as u64));
                }
                exchange_of(communicator, |_, _| 9, |_, _| 9)?;
            }
        }
        Ok(())
    });
}

#[test]
fn streams_of_many_communicators_leave_memory() {
    const ARENA_BYTES: u64 = 32 << 20;
    let options =
        JobOptions { cores: 16, arena_bytes: ARENA_BYTES, ..JobOptions::new(2, EngineKind::Peers) };
    ranks_of(&options, |world| {
        let mut communicators = Vec::new();
        let mut streamed = 0;
        for _ in 0..12 {
            let communicator = world.split(Some(0), 0)?.expect("all ranks have the colour");
            let blocks = VariableBlocks::new([8; 2], [8; 2]);
            let collective = FlatCollective {
                blocks: Some(Arc::new(blocks)),
                ..FlatCollective::new(
                    Pattern::Exchange,
                    0,
                    Signature::new(CallKind::Alltoallv, 0, 0),
                )
            };
            let input = BlockingInput::Apart(&[1; 16]);
            let outcome = communicator.stream(&collective, input, &mut [0; 16]);
            streamed += u32::from(outcome.transpose()?.is_some());
            communicators.push(communicator);
        }
        assert!((1..12).contains(&streamed), "{streamed} communicators stream");
        world.allocate(ARENA_BYTES / 5, 64)?;
        Ok(())
    });
}

#[test]
fn a_mismatch_in_the_first_stream_leaves_ranks_able_to_agree() {
    ranks(2, |communicator| {
        let call = Signature::new(CallKind::Bcast, 100_000, 0);
        let outcome = if communicator.rank() == 0 {
            let barrier =
                FlatCollective::new(Pattern::Barrier, 0, Signature::new(CallKind::Barrier, 0, 0));
            communicator.run_flat(&barrier, &[], &mut []).map_err(Error::from)
        } else {
            let flat = FlatCollective::new(Pattern::Broadcast { root: 0 }, 100_000, call);
            communicator
                .stream(&flat, BlockingInput::Apart(&[]), &mut vec![0; 100_000])
                .expect("there is memory for streams")
                .map_err(Error::from)
        };
        assert!(matches!(outcome, Err(Error::Mismatch { .. })), "{outcome:?}");
        // Their next streams are those of the same calls again.
        let mut memory = vec![0; 100_000];
        let flat = FlatCollective::new(Pattern::Broadcast { root: 0 }, 100_000, call);
        let (given, into): (Vec<u8>, &mut [u8]) = if communicator.rank() == 0 {
            (vec![5; 100_000], &mut [])
        } else {
            (Vec::new(), &mut memory)
        };
        communicator
            .stream(&flat, BlockingInput::Apart(&given), into)
            .expect("there is memory for streams")?;
        assert!(communicator.rank() == 0 || memory.iter().all(|byte| *byte == 5));
        Ok(())
    });
}

#[test]
fn neighbours_whose_tags_differ_find_out() {
    let outcomes = std::sync::Mutex::new(Vec::new());
    ranks(2, |communicator| {
        let me = communicator.rank();
        let other = 1 - communicator.rank();
        // Both send with tag 1; rank 1 expects tag 2.
        let destinations = Arc::from([EdgeKey::new(other, 1)]);
        let sources = Arc::from([Some(Edge { rank: other, tag: 1 + me, number: 0 })]);
        let blocks = VariableBlocks::between_neighbors([50_000], [50_000], sources, destinations);
        let call = Signature::new(CallKind::NeighborAlltoall, 50_000, 0);
        let flat = FlatCollective {
            blocks: Some(Arc::new(blocks)),
            ..FlatCollective::new(Pattern::Neighbors, 0, call)
        };
        assert!(communicator.streams(&flat));
        let outcome =
            communicator.stream(&flat, BlockingInput::Apart(&[1; 50_000]), &mut vec![0; 50_000]);
        outcomes
            .lock()
            .expect("no rank panics")
            .push((me, outcome.expect("there is memory for streams").map_err(Error::from)));
        Ok(())
    });
    let outcomes = outcomes.into_inner().expect("no rank panics");
    let (_, of_rank_1) = outcomes.iter().find(|(rank, _)| *rank == 1).expect("it has come back");
    assert!(matches!(of_rank_1, Err(Error::MissingEdge { from: 0, to: 1, .. })), "{of_rank_1:?}");
}

#[test]
fn neighbours_that_count_different_edges_for_one_block_find_out() {
    ranks(2, |communicator| {
        let me = communicator.rank();
        let other = 1 - me;
        // Rank 0 sends its block along two edges; rank 1 expects it along `expected` ones.
        for expected in [2, 1] {
            let edge = |number| Some(Edge { rank: other, tag: 0, number });
            let (sources, destinations) = match me {
                0 => (vec![edge(0)], vec![EdgeKey::new(other, 0); 2]),
                _ => ((0..expected).map(edge).collect(), vec![EdgeKey::new(other, 0)]),
            };
            let received = vec![50_000; sources.len()];
            let blocks = VariableBlocks::gathered_from_neighbors(
                50_000,
                received.iter().copied(),
                sources.into(),
                destinations.into(),
            );
            let call = Signature::new(CallKind::NeighborAllgather, 50_000, 0);
            let collective = FlatCollective {
                blocks: Some(Arc::new(blocks)),
                ..FlatCollective::new(Pattern::Neighbors, 0, call)
            };
            assert!(communicator.streams(&collective));
            let mine = vec![me as u8 + 1; 50_000];
            let mut memory = vec![0; 50_000 * received.len()];
            let outcome =
                communicator.stream(&collective, BlockingInput::Apart(&mine), &mut memory);
            let outcome = outcome.expect("there is memory for streams").map_err(Error::from);
            if expected == 2 {
                outcome?;
                assert!(memory.iter().all(|byte| *byte == other as u8 + 1));
            } else if me == 1 {
                assert!(matches!(outcome, Err(Error::MissingEdge { from: 0, to: 1, .. })));
            }
        }
        Ok(())
    });
}

#[test]
fn messages_arrive_where_the_kernel_refuses_access_to_private_memory() {
    for refused in [vec![0], vec![1], vec![0, 1, 2]] {
        let count = 2.max(refused.len() as u32);
        ranks_of(&options(count, 1), |communicator| {
            let me = communicator.rank();
            if refused.contains(&me) {
                testing::forbid_process_memory();
            }
            for turn in 0..4 {
                // In both directions, in one, and with a reduction.
                let length = 100_000 + turn;
                exchange_of(communicator, |_, _| length, |_, _| length)?;
                let size = |from: u32, _| if from == 0 { 200_000 } else { 0 };
                exchange_of(communicator, size, size)?;
                if communicator.size() == 2 {
                    let mine = vec![me as u8 + 1; 50_000];
                    let mut sum = vec![0; mine.len()];
                    let call = Signature::new(CallKind::Allreduce, mine.len() as u64, 0);
                    let arithmetic = Some((Arithmetic::Add, DataType::U8));
                    let collective = FlatCollective {
                        arithmetic,
                        ..FlatCollective::new(Pattern::Reduce, mine.len() as u64, call)
                    };
                    let input = BlockingInput::Apart(&mine);
                    communicator.stream(&collective, input, &mut sum).expect("memory")?;
                    assert!(sum.iter().all(|element| *element == 3));
                }
            }
            Ok(())
        });
    }
}
