//! One sending end.

use crate::flows::memory::Charge;
use crate::transport::Transport;
use crate::transport::batches::Batches;
use crate::transport::frame::Frame;
use crate::transport::records::flows::{Content, FlowId, HEAD_BYTES, MAX_BYTES};
use queues::internode::{Announcement, MAX_MESSAGE, Source};

// A record contains at least one message.
const _: () = assert!(MAX_MESSAGE <= MAX_BYTES);

/// A sending end.
#[derive(Debug)]
pub(in crate::flows) struct Outbound {
    pub(super) id: FlowId,
    pub(super) node: u32,
    pub(super) source: Box<dyn Source>,
    /// Bytes that were sent and not released yet.
    pub(in crate::flows) in_flight: u64,
    /// Exits of ranks that may have sent what the source contains.
    pub(super) exits: Vec<u32>,
    /// No rank sends any more: the end goes behind what the source contains.
    pub(super) is_closing: bool,
    /// Nothing more is sent, and the node of the receiver knows. Only a member of a set remains.
    pub(super) has_ended: bool,
    /// It is looked at in every turn.
    pub(super) is_active: bool,
    /// It has sent something since the last look for ends that may rest.
    pub(super) was_used: bool,
    pub(super) set: Option<usize>,
    /// Declared last: dropped when the source is used no more.
    _charge: Option<Charge>,
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
    pub(in crate::flows) fn new((id, node): (FlowId, u32), source: Box<dyn Source>) -> Self {
        Outbound {
            id,
            node,
            source,
            in_flight: 0,
            exits: Vec::new(),
            is_closing: false,
            has_ended: false,
            is_active: false,
            was_used: true,
            set: None,
            _charge: None,
        }
    }

    pub(in crate::flows) fn charged(mut self, charge: Charge) -> Self {
        self._charge = Some(charge);
        self
    }

    /// Makes it a member of a set. These ranks have exited, and if it is closing, no rank sends.
    pub(super) fn of_set(mut self, set: usize, exits: Vec<u32>, is_closing: bool) -> Self {
        self.set = Some(set);
        self.exits = exits;
        self.is_closing = is_closing;
        self
    }

    pub(super) fn can_send(&self, transport: &dyn Transport, limit: u64) -> bool {
        !self.has_ended
            && self.in_flight + self.source.longest() as u64 <= self.source.credit()
            && transport.queued(self.node) < limit
    }

    pub(super) fn has_unsent(&self) -> bool {
        !self.has_ended && (self.is_closing || !self.exits.is_empty() || self.source.is_ready())
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
            self.was_used = true;
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

    /// Returns true if it is looked at in every turn although it has nothing to send.
    pub(super) fn is_watched(&self) -> bool {
        !self.has_ended && self.source.announcement() != Announcement::Told
    }
}

pub(in crate::flows) fn frame(records: Vec<u8>) -> Frame {
    Frame::Flows { records }
}
