//! Ranks that leave or fail, and processes that cannot read memory, between ranks that are threads.

use super::{LIMIT, bytes, everywhere};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tradewind::{Error, Result, Source, Tag, local};

testing::tests![
    a_rank_that_has_left_is_an_error_for_its_partners_only,
    messages_arrive_where_no_process_reads_its_own_memory,
    unread_messages_of_a_failed_rank_end_their_receives,
    a_matched_receive_ignores_the_failures_of_other_ranks,
    tests_of_requests_find_a_failed_rank,
];

fn a_rank_that_has_left_is_an_error_for_its_partners_only() {
    everywhere(3, |world| {
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

/// Another thread of the sender continues the stream of bytes, in calls that do not hold its buffer.
fn messages_arrive_where_no_process_reads_its_own_memory() {
    everywhere(2, |world| {
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
    let barrier = Barrier::new(2);
    let outcome = local(3, |world| {
        match world.rank() {
            0 => {
                testing::forbid_process_memory();
                barrier.wait();
                let mut buffer = vec![0; long.len()];
                let mut receive = world.irecv(&mut buffer, Source::Any, 0)?;
                assert!(!receive.test()?, "its bytes are requested");
                world.send(&[1_u8], 2, 1)?;
                let error = world.recv(&mut [0_u8], 2, 1).expect_err("it has failed");
                assert_eq!(error.failed_rank(), Some(2), "{error}");
                let error = receive.wait_timeout(Duration::from_millis(1)).expect_err("no bytes");
                assert!(error.is_timeout(), "{error}");
                barrier.wait();
                assert_eq!(receive.wait()?.source(), 1);
                assert!(buffer == long);
            }
            1 => {
                let send = world.isend(&long, 0, 0)?;
                barrier.wait();
                barrier.wait();
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
            let again = test();
            assert!(matches!(again, Err(Error::RequestFailed)), "{again:?}");
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
