//! Tag-On, on one node and between nodes.

use super::{everywhere, name};
use std::time::Duration;
use tradewind::messages::{CacheLineHeader, SendError, TagOnError, TagOnPort};
use tradewind::{Communicator, Error, Result, local_nodes};

testing::tests![
    every_rank_multicasts_to_all_and_reads_every_byte,
    a_multicast_between_nodes_stores_its_data_once_on_each,
    a_receiver_that_holds_a_buffer_blocks_its_sender_only,
    a_receiver_that_is_gone_keeps_the_others_from_nothing,
    data_of_a_rank_that_drops_its_port_are_freed_for_the_others,
    a_receiver_dropped_amid_messages_keeps_no_buffer,
    data_that_a_rank_holds_stay_when_it_drops_its_port,
    a_rank_that_is_named_twice_gets_two_messages,
    tag_on_is_refused_on_all_ranks,
];

fn header(rank: u32, tag: u16) -> CacheLineHeader {
    CacheLineHeader { source: name(rank), handler: 0, tag }
}

/// Sends data of a length to ranks, once a buffer is free.
fn send(port: &TagOnPort, rank: u32, number: u32, length: usize, to: &[u32]) -> Result<()> {
    let mut buffer = loop {
        match port.pool.take() {
            Ok(buffer) => break buffer,
            Err(TagOnError::Exhausted { .. }) => std::thread::yield_now(),
            Err(other) => return Err(other.into()),
        }
    };
    buffer[..length].fill(number as u8 ^ rank as u8);
    let data = buffer.finish(length as u64);
    let note = number.to_le_bytes();
    Ok(port.sender.send(&data, to, header(rank, 7), &note)?)
}

fn length(number: u32) -> usize {
    [0, 1, 20_000, number as usize * 37 % 20_001][number as usize % 4]
}

fn every_rank_multicasts_to_all_and_reads_every_byte() {
    const MESSAGES: u32 = 60;
    let body = |world: Communicator| {
        let mut port = world.tag_on(16, 3, 20_000)?;
        let (rank, size) = (world.rank(), world.size());
        let all: Vec<u32> = (0..size).collect();
        let TagOnPort { pool, sender, receiver } = &mut port;
        std::thread::scope(|scope| {
            let sent = scope.spawn(move || {
                for number in 0..MESSAGES {
                    let mut buffer = loop {
                        match pool.take() {
                            Ok(buffer) => break buffer,
                            Err(_) => std::thread::yield_now(),
                        }
                    };
                    let length = length(number);
                    buffer[..length].fill(number as u8 ^ rank as u8);
                    let data = buffer.finish(length as u64);
                    sender.send(&data, &all, header(rank, 7), &number.to_le_bytes())?;
                }
                Ok::<_, TagOnError>(())
            });
            let mut next = vec![0; size as usize];
            for _ in 0..MESSAGES * size {
                let message = receiver.recv()?;
                let from = message.header().source.number();
                assert_eq!(message.header(), header(from.into(), 7));
                let number = u32::from_le_bytes(message.note().try_into().expect("4 bytes"));
                assert_eq!(number, next[usize::from(from)], "the order of rank {from}");
                next[usize::from(from)] += 1;
                assert_eq!(message.data.len(), length(number));
                assert!(message.data.iter().all(|byte| *byte == number as u8 ^ from as u8));
            }
            sent.join().expect("no panic")?;
            assert!(receiver.try_recv()?.is_none(), "each once");
            Ok::<_, Error>(())
        })?;
        world.barrier()?;
        assert!(port.pool.is_idle());
        world.barrier()
    };
    everywhere(3, body).expect("the job succeeds");
    local_nodes(&[2, 1], body).expect("the job succeeds");
    local_nodes(&[2, 2], body).expect("the job succeeds");
    local_nodes(&[1, 1, 1, 1], body).expect("the job succeeds");
}

fn a_multicast_between_nodes_stores_its_data_once_on_each() {
    local_nodes(&[1, 3], |world| {
        let here = world.split_by_node()?;
        let mut port = world.tag_on(16, 1, 1000)?;
        if world.rank() == 0 {
            send(&port, 0, 5, 1000, &[1, 2, 3])?;
            // The only buffer on the other node is in use until the last of its ranks has dropped
            // it.
            let data = port.pool.take()?.finish(9);
            let sent =
                port.sender.send_timeout(&data, &[1], header(0, 0), &[], Duration::from_millis(20));
            assert!(matches!(sent, Err(TagOnError::Exhausted { buffers: 1 })), "{sent:?}");
            world.barrier()?;
            port.sender.send(&data, &[1], header(0, 0), &[])?;
            return world.barrier();
        }
        let message = port.receiver.recv()?;
        assert_eq!(message.data[..], [5; 1000]);
        // The ranks of a node read the same memory, which is mapped at one place in this process.
        let at = message.data.as_ptr() as u64;
        let mut all = vec![0; here.size() as usize];
        here.allgather(&[at], &mut all)?;
        assert!(all.iter().all(|other| *other == at), "{all:?}");
        world.barrier()?;
        drop(message);
        if world.rank() == 1 {
            assert_eq!(port.receiver.recv()?.data.len(), 9);
        }
        world.barrier()
    })
    .expect("the job succeeds");
}

fn a_receiver_that_holds_a_buffer_blocks_its_sender_only() {
    local_nodes(&[2, 2], |world| {
        // One buffer on each rank for each rank of the other node.
        let mut port = world.tag_on(16, 1, 100)?;
        let rank = world.rank();
        if rank == 0 {
            send(&port, 0, 1, 100, &[2, 3])?;
        }
        let held = if rank > 1 { Some(port.receiver.recv()?) } else { None };
        let held = held.filter(|_| rank == 2);
        world.barrier()?;
        if rank < 2 {
            let mut buffer = port.pool.take()?;
            buffer.fill(2);
            let data = buffer.finish(100);
            let sent = port.sender.try_send(&data, 2, header(rank, 0), &[]);
            if rank == 0 {
                assert!(matches!(sent, Err(TagOnError::Exhausted { buffers: 1 })), "{sent:?}");
            } else {
                sent?;
            }
            // Both reach the rank beside it.
            port.sender.send(&data, &[3], header(rank, 0), &[])?;
        }
        if let Some(held) = &held {
            // Other senders have memory of their own there.
            let message = port.receiver.recv()?;
            assert_eq!(message.header(), header(1, 0));
            assert_eq!((&message.data[..], &held.data[..]), (&[2; 100][..], &[1; 100][..]));
        }
        if rank == 3 {
            for _ in 0..2 {
                assert_eq!(port.receiver.recv()?.data[..], [2; 100]);
            }
        }
        // Rank 0 has found the buffer held.
        world.barrier()?;
        drop(held);
        world.barrier()?;
        if rank == 0 {
            let data = port.pool.take()?.finish(100);
            port.sender.try_send(&data, 2, header(0, 0), &[])?;
        }
        if rank == 2 {
            assert_eq!(port.receiver.recv()?.header(), header(0, 0));
        }
        world.barrier()
    })
    .expect("the job succeeds");
}

fn a_receiver_that_is_gone_keeps_the_others_from_nothing() {
    everywhere(3, |world| {
        let mut port = Some(world.tag_on(4, 2, 100)?);
        if world.rank() == 1 {
            port = None;
        }
        world.barrier()?;
        if let Some(port) = &mut port {
            if world.rank() == 0 {
                let data = port.pool.take()?.finish(100);
                let mut closed = None;
                for _ in 0..100 {
                    let sent = port.sender.send(&data, &[1, 2], header(0, 0), &[]);
                    closed = sent.err().or(closed);
                }
                let closed = closed.expect("rank 1 does not receive");
                assert!(
                    matches!(closed, TagOnError::Send(SendError::Closed) | TagOnError::Land(_)),
                    "{closed}"
                );
            }
            if world.rank() == 2 {
                for _ in 0..100 {
                    assert_eq!(port.receiver.recv()?.data.len(), 100);
                }
            }
        }
        world.barrier()
    })
    .expect("the job succeeds");
}

/// Rank 0 sends more messages than there are buffers. Rank 2 receives none.
fn data_of_a_rank_that_drops_its_port_are_freed_for_the_others() {
    local_nodes(&[1, 2], |world| {
        let mut port = world.tag_on(16, 2, 100)?;
        match world.rank() {
            0 => {
                for number in 0..60 {
                    let mut buffer = port.pool.take()?;
                    buffer.fill(number);
                    let sent =
                        port.sender.send(&buffer.finish(100), &[1, 2], header(0, 0), &[number]);
                    assert!(matches!(sent, Ok(()) | Err(TagOnError::Send(_))), "{sent:?}");
                }
            }
            1 => {
                for number in 0..60 {
                    let message = port.receiver.recv()?;
                    assert_eq!(message.note(), [number]);
                    assert_eq!(message.data[..], [number; 100]);
                }
            }
            _ => drop(port),
        }
        Ok(())
    })
    .expect("the job succeeds");
}

/// Messages enter until the queue is closed, also between the last look of the receiver and its end.
fn a_receiver_dropped_amid_messages_keeps_no_buffer() {
    const BUFFERS: u64 = 48;
    let body = |world: Communicator| {
        for round in 0..200 {
            let TagOnPort { pool, sender, mut receiver } = world.tag_on(64, BUFFERS, 8)?;
            if world.rank() == 0 {
                for _ in 0..round % 8 {
                    receiver.recv()?;
                }
                drop(receiver);
            } else {
                let mut sent = Ok(());
                while !matches!(sent, Err(TagOnError::Send(SendError::Closed))) {
                    if let Ok(buffer) = pool.take() {
                        sent = sender.try_send(&buffer.finish(8), 0, header(1, 0), &[]);
                    }
                }
            }
            world.barrier()?;
            let free: std::result::Result<Vec<_>, _> = (0..BUFFERS).map(|_| pool.take()).collect();
            assert!(free.is_ok(), "round {round}: {free:?}");
        }
        Ok(())
    };
    local_nodes(&[2], body).expect("on one node");
}

fn data_that_a_rank_holds_stay_when_it_drops_its_port() {
    local_nodes(&[1, 2], |world| {
        let mut port = world.tag_on(16, 2, 100)?;
        if world.rank() == 2 {
            let held = port.receiver.recv()?;
            drop(port);
            world.barrier()?;
            world.barrier()?;
            assert_eq!(held.data[..], [0; 100]);
            return world.barrier();
        }
        if world.rank() == 0 {
            send(&port, 0, 0, 100, &[1, 2])?;
        }
        world.barrier()?;
        for number in 1..40 {
            if world.rank() == 0 {
                let mut buffer = port.pool.take()?;
                buffer.fill(number);
                let data = buffer.finish(100);
                let sent = port.sender.send(&data, &[1, 2], header(0, 0), &[]);
                assert!(matches!(sent, Ok(()) | Err(TagOnError::Send(_))), "{sent:?}");
            } else {
                port.receiver.recv()?;
            }
        }
        if world.rank() == 1 {
            assert_eq!(port.receiver.recv()?.data[..], [39; 100]);
        }
        world.barrier()?;
        world.barrier()
    })
    .expect("the job succeeds");
}

fn a_rank_that_is_named_twice_gets_two_messages() {
    everywhere(2, |world| {
        let mut port = world.tag_on(16, 4, 100)?;
        if world.rank() == 0 {
            send(&port, 0, 9, 100, &[1, 1, 0, 1])?;
            assert_eq!(port.receiver.recv()?.data[..], [9; 100]);
        } else {
            let all: Vec<_> = (0..3).map(|_| port.receiver.recv()).collect::<Result<_>>()?;
            assert!(all.iter().all(|message| message.data[..] == [9; 100]));
        }
        world.barrier()?;
        assert!(port.receiver.try_recv()?.is_none());
        world.barrier()
    })
    .expect("the job succeeds");
}

fn tag_on_is_refused_on_all_ranks() {
    everywhere(2, |world| {
        assert!(world.tag_on(3, 1, 64).is_err(), "no power of two");
        assert!(world.tag_on(4, 0, 64).is_err() && world.tag_on(4, 1, 0).is_err());
        assert!(world.tag_on(4, 1 << 20, 1 << 30).is_err(), "no memory");
        let port = world.tag_on(4, 1, 64)?;
        let data = port.pool.take()?.finish(64);
        let other = 1 - world.rank();
        let sent = port.sender.send(&data, &[other, 2], header(0, 0), &[]);
        assert!(matches!(sent, Err(TagOnError::NoRank { rank: 2 })), "{sent:?}");
        let sent = port.sender.send(&data, &[other], header(0, 0), &[0; 25]);
        assert!(matches!(sent, Err(TagOnError::Note { bytes: 25 })), "{sent:?}");
        world.barrier()
    })
    .expect("the job succeeds");
}
