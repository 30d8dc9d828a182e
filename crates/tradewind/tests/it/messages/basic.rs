//! Basic rings from one rank to another.

use super::everywhere;
use queues::one_poll::OnePoll;
use tradewind::local_nodes;
use tradewind::messages::{BasicEnd, BasicHeader};

testing::tests![
    the_smallest_and_the_largest_ring_carry_their_shortest_and_longest_messages,
    a_basic_ring_is_refused_on_all_ranks,
    basic_rings_of_several_nodes_are_members_of_a_poll_set,
];

fn the_smallest_and_the_largest_ring_carry_their_shortest_and_longest_messages() {
    everywhere(3, |world| {
        for (from, to, lines) in [(0, 1, 4), (2, 0, 2048)] {
            let longest = lines as usize / 4 * 64 - 8;
            let message = |number: usize| vec![number as u8; [0, 1, longest][number % 3]];
            match world.basic(from, to, lines)? {
                Some(BasicEnd::Sender(mut sender)) => {
                    assert_eq!((world.rank(), sender.longest_message()), (from, longest));
                    for number in 0..300 {
                        sender.send(BasicHeader::default(), &message(number))?;
                    }
                }
                Some(BasicEnd::Receiver(mut receiver)) => {
                    assert_eq!(world.rank(), to);
                    for number in 0..300 {
                        assert!(receiver.recv()?.as_slice() == message(number));
                    }
                }
                None => assert!(world.rank() != from && world.rank() != to),
            }
        }
        world.barrier()
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
