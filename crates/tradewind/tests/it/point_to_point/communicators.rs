//! Messages of communicators that are being created, or were dropped.

use super::{LIMIT, everywhere};
use std::sync::atomic::{AtomicBool, Ordering};
use tradewind::{Communicator, Result, Source, Tag};

testing::tests![
    the_first_messages_of_a_communicator_may_come_before_its_end_of_creation,
    a_synchronous_send_to_a_dropped_communicator_does_not_wait_for_another_creation,
];

/// Runs `body` beside a thread that takes whatever arrives out of the rings.
fn polled<T>(world: &Communicator, body: impl FnOnce() -> Result<T>) -> Result<T> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let polls = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                world.iprobe(Source::Any, Tag::Any)?;
            }
            Ok(())
        });
        let outcome = body();
        is_over.store(true, Ordering::Relaxed);
        polls.join().expect("no panic").and(outcome)
    })
}

fn the_first_messages_of_a_communicator_may_come_before_its_end_of_creation() {
    everywhere(2, |world| {
        polled(&world, || {
            for number in 0..100_u32 {
                let part = world.dup()?;
                let other = 1 - part.rank();
                part.send(&[number], other, 0)?;
                let mut found = [0];
                let mut received = part.irecv(&mut found, other, 0)?;
                received.wait_timeout(LIMIT)?;
                drop(received);
                assert_eq!(found, [number]);
            }
            Ok(())
        })
    })
    .expect("the job succeeds");
}

fn a_synchronous_send_to_a_dropped_communicator_does_not_wait_for_another_creation() {
    everywhere(2, |world| {
        polled(&world, || {
            for _ in 0..20 {
                let part = world.dup()?;
                if part.rank() == 0 {
                    drop(part);
                } else {
                    part.issend(&[1_u8], 0, 0)?.wait_timeout(LIMIT)?;
                }
                world.dup()?;
            }
            Ok(())
        })
    })
    .expect("the job succeeds");
}
