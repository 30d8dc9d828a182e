//! Reads of memory that a peer has registered.

use crate::emulation;
use crate::messages::Pair;
use fabric::{Access, Event, Library, Memory, Remote};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, fstat, ftruncate, memfd_create};
use shm::segment::{Backing, Offset, Segment};
use shm::word_copy;
use std::os::fd::AsFd;
use std::sync::Arc;
use testing::fabric::EMULATED;

testing::tests![
    needs(Libfabric):
    memory_is_read_over_sockets,
    memory_with_holes_gets_its_pages_again,
];
testing::tests![
    needs(FabricHeaders):
    memory_is_read_under_the_rules_of_adapters,
    memory_that_may_go_is_refused,
    endpoints_of_messages_register_no_memory,
    keys_cannot_be_guessed,
    registered_memory_is_free_when_its_endpoint_is_dropped,
];

/// Start of the memory in its segment: in the middle of a page.
const AT: Offset = Offset(5000);
const BYTES: usize = 300_000;
const PART: usize = 40_000;

fn bytes_of(segment: &Segment) -> Vec<u8> {
    let mut bytes = vec![0; BYTES];
    word_copy::load(segment, AT, &mut bytes).expect("inside");
    bytes
}

/// Polls both ends. Returns the outcomes of the reads that have ended.
fn poll(pair: &mut Pair) -> Vec<Result<(), String>> {
    let mut events = Vec::new();
    pair.ends.iter_mut().for_each(|end| end.poll(&mut events).expect("it works"));
    let outcome = |event| match event {
        Event::Read { token: 7, bytes: _, outcome } => outcome,
        other => panic!("{other:?}"),
    };
    events.into_iter().map(outcome).collect()
}

/// Polls both ends until so many reads of the second have ended.
fn outcomes(pair: &mut Pair, reads: usize) -> Vec<Result<(), String>> {
    let mut ended = Vec::new();
    while ended.len() < reads {
        ended.extend(poll(pair));
    }
    ended
}

/// Begins to read a part of the first end's memory into that of the second, as soon as the provider
/// takes it. Returns the outcomes of other reads that have ended meanwhile.
fn read(
    pair: &mut Pair,
    memory: &Memory,
    part: (usize, usize),
    remote: Remote,
) -> Vec<Result<(), String>> {
    let mut ended = Vec::new();
    loop {
        let peer = pair.peers[1];
        match pair.ends[1].read(memory, part, remote, peer, 7) {
            Ok(()) => return ended,
            Err(None) => ended.extend(poll(pair)),
            Err(Some(error)) => panic!("{error}"),
        }
    }
}

fn memory_is_read(library: &Library, provider: &str) {
    let mut pair = Pair::open(library, provider).expect("it is there");
    let segments = [0, 1].map(|_| {
        Arc::new(Segment::create(AT.0 + BYTES as u64 + 3, Backing::Memory).expect("memory"))
    });
    let uses = [Access::ReadByPeers, Access::FilledByReads];
    let memories = [0, 1].map(|end| {
        let registered = pair.ends[end].register(&segments[end], (AT, BYTES), uses[end]);
        registered.expect("it can be registered")
    });
    assert_eq!(memories[1].remote(), None, "peers may not read it");
    let remote = memories[0].remote().expect("peers read it");
    for round in 0..3usize {
        let contents: Vec<u8> = (0..BYTES).map(|at| (at * 7 + round * 31) as u8).collect();
        word_copy::store(&segments[0], AT, &contents).expect("inside");
        let starts = (0..BYTES).step_by(PART);
        let mut ended = Vec::new();
        for start in starts.clone() {
            let part = (start, PART.min(BYTES - start));
            ended.extend(read(&mut pair, &memories[1], part, remote));
        }
        ended.extend(outcomes(&mut pair, starts.len() - ended.len()));
        assert!(ended.iter().all(Result::is_ok), "{provider}: {ended:?}");
        assert!(bytes_of(&segments[1]) == contents, "{provider}: other bytes in round {round}");
    }
    // Memory that is registered no more cannot be read.
    let [first, second] = memories;
    pair.ends[0].deregister(first);
    let early = read(&mut pair, &second, (0, PART), remote);
    let ended = if early.is_empty() { outcomes(&mut pair, 1) } else { early };
    assert!(matches!(&ended[..], [Err(why)] if !why.is_empty()), "{provider}: {ended:?}");
}

fn memory_is_read_over_sockets() {
    for path in testing::fabric::libraries() {
        let library = Library::open(Some(&path)).expect("the need has opened it");
        for provider in ["tcp+read", "tcp;ofi_rxm+read"] {
            memory_is_read(&library, provider);
        }
    }
}

fn memory_with_holes_gets_its_pages_again() {
    let library = Library::open(None).expect("the need has opened it");
    let mut pair = Pair::open(&library, "tcp+read").expect("it is there");
    let segment = Arc::new(Segment::create(1 << 20, Backing::Memory).expect("memory"));
    let blocks = || fstat(segment.as_fd()).expect("it is open").st_blocks;
    let whole = (Offset(0), 1 << 20);
    let memory = pair.ends[0].register(&segment, whole, Access::ReadByPeers).expect("registered");
    let all = blocks();
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(segment.as_fd(), flags, 4096, 1 << 19).expect("the seals permit it");
    assert!(blocks() < all, "there is a hole");
    pair.ends[0].populate(&memory).expect("the system has memory");
    assert_eq!(blocks(), all);
}

fn memory_is_read_under_the_rules_of_adapters() {
    let library = emulation::library();
    EMULATED[..3].iter().for_each(|provider| memory_is_read(&library, provider));
}

fn memory_that_may_go_is_refused() {
    let library = emulation::library();
    let mut pair = Pair::open(&library, EMULATED[0]).expect("it is there");
    let file = memfd_create("shortened", MemfdFlags::CLOEXEC).expect("a descriptor");
    ftruncate(&file, 8192).expect("it grows");
    let segment = Arc::new(Segment::from_fd(file).expect("mapped"));
    let refused = pair.ends[0]
        .register(&segment, (Offset(0), 8192), Access::ReadByPeers)
        .expect_err("it is not sealed");
    assert!(refused.to_string().contains("may shorten"), "{refused}");
    let segment = Arc::new(Segment::create(8192, Backing::Memory).expect("memory"));
    pair.ends[0]
        .register(&segment, (Offset(1), 8192), Access::ReadByPeers)
        .expect_err("it leaves the segment");
}

fn endpoints_of_messages_register_no_memory() {
    let library = emulation::library();
    for provider in [EMULATED[3], "emulated-verbs+messages"] {
        let mut pair = Pair::open(&library, provider).expect("it is there");
        let segment = Arc::new(Segment::create(8192, Backing::Memory).expect("memory"));
        let refused = pair.ends[0]
            .register(&segment, (Offset(0), 8192), Access::ReadByPeers)
            .expect_err("it cannot read");
        assert!(refused.to_string().contains("messages only"), "{provider}: {refused}");
    }
}

fn keys_cannot_be_guessed() {
    let library = emulation::library();
    // This provider leaves the choice of keys to its user.
    let mut pair = Pair::open(&library, EMULATED[1]).expect("it is there");
    let segment = Arc::new(Segment::create(8192, Backing::Memory).expect("memory"));
    let memories = [(); 8].map(|()| {
        let whole = (Offset(0), 8192);
        pair.ends[0].register(&segment, whole, Access::ReadByPeers).expect("it can be registered")
    });
    let keys = memories.map(|memory| memory.remote().expect("peers read it").key);
    // All of them are that small by chance once in 2^128 runs.
    assert!(keys.iter().any(|key| *key > 1 << 16), "{keys:?}");
}

fn registered_memory_is_free_when_its_endpoint_is_dropped() {
    let library = emulation::library();
    for provider in &EMULATED[..3] {
        let mut pair = Pair::open(&library, provider).expect("it is there");
        let segment = Arc::new(Segment::create(8192, Backing::Memory).expect("memory"));
        for access in [Access::ReadByPeers, Access::FilledByReads] {
            let registered = pair.ends[0].register(&segment, (Offset(0), 8192), access);
            registered.expect("it can be registered");
        }
        drop(pair);
        // A provider that refuses to close the endpoint would keep it.
        assert_eq!(Arc::strong_count(&segment), 1, "{provider}");
    }
}
