//! Connections between agents of one process, for tests and for measuring an agent without a
//! network.

use super::frame::{
    AnnouncedFrame, Frame, FrameError, FrameStart, HEADER_BYTES, Route, UNREADABLE, WHOLE,
};
use super::payloads::{PayloadLocation, Payloads};
use super::poller::Poller;
use super::{Arrival, Transport};
use crate::error::{Error, refused};
use interpreter::Packet;
use rustix::event::EventfdFlags;
use rustix::event::epoll::EventFlags;
use std::collections::VecDeque;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// An entry of a node's receive queue, with its sender.
#[derive(Debug)]
enum ReceivedEntry {
    /// A header, and a payload with its status byte if it has one.
    Frame(u32, [u8; HEADER_BYTES], Vec<u8>),
    Closed(u32),
}

/// A frame to be sent by the next flush.
#[derive(Debug)]
enum QueuedFrame {
    Frame([u8; HEADER_BYTES], Vec<u8>),
    InPlace([u8; HEADER_BYTES], PayloadLocation),
}

#[derive(Debug)]
struct ReceiveQueue {
    entries: Mutex<VecDeque<ReceivedEntry>>,
    notifier: OwnedFd,
}

impl ReceiveQueue {
    fn push(&self, entry: ReceivedEntry) {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).push_back(entry);
    }

    fn take(&self) -> VecDeque<ReceivedEntry> {
        std::mem::take(&mut *self.entries.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn notify(&self) {
        // It fails only if the counter is full, and then the descriptor is readable.
        let _ = rustix::io::write(&self.notifier, &1u64.to_ne_bytes());
    }
}

/// One node's connections to the others.
#[derive(Debug)]
pub struct Memory {
    node: u32,
    receive_queues: Arc<[ReceiveQueue]>,
    poller: Poller,
    /// By node: what was sent since the last flush.
    written: Vec<Vec<QueuedFrame>>,
    /// By node: whether its connection has ended.
    lost: Vec<bool>,
    refused: u64,
}

/// A payload that is sent in place, if it could be read, and its status.
fn with_status(payload: Option<Vec<u8>>) -> Vec<u8> {
    let status = if payload.is_some() { WHOLE } else { UNREADABLE };
    let mut bytes = payload.unwrap_or_default();
    bytes.push(status);
    bytes
}

/// Decodes a header and what follows it.
fn arrival(
    node: u32,
    header: &[u8; HEADER_BYTES],
    mut bytes: Vec<u8>,
) -> Result<Arrival, FrameError> {
    let FrameStart::Frame(AnnouncedFrame { header, has_status, .. }) = FrameStart::read(header)?
    else {
        // Nothing is cut into segments here.
        return Err(FrameStart::damaged_segment());
    };
    let is_whole = !has_status || bytes.pop() == Some(WHOLE);
    let unreadable = Arrival::unreadable(node, &header).filter(|_| !is_whole);
    match unreadable {
        Some(arrival) => Ok(arrival),
        None => Ok(Arrival::Frame { node, frame: Frame::decode(&header, bytes)? }),
    }
}

/// Number of the receive queue's descriptor.
const RECEIVED: u64 = u64::MAX;

/// Connects `nodes` nodes.
///
/// # Errors
/// If the system has no descriptors left.
pub fn connect(nodes: u32) -> Result<Vec<Memory>, Error> {
    let receive_queue = || {
        let notifier = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let notifier = notifier.map_err(refused("make a receive queue"))?;
        Ok(ReceiveQueue { entries: Mutex::default(), notifier })
    };
    let receive_queues: Arc<[ReceiveQueue]> =
        (0..nodes).map(|_| receive_queue()).collect::<Result<_, Error>>()?;
    let connect = |node: u32| {
        let poller = Poller::new()?;
        poller.add(
            &receive_queues[node as usize].notifier,
            RECEIVED,
            EventFlags::IN | EventFlags::ET,
        )?;
        Ok(Memory {
            node,
            receive_queues: Arc::clone(&receive_queues),
            poller,
            written: (0..nodes).map(|_| Vec::new()).collect(),
            lost: vec![false; nodes as usize],
            refused: 0,
        })
    };
    (0..nodes).map(connect).collect()
}

impl Transport for Memory {
    fn node(&self) -> u32 {
        self.node
    }

    fn nodes(&self) -> u32 {
        self.receive_queues.len() as u32
    }

    fn address(&self, node: u32) -> String {
        format!("node {node} of this process")
    }

    fn watch(&mut self, descriptor: BorrowedFd<'_>, number: u64) -> Result<(), Error> {
        self.poller.add(descriptor, number, EventFlags::IN | EventFlags::ET)
    }

    fn send(&mut self, node: u32, frame: Frame) {
        // Encoded as for a network, so that tests over this transport cover the encoding as well.
        let (header, payload) = frame.encode();
        self.written[node as usize].push(QueuedFrame::Frame(header, payload));
    }

    fn send_in_place(
        &mut self,
        node: u32,
        route: Route,
        packet: Packet,
        location: PayloadLocation,
        bytes: u64,
    ) {
        let header = Frame::in_place(route, packet, bytes);
        self.written[node as usize].push(QueuedFrame::InPlace(header, location));
    }

    fn detach(&mut self, location: PayloadLocation, payload: Option<Vec<u8>>) {
        for entry in self.written.iter_mut().flatten() {
            if let QueuedFrame::InPlace(header, found) = entry
                && *found == location
            {
                *entry = QueuedFrame::Frame(*header, with_status(payload));
                return;
            }
        }
    }

    fn flush(&mut self, payloads: &mut dyn Payloads) {
        for (node, receive_queue) in self.receive_queues.iter().enumerate() {
            let written = std::mem::take(&mut self.written[node]);
            let is_lost = self.lost[node];
            // One notification for all frames since the last flush.
            let is_notified = !written.is_empty() && !is_lost;
            for entry in written {
                let (header, payload) = match entry {
                    QueuedFrame::Frame(header, payload) => (header, payload),
                    QueuedFrame::InPlace(header, location) => {
                        let payload = payloads.copy(location).ok();
                        match payload {
                            Some(_) => payloads.sent(location),
                            None => payloads.unreadable(location),
                        }
                        (header, with_status(payload))
                    }
                };
                if !is_lost {
                    receive_queue.push(ReceivedEntry::Frame(self.node, header, payload));
                }
            }
            if is_notified {
                receive_queue.notify();
            }
        }
    }

    fn queued(&self, node: u32) -> u64 {
        let length = |entry: &QueuedFrame| match entry {
            QueuedFrame::Frame(header, payload) => (header.len() + payload.len()) as u64,
            QueuedFrame::InPlace(header, _) => header.len() as u64,
        };
        self.written[node as usize].iter().map(length).sum()
    }

    fn wait(
        &mut self,
        timeout: Option<Duration>,
        payloads: &mut dyn Payloads,
        arrivals: &mut Vec<Arrival>,
    ) -> Result<(), Error> {
        self.flush(payloads);
        let notified = self.poller.wait(timeout)?.map(|(number, _)| number);
        arrivals.extend(notified.filter(|number| *number != RECEIVED).map(Arrival::Notified));
        // Taken after the descriptor was reported: an entry that is pushed later notifies again.
        for entry in self.receive_queues[self.node as usize].take() {
            match entry {
                ReceivedEntry::Frame(node, header, bytes) => match arrival(node, &header, bytes) {
                    Ok(arrival) => arrivals.push(arrival),
                    Err(_) => self.refused += 1,
                },
                ReceivedEntry::Closed(node) => {
                    self.lost[node as usize] = true;
                    arrivals.push(Arrival::NodeLost { node, why: "its agent has ended".into() });
                }
            }
        }
        Ok(())
    }

    fn refused(&self) -> u64 {
        self.refused
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        for (node, receive_queue) in self.receive_queues.iter().enumerate() {
            if node != self.node as usize && !self.lost[node] {
                receive_queue.push(ReceivedEntry::Closed(self.node));
                receive_queue.notify();
            }
        }
    }
}
