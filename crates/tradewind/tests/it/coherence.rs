//! The memory of the example `shared_memory` is coherent: on one node and between nodes, no rank sees
//! accesses in an order that a single memory could not have.

#[allow(dead_code, reason = "the example's main is not called")]
#[path = "../../examples/shared_memory.rs"]
mod shared_memory;

use shared_memory::{PAGE_WORDS, count_primes, share};
use tradewind::{Communicator, Result, local, local_nodes};

testing::tests![
    portions_of_work_are_taken_once,
    updates_of_all_ranks_count,
    what_was_written_before_a_flag_is_seen_after_it,
    two_ranks_never_both_miss_the_others_write,
    words_of_one_page_are_independent,
];

/// On one node, and on two.
fn everywhere(body: impl Fn(&Communicator) -> Result<()> + Sync) {
    local(3, |world| body(&world)).expect("one node");
    local_nodes(&[2, 1], |world| body(&world)).expect("two nodes");
}

fn portions_of_work_are_taken_once() {
    everywhere(|world| {
        assert_eq!(count_primes(world, 20_500)?.0, 2313);
        Ok(())
    });
}

fn updates_of_all_ranks_count() {
    const EACH: u64 = 200;
    everywhere(|world| {
        share(world, |memory| {
            let ranks = u64::from(world.size());
            // Counters on pages of every home, each updated by all ranks.
            for step in 0..EACH {
                for page in 0..ranks {
                    memory.update(PAGE_WORDS * page + step % 7, |count| count + 1)?;
                }
            }
            world.barrier()?;
            for page in 0..ranks {
                let counts = (0..7).map(|place| memory.read(PAGE_WORDS * page + place));
                assert_eq!(counts.sum::<Result<u64>>()?, EACH * ranks);
            }
            Ok(())
        })
    });
}

fn what_was_written_before_a_flag_is_seen_after_it() {
    const ROUNDS: u64 = 100;
    everywhere(|world| {
        share(world, |memory| {
            // Flag and data at different homes.
            let (flag, data) = (0, PAGE_WORDS);
            for round in 1..=ROUNDS {
                if world.rank() == 0 {
                    memory.write(data, round)?;
                    memory.write(flag, round)?;
                } else {
                    while memory.read(flag)? < round {
                        std::thread::yield_now();
                    }
                    assert!(memory.read(data)? >= round, "round {round}");
                }
            }
            Ok(())
        })
    });
}

/// With stores that are delayed behind loads, both could read 0 (Dekker's algorithm would fail).
fn two_ranks_never_both_miss_the_others_write() {
    const ROUNDS: u64 = 100;
    everywhere(|world| {
        share(world, |memory| {
            let rank = u64::from(world.rank());
            for round in 0..ROUNDS {
                let word = |rank: u64| PAGE_WORDS * rank + 2 * (round % 200);
                if rank < 2 {
                    memory.write(word(rank), 1)?;
                    let found = memory.read(word(1 - rank))?;
                    memory.write(word(rank) + 1, found)?;
                }
                world.barrier()?;
                let found = memory.read(word(0) + 1)? + memory.read(word(1) + 1)?;
                assert!(found >= 1, "round {round}");
                world.barrier()?;
            }
            Ok(())
        })
    });
}

fn words_of_one_page_are_independent() {
    everywhere(|world| {
        share(world, |memory| {
            let (rank, ranks) = (u64::from(world.rank()), u64::from(world.size()));
            for step in 0..100 {
                memory.write(rank + ranks * step, step * 10 + rank)?;
            }
            world.barrier()?;
            for (rank, step) in (0..ranks).flat_map(|rank| (0..100).map(move |step| (rank, step))) {
                assert_eq!(memory.read(rank + ranks * step)?, step * 10 + rank);
            }
            Ok(())
        })
    });
}
