//! Messages that are selected by sender and tag, between ranks that are threads of one process; the
//! tests of real processes are in `point_to_point/processes.rs`.

mod communicators;
mod connections;
mod failures;
mod mixed;
mod processes;
mod reference;
mod requests;

use std::time::Duration;
use tradewind::{Communicator, Error, Result, Source, Tag, local, local_nodes, wait_all};

testing::tests![
    messages_of_all_lengths_arrive,
    order_and_tags_select_messages,
    a_rank_sends_to_itself,
    sends_and_receives_of_many_ranks,
    a_message_that_is_too_long_is_an_error_with_both_lengths,
    arguments_out_of_range_are_errors_at_the_call,
    communicators_keep_their_messages_apart,
    communicators_of_several_threads_keep_their_messages_apart,
    a_full_receiver_stops_its_sender_only,
    probes_find_what_receives_would_take,
    threads_of_two_ranks_share_a_communicator,
    random_messages_match_as_in_the_reference,
    random_messages_of_many_ranks_match_as_in_the_reference,
];

/// Ends the wait of a broken test.
const LIMIT: Duration = Duration::from_secs(20);

/// Around every limit: a line, several lines, an eager message, and far beyond.
const LENGTHS: [usize; 17] =
    [0, 1, 7, 8, 9, 47, 48, 49, 111, 112, 113, 4096, 16_367, 16_368, 16_369, 100_001, 3_000_000];

/// Runs a job on one node, then with its ranks on several: one on each, or one beside the others.
fn everywhere(ranks: u32, body: impl Fn(Communicator) -> Result<()> + Sync) -> Result<()> {
    local(ranks, &body)?;
    if ranks > 1 {
        local_nodes(&[1, ranks - 1], &body)?;
    }
    if (3..=4).contains(&ranks) {
        local_nodes(&vec![1; ranks as usize], &body)?;
    }
    Ok(())
}

fn bytes(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|place| (place * 31 + seed * 7 + place / 251) as u8).collect()
}

fn messages_of_all_lengths_arrive() {
    everywhere(2, |world| {
        let other = 1 - world.rank();
        for (number, length) in LENGTHS.into_iter().enumerate() {
            let mine = bytes(number + world.rank() as usize, length);
            let expected = bytes(number + other as usize, length);
            let mut theirs = vec![0; length + 5];
            // Blocking, in turn.
            if world.rank() == 0 {
                world.send(&mine, other, 1)?;
            }
            let status = world.recv(&mut theirs, other, 1)?;
            if world.rank() == 1 {
                world.send(&mine, other, 1)?;
            }
            assert_eq!((status.bytes(), status.source()), (length as u64, other));
            assert!(theirs[..length] == expected[..] && theirs[length..] == [0; 5]);
            // Nonblocking, at the same time.
            theirs.fill(0);
            let receive = world.irecv(&mut theirs, other, 2)?;
            let send = world.isend(&mine, other, 2)?;
            receive.wait()?;
            send.wait()?;
            assert!(theirs[..length] == expected[..] && theirs[length..] == [0; 5]);
            // Unexpected: the barrier comes first.
            theirs.fill(0);
            let send = world.isend(&mine, other, 3)?;
            world.ibarrier()?.wait()?;
            world.iprobe(other, 4)?;
            world.recv(&mut theirs, other, 3)?;
            send.wait()?;
            assert!(theirs[..length] == expected[..] && theirs[length..] == [0; 5]);
        }
        Ok(())
    })
    .expect("the job succeeds");
}

fn order_and_tags_select_messages() {
    everywhere(2, |world| {
        if world.rank() == 0 {
            for number in 0..100_u32 {
                world.send(&[number], 1, number % 3)?;
            }
            return Ok(());
        }
        let mut number = [0];
        for expected in (0..100).filter(|number| number % 3 == 1) {
            world.recv(&mut number, 0, 1)?;
            assert_eq!(number[0], expected);
        }
        for expected in (0..100).filter(|number| number % 3 != 1) {
            let status = world.recv(&mut number, Source::Any, Tag::Any)?;
            assert_eq!((number[0], status.tag()), (expected, expected % 3));
        }
        Ok(())
    })
    .expect("the job succeeds");
}

fn a_rank_sends_to_itself() {
    for ranks in [1, 3] {
        everywhere(ranks, |world| {
            let rank = world.rank();
            for length in LENGTHS {
                let mine = bytes(3, length);
                let mut theirs = vec![0; length];
                let send = world.isend(&mine, rank, 0)?;
                let status = world.recv(&mut theirs, Source::Any, 0)?;
                send.wait()?;
                assert_eq!((status.source(), &theirs), (rank, &mine));
                world.sendrecv(&mine, rank, 1, &mut theirs, rank, 1)?;
                assert_eq!(theirs, mine);
            }
            Ok(())
        })
        .expect("the job succeeds");
    }
}

fn sends_and_receives_of_many_ranks() {
    for ranks in [5, 24] {
        everywhere(ranks, |world| {
            let size = world.size();
            let mine: Vec<u32> = (0..size).map(|to| world.rank() * 1000 + to).collect();
            let mut theirs = vec![0; size as usize];
            let receives = theirs.iter_mut().zip(0..);
            let receives: Vec<_> = receives
                .map(|(place, from)| world.irecv(std::slice::from_mut(place), from, 9))
                .collect::<Result<_>>()?;
            for (number, to) in mine.iter().zip(0..) {
                world.send(std::slice::from_ref(number), to, 9)?;
            }
            wait_all(receives)?;
            let expected: Vec<u32> = (0..size).map(|from| from * 1000 + world.rank()).collect();
            assert_eq!(theirs, expected);
            Ok(())
        })
        .expect("the job succeeds");
    }
}

fn a_message_that_is_too_long_is_an_error_with_both_lengths() {
    everywhere(2, |world| {
        for length in [8, 200, 5000, 100_000] {
            if world.rank() == 0 {
                world.send(&bytes(1, length), 1, 0)?;
                world.send(&[1_u8], 1, 0)?;
                world.send(&bytes(1, length), 1, 0)?;
                world.send(&[2_u8], 1, 0)?;
                continue;
            }
            let is_right = |error: Error| match error {
                Error::Truncated { from, sent, capacity } => {
                    assert_eq!((from, sent, capacity), (0, length as u64, 5));
                }
                other => panic!("{other}"),
            };
            let mut short = [9_u8; 5];
            is_right(world.recv(&mut short, 0, 0).expect_err("it is too short"));
            assert_eq!(short[..], bytes(1, length)[..5]);
            let mut next = [0_u8];
            world.recv(&mut next, 0, 0)?;
            let mut request = world.irecv(&mut short, 0, 0)?;
            let error = loop {
                match request.test() {
                    Ok(false) => std::thread::yield_now(),
                    Ok(true) => panic!("it is too short"),
                    Err(error) => break error,
                }
            };
            is_right(error);
            world.recv(&mut next, 0, 0)?;
            assert_eq!(next, [2]);
        }
        Ok(())
    })
    .expect("the job succeeds");
}

fn arguments_out_of_range_are_errors_at_the_call() {
    everywhere(2, |world| {
        let is_right = |error: Error| {
            assert!(matches!(error, Error::Argument { .. }), "{error}");
            assert!(error.to_string().contains("is 2, it must be below 2"), "{error}");
        };
        is_right(world.send(&[1], 2, 0).expect_err("no such rank"));
        is_right(world.isend(&[1], 2, 0).expect_err("no such rank"));
        is_right(world.recv(&mut [1], 2, 0).expect_err("no such rank"));
        is_right(world.irecv(&mut [1], 2, Tag::Any).expect_err("no such rank"));
        is_right(world.probe(2, 0).expect_err("no such rank"));
        is_right(world.send_init::<u8>(1, 2, 0).expect_err("no such rank"));
        let send = world.send_init::<u64>(2, 1, 0)?;
        assert!(matches!(send.start(&[1]), Err(Error::BufferLength { .. })));
        assert!(matches!(world.try_send(&[0_u8; 1 << 20], 1, 0), Err(Error::Argument { .. })));
        // Every number is a tag.
        let mut number = [0];
        world.sendrecv(&[7], world.rank(), u32::MAX, &mut number, world.rank(), u32::MAX)?;
        assert_eq!(number, [7]);
        Ok(())
    })
    .expect("the job succeeds");
}

fn communicators_keep_their_messages_apart() {
    everywhere(4, |world| {
        let twin = world.dup()?;
        let half = world.split(Some(world.rank() % 2), 0)?.expect("every rank has a colour");
        let other = world.rank() ^ 2;
        world.send(&[1], other, 0)?;
        twin.send(&[2], other, 0)?;
        half.send(&[3], 1 - half.rank(), 0)?;
        let mut number = [0];
        half.recv(&mut number, Source::Any, Tag::Any)?;
        assert_eq!(number, [3]);
        twin.recv(&mut number, Source::Any, Tag::Any)?;
        assert_eq!(number, [2]);
        world.recv(&mut number, Source::Any, Tag::Any)?;
        assert_eq!(number, [1]);
        // Left in a communicator that ends.
        twin.send(&[4], other, 0)?;
        world.barrier()?;
        drop(twin);
        let next = world.dup()?;
        assert_eq!(next.iprobe(Source::Any, Tag::Any)?, None);
        Ok(())
    })
    .expect("the job succeeds");
}

fn communicators_of_several_threads_keep_their_messages_apart() {
    everywhere(2, |world| {
        let (first, second) = (world.dup()?, world.dup()?);
        let other = 1 - world.rank();
        for _ in 0..100 {
            let (first, second) = std::thread::scope(|scope| {
                let first = scope.spawn(|| first.dup());
                (second.dup(), first.join().expect("no panic"))
            });
            let (first, second) = (first?, second?);
            first.send(&[1], other, 0)?;
            world.barrier()?;
            assert_eq!(second.iprobe(Source::Any, Tag::Any)?, None);
            first.recv(&mut [0], other, 0)?;
        }
        Ok(())
    })
    .expect("the job succeeds");
}

fn a_full_receiver_stops_its_sender_only() {
    everywhere(3, |world| {
        const DONE: u32 = 1;
        const COUNT: u32 = 2;
        const EXTRA: u32 = 3;
        // More than the rings and the mebibytes that a receiver keeps for a sender.
        const SENT: u64 = 700;
        let mut number = [0_u64];
        match world.rank() {
            0 => {
                let blocks: Vec<[u64; 1024]> = (0..SENT).map(|number| [number; 1024]).collect();
                let mut pending = Vec::new();
                for block in &blocks {
                    pending.push(world.isend(block, 1, 0)?);
                }
                // A request of a message that the receiver does not take is not complete.
                assert!(!pending.last_mut().expect("there are some").test()?);
                // The blocks may leave credit for less than another block.
                let mut extra = 0_u64;
                while world.try_send(&[extra], 1, EXTRA)? {
                    extra += 1;
                }
                // Other ranks go on, in both directions.
                world.send(&[SENT], 2, DONE)?;
                world.recv(&mut number, 2, DONE)?;
                world.recv(&mut number, 1, DONE)?;
                for request in pending {
                    request.wait()?;
                }
                world.send(&[extra], 1, COUNT)?;
            }
            1 => {
                world.recv(&mut number, 2, DONE)?;
                world.send(&number, 0, DONE)?;
                let mut block = [0_u64; 1024];
                for expected in 0..SENT {
                    world.recv(&mut block, 0, 0)?;
                    assert_eq!(block, [expected; 1024]);
                }
                let mut extra = [0];
                world.recv(&mut extra, 0, COUNT)?;
                for expected in 0..extra[0] {
                    world.recv(&mut number, 0, EXTRA)?;
                    assert_eq!(number, [expected]);
                }
            }
            _ => {
                world.recv(&mut number, 0, DONE)?;
                world.send(&number, 1, DONE)?;
                world.send(&number, 0, DONE)?;
            }
        }
        Ok(())
    })
    .expect("the job succeeds");
}

fn probes_find_what_receives_would_take() {
    everywhere(2, |world| {
        if world.rank() == 0 {
            for length in LENGTHS {
                world.send(&bytes(1, length), 1, length as u32)?;
            }
            return world.send(&[3_u8; 3], 1, 1);
        }
        for length in LENGTHS {
            let status = world.probe(Source::Any, Tag::Any)?;
            assert_eq!((status.tag(), status.bytes()), (length as u32, length as u64));
            let message = world.mprobe(0, Tag::Any)?;
            assert_eq!(message.status(), status);
            assert_eq!(message.recv_vec::<u8>()?, bytes(1, length));
        }
        let message = world.mprobe(0, 1)?;
        assert!(world.improbe(0, Tag::Any)?.is_none());
        assert!(matches!(message.recv_vec::<u16>(), Err(Error::Argument { .. })));
        Ok(())
    })
    .expect("the job succeeds");
}

fn threads_of_two_ranks_share_a_communicator() {
    const THREADS: u32 = 3;
    const EACH: u64 = 300;
    everywhere(2, |world| {
        let other = 1 - world.rank();
        let run = |world: &Communicator, thread: u32| -> Result<()> {
            for number in 0..EACH {
                let length = (number as usize * 37 + thread as usize) % 400 + 1;
                let mine = vec![number; length];
                let mut theirs = vec![0; length];
                if (world.rank() + thread).is_multiple_of(2) {
                    world.send(&mine, other, thread)?;
                    world.recv(&mut theirs, other, thread)?;
                } else {
                    world.recv(&mut theirs, other, thread)?;
                    world.send(&mine, other, thread)?;
                }
                assert_eq!(theirs, mine);
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    scope.spawn({
                        let world = &world;
                        move || run(world, thread)
                    })
                })
                .collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
        })
    })
    .expect("the job succeeds");
}

fn random_messages_match_as_in_the_reference() {
    reference::run();
}

/// Eight and twelve ranks on two to four nodes.
fn random_messages_of_many_ranks_match_as_in_the_reference() {
    let nodes: [&[u32]; 5] = [&[4, 4], &[1, 2, 5], &[2, 2, 2, 2], &[5, 7], &[1, 3, 2, 6]];
    for (seed, ranks) in (100..).zip(nodes) {
        local_nodes(ranks, |world| reference::exchange(&world, seed, 4)).expect("the job succeeds");
    }
}
