//! Append buffers: order of the records of several processes, and the end of every wait.

use crate::child::{Child, memory, segment_and_offsets};
use crate::ends;
use queues::append;
use queues::error::{CreateError, SendError};
use shm::segment::Offset;
use std::time::{Duration, Instant};
use testing::mechanism::{End, between_threads};

testing::tests![
    records_keep_their_order_although_a_sender_is_killed,
    an_append_buffer_is_bounded_and_says_why,
    long_records_of_two_senders_arrive,
];
testing::parts![child_appends_until_killed,];

fn records_keep_their_order_although_a_sender_is_killed() {
    let (segment, arena) = memory(1 << 20);
    let mut buffer = append::Receiver::create(&arena, 8, 16).expect("space");
    let mut first = Child::start_on(
        "append::child_appends_until_killed",
        &segment,
        &[buffer.offset(), Offset(1)],
    );
    let second = Child::start_on(
        "append::child_appends_until_killed",
        &segment,
        &[buffer.offset(), Offset(2)],
    );
    let mut next = [0_u64; 3];
    let mut record = Vec::new();
    let mut take = |next: &mut [u64; 3], buffer: &mut append::Receiver| {
        buffer.recv(&mut record).expect("intact");
        let sender = record[0] as usize;
        let number = u64::from_le_bytes(record[8..16].try_into().expect("8 bytes"));
        assert_eq!(number, next[sender], "in its appender's order, none missing and none twice");
        next[sender] += 1;
    };
    while next[1] < 1_000 || next[2] < 1_000 {
        take(&mut next, &mut buffer);
    }
    for round in 0..20 {
        // Wherever it stands, perhaps in the middle of a record, the other goes on.
        first.stop();
        let goal = next[2] + 100;
        while next[2] < goal {
            take(&mut next, &mut buffer);
        }
        if round < 19 {
            first.resume();
        }
    }
    first.kill();
    let goal = next[2] + 1_000;
    while next[2] < goal {
        take(&mut next, &mut buffer);
    }
    drop((first, second));
    drop(buffer);
    assert_eq!(arena.used(), 0, "the dead keep nothing");
}

/// Child process of `records_keep_their_order_although_a_sender_is_killed`.
fn child_appends_until_killed() {
    let (segment, offsets) = segment_and_offsets();
    let appender = append::Sender::connect(&segment, offsets[0]).expect("made");
    let mut record = [offsets[1].0 as u8; 16];
    for number in 0_u64.. {
        record[8..].copy_from_slice(&number.to_le_bytes());
        if appender.send(&record).is_err() {
            return;
        }
    }
}

fn an_append_buffer_is_bounded_and_says_why() {
    let (segment, arena) = memory(1 << 20);
    let mut made = append::Receiver::create(&arena, 3, 5).expect("space");
    let buffer = made.offset();
    let appender = append::Sender::connect(&segment, buffer).expect("made");
    assert_eq!(appender.try_send(&[0; 6]), Err(SendError::TooLong { max: 5 }));
    for record in [&b""[..], b"a", b"hello"] {
        appender.try_send(record).expect("space");
    }
    assert_eq!(appender.try_send(b"x"), Err(SendError::Full));
    let soon = Instant::now() + Duration::from_millis(2);
    assert_eq!(appender.send_deadline(b"x", soon), Err(SendError::Timeout));
    let mut record = vec![9; 9];
    for expected in [&b""[..], b"a", b"hello"] {
        assert_eq!(made.try_recv(&mut record), Ok(true));
        assert_eq!(record, expected);
    }
    assert_eq!(made.try_recv(&mut record), Ok(false));
    let soon = Instant::now() + Duration::from_millis(2);
    assert_eq!(made.recv_deadline(&mut record, soon), Ok(false));
    std::thread::scope(|scope| {
        (0..3).for_each(|_| appender.send(b"y").expect("space"));
        let waiting = scope.spawn(|| appender.send(b"z"));
        drop(made);
        assert_eq!(waiting.join().expect("it ends"), Err(SendError::Closed));
    });
    assert!(matches!(append::Sender::connect(&segment, buffer), Err(CreateError::Closed { .. })));
    assert!(matches!(
        append::Sender::connect(&segment, Offset(64)),
        Err(CreateError::NotFound { .. })
    ));
    assert!(matches!(append::Receiver::create(&arena, 0, 5), Err(CreateError::Size { .. })));
    assert!(matches!(append::Receiver::create(&arena, 1, u64::MAX), Err(CreateError::Size { .. })));
}

/// Long records of two senders while the receiver polls without pause: a slot is voided only if its
/// sender is stopped, not because its record takes long to copy.
fn long_records_of_two_senders_arrive() {
    const RECORDS: u64 = 12;
    let (segment, arena) = memory(16 << 20);
    let buffer = append::Receiver::create(&arena, 4, 1 << 20).expect("space");
    let connect = || append::Sender::connect(&segment, buffer.offset()).expect("made");
    let senders = vec![ends::append(0, connect()), ends::append(1, connect())];
    let mut receiver = ends::of_append(buffer);
    let mut left = 2 * RECORDS;
    let all = move |wait| {
        if left == 0 {
            return Err(End::Closed);
        }
        let found = receiver(wait);
        left -= u64::from(matches!(found, Ok(Some(_))));
        found
    };
    between_threads(senders, vec![Box::new(all)], RECORDS, || ());
}
