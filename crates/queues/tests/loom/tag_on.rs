//! Loom models of the references to a Tag-On buffer: no write while a reader holds it, and the last
//! release frees it.

#[path = "../../src/tag_on/references.rs"]
mod references;

use crate::model::model;
use crate::sync::AtomicU64;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

testing::tests![
    a_buffer_is_written_only_when_all_readers_have_let_go,
    a_message_that_is_opened_twice_takes_anothers_place_and_no_more,
];

struct Buffer {
    word: AtomicU64,
    data: UnsafeCell<u32>,
}

// SAFETY: loom's cell fails the model if a write and another access overlap.
unsafe impl Sync for Buffer {}
// SAFETY: as above.
unsafe impl Send for Buffer {}

fn a_buffer_is_written_only_when_all_readers_have_let_go() {
    model(3, || {
        let buffer = Arc::new(Buffer { word: AtomicU64::new(0), data: UnsafeCell::new(0) });
        let generation = references::take(&buffer.word).expect("free");
        // SAFETY: loom checks that no other access overlaps.
        buffer.data.with_mut(|data| unsafe { *data = 7 });
        let readers: Vec<_> = (0..2)
            .map(|_| {
                references::send(&buffer.word, generation).expect("held");
                let buffer = Arc::clone(&buffer);
                thread::spawn(move || {
                    references::open(&buffer.word, generation).expect("under way");
                    // SAFETY: loom checks that no write overlaps.
                    assert_eq!(buffer.data.with(|data| unsafe { *data }), 7);
                    references::release(&buffer.word, generation).expect("held");
                })
            })
            .collect();
        references::release(&buffer.word, generation).expect("held");
        let again = references::take(&buffer.word);
        if let Some(next) = again {
            assert_ne!(next, generation);
            // SAFETY: as above.
            buffer.data.with_mut(|data| unsafe { *data = 8 });
            assert!(references::open(&buffer.word, generation).is_err());
        }
        readers.into_iter().for_each(|reader| reader.join().expect("a reader ends"));
        assert_eq!(references::is_free(&buffer.word), again.is_none());
    });
}

fn a_message_that_is_opened_twice_takes_anothers_place_and_no_more() {
    model(3, || {
        let word = Arc::new(AtomicU64::new(0));
        let generation = references::take(&word).expect("free");
        references::send(&word, generation).expect("held");
        let opener = {
            let word = Arc::clone(&word);
            thread::spawn(move || references::open(&word, generation).is_ok())
        };
        let here = references::open(&word, generation).is_ok();
        let there = opener.join().expect("it ends");
        assert!(here != there, "one message, one holder");
        references::release(&word, generation).expect("the opener");
        references::release(&word, generation).expect("the sender");
        assert!(references::release(&word, generation).is_err(), "it is free");
        assert!(references::is_free(&word));
        assert!(references::take_back(&word, generation).is_err());
    });
}
