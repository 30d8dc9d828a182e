//! The lock-free protocols of the engine under loom: every interleaving of a few threads.
//!
//! The files under test are included as they are; they use `crate::sync`, which here is loom's.

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

    /// Stands for its share of the fence that the other side's heavy fence has the processor
    /// execute.
    pub(crate) fn light_fence() {
        fence(Ordering::SeqCst);
    }

    pub(crate) fn heavy_fence() -> bool {
        fence(Ordering::SeqCst);
        true
    }
}

#[path = "../../src/protocol/arrival.rs"]
#[expect(dead_code, reason = "not every question is part of a model")]
mod arrival;
#[path = "../../src/protocol/chunk_claims.rs"]
mod chunk_claims;
#[path = "../../src/protocol/combiner.rs"]
mod combiner;
#[path = "../../src/protocol/dependency_counter.rs"]
mod dependency_counter;
#[path = "../../src/protocol/link_table.rs"]
mod link_table;
#[path = "../../src/protocol/owner_queue.rs"]
mod owner_queue;
#[path = "../../src/protocol/run_state.rs"]
#[expect(dead_code, reason = "not every state is part of a model")]
mod run_state;
mod streams;

use link_table::{LinkProgress, Lookup};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use run_state::{RunState, RunStates, SlotWindow};
use sync::{AtomicU32, AtomicU64, Ordering};

/// Bounded, so that the whole file takes seconds; three preemptions find what more find, in
/// practice.
fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(body);
}

/// Shared memory that only the protocol under test keeps from being touched by two at once; loom
/// reports it if not.
struct Payload(UnsafeCell<u32>);

// SAFETY: every access goes through loom's cell, which fails the model when two meet.
unsafe impl Sync for Payload {}
// SAFETY: as above.
unsafe impl Send for Payload {}

impl Payload {
    fn new() -> Self {
        Payload(UnsafeCell::new(0))
    }

    fn set(&self, value: u32) {
        // SAFETY: loom checks that no other thread has access.
        self.0.with_mut(|place| unsafe { *place = value });
    }

    fn get(&self) -> u32 {
        // SAFETY: loom checks that no other thread writes meanwhile.
        self.0.with(|place| unsafe { *place })
    }
}

#[test]
fn the_last_arrival_sees_what_all_others_wrote_in_every_use_of_a_slot() {
    model(|| {
        let shared =
            Arc::new((AtomicU32::new(0), [Payload::new(), Payload::new()], AtomicU32::new(0)));
        let rank = |mine: usize, shared: Arc<(AtomicU32, [Payload; 2], AtomicU32)>| {
            for uses in 1..=2u32 {
                shared.1[mine].set(uses);
                if dependency_counter::arrive(&shared.0, 2, uses) {
                    assert_eq!([shared.1[0].get(), shared.1[1].get()], [uses, uses]);
                    shared.2.fetch_add(1, Ordering::AcqRel);
                }
                // The slot is used again when its run is over.
                while shared.2.load(Ordering::Acquire) < uses {
                    thread::yield_now();
                }
            }
        };
        let other = Arc::clone(&shared);
        let thread = thread::spawn(move || rank(1, other));
        rank(0, Arc::clone(&shared));
        thread.join().expect("the other rank ends");
        assert_eq!(shared.2.load(Ordering::Acquire), 2);
    });
}

#[test]
fn every_chunk_is_claimed_once_and_the_last_to_finish_sees_all() {
    model(|| {
        const CHUNKS: u32 = 3;
        struct Work {
            claimed: AtomicU64,
            finished: AtomicU64,
            chunks: [Payload; CHUNKS as usize],
            done: AtomicU32,
        }
        let work = Arc::new(Work {
            claimed: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            chunks: [Payload::new(), Payload::new(), Payload::new()],
            done: AtomicU32::new(0),
        });
        let help = |work: &Work| {
            while let Some(chunk) = chunk_claims::next_in_lap(&work.claimed, 0, CHUNKS) {
                let place = &work.chunks[chunk as usize];
                place.set(place.get() + 1);
                if chunk_claims::next_in_lap(&work.finished, 0, CHUNKS) == Some(CHUNKS - 1) {
                    assert!(work.chunks.iter().all(|place| place.get() == 1));
                    work.done.fetch_add(1, Ordering::Release);
                }
            }
        };
        let other = Arc::clone(&work);
        let thread = thread::spawn(move || help(&other));
        help(&work);
        thread.join().expect("the other helper ends");
        assert_eq!(work.done.load(Ordering::Acquire), 1);
    });
}

#[test]
fn an_owner_gets_every_entry_that_was_left_for_it_once() {
    model(|| {
        let list = Arc::new((
            AtomicU32::new(0),
            [AtomicU64::new(0), AtomicU64::new(0)],
            [Payload::new(), Payload::new()],
        ));
        let threads: Vec<_> = (0..2u32)
            .map(|code| {
                let list = Arc::clone(&list);
                thread::spawn(move || {
                    list.2[code as usize].set(code + 7);
                    owner_queue::push(&list.0, &list.1, code);
                })
            })
            .collect();
        let head = AtomicU32::new(0);
        let mut got = Vec::new();
        let look = |got: &mut Vec<u32>| {
            while let Some(code) = owner_queue::take(&head, &list.1) {
                assert_eq!(list.2[code as usize].get(), code + 7);
                got.push(code);
            }
        };
        look(&mut got);
        for thread in threads {
            thread.join().expect("a writer ends");
        }
        look(&mut got);
        got.sort_unstable();
        assert_eq!(got, [0, 1]);
    });
}

#[test]
fn events_are_handled_by_one_at_a_time_and_none_is_lost() {
    model(|| {
        let shared = Arc::new((AtomicU32::new(0), Payload::new()));
        let submit = |shared: &(AtomicU32, Payload)| {
            combiner::submit(&shared.0, |count| shared.1.set(shared.1.get() + count));
        };
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || submit(&shared))
            })
            .collect();
        submit(&shared);
        for thread in threads {
            thread.join().expect("a submitter ends");
        }
        assert_eq!(shared.1.get(), 3);
        assert_eq!(shared.0.load(Ordering::Acquire), 0);
    });
}

/// Zeroed run states.
fn run_states(slots: u64) -> RunStates<Box<[AtomicU64]>> {
    RunStates::new((0..slots).map(|_| AtomicU64::new(0)).collect())
}

/// Two ranks, two slots, three runs: what a rank reads from a slot is what belongs to its run,
/// although the slot is used again. Each rank starts a run only when its slot is free, arrives,
/// waits for the other and reads the other's word.
#[test]
fn a_slot_is_used_again_only_when_every_rank_has_consumed_it() {
    const SLOTS: u64 = 2;
    const RUNS: u64 = 3;
    struct Slot {
        arrivals: AtomicU32,
        words: [Payload; 2],
    }
    struct Shared {
        slots: [Slot; SLOTS as usize],
        states: [RunStates<Box<[AtomicU64]>>; 2],
    }
    fn rank(me: usize, shared: &Shared) {
        let mut turn = SlotWindow::new();
        for run in 0..RUNS {
            while !turn.fits(SLOTS) {
                turn.refresh(&shared.states);
                thread::yield_now();
            }
            let own = &shared.states[me];
            own.begin(run, RunState::Active);
            turn.next += 1;
            let slot = &shared.slots[(run % SLOTS) as usize];
            let uses = (run / SLOTS) as u32 + 1;
            slot.words[me].set(10 * run as u32 + me as u32);
            slot.arrivals.fetch_add(1, Ordering::AcqRel);
            while slot.arrivals.load(Ordering::Acquire) < 2 * uses {
                thread::yield_now();
            }
            assert!(own.change(run, RunState::Active, RunState::Taken));
            assert_eq!(slot.words[1 - me].get(), 10 * run as u32 + 1 - me as u32);
            own.consume(run);
        }
    }
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.max_branches = 20_000;
    builder.check(|| {
        let slot = || Slot { arrivals: AtomicU32::new(0), words: [Payload::new(), Payload::new()] };
        let shared = Arc::new(Shared {
            slots: [slot(), slot()],
            states: [run_states(SLOTS), run_states(SLOTS)],
        });
        let other = Arc::clone(&shared);
        let thread = thread::spawn(move || rank(1, &other));
        rank(0, &shared);
        thread.join().expect("the other rank ends");
    });
}

/// An input that two other ranks may read in place, after its owner's call: the owner changes it only
/// when both have consumed or abandoned the run, and reads it at any time.
#[test]
fn an_input_changes_only_when_every_reader_has_consumed_or_abandoned_the_run() {
    model(|| {
        let shared = Arc::new((AtomicU32::new(0), Payload::new(), [run_states(1), run_states(1)]));
        let read = |reader: usize, shared: Arc<(AtomicU32, Payload, [RunStates<_>; 2])>| {
            let own: &RunStates<Box<[AtomicU64]>> = &shared.2[reader];
            own.begin(0, RunState::Taken);
            // A reader that has not seen the arrival drops its request or, the second, reads later.
            if shared.0.load(Ordering::Acquire) == 1 {
                assert_eq!(shared.1.get(), 7);
                own.consume(0);
            } else if reader == 0 {
                assert!(own.change(0, RunState::Taken, RunState::Abandoned));
                assert!(own.change(0, RunState::Abandoned, RunState::Consumed));
            }
        };
        let readers = [0, 1].map(|reader| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || read(reader, shared))
        });
        shared.1.set(7);
        shared.0.store(1, Ordering::Release);
        if shared.2.iter().all(|states| states.is_read(0)) {
            shared.1.set(8);
        } else {
            assert_eq!(shared.1.get(), 7);
        }
        for reader in readers {
            reader.join().expect("a reader ends");
        }
    });
}

/// A request that is fetched while another thread's start moves finished results out of the way:
/// one of them takes it.
#[test]
fn a_result_is_taken_by_the_fetcher_or_by_the_retirer_never_by_both() {
    model(|| {
        let states = Arc::new((run_states(1), Payload::new()));
        states.0.begin(0, RunState::Active);
        let take = |states: &(RunStates<Box<[AtomicU64]>>, Payload)| {
            let mine = states.0.change(0, RunState::Active, RunState::Taken);
            if mine {
                states.1.set(states.1.get() + 1);
                states.0.consume(0);
            }
            mine
        };
        let other = Arc::clone(&states);
        let thread = thread::spawn(move || take(&other));
        let mine = take(&states);
        let theirs = thread.join().expect("the other thread ends");
        assert!(mine != theirs);
        assert!(states.0.is_past(0));
        assert_eq!(states.1.get(), 1);
    });
}

/// Two ranks arrive at a flat collective and a third only waits. A rank wakes sleepers only if it
/// sees that all have arrived. No rank sleeps through the end, and a rank that sees all arrivals
/// sees their contributions.
#[test]
fn a_sleeper_is_woken_by_the_last_that_comes() {
    model(|| {
        struct FlatCollective {
            rank_cells: [AtomicU64; 2],
            contributions: [Payload; 2],
            sleepers: AtomicU32,
        }
        let have_all_arrived = |flat: &FlatCollective| {
            flat.rank_cells.iter().all(|rank_cell| arrival::has_arrived(rank_cell, 0))
        };
        let flat = Arc::new(FlatCollective {
            rank_cells: [AtomicU64::new(0), AtomicU64::new(0)],
            contributions: [Payload::new(), Payload::new()],
            sleepers: AtomicU32::new(0),
        });
        let arrivals: Vec<_> = (0..2usize)
            .map(|rank| {
                let flat = Arc::clone(&flat);
                thread::spawn(move || {
                    flat.contributions[rank].set(rank as u32 + 7);
                    arrival::arrive(&flat.rank_cells[rank], arrival::word(0, 1));
                    // The wake itself is the change of the word, which the kernel compares before
                    // it lets anyone sleep.
                    arrival::must_wake(&flat.sleepers, || have_all_arrived(&flat))
                })
            })
            .collect();
        let slept_on = arrival::mark(&flat.sleepers, || have_all_arrived(&flat));
        let woken = arrivals
            .into_iter()
            .map(|thread| thread.join().expect("a rank ends"))
            .filter(|woke| *woke)
            .count();
        if let Some(mark) = slept_on {
            assert!(mark.certain);
            assert_ne!(flat.sleepers.load(Ordering::Relaxed), mark.value, "it sleeps for ever");
            assert_eq!(woken, 1);
        }
        assert!(have_all_arrived(&flat));
        assert_eq!([flat.contributions[0].get(), flat.contributions[1].get()], [7, 8]);
    });
}

/// Two ranks link twice, with links that share an entry. Each publishes a block of its own or takes
/// the other's; both get the same block, with the header that its owner wrote, and the second link
/// replaces the entry only when both ranks have found the first block.
#[test]
fn ranks_agree_on_the_block_of_each_link_without_waiting_for_each_other() {
    const LINKS: [u64; 2] = [0, link_table::ENTRIES];
    struct Progress {
        started: AtomicU64,
        oldest_pending: AtomicU64,
    }
    struct Shared {
        entry: AtomicU64,
        progress: [Progress; 2],
        /// By link and by the rank that allocates.
        headers: [[Payload; 2]; 2],
    }
    fn link_progress(shared: &Shared, rank: usize) -> LinkProgress<'_> {
        let Progress { started, oldest_pending } = &shared.progress[rank];
        LinkProgress { started, oldest_pending }
    }
    fn link(shared: &Shared, rank: usize, number: usize) -> u64 {
        let sequence = LINKS[number];
        let own = link_progress(shared, rank);
        own.record_pending(sequence);
        own.started.store(sequence + 1, Ordering::Release);
        let header = |offset: u64| {
            let index = (offset / 64 - 1) as usize;
            &shared.headers[index / 2][index % 2]
        };
        loop {
            let lookup = link_table::look_up(
                &shared.entry,
                sequence,
                |offset| u64::from(header(offset).get()) == sequence + 1,
                |older| (0..2).all(|rank| link_progress(shared, rank).is_past(older)),
            );
            match lookup {
                Lookup::Published(offset) => {
                    own.record_found(None);
                    return offset;
                }
                Lookup::Busy => thread::yield_now(),
                Lookup::Free(seen) => {
                    let offset = 64 * (1 + 2 * number + rank) as u64;
                    header(offset).set(sequence as u32 + 1);
                    if link_table::publish(&shared.entry, seen, sequence, offset) {
                        own.record_found(None);
                        return offset;
                    }
                }
            }
        }
    }
    model(|| {
        let progress =
            || Progress { started: AtomicU64::new(0), oldest_pending: AtomicU64::new(0) };
        let headers = || [Payload::new(), Payload::new()];
        let shared = Arc::new(Shared {
            entry: AtomicU64::new(0),
            progress: [progress(), progress()],
            headers: [headers(), headers()],
        });
        let other = Arc::clone(&shared);
        let thread = thread::spawn(move || [0, 1].map(|number| link(&other, 1, number)));
        let mine = [0, 1].map(|number| link(&shared, 0, number));
        assert_eq!(mine, thread.join().expect("the other rank ends"));
    });
}
