//! A queue and a receive buffer, with bytes between them in random pieces, against the messages
//! that were sent.

use super::receive_buffer::ReceiveBuffer;
use super::send_queue::SendQueue;
use super::{Sink, Source};
use crate::transport::Arrival;
use crate::transport::frame::{Frame, Route};
use crate::transport::payloads::{PayloadLocation, Payloads};
use interpreter::{Handle, Packet};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::io::Errno;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

/// Bytes between two ends, and how many more each call takes.
#[derive(Default)]
struct Wire {
    bytes: VecDeque<u8>,
    space: usize,
}

impl Wire {
    fn take(&mut self, slices: &[IoSlice<'_>]) -> usize {
        let before = self.bytes.len();
        for slice in slices {
            let count = slice.len().min(self.space);
            self.bytes.extend(&slice[..count]);
            self.space -= count;
        }
        self.bytes.len() - before
    }
}

impl Sink for Wire {
    fn write(&mut self, slices: &[IoSlice<'_>]) -> Result<usize, Errno> {
        if self.space == 0 { Err(Errno::AGAIN) } else { Ok(self.take(slices)) }
    }

    /// As a system does that copies byte by byte.
    fn write_payload(
        &mut self,
        [head, tail]: [&[IoSlice<'_>]; 2],
        location: PayloadLocation,
        range: Range<usize>,
        payloads: &dyn Payloads,
    ) -> Result<usize, Errno> {
        if self.space == 0 {
            return Err(Errno::AGAIN);
        }
        let taken = self.take(head);
        let wanted = range.len().min(self.space);
        let mut bytes = vec![0; wanted];
        let readable = (0..=wanted).rev().find(|count| {
            let range = range.start..range.start + count;
            payloads.load(location, range, &mut bytes[..*count]).is_ok()
        });
        let readable = readable.unwrap_or(0);
        let taken = taken + self.take(&[IoSlice::new(&bytes[..readable])]);
        if readable < wanted {
            return if taken > 0 { Ok(taken) } else { Err(Errno::FAULT) };
        }
        Ok(taken + self.take(tail))
    }
}

impl Source for Wire {
    fn read(&mut self, into: &mut [u8]) -> Result<usize, Errno> {
        let count = into.len().min(self.bytes.len()).min(self.space);
        for (place, byte) in into.iter_mut().zip(self.bytes.drain(..count)) {
            *place = byte;
        }
        self.space -= count;
        if count == 0 { Err(Errno::AGAIN) } else { Ok(count) }
    }

    fn read_payload(
        &mut self,
        location: PayloadLocation,
        at: usize,
        most: usize,
        payloads: &mut dyn Payloads,
    ) -> Option<Result<usize, Errno>> {
        let mut bytes = vec![0; most];
        let read = self.read(&mut bytes);
        let bytes = &bytes[..*read.as_ref().unwrap_or(&0)];
        payloads.store(location, at, bytes).then_some(read)
    }
}

/// Messages at the sender, by operation: their bytes, and how many of them can be read. At the
/// receiver, those that are received in place.
#[derive(Default)]
struct Memory {
    messages: HashMap<u32, (Vec<u8>, usize)>,
    sent: BTreeSet<u32>,
    unreadable: BTreeSet<u32>,
    expects_long: bool,
}

impl Payloads for Memory {
    fn load(
        &self,
        location: PayloadLocation,
        range: Range<usize>,
        into: &mut [u8],
    ) -> Result<(), Errno> {
        let (bytes, readable) = &self.messages[&location.operation];
        if range.end > *readable {
            return Err(Errno::FAULT);
        }
        into.copy_from_slice(&bytes[range]);
        Ok(())
    }

    fn has_runs(&self) -> bool {
        true
    }

    fn expects_long(&self) -> bool {
        self.expects_long
    }

    fn sent(&mut self, location: PayloadLocation) {
        assert!(self.sent.insert(location.operation), "reported twice");
    }

    fn unreadable(&mut self, location: PayloadLocation) {
        assert!(self.unreadable.insert(location.operation), "reported twice");
    }

    fn admit(&mut self, _: u32, _: Route, packet: &Packet, bytes: u64) -> Option<PayloadLocation> {
        let Packet::Data { receive, .. } = packet else { return None };
        // Every other one, once, as far as it can be a message of these tests.
        let fits = receive.0 % 2 == 0 && bytes < 1 << 20;
        (fits && !self.messages.contains_key(&receive.0)).then(|| {
            self.messages.insert(receive.0, (vec![0; bytes as usize], 0));
            location(receive.0)
        })
    }

    fn store(&mut self, location: PayloadLocation, at: usize, bytes: &[u8]) -> bool {
        let (place, _) = self.messages.get_mut(&location.operation).expect("it was admitted");
        place[at..at + bytes.len()].copy_from_slice(bytes);
        true
    }
}

fn location(operation: u32) -> PayloadLocation {
    PayloadLocation { rank: 0, communicator: 0, sequence: 0, operation }
}

fn route(operation: u32) -> Route {
    Route { sequence: u64::from(operation), ..Route::default() }
}

/// A length around the limits of the queue and the buffer.
fn length(random: &mut StdRng) -> usize {
    let most = [100, 5_000, 40_000, 300_000, 800_000][random.random_range(0..5)];
    random.random_range(1..most)
}

/// Queues so many messages, some of them in place, and some of these unreadable from a byte on.
fn queued(random: &mut StdRng, count: u32) -> (SendQueue, Memory) {
    let mut queue = SendQueue::default();
    let mut memory = Memory::default();
    for operation in 0..count {
        let bytes: Vec<u8> = (0..length(random)).map(|_| random.random()).collect();
        let readable = [bytes.len(), random.random_range(0..bytes.len())];
        let readable = readable[usize::from(random.random_range(0..4) == 0)];
        let receive = Handle(operation);
        if random.random_range(0..3) == 0 {
            let packet = Packet::Data { receive, payload: bytes.clone() };
            queue.push(Frame::Packet(route(operation), packet));
            memory.messages.insert(operation, (bytes.clone(), bytes.len()));
        } else {
            let packet = Packet::Data { receive, payload: Vec::new() };
            queue.push_in_place(route(operation), packet, location(operation), bytes.len());
            memory.messages.insert(operation, (bytes, readable));
        }
    }
    (queue, memory)
}

/// Detaches one of the payloads that have not been sent, as at the end of its run.
fn detach_one(queue: &mut SendQueue, memory: &Memory, random: &mut StdRng) {
    let locations = queue.locations();
    if let Some(location) = locations.get(random.random_range(0..locations.len().max(1))) {
        let (bytes, readable) = &memory.messages[&location.operation];
        let bytes = (*readable == bytes.len()).then(|| Arc::new(bytes.clone()));
        queue.detach(*location, bytes.as_ref());
    }
}

#[test]
fn every_message_arrives_once_and_is_whole_or_reported() {
    const MESSAGES: u32 = 12;
    for seed in 0..30 {
        let mut random = StdRng::seed_from_u64(seed);
        let (mut queue, mut memory) = queued(&mut random, MESSAGES);
        let (mut wire, mut buffer) = (Wire::default(), ReceiveBuffer::default());
        let (mut received, mut arrivals) = (Memory::default(), Vec::new());
        while arrivals.len() < MESSAGES as usize {
            wire.space = length(&mut random);
            queue.write(&mut wire, &mut memory).expect("the wire stays");
            if random.random_range(0..20) == 0 {
                detach_one(&mut queue, &memory, &mut random);
            }
            wire.space = length(&mut random);
            received.expects_long = random.random();
            buffer.read(&mut wire, 1, &mut received, &mut arrivals).expect("the frames are right");
        }
        assert_eq!((queue.bytes(), wire.bytes.len()), (0, 0), "as many bytes as announced");
        let mut seen = BTreeSet::new();
        for arrival in arrivals {
            let (operation, bytes) = match arrival {
                Arrival::Frame {
                    frame: Frame::Packet(_, Packet::Data { receive, payload }),
                    ..
                } => (receive.0, Some(payload)),
                Arrival::InPlace { location, .. } => {
                    (location.operation, Some(received.messages[&location.operation].0.clone()))
                }
                Arrival::Unreadable { route, .. } => (route.sequence as u32, None),
                other => panic!("{other:?}"),
            };
            let (expected, readable) = &memory.messages[&operation];
            let expected = (*readable == expected.len()).then_some(expected);
            assert!(bytes.as_ref() == expected, "message {operation} of seed {seed}");
            assert!(seen.insert(operation), "message {operation} of seed {seed} comes twice");
        }
        assert!(memory.sent.is_disjoint(&memory.unreadable));
    }
}

#[test]
fn damaged_bytes_are_refused_or_other_messages() {
    for seed in 0..200 {
        let mut random = StdRng::seed_from_u64(seed);
        let (mut queue, mut memory) = queued(&mut random, 3);
        let mut wire = Wire { space: usize::MAX, ..Wire::default() };
        queue.write(&mut wire, &mut memory).expect("the wire stays");
        for _ in 0..random.random_range(1..4) {
            let damaged = random.random_range(0..wire.bytes.len().min(2000));
            wire.bytes[damaged] ^= 1 << random.random_range(0..8);
        }
        let mut buffer = ReceiveBuffer::default();
        let (mut received, mut arrivals) = (Memory::default(), Vec::new());
        while !wire.bytes.is_empty() {
            wire.space = length(&mut random);
            if buffer.read(&mut wire, 1, &mut received, &mut arrivals).is_err() {
                break;
            }
        }
    }
}
