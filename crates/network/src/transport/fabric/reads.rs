//! Long messages of other nodes that this one reads from their memory.

use super::message::Offer;
use super::registered::RegisteredMemory;
use crate::transport::Arrival;
use crate::transport::frame::Frame;
use crate::transport::payloads::{PayloadLocation, Payloads};
use ::fabric::{Access, Endpoint, Peer};
use interpreter::Packet;
use std::time::{Duration, Instant};

/// Longest part that is read at once: several are under way.
const PART: usize = 1 << 20;

/// A message that is being read.
#[derive(Debug)]
struct Reading {
    node: u32,
    peer: Peer,
    offer: Offer,
    /// The message, without its payload.
    packet: Packet,
    location: PayloadLocation,
    /// Number of the memory that is filled.
    memory: usize,
    /// Bytes of the message; those for which reads have begun, and have ended.
    length: usize,
    begun: usize,
    done: usize,
    /// Reads under way.
    under_way: usize,
    failure: Option<String>,
    /// True if the node is lost.
    is_orphan: bool,
    /// Time of the last progress of the reads under way.
    since: Instant,
}

impl Reading {
    /// Returns true if parts are left for which no read has begun.
    fn needs_reads(&self) -> bool {
        self.failure.is_none() && !self.is_orphan && self.begun < self.length
    }
}

/// A message that is read no more.
#[derive(Debug)]
pub(super) struct EndedRead {
    pub(super) node: u32,
    /// Number of the offer.
    pub(super) number: u64,
    /// The arrival of the message; `None` if it must be sent instead.
    pub(super) arrival: Option<Arrival>,
}

/// The messages that are being read.
#[derive(Debug, Default)]
pub(super) struct Reads {
    list: Vec<Option<Reading>>,
    transferred: u64,
    /// Time from which on the provider has been busy, and no read has ended.
    refused: Option<Instant>,
    has_warned: bool,
}

impl Reads {
    /// Begins to read an offered message; false if it must be sent instead.
    pub(super) fn begin(
        &mut self,
        (node, peer): (u32, Peer),
        offer: Offer,
        registered: &mut RegisteredMemory,
        endpoint: &mut Endpoint,
        payloads: &mut dyn Payloads,
    ) -> bool {
        let Some((route, packet, bytes)) = Frame::message_of(&offer.frame) else { return false };
        // Messages for runs that have not started are sent: the memory for them is not known.
        let Some(location) = payloads.admit(node, route, &packet, bytes) else { return false };
        let range = payloads.range(location).filter(|range| range.bytes == bytes);
        let take = |range| registered.take(endpoint, &range, Access::FilledByReads);
        let Some(memory) = range.and_then(take) else {
            payloads.withdraw(location, &packet);
            return false;
        };
        let reading = Reading {
            node,
            peer,
            offer,
            packet,
            location,
            memory,
            length: bytes as usize,
            begun: 0,
            done: 0,
            under_way: 0,
            failure: None,
            is_orphan: false,
            since: Instant::now(),
        };
        match self.list.iter().position(Option::is_none) {
            Some(free) => self.list[free] = Some(reading),
            None => self.list.push(Some(reading)),
        }
        true
    }

    /// Begins reads, as far as the provider takes them.
    pub(super) fn post(&mut self, registered: &RegisteredMemory, endpoint: &mut Endpoint) {
        let longest = PART.min(endpoint.provider().longest);
        for (token, reading) in self.list.iter_mut().enumerate() {
            let Some(reading) = reading else { continue };
            while reading.needs_reads() {
                let Some(memory) = registered.memory(reading.memory) else { break };
                let count = longest.min(reading.length - reading.begun);
                let part = (reading.begun, count);
                let Reading { offer, peer, .. } = *reading;
                match endpoint.read(memory, part, offer.remote, peer, token as u32) {
                    Ok(()) => {
                        self.refused = None;
                        // It has waited its turn behind other messages, which is no stall.
                        if reading.under_way == 0 {
                            reading.since = Instant::now();
                        }
                        reading.begun += count;
                        reading.under_way += 1;
                    }
                    Err(None) => {
                        self.refused.get_or_insert_with(Instant::now);
                        return;
                    }
                    Err(Some(error)) => reading.failure = Some(error.to_string()),
                }
            }
        }
        self.refused = None;
    }

    /// Notes the end of a read.
    pub(super) fn ended(&mut self, token: u32, bytes: usize, outcome: Result<(), String>) {
        let Some(Some(reading)) = self.list.get_mut(token as usize) else { return };
        reading.under_way -= 1;
        reading.since = Instant::now();
        self.refused = None;
        match outcome {
            Ok(()) => {
                reading.done += bytes;
                self.transferred = self.transferred.wrapping_add(bytes as u64);
            }
            Err(why) => reading.failure = Some(why),
        }
    }

    /// Removes the messages of which no read is under way and that need none.
    pub(super) fn take_ended(
        &mut self,
        registered: &mut RegisteredMemory,
        endpoint: &mut Endpoint,
        payloads: &mut dyn Payloads,
    ) -> Vec<EndedRead> {
        let is_over = |reading: &mut Reading| {
            let needs_none =
                reading.done == reading.length || reading.failure.is_some() || reading.is_orphan;
            reading.under_way == 0 && needs_none
        };
        let Reads { list, has_warned, .. } = self;
        let taken = list.iter_mut().filter_map(|reading| reading.take_if(is_over));
        let end = |reading: Reading| {
            let Reading { node, offer, packet, location, memory, failure, is_orphan, .. } = reading;
            registered.release(endpoint, memory);
            if is_orphan {
                return None;
            }
            let arrival = match failure {
                None => {
                    let is_eager = matches!(packet, Packet::Eager { .. });
                    let eager = if is_eager { reading.length as u64 } else { 0 };
                    Some(Arrival::InPlace { node, location, eager })
                }
                Some(why) => {
                    // Others have the same reason as a rule.
                    let is_first = !std::mem::replace(has_warned, true);
                    let level = if is_first { log::Level::Warn } else { log::Level::Debug };
                    log::log!(level, "a message of node {node} is sent, not read: {why}");
                    payloads.withdraw(location, &packet);
                    None
                }
            };
            Some(EndedRead { node, number: offer.number, arrival })
        };
        taken.filter_map(end).collect()
    }

    /// Notes the loss of a node. Reads that are under way still fill their memory.
    pub(super) fn lose(&mut self, node: u32) {
        // The next message has not been refused yet.
        self.refused = None;
        for reading in self.list.iter_mut().flatten().filter(|reading| reading.node == node) {
            reading.is_orphan = true;
            reading.since = Instant::now();
        }
    }

    /// Nodes of messages without progress for so long, each with true if it is lost already.
    pub(super) fn stalled(&self, now: Instant, most: Duration) -> Vec<(u32, bool)> {
        let is_old = |since: Instant| now.duration_since(since) > most;
        let all = || self.list.iter().flatten();
        let read = all().filter(|reading| reading.under_way > 0 && is_old(reading.since));
        // `post` serves the list in order, so that the provider refuses the first one.
        let first = all().find(|reading| reading.needs_reads());
        let refused =
            first.filter(|reading| reading.under_way == 0 && self.refused.is_some_and(is_old));
        read.chain(refused).map(|reading| (reading.node, reading.is_orphan)).collect()
    }

    /// Returns true if reads may fill memory of the run of a payload.
    pub(super) fn use_run(&self, location: PayloadLocation) -> bool {
        self.list.iter().flatten().any(|reading| reading.location.is_of_run(&location))
    }

    /// Returns true if messages are being read.
    pub(super) fn are_under_way(&self) -> bool {
        self.list.iter().any(Option::is_some)
    }

    /// Returns true if the provider was busy and no event may report the end of that.
    pub(super) fn is_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// Number of bytes that have been read.
    pub(super) fn transferred(&self) -> u64 {
        self.transferred
    }
}
