//! The arena compared with a plain list of intervals.

use std::ops::Range;
use std::sync::Arc;

use proptest::prelude::*;
use shm::arena::{Arena, ArenaError};
use shm::segment::{Backing, Offset, Segment, SegmentError};
use shm::sync::{AtomicU64, Ordering};

testing::tests![
    allocations_are_disjoint_aligned_and_reusable,
    foreign_offsets_are_refused,
    invalid_requests_are_errors,
    ranges_outside_the_segment_are_refused,
    memory_is_committed_step_by_step,
    threads_share_an_arena,
];

const BYTES: u64 = 1 << 20;

fn arena(range: Range<u64>) -> Arena {
    let segment = Segment::create(BYTES, Backing::Memory).expect("a small segment");
    Arena::new(Arc::new(segment), range).expect("a range inside")
}

/// Reference implementation: returns whether a gap between the sorted live intervals fits the
/// request.
fn some_gap_fits(live: &[(u64, u64)], range: &Range<u64>, length: u64, alignment: u64) -> bool {
    let mut sorted = live.to_vec();
    sorted.sort_unstable();
    let ends =
        std::iter::once(range.start).chain(sorted.iter().map(|&(start, length)| start + length));
    let starts = sorted.iter().map(|&(start, _)| start).chain(std::iter::once(range.end));
    ends.zip(starts).any(|(from, to)| from.next_multiple_of(alignment) + length <= to)
}

#[derive(Debug, Clone)]
enum Step {
    Allocate { bytes: u64, alignment: u64, zeroed: bool },
    Free(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![4 => 0..2000u64, 1 => 0..200_000u64];
    prop_oneof![
        3 => (bytes, 0..14u32, any::<bool>()).prop_map(|(bytes, shift, zeroed)| Step::Allocate {
            bytes,
            alignment: 1 << shift,
            zeroed
        }),
        2 => any::<prop::sample::Index>().prop_map(Step::Free),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    fn allocations_are_disjoint_aligned_and_reusable(steps in prop::collection::vec(step(), 1..120), start in 0..300u64) {
        let range = start.next_multiple_of(64)..BYTES;
        let arena = arena(start..BYTES);
        let mut live: Vec<(u64, u64)> = Vec::new();
        let mut ever = vec![false; (BYTES / 64) as usize];
        for step in steps {
            match step {
                Step::Allocate { bytes, alignment, zeroed } => {
                    let length = bytes.max(1).next_multiple_of(64);
                    let result = if zeroed { arena.allocate_zeroed(bytes, alignment) } else { arena.allocate(bytes, alignment) };
                    let fits = some_gap_fits(&live, &range, length, alignment.max(64));
                    prop_assert_eq!(result.is_ok(), fits, "{:?}", result);
                    let Ok(offset) = result else { continue };
                    prop_assert_eq!(offset.0 % alignment.max(64), 0);
                    prop_assert!(range.start <= offset.0 && offset.0 + length <= range.end);
                    prop_assert!(live.iter().all(|&(s, l)| s + l <= offset.0 || offset.0 + length <= s), "overlap");
                    let words = arena.segment().slice_at::<AtomicU64>(offset, (length / 8) as usize).expect("inside");
                    for (index, word) in words.iter().enumerate() {
                        let granule = &mut ever[(offset.0 / 64) as usize + index / 8];
                        if zeroed || !*granule {
                            prop_assert_eq!(word.load(Ordering::Relaxed), 0);
                        }
                        if index % 8 == 7 {
                            *granule = true;
                        }
                        word.store(u64::MAX, Ordering::Relaxed);
                    }
                    live.push((offset.0, length));
                }
                Step::Free(index) if !live.is_empty() => {
                    let (offset, length) = live.swap_remove(index.index(live.len()));
                    arena.free(Offset(offset)).expect("live");
                    let twice = arena.free(Offset(offset));
                    prop_assert!(matches!(twice, Err(ArenaError::NotAllocated { .. })), "{:?}", twice);
                    if length > 64 {
                        let middle = arena.free(Offset(offset + 64));
                        prop_assert!(matches!(middle, Err(ArenaError::NotAllocated { .. })), "{:?}", middle);
                    }
                }
                Step::Free(_) => {}
            }
            prop_assert_eq!(arena.used(), live.iter().map(|&(_, length)| length).sum::<u64>());
        }
        for (offset, _) in live {
            arena.free(Offset(offset)).expect("live");
        }
        prop_assert_eq!(arena.used(), 0);
        prop_assert_eq!(arena.allocate(arena.capacity(), 64).expect("all ranges are merged again"), Offset(range.start));
    }
}

fn foreign_offsets_are_refused() {
    let arena = arena(65_536..131_072);
    let place = arena.allocate(64, 64).expect("an empty arena");
    assert_eq!(place, Offset(65_536));
    for outside in [0, 65_535, 131_072, u64::MAX] {
        assert!(
            matches!(arena.free(Offset(outside)), Err(ArenaError::Foreign { .. })),
            "{outside}"
        );
    }
    arena.free(place).expect("its own offset");
}

fn invalid_requests_are_errors() {
    let arena = arena(0..BYTES);
    assert!(matches!(arena.allocate(64, 0), Err(ArenaError::Alignment { alignment: 0 })));
    assert!(matches!(arena.allocate(64, 48), Err(ArenaError::Alignment { alignment: 48 })));
    assert!(matches!(arena.allocate(u64::MAX, 64), Err(ArenaError::Full { .. })));
    assert!(matches!(
        arena.allocate(BYTES + 1, 64),
        Err(ArenaError::Full { largest_free: BYTES, .. })
    ));
    assert!(matches!(arena.allocate(64, 1 << 63), Ok(Offset(0))), "0 is a multiple of everything");
    assert!(matches!(arena.allocate(64, 1 << 63), Err(ArenaError::Full { .. })));
}

fn ranges_outside_the_segment_are_refused() {
    let segment = Arc::new(Segment::create(BYTES, Backing::Memory).expect("a small segment"));
    for range in [0..BYTES + 1, BYTES + 1..BYTES + 2, u64::MAX - 1..u64::MAX] {
        let refused = Arena::new(segment.clone(), range.clone());
        assert!(
            matches!(refused, Err(ArenaError::Segment(SegmentError::OutOfBounds { .. }))),
            "{range:?}"
        );
    }
    assert_eq!(Arena::new(segment, BYTES..BYTES).expect("empty, at the end").capacity(), 0);
}

fn memory_is_committed_step_by_step() {
    let blocks = |arena: &Arena| {
        rustix::fs::fstat(arena.segment().as_ref()).expect("a file").st_blocks as u64 * 512
    };
    let segment = Arc::new(Segment::create(1 << 36, Backing::Memory).expect("a sparse segment"));
    let arena = Arena::new(segment, 0..1 << 36).expect("the whole segment");
    arena.allocate(64, 64).expect("space");
    let first = blocks(&arena);
    assert!((256 << 10..1 << 20).contains(&first), "{first}");
    arena.allocate(4096, 4096).expect("space");
    assert_eq!(blocks(&arena), first, "within the step that is reserved already");
    arena.allocate(1 << 20, 64).expect("space");
    assert!(blocks(&arena) >= 1 << 20);
}

fn threads_share_an_arena() {
    let arena = arena(0..BYTES);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 1..200 {
                    let place = arena.allocate(round, 64).expect("space for four");
                    let word: &AtomicU64 = arena.segment().at(place).expect("inside");
                    word.store(round, Ordering::Relaxed);
                    assert_eq!(word.load(Ordering::Relaxed), round);
                    arena.free(place).expect("its own");
                }
            });
        }
    });
    assert_eq!(arena.used(), 0);
}
