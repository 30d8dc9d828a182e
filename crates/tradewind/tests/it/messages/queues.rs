//! Messages through Express and cache-line queues.

use super::{everywhere, name, word};
use queues::cache_line::{CacheLineHeader, CacheLineMessage};
use queues::express::ExpressMessage;
use std::time::Duration;
use tradewind::local_nodes;
use tradewind::messages::RecvError;

testing::tests![
    all_ranks_write_to_all_ranks,
    wide_messages_carry_their_bytes,
    several_threads_send_to_one_queue_of_another_node,
    senders_find_out_when_their_messages_are_taken,
    a_queue_that_is_full_stops_its_own_senders_only,
    the_event_of_a_sender_to_another_node_stays_that_of_the_node_service,
];

fn all_ranks_write_to_all_ranks() {
    const EACH: u64 = 300;
    for ranks in [1, 2, 4] {
        everywhere(ranks, |world| {
            let mut port = world.express(32)?;
            let ranks = world.size() as usize;
            let mut next = vec![0; ranks];
            let mut sent = vec![0; ranks];
            while sent.iter().chain(&next).any(|count| *count < EACH) {
                let before: u64 = sent.iter().chain(&next).sum();
                for (count, sender) in sent.iter_mut().zip(&port.senders) {
                    let message = ExpressMessage::of_number(name(world.rank()), 1, *count)
                        .expect("five bytes");
                    // A full queue does not keep this rank from receiving: all could wait for each
                    // other.
                    *count += u64::from(*count < EACH && sender.try_send(&message).is_ok());
                }
                while let Some(message) = port.receiver.try_recv()? {
                    let source = usize::from(message.source().number());
                    assert_eq!(message.number(), next[source], "from {source}");
                    next[source] += 1;
                }
                if sent.iter().chain(&next).sum::<u64>() == before {
                    std::thread::yield_now();
                }
            }
            assert!(next.iter().all(|count| *count == EACH));
            world.barrier()
        })
        .expect("the job succeeds");
    }
}

fn wide_messages_carry_their_bytes() {
    everywhere(3, |world| {
        let mut port = world.cache_lines(8)?;
        let text = format!("rank {} says: a line holds this", world.rank());
        let right = &port.senders[((world.rank() + 1) % world.size()) as usize];
        right.send(
            &CacheLineMessage::new(
                CacheLineHeader { source: name(world.rank()), handler: 9, tag: 0 },
                text.as_bytes(),
            )
            .expect("short enough"),
        )?;
        let message = port.receiver.recv()?;
        let left = (world.rank() + world.size() - 1) % world.size();
        assert_eq!(message.data(), format!("rank {left} says: a line holds this").as_bytes());
        world.barrier()
    })
    .expect("the job succeeds");
}

/// By the receiver, or by the node service on the way to another node.
fn senders_find_out_when_their_messages_are_taken() {
    everywhere(3, |world| {
        let mut port = world.express(8)?;
        let message = ExpressMessage::of_number(name(world.rank()), 1, 5).expect("five bytes");
        let sent: Vec<_> = (port.senders.iter())
            .map(|sender| sender.try_send_tracked(&message))
            .collect::<Result<_, _>>()?;
        for _ in 0..world.size() {
            port.receiver.recv()?;
        }
        for (sender, sent) in port.senders.iter().zip(sent) {
            assert!(sender.wait_taken(sent, None)?);
        }
        world.barrier()
    })
    .expect("the job succeeds");
}

fn several_threads_send_to_one_queue_of_another_node() {
    const THREADS: u16 = 3;
    const EACH: u64 = 2000;
    everywhere(3, |world| {
        let mut port = world.cache_lines(16)?;
        if world.rank() == 0 {
            let mut next = vec![0; usize::from(2 * THREADS)];
            for _ in 0..2 * EACH * u64::from(THREADS) {
                let line = port.receiver.recv()?;
                let next = &mut next[usize::from(line.header().tag)];
                assert_eq!(line.data().len() as u64, *next % 48);
                assert!(line.data().iter().all(|byte| *byte == *next as u8));
                *next += 1;
            }
            return world.barrier();
        }
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let sender = &port.senders[0];
                let tag = (world.rank() as u16 - 1) * THREADS + thread;
                scope.spawn(move || {
                    let header = CacheLineHeader { source: name(0), handler: 0, tag };
                    for number in 0..EACH {
                        let data = vec![number as u8; number as usize % 48];
                        let line = CacheLineMessage::new(header, &data).expect("it fits");
                        sender.send(&line).expect("rank 0 receives");
                    }
                });
            }
        });
        world.barrier()
    })
    .expect("the job succeeds");
}

fn a_queue_that_is_full_stops_its_own_senders_only() {
    // More than the ring, the credit and the outgoing queue hold.
    const MESSAGES: u64 = 30_000;
    everywhere(3, |world| {
        let mut port = world.express(64)?;
        let send_all =
            |to: usize| (0..MESSAGES).try_for_each(|number| port.senders[to].send(&word(number)));
        match world.rank() {
            0 => std::thread::scope(|scope| {
                let to_full = scope.spawn(|| send_all(1));
                send_all(2)?;
                assert_eq!(port.receiver.recv()?.number(), MESSAGES, "rank 2 has all of them");
                // Only now does rank 1 receive. Rank 0 leaves behind its last message.
                world.barrier()?;
                Ok(to_full.join().expect("no panic")?)
            }),
            1 => {
                world.barrier()?;
                for number in 0..MESSAGES {
                    assert_eq!(port.receiver.recv()?.number(), number);
                }
                let end = port.receiver.recv();
                assert!(matches!(end, Err(RecvError::RankExited { rank: 0 | 2 })), "{end:?}");
                Ok(())
            }
            _ => {
                for number in 0..MESSAGES {
                    assert_eq!(port.receiver.recv()?.number(), number);
                }
                port.senders[0].send(&word(MESSAGES))?;
                world.barrier()
            }
        }
    })
    .expect("the job succeeds");
}

fn the_event_of_a_sender_to_another_node_stays_that_of_the_node_service() {
    local_nodes(&[1, 1], |world| {
        let mut port = world.express(64)?;
        for number in 0..100 {
            // The node service sleeps.
            world.barrier()?;
            let event = shm::event::Event::new().expect("a descriptor");
            let sender = port.senders[1 - world.rank() as usize].clone().with_event(event);
            sender.send(&word(number))?;
            let found = port.receiver.recv_timeout(Duration::from_secs(30))?;
            assert_eq!(found.map(ExpressMessage::number), Some(number));
        }
        world.barrier()
    })
    .expect("the job succeeds");
}
