//! Basic rings from one rank to another.

use super::{everywhere, name};
use queues::one_poll::OnePoll;
use tradewind::local_nodes;
use tradewind::messages::{BasicEnd, BasicHeader, RecvError, SendError};

testing::tests![
    basic_rings_carry_messages_of_all_lengths,
    a_basic_ring_is_closed_by_either_end,
    a_basic_ring_is_refused_on_all_ranks,
    basic_rings_of_several_nodes_are_members_of_a_poll_set,
];

fn basic_rings_carry_messages_of_all_lengths() {
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
    everywhere(2, |world| {
        let used = world.allocated_bytes();
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
        assert!(world.allocated_bytes() - used < 50 * 2048 * 64, "{}", world.allocated_bytes());
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
    everywhere(3, |world| {
        let ends = [world.basic(1, 0, 64)?, world.basic(2, 0, 64)?];
        let mut rings = Vec::new();
        let set = world.poll_set(2)?;
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
