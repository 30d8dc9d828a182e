//! Messages over the connections between the ranks, beside collectives, other threads and ranks
//! that do not receive.

use super::bytes;
use std::sync::Barrier;
use tradewind::{Source, local_nodes, wait_all};

testing::tests![
    long_messages_follow_broadcasts_that_the_connection_still_holds,
    threads_send_long_messages_by_one_connection,
    a_rank_leaves_beside_one_that_reads_nothing,
    a_wait_for_another_node_serves_the_own_one,
    a_thread_receives_from_another_one_of_its_rank,
];

fn long_messages_follow_broadcasts_that_the_connection_still_holds() {
    let begun = Barrier::new(2);
    local_nodes(&[1, 1], |world| {
        // Rank 1 reads nothing before.
        if world.rank() == 1 {
            begun.wait();
        }
        let mut buffers = vec![bytes(1, 120_000); 64];
        let mut runs = Vec::new();
        for buffer in &mut buffers {
            runs.push(world.ibcast(buffer, 0)?);
        }
        if world.rank() == 0 {
            begun.wait();
        }
        for number in 0..2 {
            let long = bytes(number, 1 << 20);
            if world.rank() == 0 {
                world.send(&long, 1, 7)?;
            } else {
                let mut received = vec![0; 1 << 20];
                world.recv(&mut received, 0, 7)?;
                assert!(received == long, "message {number}");
            }
        }
        wait_all(runs).map(drop)
    })
    .expect("the job is sound");
}

fn threads_send_long_messages_by_one_connection() {
    /// Messages of each thread: one length needs a request, the other is sent without one.
    const MESSAGES: [(usize, usize); 2] = [(8, 4 << 20), (32, 1 << 20)];
    local_nodes(&[1, 1], |world| {
        let world = &world;
        std::thread::scope(|scope| {
            for (tag, (count, length)) in MESSAGES.into_iter().enumerate() {
                scope.spawn(move || {
                    let expected = bytes(tag, length);
                    let mut received = vec![0; length];
                    for number in 0..count {
                        if world.rank() == 0 {
                            world.send(&expected, 1, tag as u32).expect("sent");
                            continue;
                        }
                        received.fill(0);
                        world.recv(&mut received, 0, tag as u32).expect("received");
                        assert!(received == expected, "message {number} of thread {tag}");
                    }
                });
            }
        });
        Ok(())
    })
    .expect("the job is sound");
}

/// The connection does not hold what rank 0 sends, and rank 1 computes until rank 0 has left.
fn a_rank_leaves_beside_one_that_reads_nothing() {
    let left = Barrier::new(2);
    local_nodes(&[1, 1], |world| {
        if world.rank() == 0 {
            for number in 0..3 {
                world.send(&bytes(number, 1 << 20), 1, 7)?;
            }
            drop(world);
        }
        left.wait();
        Ok(())
    })
    .expect("the job is sound");
}

/// Rank 1, beside rank 0, waits until rank 0 has taken its message; only then rank 2 sends what
/// rank 0 waits for.
fn a_wait_for_another_node_serves_the_own_one() {
    local_nodes(&[2, 1], |world| {
        let long = bytes(3, 3_000_000);
        let mut received = vec![0; long.len()];
        let mut one = [0_u8];
        match world.rank() {
            0 => {
                let near = world.irecv(&mut received, 1, 0)?;
                let far = world.irecv(&mut one, 2, 0)?;
                far.wait()?;
                near.wait()?;
                assert!(received == long);
            }
            1 => {
                world.send(&long, 0, 0)?;
                world.send(&[1_u8], 2, 0)?;
            }
            _ => {
                world.recv(&mut one, 1, 0)?;
                world.send(&one, 0, 0)?;
            }
        }
        Ok(())
    })
    .expect("the job is sound");
}

/// The first message of a rank to itself opens its ring; the next one completes the wait.
fn a_thread_receives_from_another_one_of_its_rank() {
    local_nodes(&[1, 1], |world| {
        let world = &world;
        let mut one = [0_u8];
        if world.rank() == 1 {
            world.recv(&mut one, 0, 9)?;
            return Ok(());
        }
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut one = [0_u8];
                world.recv(&mut one, Source::Any, 2).expect("a message");
                assert_eq!(one, [7]);
            });
            world.send(&[5_u8], 0, 1).expect("to itself");
            world.send(&[7_u8], 0, 2).expect("to itself");
        });
        world.recv(&mut one, 0, 1)?;
        assert_eq!(one, [5]);
        world.send(&one, 1, 9)
    })
    .expect("the job is sound");
}
