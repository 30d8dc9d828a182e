//! Calls in an order that threads follow only by chance.

use super::{Layout, OwnRecv, PolledRecv, State};
use crate::matching::contexts::Contexts;
use crate::matching::line::Envelope;
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
    sent: Sent,
}

impl RemoteLink for Link {
    fn put(&mut self, _: u32, words: [u64; 3], _: &[u8]) -> bool {
        self.sent.lock().expect("no panic").push((kind_of(words), words[2]));
        true
    }

    fn has_space(&mut self, _: u32, _: usize, _: usize, _: usize) -> bool {
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

/// The states of so many ranks of one node.
fn node(ranks: u32) -> Vec<State> {
    let segment = Arc::new(Segment::create(4 << 20, Backing::Memory).expect("memory"));
    let arena = Arc::new(Arena::new(segment, 0..4 << 20).expect("inside"));
    let mailboxes = arena.allocate_zeroed(u64::from(ranks) * MAILBOX_BYTES, 128).expect("space");
    let state = |rank| {
        let arena = Arc::clone(&arena);
        let credit = 1 << 20;
        let layout = Layout { arena, rank, ranks, mailboxes, credit, reads_itself: true };
        State::new(Arc::new(layout), None, Contexts::new(u32::MAX)).expect("mailboxes")
    };
    (0..ranks).map(state).collect()
}

/// Kinds and numbers of records that were sent.
type Sent = Arc<Mutex<Vec<(u64, u64)>>>;

/// The state of rank 0 of so many of a node, beside a rank on another node with this record.
fn beside_remote(ranks: u32, arriving: Option<RemoteRecord>) -> (State, Sent) {
    let segment = Arc::new(Segment::create(4 << 20, Backing::Memory).expect("memory"));
    let arena = Arc::new(Arena::new(segment, 0..4 << 20).expect("inside"));
    let mailboxes = arena.allocate_zeroed(u64::from(ranks) * MAILBOX_BYTES, 128).expect("space");
    let layout = Layout { arena, rank: 0, ranks, mailboxes, credit: 1 << 20, reads_itself: true };
    let sent = Sent::default();
    let link = Box::new(Link { arriving, sent: Arc::clone(&sent) });
    let contexts = Contexts::new(u32::MAX);
    let state = State::new(Arc::new(layout), Some((1, link)), contexts).expect("mailboxes");
    (state, sent)
}

/// Sends the number of its sender.
fn send(state: &mut State, to: u32, from: u8) {
    let envelope = Envelope { context: 0, tag: 0, bytes: 1 };
    assert!(state.try_eager(to, envelope, &[from]).expect("nothing is damaged"), "space");
}

/// Receives from any source, as a blocking receive does, and returns the sender.
fn receive(state: &mut State, pattern: Pattern) -> Option<u8> {
    let mut buffer = [0];
    let posted = state.post(pattern, 1).expect("nothing is damaged");
    let mut own = Some(OwnRecv { posted, buffer: &mut buffer });
    state.progress(&mut own, &None).expect("nothing is damaged");
    match state.poll_recv(own.as_mut()?).expect("nothing is damaged") {
        PolledRecv::Complete(head) => Some(head.sender as u8),
        _ => None,
    }
}

/// Rank 1 sends a message for each that is received, so some of its messages always wait. The
/// others send one each.
#[test]
fn a_rank_with_much_traffic_does_not_starve_the_others() {
    let from_any = Pattern { context: 0, source: None, tag: None };
    for is_probed in [false, true] {
        let mut states = node(4);
        (0..3).for_each(|_| send(&mut states[1], 0, 1));
        states[0].progress(&mut None, &None).expect("nothing is damaged");
        for rank in [2, 3] {
            send(&mut states[rank as usize], 0, rank);
        }
        let mut received = Vec::new();
        for _ in 0..8 {
            send(&mut states[1], 0, 1);
            let pattern = if is_probed {
                // As a program that receives what it has probed.
                states[0].progress(&mut None, &None).expect("nothing is damaged");
                let key = states[0].matcher.find_message(&from_any).expect("some wait");
                let source = states[0].matcher.messages.get(key).map(|message| message.sender);
                Pattern { source, ..from_any }
            } else {
                from_any
            };
            received.extend(receive(&mut states[0], pattern));
        }
        assert!(received.contains(&2) && received.contains(&3), "{received:?}");
        assert_eq!(received.len(), 8, "one for each receive");
    }
}

#[test]
fn an_offer_that_is_discarded_while_it_is_read_is_answered() {
    let [second, shifted, number] = words_of(kind::OFFER, 9, 0);
    let words = [second, shifted | 70_000, number];
    let arriving = Some(RemoteRecord { from: 0, is_exit: false, words, bytes: 0 });
    let (mut state, sent) = beside_remote(1, arriving);
    let pattern = Pattern { context: 0, source: Some(1), tag: Some(0) };
    let posted = state.post(pattern, 70_000).expect("space");
    state.progress(&mut None, &None).expect("nothing is damaged");
    // One thread begins to read the message, another drops its receive meanwhile.
    let (message, sender, offer, _) = state.next_unread().expect("it has matched");
    state.drop_recv(posted).expect("space");
    state.finish_read(message, sender, offer, Some(Vec::new()), false).expect("space");
    assert_eq!(*sent.lock().expect("no panic"), [(kind::ANSWER, 9)]);
}

#[test]
fn a_wait_for_another_node_finds_operations_on_its_own() {
    let (mut state, _) = beside_remote(2, None);
    let from = |source| Pattern { context: 0, source, tag: Some(0) };
    state.post(from(Some(2)), 8).expect("space");
    assert!(!state.has_pending_on_node(), "rank 2 is on the other node");
    for source in [Some(1), None] {
        let near = state.post(from(source), 8).expect("space");
        assert!(state.has_pending_on_node(), "{source:?}");
        state.drop_recv(near).expect("space");
        assert!(!state.has_pending_on_node(), "{source:?}");
    }
    let bytes = [1; 9];
    let envelope = Envelope { context: 0, tag: 0, bytes: 9 };
    for (to, is_near) in [(2, false), (1, true)] {
        state.start_matched_send(to, envelope, &bytes).expect("space");
        assert_eq!(state.has_pending_on_node(), is_near, "a send to rank {to}");
    }
}

#[test]
fn a_refused_message_is_not_found_before_it_is_discarded() {
    let from_any = Pattern { context: 0, source: None, tag: None };
    let mut states = node(3);
    for rank in [1, 2] {
        send(&mut states[rank as usize], 0, rank);
    }
    states[0].progress(&mut None, &None).expect("nothing is damaged");
    states[0].matcher.refuse(0, 1);
    assert!(states[0].matcher.find_message(&Pattern { source: Some(1), ..from_any }).is_none());
    assert_eq!(receive(&mut states[0], from_any), Some(2));
    assert_eq!(receive(&mut states[0], from_any), None);
}
