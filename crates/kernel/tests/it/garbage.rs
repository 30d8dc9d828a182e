//! A rank that writes garbage into its own memory does not affect other ranks.

use crate::world::World;
use goal::compile::compile;
use goal::graph::{Access, Graph};
use goal::schedule::{Kind, OperationRecord, Schedule};
use kernel::Rank;
use network::backend::{Backend, CommunicatorContext};
use rand::{Rng, SeedableRng, rngs::StdRng};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

testing::tests![needs(Nodes, Bpf):
    long_lists_of_nothing_are_left_to_later_activations,
    garbage_harms_only_its_writer,
];

/// Whole memory of a rank, as a hostile program maps it.
struct Memory {
    start: *mut std::ffi::c_void,
    words: usize,
}

// SAFETY: the mapping belongs to the process; its words are used as atomics only.
unsafe impl Send for Memory {}

impl Memory {
    fn map(handles: &kernel::Handles) -> Memory {
        // The size that the system reports, so that no part of it is left out.
        let described = format!("/proc/self/fdinfo/{}", handles.memory.as_raw_fd());
        let described = std::fs::read_to_string(described).expect("the descriptor is open");
        let size = described
            .lines()
            .find_map(|line| line.strip_prefix("value_size:"))
            .expect("a map says its size");
        let bytes: usize = size.trim().parse().expect("a number");
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &handles.memory,
                0,
            )
        };
        Memory { start: start.expect("a rank may map its memory"), words: bytes / 8 }
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.words);
        // SAFETY: within the mapping, which lives as long as `self`, and aligned. Other processes
        // may change atomics at any time.
        unsafe { &*self.start.cast::<AtomicU64>().add(index) }
    }

    /// Returns garbage of different kinds: arbitrary bits, small numbers that look like offsets and
    /// counts, all ones.
    fn spoil(&self, random: &mut StdRng, words: usize) {
        let first = random.random_range(0..self.words);
        let kind = random.random_range(0..4);
        for index in first..(first + words).min(self.words) {
            let value = match kind {
                0 => random.random(),
                1 => {
                    u64::from(random.random_range(0..5u32)) << 32
                        | u64::from(random.random_range(0..4_194_304u32))
                }
                2 => u64::MAX,
                _ => u64::from(random.random_range(0..300u32)),
            };
            self.word(index).store(value, Ordering::Relaxed);
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: this object owns the mapping, and no reference to it is left.
        let _ = unsafe { munmap(self.start, 8 * self.words) };
    }
}

/// Exchanges numbers with the other honest rank until `is_over` is true. Returns the number of
/// times.
fn exchange(here: &Rank, context: &CommunicatorContext, is_over: &AtomicBool) -> u64 {
    let peer = 1 - context.rank;
    let mut graph = Graph::new(context.rank, 2);
    let input = graph.buffer(Access::Input, 64);
    let output = graph.buffer(Access::Output, 64);
    graph.send(input, peer, 0);
    graph.receive(output, peer, 0);
    let schedule = compile(&graph).expect("the graph is right");
    let prepared = here.register(context, &schedule, 0).expect("it is small");
    let mut lap = 0u64;
    loop {
        // The message marks the last exchange, so that both ranks end with the same one.
        let ends = context.rank == 0 && is_over.load(Ordering::Relaxed);
        let mut own = [lap as u8; 64];
        own[63] = u8::from(ends);
        let run_id = here.start(prepared, lap, &[&own, &[]]).expect("it starts");
        let deadline = Instant::now() + Duration::from_secs(60);
        assert!(
            here.wait(run_id, Some(deadline)).expect("it ends"),
            "lap {lap} of an honest rank is stuck"
        );
        let mut found = [0; 64];
        here.fetch(run_id, &mut [&mut [], &mut found]).expect("it went well");
        assert_eq!(&found[..63], &[lap as u8; 63]);
        lap += 1;
        if ends || (context.rank == 1 && found[63] == 1) {
            return lap;
        }
    }
}

/// Changes every copy of a schedule to one with long lists of empty blocks, which no compiler
/// produces.
fn lengthen(memory: &Memory, schedule: &Schedule, blocks: u32) {
    const RECORD: usize = 8;
    const ARENA: u64 = 4 << 20;
    let view = schedule.view();
    let words = |bytes: &[u8]| -> Vec<u64> {
        bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
    };
    let operations = words(bytemuck::cast_slice(view.operations()));
    let is_here = |first: usize| {
        (0..2 * RECORD)
            .all(|index| memory.word(first + index).load(Ordering::Relaxed) == operations[index])
    };
    let first = (0..memory.words - operations.len())
        .rfind(|first| is_here(*first))
        .expect("it was prepared");
    // Offset of the blocks, and an unused offset before the schedule.
    let place = |bytes: &[u8]| bytes.as_ptr() as u64 - schedule.as_bytes().as_ptr() as u64;
    let blocks_of = view.destination(&view.operations()[0]);
    let distance = place(bytemuck::cast_slice(blocks_of))
        .wrapping_sub(place(bytemuck::cast_slice(view.operations())));
    let emptiness = 0u64.wrapping_sub(distance).wrapping_sub(5 << 19);
    // Index of a record of 24 bytes from the beginning of the arena.
    let third = (0..64).fold(3u64, |inverse, _| {
        inverse.wrapping_mul(2u64.wrapping_sub(3u64.wrapping_mul(inverse)))
    });
    let record = (emptiness / 8).wrapping_mul(third) % (ARENA / 8);
    let is_copy = |record: &OperationRecord| record.kind() == Kind::Copy;
    for (operation, _) in view.operations().iter().enumerate().filter(|(_, record)| is_copy(record))
    {
        let at = first + RECORD * operation;
        memory.word(at + 3).store(u64::from(blocks) << 32 | record, Ordering::Relaxed);
        memory.word(at + 4).store(u64::from(blocks), Ordering::Relaxed);
    }
}

/// A message enables many milliseconds of work in few operations that each seem short. Its sender
/// continues after a small part of it.
fn long_lists_of_nothing_are_left_to_later_activations() {
    const OPERATIONS: u64 = 120;
    const BLOCKS: u32 = 54_000;
    // Both ranks are on one node: the work that the message enables runs inside the sender's start.
    let world = World::new(2, 2, 1500);
    let handles = world.loaders[0].handles(0).expect("there are descriptors").expect("it is there");
    let memory = std::sync::Mutex::new(Some(Memory::map(&handles)));
    let turn = Barrier::new(2);
    world.run(3, move |rank, here| {
        let mut graph = Graph::new(rank as u32, 4);
        let input = graph.buffer(Access::Input, 8);
        let output = graph.buffer(Access::Output, 8 * OPERATIONS);
        match rank {
            0 => {
                let received = graph.receive(output.part(0, 8), 2, 0);
                for operation in 1..OPERATIONS {
                    let copied = graph.copy(input, output.part(8 * operation, 8));
                    graph.requires(copied, received);
                }
            }
            2 => drop(graph.send(input, 0, 0)),
            _ => return,
        }
        let schedule = compile(&graph).expect("the graph is right");
        let context =
            CommunicatorContext { number: 9, members: [0, 1, 2, 3].into(), rank: rank as u32 };
        let prepared = here.register(&context, &schedule, 0).expect("it is small");
        for is_long in [false, true] {
            let start =
                || here.start(prepared, u64::from(is_long), &[&[7; 8], &[]]).expect("it starts");
            if rank == 0 {
                let run_id = start();
                if is_long {
                    let memory = memory.lock().expect("no panic").take().expect("there is one");
                    lengthen(&memory, &schedule, BLOCKS);
                }
                turn.wait();
                turn.wait();
                assert_eq!(
                    here.is_complete(run_id),
                    !is_long,
                    "after the activation that brought the message"
                );
                here.discard(run_id);
            } else {
                turn.wait();
                here.discard(start());
                turn.wait();
            }
        }
    });
}

fn garbage_harms_only_its_writer() {
    const ROUNDS: usize = 300;
    // Ranks 0 and 2 are on node 0, ranks 1 and 3 on node 1. Rank 2 writes garbage; 0 and 1
    // continue.
    let world = World::new(2, 2, 1500);
    let handles = world.loaders[0].handles(2).expect("there are descriptors").expect("it is there");
    let memory = std::sync::Mutex::new(Some(Memory::map(&handles)));
    let is_over = Arc::new(AtomicBool::new(false));
    let seed = rand::random();
    println!("seed {seed}");
    let laps = world.run(3, move |rank, here| match rank {
        2 => {
            let memory = memory.lock().expect("no panic").take().expect("there is one");
            let mut random = StdRng::seed_from_u64(seed);
            let mut graph = Graph::new(2, 4);
            let input = graph.buffer(Access::Input, 8);
            for peer in 0..4 {
                graph.send(input, peer, 1);
                let output = graph.buffer(Access::Output, 8);
                graph.receive(output, peer, 1);
            }
            let schedule = compile(&graph).expect("the graph is right");
            let context = CommunicatorContext { number: 9, members: [0, 1, 2, 3].into(), rank: 2 };
            let mut longest = Duration::ZERO;
            for round in 0..ROUNDS {
                // The range grows from the rank's control words to its whole memory.
                memory.spoil(&mut random, [8, 300, 20_000, memory.words][round % 4]);
                let before = Instant::now();
                if let Ok(prepared) = here.register(&context, &schedule, 0)
                    && let Ok(run_id) = here.start(prepared, round as u64, &[&[7; 8]])
                {
                    here.discard(run_id);
                    here.release(prepared);
                }
                longest = longest.max(before.elapsed());
            }
            println!("the longest start of the rank with corrupt memory took {longest:?}");
            is_over.store(true, Ordering::Relaxed);
            0
        }
        _ => {
            let context =
                CommunicatorContext { number: 3, members: [0, 1].into(), rank: rank as u32 };
            exchange(here, &context, &is_over)
        }
    });
    println!("{} exchanges meanwhile", laps[0]);
    assert_eq!(laps[0], laps[1]);
}
