//! Queues, channels and windows between the ranks of a job, on several rank counts.

use queues::bulk::DEFAULT_STAGING_BYTES;
use queues::express::ExpressMessage;
use queues::id::SourceName;
use tradewind::messages::{BulkEnd, ChannelEnd, RecvError, SendError, Value};
use tradewind::{Communicator, Error, Op, Result, local, local_nodes};

testing::tests![
    a_pipeline_of_channels_carries_every_value_in_order,
    all_ranks_write_to_all_ranks,
    wide_messages_carry_their_bytes,
    windows_are_worked_on_from_afar,
    what_cannot_be_made_is_refused_on_every_rank,
    every_rank_has_its_place_in_a_pipeline,
    channels_carry_every_value_of_every_type,
    a_full_channel_stops_its_own_sender_only,
    an_end_that_is_closed_is_reported_behind_the_last_value,
    a_channel_of_a_rank_that_has_left_is_closed,
    channels_that_are_closed_return_their_memory,
    a_bulk_link_carries_messages_of_any_length_one_way,
    waiting_for_ranks_that_have_left_is_an_error,
    a_queue_that_is_full_stops_its_own_senders_only,
    messages_before_an_exit_are_received_before_it_is_reported,
    a_receiver_that_is_dropped_closes_its_queue,
    the_memory_of_dropped_ports_is_used_again,
    ports_beyond_the_memory_of_the_node_service_are_refused,
    a_wait_for_several_queues_ends_when_their_senders_have_left,
    the_event_of_a_sender_to_another_node_stays_that_of_the_carrier,
    basic_rings_carry_messages_of_all_lengths,
    a_basic_ring_is_closed_by_either_end,
    a_basic_ring_is_refused_on_all_ranks,
    basic_rings_of_several_nodes_are_members_of_a_poll_set,
    several_threads_send_to_one_queue_of_another_node,
];

/// Runs a job on one node, then with its ranks on several.
fn everywhere(ranks: u32, body: impl Fn(Communicator) -> Result<()> + Sync) -> Result<()> {
    local(ranks, &body)?;
    if ranks > 1 {
        local_nodes(&[1, ranks - 1], &body)?;
        local_nodes(&vec![1; ranks as usize], &body)?;
    }
    Ok(())
}

fn name(rank: u32) -> SourceName {
    SourceName::new(rank as u16).expect("few ranks")
}

fn a_pipeline_of_channels_carries_every_value_in_order() {
    const VALUES: u64 = 5000;
    for ranks in [2, 3, 5] {
        everywhere(ranks, |world| {
            let (mut from, mut to) = (None, None);
            for rank in 1..world.size() {
                match world.channel::<u64>(rank - 1, rank, 16)? {
                    Some(ChannelEnd::Sender(sender)) => to = Some(sender),
                    Some(ChannelEnd::Receiver(receiver)) => from = Some(receiver),
                    None => {}
                }
            }
            for value in 0..VALUES {
                let square = value * value;
                let hops = u64::from(world.rank());
                if let Some(receiver) = &mut from {
                    assert_eq!(receiver.recv()?, square + hops - 1);
                }
                if let Some(sender) = &mut to {
                    sender.send(square + hops)?;
                }
            }
            world.barrier()
        })
        .expect("the job succeeds");
    }
}

fn all_ranks_write_to_all_ranks() {
    const EACH: u64 = 300;
    for ranks in [1, 2, 4] {
        everywhere(ranks, |world| {
            let mut port = world.express(32)?;
            let ranks = world.size() as usize;
            let (mut next, mut sent) = (vec![0; ranks], vec![0; ranks]);
            while sent.iter().chain(&next).any(|count| *count < EACH) {
                let before: u64 = sent.iter().chain(&next).sum();
                for (count, sender) in sent.iter_mut().zip(&port.senders) {
                    let message = ExpressMessage::of_number(name(world.rank()), 1, *count)
                        .expect("five bytes");
                    // One that is full keeps nobody from receiving: all could wait for each other.
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
        use queues::cache_line::{CacheLineHeader, CacheLineMessage};
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

fn windows_are_worked_on_from_afar() {
    for ranks in [1, 2, 4] {
        local(ranks, |world| {
            let windows = world.windows(8 * u64::from(world.size()) + 8)?;
            for (index, window) in windows.all.iter().enumerate() {
                window.put_value(
                    8 * u64::from(world.rank()),
                    u64::from(world.rank()) << 8 | index as u64,
                )?;
                window.accumulate_value(Op::Sum.into(), 8 * u64::from(world.size()), 1u64)?;
            }
            world.barrier()?;
            let own = windows.own.local();
            for rank in 0..u64::from(world.size()) {
                assert_eq!(own.get_value::<u64>(8 * rank)?, rank << 8 | u64::from(world.rank()));
            }
            assert_eq!(own.get_value::<u64>(8 * u64::from(world.size()))?, u64::from(world.size()));
            world.barrier()
        })
        .expect("the job succeeds");
    }
}

fn what_cannot_be_made_is_refused_on_every_rank() {
    let channels = everywhere(2, |world| {
        assert!(matches!(world.channel::<f64>(1, 1, 16), Err(Error::Argument { .. })), "to itself");
        assert!(matches!(world.channel::<f64>(0, 2, 16), Err(Error::Argument { .. })), "to nobody");
        assert!(world.channel::<f64>(0, 1, 0).is_err(), "for nothing");
        let of_other_type = match world.rank() {
            0 => world.channel::<f64>(0, 1, 16).err(),
            _ => world.channel::<u64>(0, 1, 16).err(),
        };
        assert!(world.rank() == 1 || of_other_type.is_some(), "the types differ");
        world.barrier()
    });
    channels.expect("the communicator goes on");
    let outcome = local(2, |world| {
        assert!(matches!(world.express(3), Err(Error::Message(_))), "no power of two");
        // On rank 0 alone it is too large; the other rank learns of it.
        let windows = world.windows(if world.rank() == 0 { u64::MAX } else { 8 });
        assert!(windows.is_err());
        world.barrier()
    });
    outcome.expect("the communicator goes on");
}

/// Whatever the number of ranks: the first has nobody before it, the last nobody behind it.
fn every_rank_has_its_place_in_a_pipeline() {
    for ranks in [1, 2, 5] {
        everywhere(ranks, |world| {
            let mut pipeline = world.pipeline::<u64>(16)?;
            assert_eq!(pipeline.previous.is_none(), world.rank() == 0);
            assert_eq!(pipeline.next.is_none(), world.rank() + 1 == ranks);
            for value in 0..1000 {
                let before =
                    pipeline.previous.as_mut().map_or(Ok(value), |previous| previous.recv())?;
                assert_eq!(before, value + u64::from(world.rank()));
                pipeline.next.as_mut().map_or(Ok(()), |next| next.send(before + 1))?;
            }
            world.barrier()
        })
        .expect("the job succeeds");
    }
}

/// Sends the values of a generator through a channel of this type, and compares.
fn carries_values<T: Value + PartialEq + std::fmt::Debug>(
    world: &Communicator,
    seed: u64,
    value: impl Fn(u64) -> T,
) -> Result<()> {
    let end = world.channel::<T>(0, world.size() - 1, 1 + 100 * seed)?;
    let count = if seed == 0 { 1000 } else { 20_000 };
    // Equal values in a row change no word of some slots.
    let random = |number: u64| (seed + number / 3).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    match end {
        Some(ChannelEnd::Sender(mut sender)) => {
            (0..count).try_for_each(|number| sender.send(value(random(number))))?;
        }
        Some(ChannelEnd::Receiver(mut receiver)) => {
            for number in 0..count {
                assert_eq!(receiver.recv()?, value(random(number)), "number {number}");
            }
            assert_eq!(receiver.recv(), Err(RecvError::Closed), "nothing follows");
        }
        None => {}
    }
    Ok(())
}

fn channels_carry_every_value_of_every_type() {
    everywhere(3, |world| {
        for seed in 0..3 {
            carries_values(&world, seed, |bits| bits as u32)?;
            carries_values(&world, seed, |bits| bits)?;
            carries_values(&world, seed, |_| 0_u64)?;
            carries_values(&world, seed, |bits| f64::from(bits as u32))?;
            carries_values(&world, seed, |bits| [bits, 0, 1, 2, 3, 4, 5, bits >> 60])?;
            carries_values(&world, seed, |bits| [bits as u8; 64])?;
        }
        world.barrier()
    })
    .expect("the job succeeds");
}

fn a_full_channel_stops_its_own_sender_only() {
    everywhere(3, |world| {
        let slow = world.channel::<u64>(0, 1, 64)?;
        let fast = world.channel::<u64>(0, 2, 64)?;
        match (slow, fast) {
            (Some(ChannelEnd::Sender(mut slow)), Some(ChannelEnd::Sender(mut fast))) => {
                let short = std::time::Duration::from_millis(50);
                let mut sent = 0;
                let error = loop {
                    match slow.send_timeout(sent, short) {
                        Ok(()) => sent += 1,
                        Err(error) => break error,
                    }
                    assert!(sent < 1 << 20, "a receiver that is behind stops its sender");
                };
                assert_eq!(error, SendError::Timeout);
                (0..100_000).try_for_each(|number| fast.send(number))?;
                // Only now does rank 1 receive.
                world.barrier()?;
                slow.send(sent)?;
            }
            (Some(ChannelEnd::Receiver(mut slow)), None) => {
                world.barrier()?;
                let mut next = 0;
                while let Ok(number) = slow.recv() {
                    assert_eq!(number, next);
                    next += 1;
                }
                assert!(next > 64, "{next} have arrived");
            }
            (None, Some(ChannelEnd::Receiver(mut fast))) => {
                for number in 0..100_000 {
                    assert_eq!(fast.recv()?, number);
                }
                world.barrier()?;
            }
            other => panic!("{other:?}"),
        }
        world.barrier()
    })
    .expect("the job succeeds");
}

fn an_end_that_is_closed_is_reported_behind_the_last_value() {
    everywhere(2, |world| {
        for count in [0, 1, 100_000_u64] {
            let end = world.channel::<u64>(0, 1, 16)?;
            match end {
                Some(ChannelEnd::Sender(mut sender)) => {
                    (0..count).try_for_each(|number| sender.send(number))?;
                }
                Some(ChannelEnd::Receiver(mut receiver)) => {
                    (0..count).for_each(|number| assert_eq!(receiver.recv(), Ok(number)));
                    assert_eq!(receiver.recv(), Err(RecvError::Closed));
                    assert_eq!(receiver.try_recv(), Err(RecvError::Closed));
                }
                None => {}
            }
            let end = world.channel::<u64>(0, 1, 16)?;
            // The memory of a channel that its sender has not connected to is freed.
            world.barrier()?;
            match end {
                Some(ChannelEnd::Sender(mut sender)) => {
                    let mut sends = (0..).map(|number| sender.send(number));
                    let error = sends.find_map(std::result::Result::err);
                    assert_eq!(error, Some(SendError::Closed));
                }
                Some(ChannelEnd::Receiver(mut receiver)) if count > 0 => {
                    assert_eq!(receiver.recv(), Ok(0));
                }
                other => drop(other),
            }
            world.barrier()?;
        }
        Ok(())
    })
    .expect("the job succeeds");
}

fn a_channel_of_a_rank_that_has_left_is_closed() {
    everywhere(2, |world| {
        let forth = world.channel::<u64>(0, 1, 16)?;
        let back = world.channel::<u64>(1, 0, 16)?;
        world.barrier()?;
        let (Some(ChannelEnd::Sender(mut sender)), Some(ChannelEnd::Receiver(mut receiver))) =
            (forth, back)
        else {
            return Ok(());
        };
        assert_eq!(receiver.recv(), Err(RecvError::Closed));
        let error = (0..).find_map(|number| sender.send(number).err());
        assert_eq!(error, Some(SendError::Closed));
        Ok(())
    })
    .expect("the job succeeds");
}

fn channels_that_are_closed_return_their_memory() {
    everywhere(2, |world| {
        const ROUNDS: u64 = 200;
        let before = world.arena().used();
        let ring = 8 << 14;
        for round in 0..ROUNDS {
            let mut end = world.channel::<u64>(0, 1, 1 << 14)?;
            match &mut end {
                Some(ChannelEnd::Sender(sender)) => sender.send(round)?,
                Some(ChannelEnd::Receiver(receiver)) => assert_eq!(receiver.recv()?, round),
                None => {}
            }
            // A receiver that closes its end before the send returns makes it an error.
            world.barrier()?;
        }
        // The agents close their ends a little later.
        let used = world.arena().used() - before;
        assert!(used < ROUNDS / 2 * ring, "{used} bytes");
        world.barrier()
    })
    .expect("the job succeeds");
}

fn a_bulk_link_carries_messages_of_any_length_one_way() {
    local(3, |world| {
        let mut end = world.bulk(2, 0, DEFAULT_STAGING_BYTES)?;
        for length in [0, 1, 8, 5000, 1 << 20] {
            let message: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
            match &mut end {
                Some(BulkEnd::Sender(sender)) => _ = sender.send(&message)?,
                Some(BulkEnd::Receiver(receiver)) => {
                    let mut buffer = vec![255; length];
                    assert_eq!(receiver.recv(&mut buffer)?.bytes, length);
                    assert!(buffer == message, "{length} bytes");
                }
                None => assert_eq!(world.rank(), 1),
            }
        }
        let error = world.bulk(1, 1, DEFAULT_STAGING_BYTES).expect_err("a link has two ends");
        assert!(error.to_string().contains("two ranks"), "{error}");
        world.barrier()
    })
    .expect("the job succeeds");
}

fn waiting_for_ranks_that_have_left_is_an_error() {
    everywhere(3, |world| {
        let mut words = world.express(16)?;
        let mut lines = world.cache_lines(16)?;
        if world.rank() != 1 {
            words.senders[1].send(&ExpressMessage::default())?;
            return Ok(());
        }
        for _ in 0..2 {
            assert_eq!(
                words.receiver.recv(),
                Ok(ExpressMessage::default()),
                "what they sent comes first"
            );
        }
        let gone = |rank: u32| rank == 0 || rank == 2;
        assert!(matches!(words.receiver.recv(), Err(RecvError::RankExited { rank }) if gone(rank)));
        assert!(matches!(lines.receiver.recv(), Err(RecvError::RankExited { rank }) if gone(rank)));
        // They have dropped their receivers before they have left.
        let refused = std::iter::repeat_with(|| words.senders[2].send(&ExpressMessage::default()))
            .find(|sent| sent.is_err());
        assert_eq!(refused, Some(Err(SendError::Closed)));
        let refused = std::iter::repeat_with(|| lines.senders[0].send(&Default::default()))
            .find(|sent| sent.is_err());
        assert_eq!(refused, Some(Err(SendError::Closed)));
        Ok(())
    })
    .expect("the job succeeds");
}

fn word(number: u64) -> ExpressMessage {
    ExpressMessage::of_number(SourceName::default(), 0, number).expect("five bytes")
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

fn messages_before_an_exit_are_received_before_it_is_reported() {
    use queues::queue::RecvError;
    // The ring, the credit and the outgoing queue hold them.
    const MESSAGES: u64 = 8000;
    for nodes in [&[1, 1][..], &[2, 1], &[1, 2]] {
        local_nodes(nodes, |world| {
            let mut port = world.express(64)?;
            let mut other = world.express(64)?;
            let last = world.size() - 1;
            if world.rank() != last {
                if world.rank() == 0 {
                    (0..MESSAGES).try_for_each(|n| port.senders[last as usize].send(&word(n)))?;
                }
                return Ok(());
            }
            let gone = |end: &_| matches!(end, Err(RecvError::RankExited { rank }) if *rank < last);
            let end = other.receiver.recv();
            assert!(gone(&end), "{end:?}");
            for number in 0..MESSAGES {
                assert_eq!(port.receiver.recv()?.number(), number);
            }
            let end = port.receiver.recv();
            assert!(gone(&end), "{end:?}");
            Ok(())
        })
        .expect("the job succeeds");
    }
}

/// All ranks are there.
#[derive(Debug)]
struct Present;

impl shm::liveness::RankLiveness for Present {
    fn exited(&self) -> Option<shm::liveness::PeerExit> {
        None
    }
}

fn a_receiver_that_is_dropped_closes_its_queue() {
    use queues::queue::SendError;
    everywhere(3, |world| {
        let port = world.express(64)?;
        let mut other = world.express(64)?;
        if world.rank() == 1 {
            // A further check replaces none.
            let again = port.receiver.clone().watching(std::sync::Arc::new(Present));
            drop(port.receiver);
            // It is open as long as a clone receives.
            port.senders[1].try_send(&word(0))?;
            other.senders.iter().try_for_each(|sender| sender.send(&word(1)))?;
            drop(again);
        }
        assert_eq!(other.receiver.recv()?.number(), 1);
        assert_eq!(
            std::iter::repeat_with(|| port.senders[1].send(&word(2))).find(|sent| sent.is_err()),
            Some(Err(SendError::Closed))
        );
        // Nothing else is.
        other.senders.iter().try_for_each(|sender| sender.send(&word(3)))?;
        for _ in 0..world.size() {
            assert_eq!(other.receiver.recv()?.number(), 3);
        }
        world.barrier()
    })
    .expect("the job succeeds");
}

fn the_memory_of_dropped_ports_is_used_again() {
    everywhere(3, |world| {
        let open = || -> Result<()> {
            let mut port = world.express(1024)?;
            port.senders.iter().try_for_each(|sender| sender.send(&word(7)))?;
            for _ in 0..world.size() {
                assert_eq!(port.receiver.recv()?.number(), 7);
            }
            Ok(())
        };
        (0..20).try_for_each(|_| open())?;
        let used = world.arena().used();
        (0..200).try_for_each(|_| open())?;
        // Some may still be open at other ranks, and in the agent.
        let more = world.arena().used().saturating_sub(used);
        assert!(more < 50 * 8192, "{more} bytes");
        world.barrier()
    })
    .expect("the job succeeds");
}

fn ports_beyond_the_memory_of_the_node_service_are_refused() {
    local_nodes(&[1, 2], |world| {
        let mut ports = Vec::new();
        if let Some(part) = world.split((world.rank() < 2).then_some(0), 0)? {
            let error = loop {
                match part.express(2) {
                    Ok(port) => ports.push(port),
                    Err(error) => break error.to_string(),
                }
            };
            assert!(error.contains("268435456"), "{error}");
            assert!(ports.len() > 3000, "{}", ports.len());
        }
        // Rank 2 has memory left, and fails with the others.
        let error = world.express(2).expect_err("ranks 0 and 1 have none left");
        let is_of_other = matches!(error, Error::CreationFailed { rank: 0, .. });
        assert_eq!(is_of_other, world.rank() == 2, "{error}");
        world.barrier()?;
        let kept = ports.pop();
        // The others are dropped, and all ranks go on.
        ports.clear();
        world.barrier()?;
        let mut next = world.express(2)?;
        let other = 1 - world.rank().min(1) as usize;
        if let Some(mut port) = kept {
            port.senders[other].send(&word(1))?;
            assert_eq!(port.receiver.recv()?.number(), 1);
        }
        next.senders[world.rank() as usize].send(&word(2))?;
        assert_eq!(next.receiver.recv()?.number(), 2);
        world.barrier()
    })
    .expect("the job succeeds");
}

fn a_wait_for_several_queues_ends_when_their_senders_have_left() {
    use queues::one_poll::{OnePoll, PollSet};
    use queues::queue::RecvError;
    everywhere(2, |world| {
        let set = PollSet::create(world.arena(), 2).expect("memory");
        let first = world.express_in_set(64, &set, 0)?;
        let second = world.express_in_set(64, &set, 1)?;
        if world.rank() == 0 {
            second.senders[1].send(&word(5))?;
            return Ok(());
        }
        let mut members = [Some(first.receiver), Some(second.receiver)];
        let mut poll = OnePoll::new(&set);
        assert_eq!(poll.poll_blocking(&mut members[..]), Ok((1, word(5))));
        let gone = RecvError::RankExited { rank: 0 };
        assert_eq!(poll.poll_blocking(&mut members[..]), Err(gone));
        Ok(())
    })
    .expect("the job succeeds");
}

fn the_event_of_a_sender_to_another_node_stays_that_of_the_carrier() {
    use std::time::Duration;
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

fn several_threads_send_to_one_queue_of_another_node() {
    use queues::cache_line::{CacheLineHeader, CacheLineMessage};
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

fn basic_rings_carry_messages_of_all_lengths() {
    use queues::queue::RecvError;
    use tradewind::messages::{BasicEnd, BasicHeader};
    const MESSAGES: usize = 3000;
    let length = |number: usize, longest: usize| match number % 4 {
        0 => number % 57,
        1 => number * 7919 % (longest + 1),
        2 => longest,
        _ => longest.min(number % 300),
    };
    everywhere(3, |world| {
        for (from, to, lines) in [(0, 1, 4), (1, 0, 64), (2, 0, 2048)] {
            let end = world.basic(from, to, lines)?;
            let longest = lines as usize / 4 * 64 - 8;
            // The longest messages are as many bytes as fit the memory of a test.
            let count = if lines == 2048 { MESSAGES / 10 } else { MESSAGES };
            match end {
                Some(BasicEnd::Sender(mut sender)) => {
                    assert_eq!((world.rank(), sender.longest_message()), (from, longest));
                    for number in 0..count {
                        let header = BasicHeader { source: name(from), handler: number as u8 };
                        sender.send(header, &vec![number as u8; length(number, longest)])?;
                    }
                }
                Some(BasicEnd::Receiver(mut receiver)) => {
                    assert_eq!(world.rank(), to);
                    for number in 0..count {
                        let message = receiver.recv()?;
                        let header = BasicHeader { source: name(from), handler: number as u8 };
                        assert_eq!(message.header(), header);
                        assert_eq!(message.as_slice().len(), length(number, longest));
                        assert!(message.as_slice().iter().all(|byte| *byte == number as u8));
                    }
                    assert_eq!(receiver.recv().map(|_| ()), Err(RecvError::Closed));
                }
                None => assert!(world.rank() != from && world.rank() != to),
            }
        }
        world.barrier()
    })
    .expect("the job succeeds");
}

fn a_basic_ring_is_closed_by_either_end() {
    use queues::queue::{RecvError, SendError};
    use tradewind::messages::{BasicEnd, BasicHeader};
    everywhere(2, |world| {
        let used = world.arena().used();
        match world.basic(0, 1, 64)? {
            Some(BasicEnd::Sender(mut sender)) => {
                let mut sent = std::iter::repeat_with(|| sender.send(BasicHeader::default(), &[1]));
                let error = sent.find_map(std::result::Result::err);
                assert_eq!(error, Some(SendError::Closed));
            }
            Some(BasicEnd::Receiver(mut receiver)) => {
                assert_eq!(receiver.recv()?.as_slice(), [1]);
            }
            None => {}
        }
        world.barrier()?;
        // A rank that leaves with its end has closed it.
        for _ in 0..100 {
            drop(world.basic(1, 0, 2048)?);
        }
        assert!(world.arena().used() - used < 50 * 2048 * 64, "{}", world.arena().used());
        let end = world.basic(0, 1, 64)?;
        if let Some(BasicEnd::Receiver(mut receiver)) = end {
            assert_eq!(receiver.recv().map(|_| ()), Err(RecvError::Closed));
        }
        Ok(())
    })
    .expect("the job succeeds");
}

fn a_basic_ring_is_refused_on_all_ranks() {
    local_nodes(&[1, 2], |world| {
        let error = world.basic(0, 1, 4096).expect_err("too long for the credit").to_string();
        if world.rank() < 2 {
            assert!(error.contains("2048"), "{error}");
        }
        assert!(world.basic(0, 0, 64).is_err() && world.basic(0, 3, 64).is_err());
        assert!(world.basic(0, 1, 3).is_err(), "no power of two");
        // Within a node.
        drop(world.basic(1, 2, 4096)?);
        world.barrier()
    })
    .expect("the job succeeds");
}

fn basic_rings_of_several_nodes_are_members_of_a_poll_set() {
    use queues::one_poll::{OnePoll, PollSet};
    use tradewind::messages::{BasicEnd, BasicHeader};
    everywhere(3, |world| {
        let ends = [world.basic(1, 0, 64)?, world.basic(2, 0, 64)?];
        let mut rings = Vec::new();
        let set = PollSet::create(world.arena(), 2).expect("memory");
        for (index, end) in ends.into_iter().enumerate() {
            match end {
                Some(BasicEnd::Receiver(receiver)) => {
                    rings.push(Some(receiver.in_set(&set, index).expect("inside")));
                }
                Some(BasicEnd::Sender(mut sender)) => {
                    for number in 0..1000 {
                        sender.send(BasicHeader::default(), &u32::to_le_bytes(number))?;
                    }
                }
                None => {}
            }
        }
        if world.rank() == 0 {
            let mut poll = OnePoll::new(&set);
            let mut next = [0_u32; 2];
            while next != [1000; 2] {
                let (index, ()) = poll.poll_blocking(&mut rings[..])?;
                let ring = rings[index].as_mut().expect("it is open");
                let received =
                    ring.try_recv().map(|message| message.map(|one| one.as_slice().to_vec()));
                match received {
                    Ok(Some(bytes)) => {
                        assert_eq!(bytes, next[index].to_le_bytes());
                        next[index] += 1;
                    }
                    Ok(None) => {}
                    // Its sender has sent everything.
                    Err(_) => rings[index] = None,
                }
            }
        }
        world.barrier()
    })
    .expect("the job succeeds");
}
