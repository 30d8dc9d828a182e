//! Tag-On: data stored once, read by many receivers, freed by the last.

use queues::cache_line::{CacheLineHeader, CacheLineMessage, CacheLineQueue};
use queues::error::CreateError;
use queues::tag_on::{NOTE_BYTES, TagOnError, TagOnPool, TagOnPools};
use shm::arena::Arena;
use shm::segment::{Backing, Segment};
use std::sync::Arc;

testing::tests![
    threads_multicast_and_every_receiver_reads_every_byte,
    invalid_calls_are_refused,
    invented_references_open_no_buffer,
    a_pool_in_the_memory_of_a_dropped_one_has_its_own_buffers,
];

fn arena(bytes: u64) -> Arc<Arena> {
    let segment = Arc::new(Segment::create(bytes, Backing::Memory).expect("memory"));
    Arc::new(Arena::new(segment, 0..bytes).expect("the whole segment"))
}

fn threads_multicast_and_every_receiver_reads_every_byte() {
    const MESSAGES: u64 = 400;
    let arena = arena(1 << 22);
    let queues: Vec<CacheLineQueue> =
        (0..3).map(|_| CacheLineQueue::create(&arena, 16, None).expect("memory")).collect();
    let pool = TagOnPool::create(&arena, 4, 1000).expect("memory");
    std::thread::scope(|scope| {
        let senders: Vec<_> = (0..2u8)
            .map(|thread| {
                let pool = &pool;
                let queues = &queues;
                scope.spawn(move || {
                    for number in 0..MESSAGES {
                        let mut draft = loop {
                            match pool.take() {
                                Ok(draft) => break draft,
                                Err(TagOnError::Exhausted { buffers: 4 }) => {
                                    std::thread::yield_now()
                                }
                                Err(other) => panic!("{other}"),
                            }
                        };
                        let length = number % 1001;
                        draft[..length as usize].fill(number as u8 ^ thread);
                        let data = draft.finish(length);
                        let header =
                            CacheLineHeader { handler: thread, ..CacheLineHeader::default() };
                        for queue in queues {
                            let far =
                                std::time::Instant::now() + std::time::Duration::from_secs(60);
                            data.send_deadline(&queue.sender(), header, &number.to_le_bytes(), far)
                                .expect("received");
                        }
                    }
                })
            })
            .collect();
        for queue in &queues {
            let segment = arena.segment();
            scope.spawn(move || {
                let mut pools = TagOnPools::new(segment);
                let mut receiver = queue.receiver().expect("shared");
                let mut next = [0u64; 2];
                while next != [MESSAGES; 2] {
                    let message = receiver.recv().expect("open");
                    let thread = message.header().handler;
                    let number = u64::from_le_bytes(
                        TagOnPools::note(&message).try_into().expect("eight bytes"),
                    );
                    assert_eq!(number, next[thread as usize]);
                    next[thread as usize] += 1;
                    let data = pools.open(&message).expect("held");
                    assert_eq!(data.len() as u64, number % 1001);
                    assert!(
                        data.iter().all(|byte| *byte == number as u8 ^ thread),
                        "message {number} of {thread}"
                    );
                }
            });
        }
        senders.into_iter().for_each(|sender| sender.join().expect("a sender ends"));
    });
    assert!(pool.is_idle());
    let before = arena.used();
    drop(pool);
    assert!(arena.used() < before, "the pool's memory is free again");
}

fn invalid_calls_are_refused() {
    let arena = arena(1 << 20);
    let queue = CacheLineQueue::create(&arena, 2, None).expect("memory");
    for (buffers, bytes) in [(0, 8), (8, 0), (u64::MAX, 8), (8, u64::MAX)] {
        assert!(
            matches!(TagOnPool::create(&arena, buffers, bytes), Err(CreateError::Size { .. })),
            "{buffers}, {bytes}"
        );
    }
    let pool = TagOnPool::create(&arena, 1, 8).expect("memory");
    let data = pool.take().expect("a free buffer").finish(100);
    assert_eq!(data.len(), 8, "no longer than the buffer");
    assert!(matches!(pool.take(), Err(TagOnError::Exhausted { buffers: 1 })));
    let sender = queue.sender();
    let header = CacheLineHeader::default();
    assert!(matches!(
        data.send(&sender, header, &[0; NOTE_BYTES + 1]),
        Err(TagOnError::Note { .. })
    ));
    data.send(&sender, header, &[7; NOTE_BYTES]).expect("space");
    data.send(&sender, header, b"").expect("space");
    assert!(
        matches!(data.send(&sender, header, b""), Err(TagOnError::Send(_))),
        "the queue is full"
    );
    drop(data);
    assert!(!pool.is_idle(), "two messages are under way");

    let mut pools = TagOnPools::new(arena.segment());
    let mut receiver = queue.receiver().expect("shared");
    let first = receiver.try_recv().expect("open").expect("a message");
    assert_eq!(TagOnPools::note(&first), [7; NOTE_BYTES]);
    let opened = pools.open(&first).expect("held");
    let second = receiver.try_recv().expect("open").expect("a message");
    drop(pools.open(&second).expect("held"));
    assert!(matches!(pools.open(&second), Err(TagOnError::NoData)), "opened before");
    drop(opened);
    assert!(pool.is_idle());
    assert!(matches!(pools.open(&first), Err(TagOnError::NoData)));
    let _later = pool.take().expect("a free buffer");
    assert!(
        matches!(pools.open(&first), Err(TagOnError::NoData)),
        "the buffer has another owner now"
    );
}

fn invented_references_open_no_buffer() {
    let arena = arena(1 << 20);
    let pool = TagOnPool::create(&arena, 2, 64).expect("memory");
    let _data = pool.take().expect("a free buffer").finish(64);
    let mut pools = TagOnPools::new(arena.segment());
    let mut number = 1u64;
    for _ in 0..20_000 {
        let mut line = [0u8; 24];
        for byte in &mut line {
            number = number
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            *byte = (number >> 60) as u8;
        }
        let message = CacheLineMessage::new(CacheLineHeader::default(), &line).expect("short");
        assert!(pools.open(&message).is_err());
    }
    assert!(
        pools
            .open(&CacheLineMessage::new(CacheLineHeader::default(), b"short").expect("short"))
            .is_err()
    );
}

fn a_pool_in_the_memory_of_a_dropped_one_has_its_own_buffers() {
    let arena = arena(1 << 20);
    let queue = CacheLineQueue::create(&arena, 16, None).expect("memory");
    let mut receiver = queue.receiver().expect("shared");
    let mut pools = TagOnPools::new(arena.segment());
    let mut places = Vec::new();
    for (bytes, fill) in [(1024, 1u8), (64, 2)] {
        let pool = TagOnPool::create(&arena, 8, bytes).expect("memory");
        // The last buffer lies elsewhere in pools of other sizes.
        let drafts: Vec<_> = (0..8).map(|_| pool.take().expect("free")).collect();
        for mut draft in drafts {
            draft.fill(fill);
            let data = draft.finish(bytes);
            data.send(&queue.sender(), CacheLineHeader::default(), &[]).expect("space");
            let message = receiver.recv().expect("open");
            places.push(message.data()[..8].to_vec());
            let data = pools.open(&message).expect("held");
            assert_eq!(data.to_vec(), vec![fill; bytes as usize]);
        }
    }
    assert_eq!(places[0], places[8], "the second pool lies where the first one did");
}
