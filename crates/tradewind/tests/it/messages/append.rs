//! Append buffers, on one node and between nodes.

use super::everywhere;
use tradewind::messages::{AppendSender, RecvError, SendError};
use tradewind::{Result, local, local_nodes};

testing::tests![
    records_of_all_ranks_arrive_once_and_in_the_order_of_their_sender,
    a_full_append_buffer_stops_its_own_senders_only,
    an_append_buffer_that_is_dropped_is_closed_for_all_ranks,
    records_before_an_exit_are_taken_before_it_is_reported,
    the_memory_of_dropped_append_buffers_is_used_again,
    append_buffers_are_refused_on_all_ranks,
];

const LONGEST: usize = 32_760;

/// A record of rank `rank`: of any length, the shortest without a number.
fn record(rank: u32, number: u32, longest: usize) -> Vec<u8> {
    let length = match number % 5 {
        0 => 0,
        1 => longest,
        _ => (number as usize * 7919 + rank as usize) % (longest + 1),
    };
    let mut bytes = vec![number as u8; length];
    let head = [rank, number].map(u32::to_le_bytes).concat();
    bytes.iter_mut().zip(head).for_each(|(byte, head)| *byte = head);
    bytes
}

fn send_all(sender: &AppendSender, rank: u32, count: u32, longest: usize) -> Result<()> {
    Ok((0..count).try_for_each(|number| sender.send(&record(rank, number, longest)))?)
}

fn records_of_all_ranks_arrive_once_and_in_the_order_of_their_sender() {
    let body = |world: tradewind::Communicator| {
        for (to, records, longest, count) in [(0, 1, 9, 300), (1, 5, 100, 600), (0, 3, LONGEST, 60)]
        {
            let ends = world.append_buffer(to, records, longest as u64)?;
            assert_eq!(ends.receiver.is_some(), world.rank() == to);
            assert_eq!(ends.sender.record_bytes(), longest as u64);
            let sender = &ends.sender;
            let too_long = sender.try_send(&vec![0; longest + 1]);
            assert_eq!(too_long, Err(SendError::TooLong { max: longest as u32 }));
            let rank = world.rank();
            std::thread::scope(|scope| {
                let sent = scope.spawn(move || send_all(sender, rank, count, longest));
                if let Some(mut receiver) = ends.receiver {
                    let mut next = vec![0; world.size() as usize];
                    let (mut empty, mut bytes) = (0, Vec::new());
                    for _ in 0..count * world.size() {
                        receiver.recv(&mut bytes)?;
                        if bytes.len() < 8 {
                            empty += u32::from(bytes.is_empty());
                            continue;
                        }
                        let (words, _) = bytes.as_chunks::<4>();
                        let [sender, number] = [0, 1].map(|word| u32::from_le_bytes(words[word]));
                        assert!(next[sender as usize] <= number, "rank {sender}'s order");
                        next[sender as usize] = number + 1;
                        assert!(bytes == record(sender, number, longest), "{} bytes", bytes.len());
                    }
                    assert!(empty >= world.size() * count / 5);
                    assert_eq!(receiver.try_recv(&mut bytes), Ok(false), "each once");
                }
                sent.join().expect("no panic")
            })?;
            world.barrier()?;
        }
        Ok(())
    };
    everywhere(3, body).expect("the job succeeds");
    local_nodes(&[2, 1], body).expect("the job succeeds");
    local_nodes(&[2, 2], body).expect("the job succeeds");
    local_nodes(&[1, 1, 1, 1], body).expect("the job succeeds");
}

fn a_full_append_buffer_stops_its_own_senders_only() {
    let body = |world: tradewind::Communicator| {
        let full = world.append_buffer(0, 4, 1000)?;
        let mut open = world.append_buffer(0, 4, 1000)?;
        // What the buffers and the credit between them hold.
        let mut sent = 0_u64;
        if world.rank() == 1 {
            let record = vec![1; 1000];
            let mut refused = 0;
            while refused < 1000 {
                match full.sender.try_send(&record) {
                    Ok(()) => (sent, refused) = (sent + 1, 0),
                    Err(why) => {
                        assert_eq!(why, SendError::Full);
                        refused += 1;
                        std::thread::yield_now();
                    }
                }
            }
            let timeout = std::time::Duration::from_millis(20);
            assert_eq!(full.sender.send_timeout(&record, timeout), Err(SendError::Timeout));
            assert!((4..200).contains(&sent), "{sent} records");
        }
        world.barrier()?;
        open.sender.send(&[world.rank() as u8])?;
        let mut record = Vec::new();
        if let Some(receiver) = &mut open.receiver {
            for _ in 0..world.size() {
                receiver.recv(&mut record)?;
            }
        }
        let mut counts = vec![0_u64; world.size() as usize];
        world.allgather(&[sent], &mut counts)?;
        if let Some(mut receiver) = full.receiver {
            for _ in 0..counts.iter().sum::<u64>() {
                receiver.recv(&mut record)?;
                assert_eq!(record.len(), 1000);
            }
        }
        world.barrier()
    };
    everywhere(2, body).expect("the job succeeds");
    local_nodes(&[2, 2], body).expect("the job succeeds");
}

fn an_append_buffer_that_is_dropped_is_closed_for_all_ranks() {
    everywhere(3, |world| {
        let ends = world.append_buffer(1, 16, 64)?;
        drop(ends.receiver);
        let closed =
            std::iter::repeat_with(|| ends.sender.send(&[1])).find(std::result::Result::is_err);
        assert_eq!(closed, Some(Err(SendError::Closed)));
        world.barrier()
    })
    .expect("the job succeeds");
}

fn records_before_an_exit_are_taken_before_it_is_reported() {
    const RECORDS: u32 = 500;
    for nodes in [&[1, 1][..], &[2, 1], &[1, 2]] {
        local_nodes(nodes, |world| {
            let last = world.size() - 1;
            let ends = world.append_buffer(last, 8, 100)?;
            let Some(mut receiver) = ends.receiver else {
                return send_all(&ends.sender, world.rank(), RECORDS, 100);
            };
            let mut record = Vec::new();
            for _ in 0..last * RECORDS {
                receiver.recv(&mut record)?;
            }
            let end = receiver.recv(&mut record);
            assert!(matches!(end, Err(RecvError::RankExited { rank }) if rank < last), "{end:?}");
            Ok(())
        })
        .expect("the job succeeds");
    }
}

fn the_memory_of_dropped_append_buffers_is_used_again() {
    everywhere(3, |world| {
        let open = || {
            let mut ends = world.append_buffer(0, 16, 480)?;
            ends.sender.send(&[world.rank() as u8])?;
            let mut record = Vec::new();
            if let Some(receiver) = &mut ends.receiver {
                (0..world.size()).try_for_each(|_| receiver.recv(&mut record))?;
            }
            Ok::<_, tradewind::Error>(())
        };
        (0..20).try_for_each(|_| open())?;
        let used = world.allocated_bytes();
        (0..200).try_for_each(|_| open())?;
        // Some may still be open at other ranks, and in the agent.
        let more = world.allocated_bytes().saturating_sub(used);
        assert!(more < 50 * 11_000, "{more} bytes");
        world.barrier()
    })
    .expect("the job succeeds");
}

fn append_buffers_are_refused_on_all_ranks() {
    local_nodes(&[1, 2], |world| {
        let error =
            world.append_buffer(0, 4, LONGEST as u64 + 1).expect_err("too long").to_string();
        assert!(error.contains("32760"), "{error}");
        assert!(world.append_buffer(3, 4, 4).is_err(), "no such rank");
        assert!(world.append_buffer(1, 0, 4).is_err(), "no records");
        assert!(world.append_buffer(1, 1 << 24, 32_000).is_err(), "no memory");
        drop(world.append_buffer(1, 4, 4)?);
        world.barrier()
    })
    .expect("the job succeeds");
    // Within a node.
    local(2, |world| world.append_buffer(0, 2, LONGEST as u64 + 1).map(drop))
        .expect("it has memory");
}
