//! Records for other nodes, joined to frames: of messages or of flows.

use super::records::BATCH_BYTES;
use crate::transport::Transport;
use crate::transport::frame::Frame;

/// Records for each node, until they are sent. A frame is never longer than a batch and one record.
#[derive(Debug)]
pub(crate) struct Batches {
    by_node: Vec<Vec<u8>>,
    /// Nodes with records.
    begun: Vec<u32>,
    /// Long batches that were completed without a transport at hand.
    complete: Vec<(u32, Vec<u8>)>,
    /// A frame was sent since the last call of `send_all`.
    had_any: bool,
}

impl Batches {
    /// Batches for so many nodes.
    pub(crate) fn new(nodes: u32) -> Self {
        let by_node = (0..nodes).map(|_| Vec::new()).collect();
        Batches { by_node, begun: Vec::new(), complete: Vec::new(), had_any: false }
    }

    /// Returns the batch of a node, to which the caller appends at most one record.
    pub(crate) fn of(&mut self, node: u32) -> &mut Vec<u8> {
        let batch = &mut self.by_node[node as usize];
        if batch.len() >= BATCH_BYTES {
            self.complete.push((node, std::mem::take(batch)));
        } else if batch.is_empty() && !self.begun.contains(&node) {
            self.begun.push(node);
        }
        batch
    }

    /// Returns true if there are no records for a node.
    pub(crate) fn is_empty(&self, node: u32) -> bool {
        self.by_node[node as usize].is_empty()
    }

    /// Returns true if there are records for any node.
    pub(crate) fn has_records(&self) -> bool {
        !self.complete.is_empty() || self.begun.iter().any(|node| !self.is_empty(*node))
    }

    /// Sends the records for a node if there are enough of them.
    pub(crate) fn send_long(
        &mut self,
        node: u32,
        transport: &mut dyn Transport,
        frame: impl Fn(Vec<u8>) -> Frame,
    ) {
        if self.by_node[node as usize].len() >= BATCH_BYTES {
            self.send_complete(transport, &frame);
            transport.send(node, frame(std::mem::take(&mut self.by_node[node as usize])));
            self.had_any = true;
        }
    }

    /// Sends all records. Returns true if any were sent since the last call.
    pub(crate) fn send_all(
        &mut self,
        transport: &mut dyn Transport,
        frame: impl Fn(Vec<u8>) -> Frame,
    ) -> bool {
        self.send_complete(transport, &frame);
        for node in self.begun.drain(..) {
            let records = std::mem::take(&mut self.by_node[node as usize]);
            if !records.is_empty() {
                self.had_any = true;
                transport.send(node, frame(records));
            }
        }
        std::mem::take(&mut self.had_any)
    }

    /// Sends the completed batches, which precede all other records of their nodes.
    fn send_complete(&mut self, transport: &mut dyn Transport, frame: impl Fn(Vec<u8>) -> Frame) {
        self.had_any |= !self.complete.is_empty();
        self.complete.drain(..).for_each(|(node, records)| transport.send(node, frame(records)));
    }

    /// Discards all records.
    pub(crate) fn clear(&mut self) {
        self.complete.clear();
        for node in self.begun.drain(..) {
            self.by_node[node as usize].clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::payloads::NoPayloads;
    use crate::transport::records::flows::{self, Content, FlowId, FlowKind, HEAD_BYTES};
    use crate::transport::{Arrival, memory};

    #[test]
    fn frames_end_behind_the_record_that_makes_them_long() {
        const RECORDS: u64 = 10_000;
        let flow_of = |port| FlowId { kind: FlowKind::Queue, sender: 1, receiver: 0, port };
        let mut transports = memory::connect(2).expect("descriptors");
        let mut batches = Batches::new(2);
        for port in 0..RECORDS {
            flow_of(port).append(Content::SenderClosed, batches.of(1));
        }
        let frame = |records| Frame::Flows { records };
        assert!(batches.send_all(&mut transports[0], frame));
        assert!(!batches.send_all(&mut transports[0], frame));
        transports[0].flush(&mut NoPayloads);
        let mut arrivals = Vec::new();
        transports[1].poll(&mut NoPayloads, &mut arrivals).expect("it works");
        let mut next = 0;
        for arrival in arrivals {
            let Arrival::Frame { frame: Frame::Flows { records }, .. } = arrival else {
                panic!("{arrival:?}");
            };
            assert!(records.len() < BATCH_BYTES + HEAD_BYTES);
            let mut rest = &records[..];
            while let Some((id, _, behind)) = flows::split_first(rest) {
                assert_eq!(id, flow_of(next));
                next += 1;
                rest = behind;
            }
        }
        assert_eq!(next, RECORDS);
    }
}
