//! The agent's side of the messages of its ranks.

use super::area::{self, Area};
use crate::agent::session::ProtocolViolation;
use crate::error::{self, Error};
use crate::node_map::NodeMap;
use crate::transport::Transport;
use crate::transport::batches::Batches;
use crate::transport::frame::Frame;
use crate::transport::records::messages::{self as record, Class, HEAD_BYTES, Head};
use shm::mapped::Mapped;
use shm::segment::{Offset, Segment};
use shm::sync::{AtomicU32, Ordering, fence};
use shm::wakeup::Wakeup;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// Bytes that are taken from the send ring of a rank before the other ranks have their turn.
pub(crate) const TURN_BYTES: u64 = 256 << 10;
/// Bytes from one rank that are kept for another one with a full receive ring: more than the credit
/// that receivers grant.
const KEPT_BYTES: u64 = 16 << 20;

/// Messages of the ranks of one node.
#[derive(Debug)]
pub(crate) struct MessageRouter {
    node: u32,
    /// By local rank.
    ends: Vec<RankEnd>,
    /// Records for other nodes. After a turn there are none.
    batches: Batches,
    /// Ranks of other nodes with a reported exit.
    exited: HashSet<u32>,
}

/// The agent's side of one rank.
#[derive(Debug, Default)]
struct RankEnd {
    /// Wake-up word of the rank's threads that wait for messages.
    wakeup: Option<Mapped<AtomicU32>>,
    /// `None` before the rank has opened its area.
    area: Option<Area>,
    /// Bytes taken from the send ring.
    drained: u64,
    /// The node of the next record, if the queue for it is too long.
    blocked_by: Option<u32>,
    /// Bytes put into the receive ring, and the part that is published.
    delivered: u64,
    published: u64,
    /// Last known count of bytes that the rank has taken from there.
    taken: u64,
    /// Number of waits for space.
    waits: u64,
    /// Records behind a full receive ring, in order.
    kept: VecDeque<Box<[u8]>>,
    /// Bytes of these by sender.
    kept_bytes: HashMap<u32, u64>,
    has_exited: bool,
}

impl MessageRouter {
    /// A router for so many ranks of a node.
    pub(crate) fn new(node: u32, nodes: u32, ranks: usize) -> Self {
        MessageRouter {
            node,
            ends: (0..ranks).map(|_| RankEnd::default()).collect(),
            batches: Batches::new(nodes),
            exited: HashSet::new(),
        }
    }

    /// Sets the word that wakes a rank.
    pub(crate) fn set_wakeup(&mut self, local: usize, word: Mapped<AtomicU32>) {
        self.ends[local].wakeup = Some(word);
    }

    /// The segment of the ranks of this node, in which that word lies.
    pub(crate) fn segment(&self, local: usize) -> Option<&Arc<Segment>> {
        self.ends[local].wakeup.as_ref().map(Mapped::segment)
    }

    /// Opens the area of a rank, with rings of `ring` bytes.
    pub(crate) fn open(
        &mut self,
        local: usize,
        segment: &Arc<Segment>,
        at: Offset,
        ring: u64,
    ) -> Result<(), ProtocolViolation> {
        let end = &mut self.ends[local];
        if end.area.is_some() || !area::is_ring_size(ring) {
            return Err(ProtocolViolation);
        }
        end.area = Some(Area::open(segment, at, ring).map_err(|_| ProtocolViolation)?);
        end.deliver_kept()
    }

    /// Sends what a rank has put into its send ring, at most a turn of it, and nothing behind a
    /// record for a node with `limit` bytes in its queue: the rest stays in the send ring, so that
    /// the memory of this node is bounded. Returns true if anything was sent.
    pub(crate) fn serve(
        &mut self,
        local: usize,
        rank: u32,
        nodes: &NodeMap,
        transport: &mut dyn Transport,
        limit: u64,
    ) -> Result<bool, ProtocolViolation> {
        let served = self.serve_turn(local, rank, nodes, transport, limit);
        if served.is_err() {
            // Records before an invalid head. The next rank's frames must not contain them: the
            // source of a frame is that of all its records.
            self.batches.clear();
        }
        served
    }

    fn serve_turn(
        &mut self,
        local: usize,
        rank: u32,
        nodes: &NodeMap,
        transport: &mut dyn Transport,
        limit: u64,
    ) -> Result<bool, ProtocolViolation> {
        let MessageRouter { node: own, ends, batches, .. } = self;
        let frame = |records| Frame::Messages { source: rank, records };
        let end = &mut ends[local];
        end.deliver_kept()?;
        let Some(area) = end.area.as_ref().filter(|_| !end.has_exited) else { return Ok(false) };
        // Acquire: pairs with the Release of the rank's publication.
        let sent = area.header.port.sent.load(Ordering::Acquire);
        let mut left = sent.wrapping_sub(end.drained);
        if left == 0 {
            return Ok(false);
        }
        if left > area.send_ring.bytes() {
            return Err(ProtocolViolation);
        }
        let begin = end.drained;
        end.blocked_by = None;
        while left > 0 && end.drained - begin < TURN_BYTES {
            let mut encoded = [0; HEAD_BYTES];
            area.send_ring.read(end.drained, &mut encoded);
            // The copy of the head is checked and used: the rank may change the original.
            let head = Head::decode(&encoded)
                .filter(|head| head.class == Class::Message && head.record_bytes() <= left);
            let head = head.ok_or(ProtocolViolation)?;
            let to = nodes.of(head.peer).filter(|to| to != own).ok_or(ProtocolViolation)?;
            // Once for each frame, because the queue grows by frames.
            if batches.is_empty(to) && transport.queued(to) >= limit {
                end.blocked_by = Some(to);
                break;
            }
            let batch = batches.of(to);
            let start = batch.len();
            let length = head.record_bytes();
            batch.resize(start + length as usize, 0);
            batch[start..start + HEAD_BYTES].copy_from_slice(&encoded);
            area.send_ring.read(end.drained + HEAD_BYTES as u64, &mut batch[start + HEAD_BYTES..]);
            batches.send_long(to, transport, frame);
            end.drained += length;
            left -= length;
        }
        batches.send_all(transport, frame);
        if end.drained == begin {
            return Ok(false);
        }
        // Release: pairs with the Acquire of the rank. The records have been copied.
        area.header.router.drained.store(end.drained, Ordering::Release);
        // Pairs with the fence of the rank between its request and its look at the count.
        fence(Ordering::SeqCst);
        if area.header.port.needs_space.load(Ordering::Relaxed) != 0 {
            area.header.port.needs_space.store(0, Ordering::Relaxed);
            end.wake();
        }
        Ok(true)
    }

    /// Delivers the records of a frame of rank `source`, to ranks of this node by `local_of`.
    pub(crate) fn receive(
        &mut self,
        source: u32,
        mut records: &[u8],
        local_of: impl Fn(u32) -> Option<usize>,
    ) {
        // The decoder of frames has checked that these are whole records of messages.
        while let Some((head, record, rest)) = record::split_first(records) {
            records = rest;
            let Some(local) = local_of(head.peer) else {
                continue;
            };
            let arrived = Head { peer: source, ..head };
            self.ends[local].deliver(arrived, &record[HEAD_BYTES..]);
        }
    }

    /// Reports to all ranks of this node, behind what `rank` has sent, that nothing follows from
    /// it. The first report counts.
    pub(crate) fn report_exit(&mut self, rank: u32, why: &Error) {
        if !self.exited.insert(rank) {
            return;
        }
        for end in &mut self.ends {
            end.report(rank, why);
        }
    }

    /// Ends the messages of a rank of this node that has exited.
    pub(crate) fn close(&mut self, local: usize) {
        let end = &mut self.ends[local];
        end.has_exited = true;
        end.kept.clear();
        end.kept_bytes.clear();
        end.area = None;
    }

    /// Publishes what was delivered, and wakes the ranks that wait for it. Returns true if there
    /// was anything; `woken` gets the local ranks of which a thread slept.
    pub(crate) fn wake_receivers(&mut self, mut woken: impl FnMut(usize)) -> bool {
        let mut had_any = false;
        for (local, end) in self.ends.iter_mut().enumerate() {
            if end.published == end.delivered {
                continue;
            }
            had_any = true;
            end.published = end.delivered;
            if let Some(area) = &end.area {
                // Release: pairs with the Acquire of the rank. The records have been written.
                area.header.router.delivered.store(end.delivered, Ordering::Release);
            }
            if end.wake() {
                woken(local);
            }
        }
        had_any
    }

    /// Returns true if nothing in a send ring can be sent: what waits for a queue of at least
    /// `limit` bytes cannot. The transport ends the sleep when such a queue becomes shorter. Called
    /// behind the fence that follows the announcement of a sleep.
    pub(crate) fn is_idle(&self, transport: &dyn Transport, limit: u64) -> bool {
        self.ends.iter().filter(|end| !end.has_exited).all(|end| {
            let sent = end.area.as_ref().map(|area| area.header.port.sent.load(Ordering::Relaxed));
            let is_blocked = || end.blocked_by.is_some_and(|to| transport.queued(to) >= limit);
            sent.is_none_or(|sent| sent == end.drained) || is_blocked()
        })
    }
}

impl RankEnd {
    /// Wakes the threads that wait; true if one slept.
    fn wake(&self) -> bool {
        let Some(word) = &self.wakeup else { return false };
        let wakeup = Wakeup::by_store(word);
        let sleeps = wakeup.has_sleepers();
        wakeup.notify();
        sleeps
    }

    /// Puts a record into the receive ring, or keeps it. Drops it if the rank has exited, or its
    /// sender ignores credit.
    fn deliver(&mut self, head: Head, bytes: &[u8]) {
        if self.has_exited {
            return;
        }
        if self.kept.is_empty() && self.has_space(head.record_bytes()) {
            self.write(&head.encode(), bytes);
            return;
        }
        let kept = self.kept_bytes.entry(head.peer).or_default();
        // Reports of exits come from this agent, one for each rank.
        if *kept + head.record_bytes() > KEPT_BYTES && head.class == Class::Message {
            return;
        }
        *kept += head.record_bytes();
        self.kept.push_back([&head.encode()[..], bytes].concat().into());
    }

    fn report(&mut self, rank: u32, why: &Error) {
        let mut bytes = error::encode(&Err(why.clone()));
        let head = Head { peer: rank, class: Class::Exit, bytes: bytes.len(), words: [0; 3] };
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        self.deliver(head, &bytes);
    }

    fn has_space(&mut self, bytes: u64) -> bool {
        let Some(area) = &self.area else { return false };
        if self.delivered + bytes - self.taken <= area.receive_ring.bytes() {
            return true;
        }
        // Acquire: pairs with the Release of the rank, which has read the records before.
        let taken = area.header.port.taken.load(Ordering::Acquire);
        // A false count of the rank makes it lose its own messages.
        self.taken = taken.clamp(self.taken, self.delivered);
        self.delivered + bytes - self.taken <= area.receive_ring.bytes()
    }

    fn write(&mut self, head: &[u8], bytes: &[u8]) {
        if let Some(area) = &self.area {
            area.receive_ring.write(self.delivered, head);
            area.receive_ring.write(self.delivered + head.len() as u64, bytes);
            self.delivered += (head.len() + bytes.len()) as u64;
        }
    }

    /// Puts kept records into the receive ring, as far as it has space. Requests a notification for
    /// the rest.
    fn deliver_kept(&mut self) -> Result<(), ProtocolViolation> {
        if self.kept.is_empty() || self.area.is_none() {
            return Ok(());
        }
        let mut has_requested = false;
        while let Some(record) = self.kept.front() {
            let length = record.len() as u64;
            if !self.has_space(length) {
                if has_requested {
                    return Ok(());
                }
                has_requested = true;
                self.request_space();
                // Once more: the rank may have returned space before it could see the request.
                continue;
            }
            let Some(record) = self.kept.pop_front() else { return Ok(()) };
            self.write(&record, &[]);
            let head = record.first_chunk().and_then(Head::decode).ok_or(ProtocolViolation)?;
            if let Some(kept) = self.kept_bytes.get_mut(&head.peer) {
                *kept -= length;
            }
        }
        self.kept_bytes.clear();
        if let Some(area) = &self.area {
            area.header.router.needs_space.store(0, Ordering::Relaxed);
        }
        Ok(())
    }

    fn request_space(&mut self) {
        let Some(area) = &self.area else { return };
        self.waits += 1;
        area.header.router.needs_space.store(self.waits, Ordering::Relaxed);
        // Pairs with the fence of the rank between its count and its look at the request: it sees
        // the request, or its count is visible to the next look here.
        fence(Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::payloads::NoPayloads;
    use crate::transport::{Arrival, memory};
    use shm::segment::Backing;

    const RING: u64 = area::LEAST_RING;
    const LIMIT: u64 = 1000;

    /// The router of a node with ranks 0 and 1; rank 2 is on the other node. The ranks' sides of
    /// their areas, and both transports.
    fn router() -> (MessageRouter, [Area; 2], NodeMap, [memory::Memory; 2]) {
        let mut router = MessageRouter::new(0, 2, 2);
        let areas = [0, 1].map(|local| {
            let bytes = area::area_bytes(RING);
            let segment = Segment::create(bytes, Backing::Memory).expect("memory");
            segment.commit(Offset(0), bytes).expect("memory");
            let segment = Arc::new(segment);
            assert!(router.open(local, &segment, Offset(0), RING).is_ok());
            Area::open(&segment, Offset(0), RING).expect("inside")
        });
        let transports = memory::connect(2).expect("descriptors");
        (router, areas, NodeMap::new(["a", "a", "b"]), transports.try_into().expect("two"))
    }

    /// Appends a record without bytes; `class` is that of the record.
    fn put(area: &Area, class: Class, word: u64) {
        let sent = &area.header.port.sent;
        let head = Head { peer: 2, class, bytes: 0, words: [word; 3] };
        area.send_ring.write(sent.load(Ordering::Relaxed), &head.encode());
        sent.fetch_add(HEAD_BYTES as u64, Ordering::Release);
    }

    /// Source and first words of all records that have arrived.
    fn received(transports: &mut [memory::Memory; 2]) -> Vec<(u32, u64)> {
        let [own, other] = transports;
        own.flush(&mut NoPayloads);
        let mut arrivals = Vec::new();
        other.poll(&mut NoPayloads, &mut arrivals).expect("it works");
        let mut all = Vec::new();
        for arrival in arrivals {
            let Arrival::Frame { frame: Frame::Messages { source, records }, .. } = arrival else {
                panic!("{arrival:?}");
            };
            let mut rest = &records[..];
            while let Some((head, _, behind)) = record::split_first(rest) {
                all.push((source, head.words[0]));
                rest = behind;
            }
        }
        all
    }

    #[test]
    fn records_before_an_invalid_one_are_not_sent_as_those_of_another_rank() {
        let (mut router, areas, nodes, mut transports) = router();
        put(&areas[0], Class::Message, 7);
        put(&areas[0], Class::Exit, 0);
        put(&areas[1], Class::Message, 8);
        assert!(router.serve(0, 0, &nodes, &mut transports[0], LIMIT).is_err());
        assert!(router.serve(1, 1, &nodes, &mut transports[0], LIMIT).is_ok());
        assert_eq!(received(&mut transports), [(1, 8)]);
    }

    #[test]
    fn a_rank_sends_no_more_while_a_queue_is_long() {
        let (mut router, areas, nodes, mut transports) = router();
        transports[0].send(1, Frame::Messages { source: 1, records: vec![0; LIMIT as usize] });
        assert!(transports[0].queued(1) >= LIMIT);
        put(&areas[0], Class::Message, 7);
        assert!(!router.is_idle(&transports[0], LIMIT), "it has not been served");
        assert!(matches!(router.serve(0, 0, &nodes, &mut transports[0], LIMIT), Ok(false)));
        assert!(router.is_idle(&transports[0], LIMIT), "nothing can be done");
        assert_eq!(areas[0].header.router.drained.load(Ordering::Relaxed), 0);
        transports[0].flush(&mut NoPayloads);
        transports[1].poll(&mut NoPayloads, &mut Vec::new()).expect("it works");
        assert!(!router.is_idle(&transports[0], LIMIT), "the queue is shorter");
        assert!(matches!(router.serve(0, 0, &nodes, &mut transports[0], LIMIT), Ok(true)));
        assert_eq!(received(&mut transports), [(0, 7)]);
        assert!(router.is_idle(&transports[0], LIMIT));
        put(&areas[0], Class::Message, 8);
        transports[0].send(1, Frame::Messages { source: 1, records: vec![0; LIMIT as usize] });
        assert!(matches!(router.serve(0, 0, &nodes, &mut transports[0], u64::MAX), Ok(true)));
    }
}
