//! Loom model of the list of new rings.

#[path = "../../src/matching/ring_list.rs"]
#[allow(unreachable_pub, reason = "the file is a library module")]
mod list;

use crate::model::model;
use crate::sync::{AtomicU64, Ordering};
use loom::thread;
use std::sync::Arc;

testing::tests![every_pushed_ring_is_taken_once_and_complete];

/// Links and contents of the rings at offsets 1 and 2.
struct List {
    head: AtomicU64,
    next: [AtomicU64; 2],
    contents: [AtomicU64; 2],
}

fn every_pushed_ring_is_taken_once_and_complete() {
    model(3, || {
        let pair = || [AtomicU64::new(0), AtomicU64::new(0)];
        let list = Arc::new(List { head: AtomicU64::new(0), next: pair(), contents: pair() });
        let pushers: Vec<_> = (0..2)
            .map(|ring| {
                let list = Arc::clone(&list);
                thread::spawn(move || {
                    list.contents[ring].store(7, Ordering::Relaxed);
                    list::push(&list.head, &list.next[ring], ring as u64 + 1);
                })
            })
            .collect();
        let mut taken = Vec::new();
        let take = |taken: &mut Vec<u64>| {
            let mut ring = list::take_all(&list.head);
            while ring != list::END {
                let place = ring as usize - 1;
                assert_eq!(list.contents[place].load(Ordering::Relaxed), 7);
                taken.push(ring);
                ring = list.next[place].load(Ordering::Relaxed);
            }
        };
        take(&mut taken);
        for pusher in pushers {
            pusher.join().expect("it ends");
        }
        take(&mut taken);
        taken.sort_unstable();
        assert_eq!(taken, [1, 2]);
    });
}
