//! Requests of notifications, and ends at rest.

use super::channels::{FROM, TO, node, values};
use super::{Node, PORT};
use crate::flows::ChannelEnd;
use crate::flows::inbound::Inbound;
use crate::flows::marks::MarkLine;
use crate::flows::outbound::Outbound;
use crate::flows::router::{TURNS, UNCERTAIN};
use crate::transport::records::flows::{Content, FlowId};
use queues::channel::{Channel, OtherNode};
use queues::error::RecvError;
use queues::internode::{Announcement, Requested, Sink, SinkError, Source};
use queues::remote_waits::RemoteWaits;
use shm::event::Event;
use shm::liveness::{PeerExit, RankLiveness};
use shm::mapped::Mapped;
use shm::segment::Offset;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

impl Node {
    /// Adds the marks of rank 0. Returns the node of the ends of its channels.
    fn join(&mut self) -> OtherNode {
        let marks = Mapped::<MarkLine>::new(self.arena.segment(), Offset(0)).expect("inside");
        self.flows.join(0, marks.clone());
        let service = Event::new().expect("a descriptor");
        OtherNode { service, waits: Arc::new(Marks(marks)), peer: Arc::new(Lives) }
    }

    /// Sleeps with all requests behind a barrier.
    fn sleep(&mut self) {
        assert!((0..8).any(|_| self.arm() && self.flows.next_poll().is_none()));
    }

    /// Number of ends that are polled in every turn.
    fn active(&self) -> usize {
        self.flows.outbound.ends.active() + self.flows.inbound.ends.active()
    }
}

#[test]
fn the_barrier_waits_for_a_sleep_without_new_requests() {
    let mut node = node();
    let refused = (!shm::fence::heavy()).then_some(UNCERTAIN);
    for value in 0..3 {
        assert!(!node.arm(), "a value may be on its way past the request");
        assert!(node.arm());
        assert_eq!(node.flows.next_poll(), Some(UNCERTAIN), "the request may be missed");
        assert!(node.arm());
        assert_eq!(node.flows.next_poll(), refused);
        node.sender.try_send(value).expect("space");
        assert!(!node.arm(), "there is something to send");
        assert!(node.turn());
    }
}

#[test]
fn a_value_that_passes_a_request_is_found_before_the_sleep() {
    let mut node = node();
    assert!(!node.arm());
    node.sender.try_send(1).expect("space");
    assert!(!node.arm(), "there is something to send");
    assert!(node.turn());
}

#[test]
fn a_word_without_space_for_a_request_hides_no_value_and_keeps_no_agent_awake() {
    use shm::sync::Ordering::Relaxed;
    // The word is the one that a request changes.
    let mut other = node();
    let before: Vec<u32> = other.words().iter().map(|word| word.load(Relaxed)).collect();
    other.arm();
    let changed = other.words().iter().zip(before);
    let place = changed.map(|(word, before)| word.load(Relaxed) != before).position(|is| is);
    let mut node = node();
    node.words()[place.expect("the agent has requested")].store(255, Relaxed);
    for value in 0..3 {
        assert!(node.sleeps());
        assert_eq!(node.flows.next_poll(), Some(UNCERTAIN), "no notification is certain");
        node.sender.try_send(value).expect("space");
        assert!(!node.arm(), "there is something to send");
        assert!(node.turn());
    }
}

/// Rank 0 has many channels to rank 1, and those from there. After a while none is polled.
#[test]
fn channels_without_traffic_cost_no_turn() {
    const CHANNELS: u64 = 10_000;
    let mut node = Node::with_memory(64 << 20);
    let other = node.join();
    let event = other.service.clone();
    let mut ends = Vec::new();
    for port in 0..CHANNELS {
        let rings = [0; 2].map(|_| Channel::<u64>::create(&node.arena, 16).expect("memory"));
        let [to, from] = [ChannelEnd::SendsTo(1), ChannelEnd::ReceivesFrom(1)];
        for (end, ring) in [to, from].into_iter().zip(&rings) {
            assert_eq!(node.open_channel(port, end, ring.offset()), Ok(()));
        }
        let [to, from] = rings;
        let receiver = from.receiver_from(other.clone()).expect("the first");
        ends.push((to.sender_to(other.clone()).expect("the first"), receiver, from));
    }
    // In sleeps, and in an agent that does not sleep.
    if !shm::fence::heavy() {
        return;
    }
    for is_busy in [false, true] {
        let from = FlowId { sender: 1, receiver: 0, port: 7, ..TO };
        for (sender, ..) in &mut ends[..9] {
            sender.try_send(3).expect("space");
        }
        assert_eq!(node.receive(1, from, Content::Data(&values(0..8))), 0);
        assert!(node.turn(), "something is sent");
        if is_busy {
            (0..2 * TURNS).for_each(|_| _ = node.turn());
        } else {
            node.sleep();
        }
        assert_eq!(node.active(), 0, "{is_busy}");
        event.clear();
        ends[5000].0.try_send(5).expect("space");
        assert!(event.clear(), "the agent is woken");
        assert!(node.turn(), "the value is sent");
        assert!(node.active() < 2 * CHANNELS as usize / 100, "{} are awake", node.active());
        // A receiver that releases slots, and one that closes its end.
        let (_, receiver, _) = &mut ends[7];
        while receiver.try_recv().is_ok() {}
        assert!(node.turn(), "credit is returned");
        let (_, receiver, _) = ends.swap_remove(9000);
        drop(receiver);
        assert!(node.turn(), "the end is reported");
    }
    node.flows.exit(0);
    assert!(node.turn() && !node.flows.has_unsent());
}

#[test]
fn an_end_that_rests_after_each_value_is_noted_once() {
    let mut node = Node::new();
    let other = node.join();
    let [to, from] = [0; 2].map(|_| Channel::<u64>::create(&node.arena, 1).expect("memory"));
    assert_eq!(node.open_channel(PORT, ChannelEnd::SendsTo(1), to.offset()), Ok(()));
    assert_eq!(node.open_channel(PORT, ChannelEnd::ReceivesFrom(1), from.offset()), Ok(()));
    let mut sender = to.sender_to(other.clone()).expect("the first");
    let mut receiver = from.receiver_from(other).expect("the first");
    if !shm::fence::heavy() {
        return;
    }
    for value in 0..10_000 {
        // The arrival activates the sink, and a mark the source.
        assert_eq!(node.receive(1, FROM, Content::Data(&values(value..value + 1))), 0);
        assert_eq!(receiver.try_recv(), Ok(value));
        sender.try_send(value).expect("space");
        assert!(node.sent().contains(&(TO, "data", 1)));
        assert_eq!(node.receive(1, TO, Content::Credit(8)), 0);
        node.sleep();
        assert_eq!((node.active(), node.flows.at_rest.places()), (0, 2));
    }
}

#[test]
fn the_number_of_a_closed_end_wakes_the_next_one() {
    let mut node = Node::new();
    let other = node.join();
    if !shm::fence::heavy() {
        return;
    }
    // Each has a mark of its own.
    let mut senders = Vec::new();
    for value in 0..100 {
        let ring = Channel::<u64>::create(&node.arena, 16).expect("memory");
        assert_eq!(node.open_channel(PORT, ChannelEnd::SendsTo(1), ring.offset()), Ok(()));
        let mut sender = ring.sender_to(other.clone()).expect("the first");
        node.sleep();
        assert_eq!((node.active(), node.flows.at_rest.places()), (0, 1));
        // The others are closed at rest.
        if value % 3 == 0 {
            sender.try_send(value).expect("space");
            assert_eq!(node.sent(), [(TO, "data", 1)]);
        }
        assert_eq!(node.receive(1, TO, Content::ReceiverClosed), 0);
        node.turn();
        senders.push(sender);
    }
}

#[test]
fn a_source_that_fills_while_it_is_put_to_rest_is_served() {
    let mut node = Node::new();
    let _other = node.join();
    let source = Box::new(Passed { is_full: false, is_requested: false });
    node.flows.outbound.ends.insert(Outbound::new(TO, 1, source, None));
    let sent = (0..3 * TURNS).find_map(|_| Some(node.sent()).filter(|sent| !sent.is_empty()));
    assert_eq!(sent, Some(vec![(TO, "data", 1)]));
}

#[test]
fn a_sink_is_polled_once_a_turn() {
    let mut node = Node::new();
    let polls = Arc::new(AtomicU32::new(0));
    let sink = Box::new(Counted(Arc::clone(&polls)));
    node.flows.inbound.ends.insert(Inbound::new(sink, [(FROM, 1)], None));
    for turn in 1..5 {
        node.turn();
        assert_eq!(polls.load(Ordering::Relaxed), turn);
    }
}

/// A source into which a rank stores a message when it has loaded the word before the request.
#[derive(Debug)]
struct Passed {
    is_full: bool,
    is_requested: bool,
}

impl Source for Passed {
    fn longest(&self) -> usize {
        8
    }

    fn take(&mut self, _: usize, into: &mut Vec<u8>) -> Result<(), RecvError> {
        if std::mem::take(&mut self.is_full) {
            into.extend([0; 8]);
        }
        Ok(())
    }

    fn is_ready(&self) -> bool {
        self.is_full
    }

    fn close(&mut self) {}

    fn request(&mut self) -> Requested {
        self.is_full = true;
        self.is_requested = true;
        Requested::Now
    }

    fn is_requested(&mut self) -> bool {
        self.is_requested
    }

    fn withdraw(&mut self) {
        self.is_requested = false;
    }

    fn announcement(&self) -> Announcement {
        Announcement::ByMark(Offset(64))
    }
}

/// A sink that counts its polls.
#[derive(Debug)]
struct Counted(Arc<AtomicU32>);

impl Sink for Counted {
    fn put(&mut self, bytes: &[u8]) -> Result<usize, SinkError> {
        Ok(bytes.len())
    }

    fn released(&mut self, put: u64) -> Result<u64, SinkError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(put)
    }

    fn request(&mut self) -> Requested {
        Requested::Before
    }

    fn announcement(&self) -> Announcement {
        Announcement::ByPolling
    }
}

/// Marks of a rank.
#[derive(Debug)]
struct Marks(Mapped<MarkLine>);

impl RemoteWaits for Marks {
    fn begin(&self) {}

    fn end(&self) {}

    fn set_polling(&self, _: bool) {}

    fn shares_core(&self) -> bool {
        false
    }

    fn mark(&self, at: Offset) {
        self.0.set(at);
    }
}

/// A peer that does not fail.
#[derive(Debug)]
struct Lives;

impl RankLiveness for Lives {
    fn exited(&self) -> Option<PeerExit> {
        None
    }
}
