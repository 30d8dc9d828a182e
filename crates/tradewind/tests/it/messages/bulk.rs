//! Bulk connections, on one node and between nodes.

use super::everywhere;
use std::time::{Duration, Instant};
use tradewind::messages::{BulkEnd, BulkError, DEFAULT_STAGING_BYTES, Path, Policy};
use tradewind::{Communicator, local_nodes};

testing::tests![
    a_bulk_link_carries_messages_of_any_length_one_way,
    a_bulk_message_longer_than_the_buffer_stays_available,
    a_bulk_message_that_was_given_up_counts_as_never_sent,
    a_receiver_waits_for_no_message_that_was_given_up,
    bulk_links_between_nodes_have_no_direct_path,
    a_receive_that_times_out_within_a_message_is_continued,
];

fn message(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index % 251) as u8).collect()
}

fn a_bulk_link_carries_messages_of_any_length_one_way() {
    let body = |world: Communicator| {
        for (from, to, staging) in [(2, 0, DEFAULT_STAGING_BYTES), (0, 1, 4096), (1, 2, 65_536)] {
            let mut end = world.bulk(from, to, staging)?;
            for length in [0, 1, 8, 5000, 0, 16_368, 16_376, 65_536, 1 << 20] {
                let message = message(length);
                match &mut end {
                    Some(BulkEnd::Sender(sender)) if length == 8 => {
                        let (seven, sent) = sender.send_while(&message, || 7);
                        sent?;
                        assert_eq!(seven, 7);
                    }
                    Some(BulkEnd::Sender(sender)) => _ = sender.send(&message)?,
                    Some(BulkEnd::Receiver(receiver)) if length == 5000 => {
                        assert!(receiver.recv_with(|bytes| bytes == message)?);
                    }
                    Some(BulkEnd::Receiver(receiver)) => {
                        let mut buffer = vec![255; length + 1];
                        let received = receiver.recv(&mut buffer)?;
                        assert_eq!(received.bytes, length);
                        assert!(buffer[..length] == message, "{length} bytes");
                        assert_eq!(buffer[length], 255);
                    }
                    None => assert!(world.rank() != from && world.rank() != to),
                }
            }
            world.barrier()?;
        }
        let error = world.bulk(1, 1, DEFAULT_STAGING_BYTES).expect_err("a link has two ends");
        assert!(error.to_string().contains("two ranks"), "{error}");
        assert!(world.bulk(0, 1, 0).is_err(), "no staging area");
        world.barrier()
    };
    everywhere(3, body).expect("the job succeeds");
    local_nodes(&[2, 1], body).expect("the job succeeds");
    local_nodes(&[2, 2], body).expect("the job succeeds");
    local_nodes(&[1, 1, 1, 1], body).expect("the job succeeds");
}

fn a_bulk_message_longer_than_the_buffer_stays_available() {
    everywhere(2, |world| {
        match world.bulk(0, 1, 4096)? {
            Some(BulkEnd::Sender(mut sender)) => {
                for length in [100, 40_000] {
                    sender.send(&message(length))?;
                }
            }
            Some(BulkEnd::Receiver(mut receiver)) => {
                for length in [100, 40_000] {
                    let error = receiver.recv(&mut [0; 99]).expect_err("too short");
                    let expected = (length as u64, 99);
                    assert!(
                        matches!(error, BulkError::TooLong { bytes, capacity, .. }
                        if (bytes, capacity) == expected),
                        "{error}"
                    );
                    let mut buffer = vec![0; length];
                    receiver.recv(&mut buffer)?;
                    assert!(buffer == message(length));
                }
            }
            None => {}
        }
        world.barrier()
    })
    .expect("the job succeeds");
}

fn a_bulk_message_that_was_given_up_counts_as_never_sent() {
    everywhere(2, |world| {
        let end = world.bulk(0, 1, 4096)?;
        if let Some(BulkEnd::Sender(sender)) = end {
            let mut sender = sender;
            let long = message(4 << 20);
            // The policy keeps one node from a direct transfer, which has no pieces.
            sender.set_policy(Policy::Staged);
            let error = sender.send_timeout(&long, Duration::from_millis(30)).expect_err("full");
            assert!(matches!(error, BulkError::Timeout { .. }), "{error}");
            let soon = Instant::now() + Duration::from_millis(30);
            let error = sender.send_deadline(&long, soon).expect_err("full");
            assert!(matches!(error, BulkError::Timeout { .. }), "{error}");
            world.barrier()?;
            sender.send(&message(70_000))?;
            sender.send(&[])?;
            return world.barrier();
        }
        world.barrier()?;
        if let Some(BulkEnd::Receiver(mut receiver)) = end {
            let mut buffer = vec![0; 4 << 20];
            assert_eq!(receiver.recv(&mut buffer)?.bytes, 70_000);
            assert!(buffer[..70_000] == message(70_000));
            assert_eq!(receiver.recv(&mut buffer)?.bytes, 0);
            let error = receiver.recv_timeout(&mut buffer, Duration::from_millis(5));
            assert!(matches!(error, Err(BulkError::Timeout { .. } | BulkError::Closed { .. })));
        }
        world.barrier()
    })
    .expect("the job succeeds");
}

/// Nothing follows the message until the receiver has timed out, and received the next one.
fn a_receiver_waits_for_no_message_that_was_given_up() {
    everywhere(2, |world| {
        match world.bulk(0, 1, 4096)? {
            Some(BulkEnd::Sender(mut sender)) => {
                sender.set_policy(Policy::Staged);
                let long = message(4 << 20);
                let error = sender.send_timeout(&long, Duration::from_millis(30));
                let error = error.expect_err("the ring is full");
                assert!(matches!(error, BulkError::Timeout { .. }), "{error}");
                world.barrier()?;
                world.barrier()?;
                sender.send(&message(100))?;
                world.barrier()
            }
            Some(BulkEnd::Receiver(mut receiver)) => {
                world.barrier()?;
                let mut buffer = vec![0; 4 << 20];
                for _ in 0..2 {
                    let received = receiver.recv_timeout(&mut buffer, Duration::from_millis(10));
                    assert!(matches!(received, Err(BulkError::Timeout { .. })), "{received:?}");
                }
                world.barrier()?;
                // Not longer than the first piece of the one that was given up: it is no part of
                // it.
                assert_eq!(receiver.recv_with(<[u8]>::to_vec)?, message(100));
                world.barrier()
            }
            None => world.barrier(),
        }
    })
    .expect("the job succeeds");
}

fn bulk_links_between_nodes_have_no_direct_path() {
    local_nodes(&[1, 1], |world| {
        match world.bulk(0, 1, 4096)? {
            Some(BulkEnd::Sender(mut sender)) => {
                assert!(!sender.direct_path().exists());
                sender.set_policy(Policy::Direct);
                let error = sender.send(&[1]).expect_err("there is none").to_string();
                assert!(error.contains("on another node"), "{error}");
                sender.set_policy(Policy::Automatic);
                assert_eq!(sender.send(&[1])?, Path::Carried);
            }
            Some(BulkEnd::Receiver(mut receiver)) => {
                assert!(!receiver.direct_path().exists());
                assert_eq!(receiver.recv(&mut [0])?.path, Path::Carried);
            }
            None => {}
        }
        world.barrier()
    })
    .expect("the job succeeds");
}

fn a_receive_that_times_out_within_a_message_is_continued() {
    local_nodes(&[1, 1], |world| {
        match world.bulk(0, 1, 4096)? {
            // Longer than what fits between the nodes, so that it is sent while it is received.
            Some(BulkEnd::Sender(mut sender)) => {
                for length in [20_000, 5, 200_000] {
                    sender.send(&message(length))?;
                }
            }
            Some(BulkEnd::Receiver(mut receiver)) => {
                for length in [20_000, 5, 200_000] {
                    let mut buffer = vec![0; length];
                    let received = loop {
                        match receiver.recv_timeout(&mut buffer, Duration::from_millis(1)) {
                            Err(BulkError::Timeout { .. }) => std::thread::yield_now(),
                            other => break other?,
                        }
                    };
                    assert_eq!(received.bytes, length);
                    assert!(buffer == message(length));
                }
            }
            None => {}
        }
        world.barrier()
    })
    .expect("the job succeeds");
}
