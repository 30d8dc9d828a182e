//! Claims of CacheLine queues: messages that are written in place, slow and dropped ones.

use crate::ends::line;
use queues::cache_line::{
    CacheLineHeader, CacheLineMessage, CacheLineQueue, CacheLineReceiver, LINE_DATA, Multi,
    RecvError, SendError,
};
use queues::id::SourceName;
use shm::arena::Arena;
use shm::segment::{Backing, Segment};
use std::sync::Arc;

testing::tests![
    every_length_up_to_a_line_is_carried_and_no_longer_one,
    a_slow_claim_blocks_no_thread_and_is_sent_again,
    a_slow_message_returns_to_its_sender_when_the_queue_is_full,
    a_dropped_claim_sends_nothing_and_leaves_nothing,
];

fn queue(capacity: usize) -> CacheLineQueue {
    let segment = Arc::new(Segment::create(1 << 20, Backing::Memory).expect("memory"));
    let arena = Arena::new(segment, 0..1 << 20).expect("a range of the segment");
    CacheLineQueue::create(&arena, capacity, None).expect("space in the arena")
}

fn header(from: u16) -> CacheLineHeader {
    CacheLineHeader { source: SourceName::new(from).expect("14 bits"), handler: 3, tag: 0xbeef }
}

/// Takes the next message, past lines that hold it up.
fn receive_through(receiver: &mut CacheLineReceiver<Multi>) -> Option<CacheLineMessage> {
    loop {
        match receiver.try_recv().expect("open") {
            None if receiver.is_ready() => {}
            other => return other,
        }
    }
}

fn every_length_up_to_a_line_is_carried_and_no_longer_one() {
    let queue = queue(4);
    let sender = queue.sender();
    let mut receiver = queue.receiver().expect("free");
    let bytes: Vec<u8> = (1..=LINE_DATA as u8).collect();
    for length in 0..=LINE_DATA {
        let sent = CacheLineMessage::new(header(7), &bytes[..length]).expect("at most 48 bytes");
        sender.try_send(&sent).expect("space");
        let mut claim = sender.claim(header(8)).expect("space");
        claim.write(0, &bytes[..length / 2]).write(length / 2, &bytes[length / 2..length]);
        claim.publish(length).expect("in time");
        for from in [7, 8] {
            let got = receiver.try_recv().expect("open").expect("a message");
            assert_eq!((got.header(), got.data()), (header(from), &bytes[..length]));
        }
    }
    assert!(CacheLineMessage::new(header(7), &[0; LINE_DATA + 1]).is_none());
    let mut claim = sender.claim(header(7)).expect("space");
    claim.write(LINE_DATA - 1, &[1, 2, 3]).write(usize::MAX, &[4]).write_word(6, 5);
    claim.publish(usize::MAX).expect("in time");
    let got = receiver.try_recv().expect("open").expect("a message");
    assert_eq!(
        (got.data().len(), got.data()[LINE_DATA - 1]),
        (LINE_DATA, 1),
        "what does not fit is cut off"
    );
}

fn a_slow_claim_blocks_no_thread_and_is_sent_again() {
    let queue = queue(4);
    let sender = queue.sender();
    let mut receiver = queue.receiver().expect("free");
    let mut claim = sender.claim(line(1, 40).header()).expect("space");
    claim.write(0, line(1, 40).data());
    // Others pass, lap after lap.
    for number in 0..20 {
        assert_eq!(sender.try_send(&line(2, number)), Ok(()));
        assert_eq!(receive_through(&mut receiver), Some(line(2, number)));
    }
    claim
        .write_word(5, u64::from_le_bytes(line(1, 40).data()[40..48].try_into().expect("8 bytes")));
    claim.publish(LINE_DATA).expect("there is space");
    assert_eq!(receive_through(&mut receiver), Some(line(1, 40)));
    // And all lines are there again.
    (0..4).for_each(|number| assert_eq!(sender.try_send(&line(2, number)), Ok(())));
    assert_eq!(sender.try_send(&line(2, 4)), Err(SendError::Full));
}

fn a_slow_message_returns_to_its_sender_when_the_queue_is_full() {
    let queue = queue(2);
    let sender = queue.sender();
    let mut receiver = queue.receiver().expect("free");
    let mut claim = sender.claim(line(1, 40).header()).expect("space");
    claim.write(0, line(1, 40).data());
    sender.try_send(&line(2, 0)).expect("the other line");
    assert_eq!(receive_through(&mut receiver), Some(line(2, 0)));
    sender.try_send(&line(2, 1)).expect("the other line again");
    let refused = claim.publish(LINE_DATA).expect_err("both lines are in use");
    assert_eq!((refused.reason, refused.message), (SendError::Full, line(1, 40)));
    assert_eq!(receive_through(&mut receiver), Some(line(2, 1)));
    sender.try_send(&refused.message).expect("space");
    assert_eq!(receive_through(&mut receiver), Some(line(1, 40)));

    let claim = sender.claim(line(1, 40).header()).expect("space");
    queue.close();
    while receiver.try_recv() != Err(RecvError::Closed) {}
    assert_eq!(claim.publish(0).expect_err("closed").reason, SendError::Closed);
}

fn a_dropped_claim_sends_nothing_and_leaves_nothing() {
    let queue = queue(2);
    let sender = queue.sender();
    let mut receiver = queue.receiver().expect("free");
    for number in 0..10 {
        drop(sender.claim(line(1, 40).header()).expect("space"));
        sender.try_send(&line(2, number)).expect("space");
        assert_eq!(receiver.try_recv(), Ok(Some(line(2, number))));
    }
}
