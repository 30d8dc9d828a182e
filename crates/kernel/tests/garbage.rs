//! A rank that writes garbage into its own memory harms nobody else.

mod world;

use goal::compile::compile;
use goal::graph::{Access, Graph};
use kernel::Rank;
use network::carrier::{Carrier, Context};
use rand::{Rng, SeedableRng, rngs::StdRng};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use world::World;

/// A rank's whole memory, as a hostile program maps it.
struct Memory {
    start: *mut std::ffi::c_void,
    words: usize,
}

// SAFETY: the mapping belongs to the process; its words are used as atomics only.
unsafe impl Send for Memory {}

impl Memory {
    fn map(handles: &kernel::Handles, bytes: usize) -> Memory {
        // SAFETY: a new mapping at a place of the kernel's choice.
        let start = unsafe {
            mmap(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &handles.memory, 0)
        };
        Memory { start: start.expect("a rank may map its memory"), words: bytes / 8 }
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.words);
        // SAFETY: within the mapping, which lives as long as `self`, and aligned; atomics may be changed by others.
        unsafe { &*self.start.cast::<AtomicU64>().add(index) }
    }

    /// Garbage of different kinds: anything, small numbers that look like places and counts, all ones.
    fn spoil(&self, random: &mut StdRng, words: usize) {
        let (first, kind) = (random.random_range(0..self.words), random.random_range(0..4));
        for index in first..(first + words).min(self.words) {
            let value = match kind {
                0 => random.random(),
                1 => u64::from(random.random_range(0..5u32)) << 32 | u64::from(random.random_range(0..4_194_304u32)),
                2 => u64::MAX,
                _ => u64::from(random.random_range(0..300u32)),
            };
            self.word(index).store(value, Ordering::Relaxed);
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody refers to it any more.
        let _ = unsafe { munmap(self.start, 8 * self.words) };
    }
}

/// Exchanges numbers with the other honest rank until told to end; how many times.
fn exchange(here: &Rank, context: &Context, is_over: &AtomicBool) -> u64 {
    let peer = 1 - context.rank;
    let mut graph = Graph::new(context.rank, 2);
    let (input, output) = (graph.buffer(Access::Input, 64), graph.buffer(Access::Output, 64));
    graph.send(input, peer, 0);
    graph.receive(output, peer, 0);
    let schedule = compile(&graph).expect("the graph is right");
    let prepared = here.prepare(context, &schedule, 0).expect("it is small");
    let mut lap = 0u64;
    loop {
        // The last lap is told by a message, so that both end with the same one.
        let ends = context.rank == 0 && is_over.load(Ordering::Relaxed);
        let mut own = [lap as u8; 64];
        own[63] = u8::from(ends);
        let ticket = here.start(prepared, lap, &[&own, &[]]).expect("it starts");
        let deadline = Instant::now() + Duration::from_secs(60);
        assert!(here.wait(ticket, Some(deadline)).expect("it ends"), "lap {lap} of an honest rank is stuck");
        let mut found = [0; 64];
        here.fetch(ticket, &mut [&mut [], &mut found]).expect("it went well");
        assert_eq!(&found[..63], &[lap as u8; 63]);
        lap += 1;
        if ends || (context.rank == 1 && found[63] == 1) {
            return lap;
        }
    }
}

#[test]
fn garbage_harms_only_its_writer() {
    const BYTES: usize = 4 << 20;
    const ROUNDS: usize = 300;
    // Ranks 0 and 2 are on host 0, ranks 1 and 3 on host 1. Rank 2 goes mad; 0 and 1 go on.
    let world = testbed::or_skip!(World::new(2, 2, 1500));
    let handles = world.loaders[0].handles(2).expect("there are descriptors").expect("it is there");
    let memory = std::sync::Mutex::new(Some(Memory::map(&handles, BYTES)));
    let is_over = Arc::new(AtomicBool::new(false));
    let seed = rand::random();
    println!("seed {seed}");
    let laps = world.run(3, move |rank, here| match rank {
        2 => {
            let memory = memory.lock().expect("nobody panicked").take().expect("there is one");
            let mut random = StdRng::seed_from_u64(seed);
            let mut graph = Graph::new(2, 4);
            let input = graph.buffer(Access::Input, 8);
            for peer in 0..4 {
                graph.send(input, peer, 1);
                let output = graph.buffer(Access::Output, 8);
                graph.receive(output, peer, 1);
            }
            let schedule = compile(&graph).expect("the graph is right");
            let context = Context { number: 9, members: [0, 1, 2, 3].into(), rank: 2 };
            let mut longest = Duration::ZERO;
            for round in 0..ROUNDS {
                // From the words of the rank itself to all of its memory.
                memory.spoil(&mut random, [8, 300, 20_000, BYTES / 8][round % 4]);
                let before = Instant::now();
                if let Ok(prepared) = here.prepare(&context, &schedule, 0)
                    && let Ok(ticket) = here.start(prepared, round as u64, &[&[7; 8]])
                {
                    here.forget(ticket);
                    here.release(prepared);
                }
                longest = longest.max(before.elapsed());
            }
            println!("the longest start of the rank that went mad took {longest:?}");
            is_over.store(true, Ordering::Relaxed);
            0
        }
        _ => {
            let context = Context { number: 3, members: [0, 1].into(), rank: rank as u32 };
            exchange(here, &context, &is_over)
        }
    });
    println!("{} exchanges meanwhile", laps[0]);
    assert_eq!(laps[0], laps[1]);
}
