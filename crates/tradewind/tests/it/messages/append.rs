//! Append buffers, on one node and between nodes.

use super::everywhere;
use tradewind::messages::SendError;
use tradewind::{local, local_nodes};

testing::tests![
    the_shortest_and_the_longest_records_arrive_through_any_number_of_records,
    append_buffers_are_refused_on_all_ranks,
];

const LONGEST: usize = 32_760;

fn the_shortest_and_the_longest_records_arrive_through_any_number_of_records() {
    everywhere(3, |world| {
        for (to, records, longest) in [(0, 1, 9), (1, 5, 100), (0, 3, LONGEST)] {
            let mut ends = world.append_buffer(to, records, longest as u64)?;
            let too_long = ends.sender.try_send(&vec![0; longest + 1]);
            assert_eq!(too_long, Err(SendError::TooLong { max: longest as u32 }));
            for number in 0..60 {
                let length = [0, 1, longest][number % 3];
                if world.rank() == 2 {
                    ends.sender.send(&vec![number as u8; length])?;
                }
                let mut record = vec![7; 7];
                if let Some(receiver) = &mut ends.receiver {
                    receiver.recv(&mut record)?;
                    assert!(record == vec![number as u8; length], "{length} of {longest} bytes");
                }
            }
        }
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
