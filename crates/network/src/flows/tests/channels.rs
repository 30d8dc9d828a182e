//! Flows to and from channels.

use super::{Node, PORT};
use crate::flows::memory::END_BYTES;
use crate::flows::{ANSWERS, ChannelEnd, Purpose, Refusal};
use crate::transport::Transport;
use crate::transport::records::flows::{Content, FlowId, FlowKind};
use queues::channel::{Channel, Receiver, SendError, Sender};
use queues::error::RecvError;
use shm::segment::Offset;
use std::ops::Range;

const VALUES: u64 = 1024;

/// A node on which rank 0 sends to rank 1 and receives from it.
pub(super) struct ChannelNode {
    node: Node,
    /// The rings; a program has them in its ends.
    rings: [Channel<u64>; 2],
    pub(super) sender: Sender<u64>,
    pub(super) receiver: Receiver<u64>,
}

pub(super) const TO: FlowId =
    FlowId { kind: FlowKind::Channel, sender: 0, receiver: 1, port: PORT };
pub(super) const FROM: FlowId =
    FlowId { kind: FlowKind::Channel, sender: 1, receiver: 0, port: PORT };

derefs_to_node!(ChannelNode);

pub(super) fn node() -> ChannelNode {
    let mut node = Node::new();
    let rings = [0; 2].map(|_| Channel::<u64>::create(&node.arena, VALUES).expect("memory"));
    let [to, from] = [&rings[0], &rings[1]].map(Channel::offset);
    let mut open = |end, at| node.open_channel(PORT, end, at);
    let invalid = Err(Refusal::Invalid);
    assert_eq!(open(ChannelEnd::SendsTo(0), to), invalid, "the ranks are on one node");
    assert_eq!(open(ChannelEnd::SendsTo(1), to), Ok(()));
    assert_eq!(open(ChannelEnd::SendsTo(1), to), Err(Refusal::Taken));
    assert_eq!(open(ChannelEnd::ReceivesFrom(1), Offset(8)), invalid, "there is none");
    assert_eq!(open(ChannelEnd::ReceivesFrom(1), from), Ok(()));
    let sender = Sender::connect(&node.segment(), to).expect("the first");
    let receiver = Receiver::connect(&node.segment(), from).expect("the first");
    ChannelNode { node, rings, sender, receiver }
}

impl ChannelNode {
    /// Words of the ring of the sender, which a rank can write to.
    pub(super) fn words(&self) -> &[shm::sync::AtomicU32] {
        self.arena.segment().slice_at(self.rings[0].offset(), 128).expect("inside")
    }
}

/// Values as bytes.
pub(super) fn values(values: Range<u64>) -> Vec<u8> {
    values.flat_map(u64::to_le_bytes).collect()
}

#[test]
fn values_arrive_in_their_order_and_before_the_end() {
    let mut node = node();
    assert_eq!(node.receive(1, FROM, Content::Data(&values(0..100))), 0);
    assert_eq!(node.receive(1, FROM, Content::Data(&values(100..200))), 0);
    assert_eq!(node.receive(1, FROM, Content::SenderClosed), 0);
    let received = std::iter::from_fn(|| node.receiver.try_recv().ok());
    assert!(received.eq(0..200));
    assert_eq!(node.receiver.try_recv(), Err(RecvError::Closed));
    assert_eq!(node.receive(1, FROM, Content::Data(&values(0..1))), 0, "it has ended");
}

#[test]
fn a_channel_without_memory_is_refused_before_it_is_taken() {
    let mut node = Node::new();
    let ring = Channel::<[u64; 8]>::create(&node.arena, VALUES).expect("memory");
    let mut sender =
        Sender::<[u64; 8]>::connect(&node.segment(), ring.offset()).expect("the first");
    // For the slots, but not for their words.
    let most = Purpose::Channels.limit() - END_BYTES - 8 * VALUES;
    let used = node.flows.memory.charge(0, Purpose::Channels, most).expect("below the limit");
    let open = |node: &mut Node| node.open_channel(PORT, ChannelEnd::SendsTo(1), ring.offset());
    assert_eq!(open(&mut node), Err(Refusal::Memory));
    assert_eq!(sender.try_send([1; 8]), Ok(()), "no end was closed");
    drop(used);
    assert_eq!(open(&mut node), Ok(()));
    assert!(node.turn() && node.transport.queued(1) > 0);
}

/// Rank 0 has opened the channels of a window of rank 1, and has put its first command into the ring,
/// when the report of the exit is processed.
#[test]
fn the_exit_of_the_owner_of_a_window_ends_the_answers_to_a_command_that_is_not_sent() {
    let mut node = node();
    let ring = Channel::<u64>::create(&node.arena, 8).expect("memory");
    let end = ChannelEnd::ReceivesFrom(1);
    assert_eq!(node.open_channel(PORT | ANSWERS, end, ring.offset()), Ok(()));
    let mut answers = Receiver::<u64>::connect(&node.segment(), ring.offset()).expect("the first");
    assert_eq!(answers.try_recv(), Err(RecvError::Empty));
    let used = node.flows.memory.used(0);
    node.flows.end(1);
    assert_eq!(answers.try_recv(), Err(RecvError::Closed));
    assert!(node.flows.memory.used(0) < used);
    // Values that it has sent before still arrive.
    assert_eq!(node.receive(1, FROM, Content::Data(&values(0..1))), 0);
    assert_eq!(node.receiver.try_recv(), Ok(0));
}

#[test]
fn a_receiver_that_closes_its_end_is_reported() {
    let mut node = node();
    assert!(node.sleeps());
    let ChannelNode { node, receiver, mut sender, .. } = node;
    let mut node = node;
    drop(receiver);
    assert!(!node.arm(), "there is something to do");
    assert!(node.turn() && !node.flows.inbound.ends.contains(&FROM));
    assert_eq!(sender.try_send(1), Ok(()));
    assert_eq!(node.receive(1, TO, Content::ReceiverClosed), 0);
    assert_eq!(sender.try_send(1), Err(SendError::Closed));
}

#[test]
fn damaged_rings_end_their_channels() {
    let mut node = node();
    // A position that no receiver has reached.
    let words = node.arena.segment().slice_at::<shm::sync::AtomicU64>(node.rings[1].offset(), 64);
    let words = words.expect("inside").iter().skip(16);
    words.for_each(|word| word.store(u64::MAX, shm::sync::Ordering::Relaxed));
    node.receive(1, FROM, Content::Data(&values(0..3)));
    node.turn();
    assert!(!node.flows.inbound.ends.contains(&FROM));
}
