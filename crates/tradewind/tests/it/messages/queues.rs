//! Messages through Express and cache-line queues.

use super::{everywhere, name, word};
use queues::cache_line::{CacheLineHeader, CacheLineMessage};
use queues::express::ExpressMessage;
use std::time::Duration;
use tradewind::local_nodes;

testing::tests![
    several_threads_send_to_one_queue_of_another_node,
    senders_find_out_when_their_messages_are_taken,
    the_event_of_a_sender_to_another_node_stays_that_of_the_node_service,
];

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
