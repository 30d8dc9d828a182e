//! Receivers and senders of receive queues that are killed or stopped.

use super::{fill, message, number};
use crate::child::{Child, memory, segment_and_offsets, until, until_some};
use queues::queue::SendError;
use queues::receive_queues::{Class, LIVENESS_INTERVAL, QueuesConfig, ReceiveQueues, RemoteQueues};
use shm::arena::Arena;
use shm::segment::{Offset, Segment};
use shm::sync::{AtomicU64, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

testing::tests![
    every_form_of_send_names_a_dead_receiver,
    senders_killed_at_any_instruction_block_no_others,
    a_stopped_receiver_fills_up_and_affects_no_other,
];
testing::parts![child_receives, child_floods_the_queues];

fn every_form_of_send_names_a_dead_receiver() {
    let (segment, arena) = memory(4 << 20);
    let (mut receiver, queues) = start_receiver(&segment, &arena);
    let remote = Arc::new(RemoteQueues::connect(&segment, queues).unwrap());
    let mut open: Vec<_> =
        (0..4).map(|queue| remote.open(queue, Class::Request).unwrap()).collect();
    open[0].send(&message(1, 1)).unwrap();
    receiver.stop();
    for target in &mut open {
        fill(target);
    }
    let gone = SendError::ProcessExited { pid: receiver.pid() };
    let sleeper = open.pop().expect("four");
    let asleep = thread::spawn(move || {
        let mut sleeper = sleeper;
        sleeper.send(&message(1, 0))
    });
    receiver.kill();
    assert_eq!(asleep.join().expect("no panic"), Err(gone));
    assert_eq!(open[0].try_send(&message(1, 0)), Err(gone));
    assert_eq!(open[1].send(&message(1, 0)), Err(gone));
    let late = Instant::now() + Duration::from_secs(600);
    assert_eq!(open[2].send_deadline(&message(1, 0), late), Err(gone));
    assert_eq!(
        gone.to_string(),
        format!("process {}, which received from the queue, has ended", receiver.pid())
    );
    // A dead receiver with space is detected too, after some messages.
    let remote = Arc::new(RemoteQueues::connect(&segment, queues).unwrap());
    let mut other = remote.open(7, Class::Reply).unwrap();
    let sent = (0..)
        .find(|number| other.try_send(&message(1, *number)) == Err(gone))
        .expect("it is bounded");
    assert!(sent <= u64::from(LIVENESS_INTERVAL));
}

/// Starts a receiving process, and returns it with the offset of its receive queues.
fn start_receiver(segment: &Arc<Segment>, arena: &Arena) -> (Child, Offset) {
    let offset_word = arena.allocate_zeroed(64, 64).unwrap();
    let offset = || segment.at::<AtomicU64>(offset_word).unwrap().load(Ordering::Acquire);
    let receiver =
        Child::start_on("receive_queues::failures::child_receives", segment, &[offset_word]);
    until("there are queues", || offset() != 0);
    (receiver, Offset(offset()))
}

/// The process of [`start_receiver`].
fn child_receives() {
    let (segment, offsets) = segment_and_offsets();
    let arena = Arc::new(Arena::new(Arc::clone(&segment), 1 << 20..4 << 20).unwrap());
    let mut queues = ReceiveQueues::create(&arena, QueuesConfig::default()).unwrap();
    segment.at::<AtomicU64>(offsets[0]).unwrap().store(queues.offset().0, Ordering::Release);
    loop {
        queues.recv_any().unwrap();
    }
}

/// After a sender is killed at any instruction, messages of all others are received, and the memory
/// is freed at the end.
fn senders_killed_at_any_instruction_block_no_others() {
    let (segment, arena) = memory(8 << 20);
    let hall_arena = Arc::new(Arena::new(Arc::clone(&segment), 1 << 20..8 << 20).unwrap());
    let mut queues = ReceiveQueues::create(
        &hall_arena,
        QueuesConfig { queues: 8, rings: 2, ..QueuesConfig::default() },
    )
    .unwrap();
    let offset_word = arena.allocate_zeroed(64, 64).unwrap();
    segment.at::<AtomicU64>(offset_word).unwrap().store(queues.offset().0, Ordering::Release);
    let remote = Arc::new(RemoteQueues::connect(&segment, queues.offset()).unwrap());
    let mut own: Vec<_> = (0..8).map(|queue| remote.open(queue, Class::Request).unwrap()).collect();
    for round in 0..8u64 {
        let mut victim = Child::start_on(
            "receive_queues::failures::child_floods_the_queues",
            &segment,
            &[offset_word],
        );
        let mut next: [Option<u64>; 8] = [None; 8];
        let check = |queues: &mut ReceiveQueues, next: &mut [Option<u64>; 8]| {
            let Some(received) = queues.try_recv_any().unwrap() else { return false };
            let (source, number) =
                (received.message.header().source.number(), number(&received.message));
            if source == 2 {
                let expected = next[received.queue].map_or(number, |last| last + 1);
                assert_eq!(number, expected, "queue {}", received.queue);
                next[received.queue] = Some(number);
            }
            true
        };
        for _ in 0..2000 * (round + 1) {
            until("a message comes", || check(&mut queues, &mut next));
        }
        victim.kill();
        while check(&mut queues, &mut next) {}
        for (queue, target) in own.iter_mut().enumerate() {
            target.try_send(&message(1, round)).unwrap();
            let received =
                until_some("it arrives", || queues.try_recv(queue, Class::Request).unwrap());
            assert_eq!((received.header().source.number(), number(&received)), (1, round));
        }
    }
    drop((own, remote));
    queues.close().expect("the others are dead");
    assert_eq!(hall_arena.used(), 0);
}

/// A sender of `senders_killed_at_any_instruction_block_no_others`.
fn child_floods_the_queues() {
    let (segment, offsets) = segment_and_offsets();
    let offset = segment.at::<AtomicU64>(offsets[0]).unwrap().load(Ordering::Acquire);
    let remote = Arc::new(RemoteQueues::connect(&segment, Offset(offset)).unwrap());
    let mut open: Vec<_> =
        (0..8).map(|queue| remote.open(queue, Class::Request).unwrap()).collect();
    for round in 0.. {
        for target in &mut open {
            target.send(&message(2, round)).unwrap();
        }
    }
}

/// Messages to a stopped receiver are accepted until it is full, and messages to another receiver
/// are not affected.
fn a_stopped_receiver_fills_up_and_affects_no_other() {
    let (segment, arena) = memory(8 << 20);
    let (mut stopped, its_queues) = start_receiver(&segment, &arena);
    let remote = Arc::new(RemoteQueues::connect(&segment, its_queues).unwrap());
    stopped.stop();
    let other_arena = Arc::new(Arena::new(Arc::clone(&segment), 4 << 20..8 << 20).unwrap());
    let mut queues = ReceiveQueues::create(&other_arena, QueuesConfig::default()).unwrap();
    let other = Arc::new(RemoteQueues::connect(&segment, queues.offset()).unwrap());
    let mut to_stopped = remote.open(5, Class::Request).unwrap();
    let mut to_other = other.open(5, Class::Request).unwrap();
    let mut accepted = 0;
    while to_stopped.try_send(&message(1, accepted)).is_ok() {
        accepted += 1;
        to_other.try_send(&message(1, accepted)).unwrap();
        assert_eq!(
            queues.try_recv(5, Class::Request).unwrap().map(|message| number(&message)),
            Some(accepted)
        );
    }
    assert!(accepted >= QueuesConfig::default().non_resident_capacity as u64 - 1, "{accepted}");
    for more in 0..1000 {
        assert_eq!(to_stopped.try_send(&message(1, accepted)), Err(SendError::Full));
        to_other.try_send(&message(1, more)).unwrap();
        assert_eq!(
            queues.try_recv(5, Class::Request).unwrap().map(|message| number(&message)),
            Some(more)
        );
    }
    stopped.resume();
    to_stopped.send(&message(1, accepted)).unwrap();
    stopped.kill();
}
