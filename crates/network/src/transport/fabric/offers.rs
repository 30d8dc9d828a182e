//! Long messages to one node that it reads from the memory of this one.
//!
//! A frame that must keep its place waits until the node has answered the offers before it. The
//! node delivers a message before it answers, so that the frame arrives behind the message.

use super::message::{Answer, Offer};
use super::registered::RegisteredMemory;
use crate::transport::frame::{Frame, Route};
use crate::transport::payloads::{PayloadLocation, Payloads};
use crate::transport::stream::send_queue::SendQueue;
use ::fabric::{Access, Endpoint};
use interpreter::Packet;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A message with a payload in the memory of its run.
#[derive(Clone, Debug)]
struct LongMessage {
    route: Route,
    packet: Packet,
    location: PayloadLocation,
    bytes: u64,
}

impl LongMessage {
    /// Header of its frame.
    fn frame(&self) -> [u8; crate::transport::frame::HEADER_BYTES] {
        Frame::with_length(self.route, self.packet.clone(), self.bytes)
    }

    /// Sends it as messages.
    fn push(self, queue: &mut SendQueue) {
        let LongMessage { route, packet, location, bytes } = self;
        queue.push_in_place(route, packet, location, bytes as usize);
    }
}

/// A message that the node has been offered.
#[derive(Debug)]
struct Offered {
    message: LongMessage,
    /// Number of its memory.
    memory: usize,
    /// A copy, once its run has ended; without bytes if they could not be read.
    copy: Option<Option<Arc<Vec<u8>>>>,
}

/// The offers to one node.
#[derive(Debug, Default)]
pub(super) struct Offers {
    /// Messages of which the memory is not registered yet, by number.
    new: BTreeMap<u64, LongMessage>,
    offered: BTreeMap<u64, Offered>,
    /// Number of the next message.
    next: u64,
    /// Frames, each behind all messages below a number.
    behind: VecDeque<(u64, Frame)>,
    /// Bytes of the messages that have been read.
    transferred: u64,
}

impl Offers {
    /// Adds a message. It is offered by the next [`register`](Self::register).
    pub(super) fn push(
        &mut self,
        route: Route,
        packet: Packet,
        location: PayloadLocation,
        bytes: u64,
    ) {
        // Numbers grow, so the first key of each map is its oldest message.
        self.new.insert(self.next, LongMessage { route, packet, location, bytes });
        self.next += 1;
    }

    /// Keeps a frame that must not overtake the messages under way. Returns one that need not wait.
    pub(super) fn hold(&mut self, frame: Frame) -> Option<Frame> {
        if frame.is_ordered() && (self.oldest().is_some() || !self.behind.is_empty()) {
            // Also where only another frame waits: this one must not overtake that.
            self.behind.push_back((self.next, frame));
            return None;
        }
        Some(frame)
    }

    /// Registers the memory of new messages. Returns the offers of those where that succeeds; the
    /// others are sent as messages.
    pub(super) fn register(
        &mut self,
        registered: &mut RegisteredMemory,
        endpoint: &mut Endpoint,
        queue: &mut SendQueue,
        payloads: &mut dyn Payloads,
    ) -> Vec<Offer> {
        let mut offers = Vec::new();
        for (number, message) in std::mem::take(&mut self.new) {
            let range = payloads.range(message.location);
            let take = |range| registered.take(endpoint, &range, Access::ReadByPeers);
            let memory = range.and_then(take);
            let remote =
                memory.and_then(|memory| Some((memory, registered.memory(memory)?.remote()?)));
            match remote {
                Some((memory, remote)) => {
                    offers.push(Offer { frame: message.frame(), number, remote });
                    self.offered.insert(number, Offered { message, memory, copy: None });
                }
                None => message.push(queue),
            }
        }
        // Behind the pushes: frames that waited for these messages follow them in the queue.
        self.release(queue);
        offers
    }

    /// Processes an answer; false if there is no such offer.
    pub(super) fn answer(
        &mut self,
        answer: Answer,
        registered: &mut RegisteredMemory,
        endpoint: &mut Endpoint,
        queue: &mut SendQueue,
        payloads: &mut dyn Payloads,
    ) -> bool {
        let Some(offered) = self.offered.remove(&answer.number) else { return false };
        let Offered { message, memory, copy } = offered;
        // The node reads the memory no more once it has answered.
        registered.release(endpoint, memory);
        if answer.was_read {
            self.transferred = self.transferred.wrapping_add(message.bytes);
            // The run may end or change its memory from here on.
            payloads.sent(message.location);
        } else {
            let location = message.location;
            message.push(queue);
            if let Some(copy) = copy {
                queue.detach(location, copy.as_ref());
            }
        }
        self.release(queue);
        true
    }

    /// Passes on the frames that wait for no message any more.
    fn release(&mut self, queue: &mut SendQueue) {
        let oldest = self.oldest().unwrap_or(u64::MAX);
        while self.behind.front().is_some_and(|(number, _)| *number <= oldest) {
            // All messages below its number are answered or in the queue.
            if let Some((_, frame)) = self.behind.pop_front() {
                queue.push(frame);
            }
        }
    }

    /// Number of the oldest message under way.
    fn oldest(&self) -> Option<u64> {
        let first = |number: Option<&u64>| number.copied();
        let both = [first(self.new.keys().next()), first(self.offered.keys().next())];
        both.into_iter().flatten().min()
    }

    /// Replaces a payload by a copy, because its run has ended. Until the node has answered, the
    /// memory stays as it is. Returns true if something was added to the queue.
    pub(super) fn detach(
        &mut self,
        location: PayloadLocation,
        copy: Option<&Arc<Vec<u8>>>,
        queue: &mut SendQueue,
    ) -> bool {
        let of_run = |message: &LongMessage| message.location == location;
        for offered in self.offered.values_mut().filter(|offered| of_run(&offered.message)) {
            // Used only if the node answers that it wants the message sent.
            offered.copy = Some(copy.cloned());
        }
        let new: Vec<LongMessage> =
            self.new.extract_if(.., |_, message| of_run(message)).map(|(_, new)| new).collect();
        let is_changed = !new.is_empty();
        for message in new {
            message.push(queue);
            queue.detach(location, copy);
        }
        self.release(queue);
        is_changed
    }

    /// Returns true if the node has not answered all offers.
    pub(super) fn are_under_way(&self) -> bool {
        !self.offered.is_empty()
    }

    /// Returns true if the node may read memory of the run of a payload.
    pub(super) fn use_run(&self, location: PayloadLocation) -> bool {
        self.offered.values().any(|offered| offered.message.location.is_of_run(&location))
    }

    /// Number of bytes of messages that have not been read, and of frames behind them.
    pub(super) fn bytes(&self) -> u64 {
        let offered = self.offered.values().map(|offered| &offered.message);
        let messages = self.new.values().chain(offered).map(|message| message.bytes);
        messages.sum::<u64>() + self.behind.len() as u64
    }

    /// Number of bytes that have been read.
    pub(super) fn transferred(&self) -> u64 {
        self.transferred
    }

    /// Ends the offers to a node that is lost. Returns the locations of their payloads.
    pub(super) fn close(
        &mut self,
        registered: &mut RegisteredMemory,
        endpoint: &mut Endpoint,
    ) -> Vec<PayloadLocation> {
        self.behind.clear();
        let new = std::mem::take(&mut self.new).into_values();
        let mut locations: Vec<PayloadLocation> = new.map(|message| message.location).collect();
        for offered in std::mem::take(&mut self.offered).into_values() {
            registered.revoke(endpoint, offered.memory);
            locations.push(offered.message.location);
        }
        locations
    }
}
