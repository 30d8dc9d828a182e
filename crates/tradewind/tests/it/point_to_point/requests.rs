//! Requests of messages: dropped, forgotten, cancelled, and waited for with others.

use super::{bytes, everywhere};
use std::time::Duration;
use tradewind::{
    Op, Pending, RecvRequest, Source, Tag, test_all, test_any, test_some, wait_all, wait_any,
    wait_some,
};

testing::tests![
    dropped_requests_lose_nothing_else,
    sends_to_dropped_receives_complete_although_their_rank_leaves,
    messages_of_dropped_requests_arrive_after_the_end_of_their_rank,
    ranks_end_whose_dropped_messages_nobody_receives,
    a_forgotten_request_is_sound,
    cancelled_receives_take_nothing,
    synchronous_sends_wait_for_their_receive,
    requests_of_several_kinds_are_waited_for_together,
    all_are_complete_when_each_is,
    a_receive_completes_in_pieces_of_waiting,
    posted_long_receives_complete_while_others_are_waited_for,
    long_messages_arrive_while_their_receiver_waits_for_a_collective,
];

fn dropped_requests_lose_nothing_else() {
    everywhere(2, |world| {
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

/// The bytes of the dropped receive are on their way through rings or connections, which hold less.
fn sends_to_dropped_receives_complete_although_their_rank_leaves() {
    everywhere(2, |world| {
        testing::forbid_process_memory();
        let long = bytes(1, 5_000_000);
        if world.rank() == 0 {
            let first = world.isend(&long, 1, 0)?;
            world.send(&[1_u8], 1, 1)?;
            return first.wait().map(|_| ());
        }
        let mut buffer = vec![0; long.len()];
        let mut receive = world.irecv(&mut buffer, 0, 0)?;
        world.recv(&mut [0_u8], 0, 1)?;
        // It has matched, so the test requests the bytes.
        assert!(!receive.test()?);
        drop(receive);
        Ok(())
    })
    .expect("the job succeeds");
}

fn messages_of_dropped_requests_arrive_after_the_end_of_their_rank() {
    let long = bytes(1, 1 << 20);
    for _ in 0..10 {
        everywhere(2, |world| {
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
    everywhere(3, |world| {
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
    everywhere(2, |world| {
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
    everywhere(2, |world| {
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
    everywhere(2, |world| {
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

fn requests_of_several_kinds_are_waited_for_together() {
    everywhere(2, |world| {
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
    everywhere(2, |world| {
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
    everywhere(2, |world| {
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
    everywhere(3, |world| {
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

fn all_are_complete_when_each_is() {
    everywhere(2, |world| {
        if world.rank() == 0 {
            world.send(&[7_u64], 1, 2)?;
            world.recv(&mut [0_u8], 1, 0)?;
            return world.send(&[5_u64], 1, 1);
        }
        let mut values = [[0_u64]; 2];
        let [first, second] = &mut values;
        let mut requests = [world.irecv(first, 0, 1)?, world.irecv(second, 0, 2)?];
        assert_eq!(wait_some(&mut requests)?, [1]);
        assert!(!test_all(&mut requests)?);
        assert_eq!(test_some(&mut requests)?, [1]);
        world.send(&[0_u8], 0, 0)?;
        while !test_all(&mut requests)? {
            std::thread::yield_now();
        }
        assert_eq!(wait_some(&mut requests)?, [0, 1]);
        assert!(wait_some::<RecvRequest<'_>>(&mut [])?.is_empty() && test_all(&mut requests[..0])?);
        drop(requests);
        assert_eq!(values, [[5], [7]]);
        Ok(())
    })
    .expect("the messages arrive");
}
