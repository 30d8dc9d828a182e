//! One sending end.

use crate::flows::ends::{Activity, End};
use crate::flows::memory::Charge;
use crate::transport::Transport;
use crate::transport::batches::Batches;
use crate::transport::frame::Frame;
use crate::transport::records::flows::{Content, FlowId, HEAD_BYTES, MAX_BYTES};
use queues::internode::{Announcement, MAX_MESSAGE, Requested, Source};

// A record contains at least one message.
const _: () = assert!(MAX_MESSAGE <= MAX_BYTES);

/// A sending end.
#[derive(Debug)]
pub(in crate::flows) struct Outbound {
    pub(in crate::flows) id: FlowId,
    pub(in crate::flows) node: u32,
    pub(in crate::flows) source: Box<dyn Source>,
    /// Bytes that were sent and not released yet.
    pub(in crate::flows) in_flight: u64,
    /// Exits of ranks that may have sent what the source contains.
    pub(super) exits: Vec<u32>,
    /// No rank sends any more: the end goes behind what the source contains.
    pub(super) is_closing: bool,
    /// Nothing more is sent, and the node of the receiver knows. Only a member of a set remains.
    pub(super) has_ended: bool,
    pub(super) activity: Activity,
    pub(super) set: Option<usize>,
    /// Declared last: dropped when the source is used no more.
    pub(super) _charge: Option<Charge>,
}

/// Result of an attempt to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    Some,
    Nothing,
    /// Messages wait for credit, for a shorter queue of the node, or behind an unpublished slot.
    Blocked,
    /// The end is reported.
    Ended,
}

impl Outbound {
    pub(in crate::flows) fn new(
        id: FlowId,
        node: u32,
        source: Box<dyn Source>,
        charge: Option<Charge>,
    ) -> Self {
        Outbound {
            id,
            node,
            source,
            in_flight: 0,
            exits: Vec::new(),
            is_closing: false,
            has_ended: false,
            activity: Activity::default(),
            set: None,
            _charge: charge,
        }
    }

    /// Returns true if it has credit for a message, and the node's queue has less than `limit` bytes.
    pub(in crate::flows) fn can_send(&self, transport: &dyn Transport, limit: u64) -> bool {
        !self.has_ended
            && self.in_flight + self.source.longest() as u64 <= self.source.credit()
            && transport.queued(self.node) < limit
    }

    pub(super) fn send(
        &mut self,
        batches: &mut Batches,
        transport: &mut dyn Transport,
        limit: u64,
    ) -> Sent {
        if self.has_ended || self.source.is_requested() {
            return Sent::Nothing;
        }
        // A damaged source is ready, so what lies behind the damage is not taken for sent.
        if !self.source.is_ready() {
            // Empty once since these exits, so everything that the ranks had sent is on its way.
            for rank in self.exits.drain(..) {
                self.id.append(Content::Exit(rank), batches.of(self.node));
            }
            return if self.is_closing { self.end(batches) } else { Sent::Nothing };
        }
        if !self.can_send(transport, limit) {
            return Sent::Blocked;
        }
        let batch = batches.of(self.node);
        let start = batch.len();
        // Holds the place of the head: the length is known once the messages are taken.
        batch.extend_from_slice(&self.id.head(0));
        let most = (self.source.credit() - self.in_flight).min(MAX_BYTES as u64) as usize;
        let taken = self.source.take(most, batch);
        let bytes = batch.len() - start - HEAD_BYTES;
        if bytes == 0 {
            batch.truncate(start);
        } else {
            batch[start..start + HEAD_BYTES].copy_from_slice(&self.id.head(bytes));
            self.in_flight += bytes as u64;
            self.activity.was_used = true;
        }
        if taken.is_err() {
            // The receiver waits for nothing that lies behind damage.
            self.source.close();
            return self.end(batches);
        }
        if bytes == 0 {
            return if self.source.is_ready() { Sent::Blocked } else { Sent::Nothing };
        }
        batches.send_long(self.node, transport, frame);
        Sent::Some
    }

    /// Reports the end.
    fn end(&mut self, batches: &mut Batches) -> Sent {
        self.id.append(Content::SenderClosed, batches.of(self.node));
        self.stop();
        Sent::Ended
    }

    pub(super) fn stop(&mut self) {
        self.has_ended = true;
        self.exits.clear();
    }
}

impl End for Outbound {
    fn names(&self) -> impl Iterator<Item = FlowId> {
        std::iter::once(self.id)
    }

    fn rank(&self) -> Option<u32> {
        Some(self.id.sender)
    }

    fn announcement(&self) -> Announcement {
        if self.has_ended { Announcement::ByEvent } else { self.source.announcement() }
    }

    fn request(&mut self) -> Requested {
        self.source.request()
    }

    fn withdraw(&mut self) {
        self.source.withdraw();
    }

    /// Returns true if there are messages, or reports behind messages.
    fn is_busy(&self) -> bool {
        !self.has_ended && (self.is_closing || !self.exits.is_empty() || self.source.is_ready())
    }

    fn may_rest(&mut self) -> bool {
        self.source.is_requested() && !self.is_busy()
    }

    fn activity(&mut self) -> &mut Activity {
        &mut self.activity
    }
}

pub(in crate::flows) fn frame(records: Vec<u8>) -> Frame {
    Frame::Flows { records }
}
