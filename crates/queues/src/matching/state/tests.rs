//! Calls in an order that threads follow only by chance.

use super::{Layout, State};
use crate::matching::matcher::Pattern;
use crate::matching::memory::MAILBOX_BYTES;
use crate::matching::remote::{RemoteLink, RemoteRecord, kind, kind_of, words_of};
use shm::arena::Arena;
use shm::segment::{Backing, Segment};
use std::sync::{Arc, Mutex};

/// Delivers one record, and keeps the kinds and numbers of those that are sent.
#[derive(Debug)]
struct Link {
    arriving: Option<RemoteRecord>,
    sent: Arc<Mutex<Vec<(u64, u64)>>>,
}

impl RemoteLink for Link {
    fn put(&mut self, _: u32, words: [u64; 3], _: &[u8]) -> bool {
        self.sent.lock().expect("no panic").push((kind_of(words), words[2]));
        true
    }

    fn has_space(&mut self, _: usize, _: usize, _: usize) -> bool {
        true
    }

    fn publish(&mut self) {}

    fn first(&mut self) -> Option<RemoteRecord> {
        self.arriving
    }

    fn read(&self, _: usize, _: &mut [u8]) {}

    fn release(&mut self) {
        self.arriving = None;
    }

    fn has_failed(&self) -> bool {
        false
    }
}

#[test]
fn an_offer_that_is_discarded_while_it_is_read_is_answered() {
    let segment = Arc::new(Segment::create(1 << 20, Backing::Memory).expect("memory"));
    let arena = Arc::new(Arena::new(segment, 0..1 << 20).expect("inside"));
    let mailboxes = arena.allocate_zeroed(MAILBOX_BYTES, 128).expect("space");
    let reads_itself = true;
    let layout = Layout { arena, rank: 0, ranks: 1, mailboxes, credit: 1 << 20, reads_itself };
    let [second, shifted, number] = words_of(kind::OFFER, 9, 0);
    let words = [second, shifted | 70_000, number];
    let arriving = Some(RemoteRecord { from: 0, is_exit: false, words, bytes: 0 });
    let sent = Arc::new(Mutex::new(Vec::new()));
    let link = Box::new(Link { arriving, sent: Arc::clone(&sent) });
    let mut state = State::new(Arc::new(layout), Some((1, link))).expect("mailboxes");

    let pattern = Pattern { context: 0, source: Some(1), tag: Some(0) };
    let posted = state.post(pattern, 70_000).expect("space");
    state.progress(&mut None, &None).expect("nothing is damaged");
    // One thread begins to read the message, another drops its receive meanwhile.
    let (message, sender, offer, _) = state.next_unread().expect("it has matched");
    state.drop_recv(posted).expect("space");
    state.finish_read(message, sender, offer, Some(Vec::new()), false).expect("space");
    assert_eq!(*sent.lock().expect("no panic"), [(kind::ANSWER, 9)]);
}
