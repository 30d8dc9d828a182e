//! Messages that are selected by sender and tag, between ranks that are threads of one process; the
//! tests of real processes are in `point_to_point/processes.rs`.

mod processes;
mod reference;

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tradewind::{
    Communicator, Error, Op, Pending, RecvRequest, Result, Source, Tag, local, test_any, wait_all,
    wait_any,
};

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
    dropped_requests_lose_nothing_else,
    messages_of_dropped_requests_arrive_after_the_end_of_their_rank,
    ranks_end_whose_dropped_messages_nobody_receives,
    a_forgotten_request_is_sound,
    cancelled_receives_take_nothing,
    synchronous_sends_wait_for_their_receive,
    probes_find_what_receives_would_take,
    requests_of_several_kinds_are_waited_for_together,
    a_receive_completes_in_pieces_of_waiting,
    posted_long_receives_complete_while_others_are_waited_for,
    long_messages_arrive_while_their_receiver_waits_for_a_collective,
    a_rank_that_has_left_is_an_error_for_its_partners_only,
    threads_of_two_ranks_share_a_communicator,
    messages_arrive_where_no_process_reads_its_own_memory,
    unread_messages_of_a_failed_rank_end_their_receives,
    a_matched_receive_ignores_the_failures_of_other_ranks,
    tests_of_requests_find_a_failed_rank,
    random_messages_match_as_in_the_reference,
];

/// Ends the wait of a broken test.
const LIMIT: Duration = Duration::from_secs(20);

/// Around every limit: a line, several lines, an eager message, and far beyond.
const LENGTHS: [usize; 17] =
    [0, 1, 7, 8, 9, 47, 48, 49, 111, 112, 113, 4096, 16_367, 16_368, 16_369, 100_001, 3_000_000];

fn bytes(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|place| (place * 31 + seed * 7 + place / 251) as u8).collect()
}

fn messages_of_all_lengths_arrive() {
    local(2, |world| {
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
    local(2, |world| {
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
        local(ranks, |world| {
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
        local(ranks, |world| {
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
    local(2, |world| {
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
    local(2, |world| {
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
    local(4, |world| {
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
    local(2, |world| {
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
    local(3, |world| {
        const DONE: u32 = 1;
        // More than the ring and the mebibyte that a receiver keeps for a sender.
        const SENT: u64 = 200;
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
                assert!(!world.try_send(&[SENT], 1, 0)?);
                // Other ranks go on, in both directions.
                world.send(&[SENT], 2, DONE)?;
                world.recv(&mut number, 2, DONE)?;
                world.recv(&mut number, 1, DONE)?;
                for request in pending {
                    request.wait()?;
                }
                assert!(world.try_send(&[SENT + 1], 1, 2)?);
            }
            1 => {
                world.recv(&mut number, 2, DONE)?;
                world.send(&number, 0, DONE)?;
                let mut block = [0_u64; 1024];
                for expected in 0..SENT {
                    world.recv(&mut block, 0, 0)?;
                    assert_eq!(block, [expected; 1024]);
                }
                world.recv(&mut number, 0, 2)?;
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

fn dropped_requests_lose_nothing_else() {
    local(2, |world| {
        for length in [8, 5000, 200_000] {
            if world.rank() == 0 {
                // The message is delivered, although its buffer is gone.
                let mut buffer = bytes(5, length);
                drop(world.isend(&buffer, 1, 0)?);
                buffer.fill(0xee);
                drop(buffer);
                world.recv(&mut [0_u8], 1, 1)?;
                // The receive that it matches is dropped: only the second one arrives.
                let first = bytes(6, length);
                let send = world.isend(&first, 1, 0)?;
                world.send(&bytes(7, length), 1, 0)?;
                send.wait()?;
                continue;
            }
            let mut buffer = vec![0; length];
            drop(world.irecv(&mut buffer, 0, 0)?);
            world.recv(&mut buffer, 0, 0)?;
            assert_eq!(buffer, bytes(5, length));
            let mut receive = world.irecv(&mut buffer, 0, 0)?;
            assert!(!receive.test()?);
            world.send(&[1_u8], 0, 1)?;
            // Matched, but not received.
            let mut other = vec![0; length];
            let second = world.irecv(&mut other, 0, 0)?;
            second.wait()?;
            drop(receive);
            assert_eq!(other, bytes(7, length));
        }
        Ok(())
    })
    .expect("the job succeeds");
}

fn messages_of_dropped_requests_arrive_after_the_end_of_their_rank() {
    let long = bytes(1, 1 << 20);
    for _ in 0..10 {
        local(2, |world| {
            if world.rank() == 0 {
                drop(world.isend(&long, 1, 0)?);
                return Ok(());
            }
            // The bytes come through the ring, in pieces.
            testing::forbid_process_memory();
            let mut buffer = vec![0; long.len()];
            world.recv(&mut buffer, 0, 0)?;
            assert!(buffer == long);
            Ok(())
        })
        .expect("the job succeeds");
    }
}

fn ranks_end_whose_dropped_messages_nobody_receives() {
    local(3, |world| {
        let long = bytes(1, 100_000);
        for to in 0..world.size() {
            drop(world.isend(&long, to, 0)?);
            drop(world.issend(&[1_u8], to, 0)?);
        }
        Ok(())
    })
    .expect("the job succeeds");
}

fn a_forgotten_request_is_sound() {
    local(2, |world| {
        for length in [16, 6000, 150_000] {
            let mut buffer = bytes(2, length);
            if world.rank() == 0 {
                std::mem::forget(world.isend(&buffer, 1, 0)?);
                world.send(&bytes(3, length), 1, 0)?;
            } else {
                std::mem::forget(world.irecv(&mut buffer, 0, 0)?);
                // What the forgotten receive has matched is never written.
                world.recv(&mut vec![0_u8; length], 0, 0)?;
                assert_eq!(buffer, bytes(2, length));
            }
        }
        Ok(())
    })
    .expect("the job succeeds");
}

fn cancelled_receives_take_nothing() {
    local(2, |world| {
        let other = 1 - world.rank();
        let mut buffer = [0_u32; 2];
        for _ in 0..100 {
            assert_eq!(world.irecv(&mut buffer, other, 0)?.cancel()?, None);
            assert_eq!(world.irecv(&mut buffer, Source::Any, Tag::Any)?.cancel()?, None);
        }
        world.barrier()?;
        world.send(&[5, 6], other, 0)?;
        world.probe(other, 0)?;
        let status = world.irecv(&mut buffer, other, 0)?.cancel()?;
        assert_eq!(status.map(|status| status.bytes()), Some(8));
        assert_eq!(buffer, [5, 6]);
        Ok(())
    })
    .expect("the job succeeds");
}

fn synchronous_sends_wait_for_their_receive() {
    local(2, |world| {
        for length in [0, 8, 48, 49, 5000, 100_000] {
            let message = bytes(1, length);
            let mut buffer = vec![0; length];
            if world.rank() == 0 {
                let mut send = world.issend(&message, 1, 0)?;
                world.send(&[0_u8], 1, 1)?;
                let mut go = [0_u8];
                world.recv(&mut go, 1, 2)?;
                assert!(!send.test()?, "nothing has been received");
                world.send(&[0_u8], 1, 3)?;
                send.wait()?;
                world.ssend(&message, 1, 0)?;
            } else {
                world.recv(&mut [0_u8], 0, 1)?;
                assert!(world.iprobe(0, 0)?.is_some());
                world.send(&[0_u8], 0, 2)?;
                world.recv(&mut [0_u8], 0, 3)?;
                world.recv(&mut buffer, 0, 0)?;
                assert_eq!(buffer, message);
                world.recv(&mut buffer, 0, 0)?;
            }
        }
        Ok(())
    })
    .expect("the job succeeds");
}

fn probes_find_what_receives_would_take() {
    local(2, |world| {
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

fn requests_of_several_kinds_are_waited_for_together() {
    local(2, |world| {
        let other = 1 - world.rank();
        let long = bytes(1, 300_000);
        let (mut number, mut buffer, mut sum) = ([0_u32], vec![0; 300_000], [0_u32]);
        for _ in 0..20 {
            let mut collective = world.iallreduce(&[1], &mut sum, Op::Sum)?;
            let mut short = world.irecv(&mut number, other, 0)?;
            let mut receive = world.irecv(&mut buffer, other, 1)?;
            let mut send = world.isend(&long, other, 1)?;
            world.send(&[7_u32], other, 0)?;
            let mut all: Vec<&mut dyn Pending> =
                vec![&mut collective, &mut short, &mut receive, &mut send];
            let mut complete = 0;
            while let Some(one) =
                test_any(&mut all)?.map_or_else(|| wait_any(&mut all), |one| Ok(Some(one)))?
            {
                all.remove(one);
                complete += 1;
            }
            drop(all);
            assert_eq!((complete, short.status().map(|status| status.bytes())), (4, Some(4)));
            drop((collective, short, receive, send));
            assert_eq!((number, sum, &buffer), ([7], [2], &long));
        }
        let collective = &mut world.ibarrier()? as &mut dyn Pending;
        wait_all([collective, &mut world.isend(&[1_u8], other, 5)?])?;
        world.recv(&mut [0_u8], other, 5).map(|_| ())
    })
    .expect("the job succeeds");
}

fn a_receive_completes_in_pieces_of_waiting() {
    local(2, |world| {
        for length in [8, 4000, 16_000, 500_000] {
            let expected = bytes(4, length);
            if world.rank() == 0 {
                world.recv(&mut [0_u8], 1, 1)?;
                world.send(&expected, 1, 0)?;
                continue;
            }
            let mut buffer = vec![0; length];
            let mut receive = world.irecv(&mut buffer, 0, 0)?;
            let error = receive.wait_timeout(Duration::from_millis(1)).expect_err("nothing sent");
            assert!(error.is_timeout() && error.to_string().contains("rank 0"), "{error}");
            world.send(&[1_u8], 0, 1)?;
            while !receive.test()? {
                std::thread::yield_now();
            }
            receive.wait()?;
            assert_eq!(buffer, expected);
        }
        Ok(())
    })
    .expect("the job succeeds");
}

/// The sender waits until its first message is read, which its receiver has posted and does not wait
/// for.
fn posted_long_receives_complete_while_others_are_waited_for() {
    local(2, |world| {
        let long = bytes(1, 400_000);
        if world.rank() == 0 {
            world.send(&long, 1, 0)?;
            return world.send(&[1_u8], 1, 1);
        }
        let mut buffer = vec![0; long.len()];
        let receive = world.irecv(&mut buffer, 0, 0)?;
        world.recv(&mut [0_u8], 0, 1)?;
        receive.wait()?;
        assert_eq!(buffer, long);
        Ok(())
    })
    .expect("the job succeeds");
}

fn long_messages_arrive_while_their_receiver_waits_for_a_collective() {
    local(3, |world| {
        let long = bytes(1, 400_000);
        let mut buffer = vec![0; long.len()];
        for is_blocking in [true, false] {
            let receive = match world.rank() {
                0 => {
                    world.send(&long, 1, 0)?;
                    None
                }
                1 => Some(world.irecv(&mut buffer, 0, 0)?),
                _ => None,
            };
            if is_blocking {
                world.barrier()?;
            } else {
                world.ibarrier()?.wait()?;
            }
            let status = receive.map(RecvRequest::wait).transpose()?;
            assert!(status.is_none() || buffer == long);
        }
        Ok(())
    })
    .expect("the job succeeds");
}

fn a_rank_that_has_left_is_an_error_for_its_partners_only() {
    local(3, |world| {
        let mut number = [0_u32];
        if world.rank() == 2 {
            // Sent before it leaves, so received.
            return world.send(&[2_u32], 0, 0);
        }
        let other = 1 - world.rank();
        if world.rank() == 0 {
            world.recv(&mut number, 2, 0)?;
            assert_eq!(number, [2]);
        }
        let error = world.recv(&mut number, 2, 5).expect_err("it has left");
        assert_eq!(error.failed_rank(), Some(2), "{error}");
        let error = world.ssend(&[1_u32], 2, 5).expect_err("it has left");
        assert_eq!(error.failed_rank(), Some(2), "{error}");
        let receive = world.irecv(&mut number, Source::Any, Tag::Any)?;
        world.send(&[other], other, 1)?;
        assert_eq!(receive.wait()?.source(), other);
        Ok(())
    })
    .expect("the job succeeds");
}

fn threads_of_two_ranks_share_a_communicator() {
    const THREADS: u32 = 3;
    const EACH: u64 = 300;
    local(2, |world| {
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

/// Another thread of the sender continues the stream of bytes, in calls that do not hold its buffer.
fn messages_arrive_where_no_process_reads_its_own_memory() {
    local(2, |world| {
        testing::forbid_process_memory();
        let long = bytes(1, 1_000_000);
        if world.rank() == 1 {
            let mut buffer = vec![0; long.len()];
            for _ in 0..5 {
                buffer.fill(0);
                world.recv(&mut buffer, 0, 0)?;
                assert!(buffer == long);
            }
            return Ok(());
        }
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    assert_eq!(world.iprobe(1, 9).expect("no failure"), None);
                }
            });
            let outcome = (0..5).try_for_each(|_| world.send(&long, 1, 0));
            is_over.store(true, Ordering::Relaxed);
            outcome
        })
    })
    .expect("the job succeeds");
}

/// Of several receives from any source only the first reports the failure of a rank; one that has
/// matched a message of that rank reports it in any case.
fn unread_messages_of_a_failed_rank_end_their_receives() {
    let long = bytes(1, 100_000);
    let has_sent = Barrier::new(2);
    let outcome = local(3, |world| {
        match world.rank() {
            0 => {
                testing::forbid_process_memory();
                has_sent.wait();
                let mut buffer = vec![0; long.len()];
                for _ in 0..2 {
                    let mut receive = world.irecv(&mut buffer, Source::Any, 0)?;
                    let error = receive.wait_timeout(LIMIT).expect_err("its sender has failed");
                    assert_eq!(error.failed_rank(), Some(2), "{error}");
                }
                world.send(&[1_u8], 1, 1)?;
                assert_eq!(world.recv(&mut buffer, Source::Any, 0)?.source(), 1);
            }
            1 => {
                world.recv(&mut [0_u8], 0, 1)?;
                world.send(&[2_u8], 0, 0)?;
            }
            _ => {
                let _first = world.isend(&long, 0, 0)?;
                let _second = world.isend(&long, 0, 0)?;
                has_sent.wait();
                panic!("this rank fails");
            }
        }
        Ok(())
    });
    assert!(matches!(outcome, Err(Error::Panicked { rank: 2, .. })), "{outcome:?}");
}

fn a_matched_receive_ignores_the_failures_of_other_ranks() {
    let long = bytes(1, 100_000);
    // Rank 1 is in no call while rank 2 fails.
    let gate = Barrier::new(2);
    let outcome = local(3, |world| {
        match world.rank() {
            0 => {
                testing::forbid_process_memory();
                gate.wait();
                let mut buffer = vec![0; long.len()];
                let mut receive = world.irecv(&mut buffer, Source::Any, 0)?;
                assert!(!receive.test()?, "its bytes are requested");
                world.send(&[1_u8], 2, 1)?;
                let error = world.recv(&mut [0_u8], 2, 1).expect_err("it has failed");
                assert_eq!(error.failed_rank(), Some(2), "{error}");
                let error = receive.wait_timeout(Duration::from_millis(1)).expect_err("no bytes");
                assert!(error.is_timeout(), "{error}");
                gate.wait();
                assert_eq!(receive.wait()?.source(), 1);
                assert!(buffer == long);
            }
            1 => {
                let send = world.isend(&long, 0, 0)?;
                gate.wait();
                gate.wait();
                send.wait()?;
            }
            _ => {
                world.recv(&mut [0_u8], 0, 1)?;
                panic!("this rank fails");
            }
        }
        Ok(())
    });
    assert!(matches!(outcome, Err(Error::Panicked { rank: 2, .. })), "{outcome:?}");
}

fn tests_of_requests_find_a_failed_rank() {
    let outcome = local(3, |world| {
        let mut number = [0_u32];
        if world.rank() == 2 {
            panic!("this rank fails");
        }
        if world.rank() == 1 {
            world.recv(&mut number, 0, 0)?;
            return world.send(&number, 0, 0);
        }
        let fails = |test: &mut dyn FnMut() -> Result<bool>| {
            let error = loop {
                match test() {
                    Ok(false) => std::thread::yield_now(),
                    Ok(true) => panic!("there is no partner"),
                    Err(error) => break error,
                }
            };
            assert_eq!(error.failed_rank(), Some(2), "{error}");
        };
        let mut receive = world.irecv(&mut number, 2, Tag::Any)?;
        fails(&mut || receive.test());
        drop(receive);
        let mut from_any = world.irecv(&mut number, Source::Any, Tag::Any)?;
        fails(&mut || from_any.test());
        let mut send = world.issend(&[1_u32], 2, 0)?;
        fails(&mut || send.test());
        // The failed request, which still exists, does not take the next message.
        world.send(&[7_u32], 1, 0)?;
        let mut answer = [0_u32];
        world.recv(&mut answer, Source::Any, Tag::Any)?;
        assert_eq!(answer, [7]);
        drop(from_any);
        Ok(())
    });
    assert!(matches!(outcome, Err(Error::Panicked { rank: 2, .. })), "{outcome:?}");
}

fn random_messages_match_as_in_the_reference() {
    reference::run();
}
