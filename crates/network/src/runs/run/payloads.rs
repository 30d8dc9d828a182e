//! Transfers between the memory of a run and the transport.

use super::Run;
use crate::runs::zero_copy::BorrowedMemory;
use crate::transport::payloads::{PayloadLocation, SegmentRange, send_slices};
use interpreter::{Handle, Incoming, Outgoing};
use rustix::io::Errno;
use std::io::IoSlice;
use std::ops::Range;
use std::os::fd::BorrowedFd;

impl Run {
    fn borrowed(&self, buffer: usize) -> Option<&BorrowedMemory> {
        self.borrowed.iter().find(|(number, _)| *number == buffer).map(|(_, memory)| memory)
    }

    /// Writes the first slices, a range of a payload that is sent in place, and the second slices
    /// to a socket.
    pub(crate) fn send_payload(
        &self,
        send: Handle,
        range: Range<usize>,
        [head, tail]: [&[IoSlice<'_>]; 2],
        socket: BorrowedFd<'_>,
    ) -> Result<usize, Errno> {
        match self.interpreter.outgoing(send) {
            Some(Outgoing::Own(bytes)) => {
                send_slices(socket, &[head, &[IoSlice::new(&bytes[range])], tail].concat())
            }
            Some(Outgoing::Borrowed(buffer, whole)) => {
                let start = whole.start as usize;
                let range = start + range.start..start + range.end;
                self.borrowed(buffer)
                    .map_or(Err(Errno::FAULT), |memory| memory.send(range, [head, tail], socket))
            }
            // The transport has only payloads that are being sent.
            None => Err(Errno::FAULT),
        }
    }

    /// Copies a range of a payload that is sent in place.
    pub(crate) fn load_payload(
        &self,
        send: Handle,
        range: Range<usize>,
        into: &mut [u8],
    ) -> Result<(), Errno> {
        match self.interpreter.outgoing(send) {
            Some(Outgoing::Own(bytes)) => {
                into.copy_from_slice(&bytes[range]);
                Ok(())
            }
            Some(Outgoing::Borrowed(buffer, whole)) => {
                let memory = self.borrowed(buffer).ok_or(Errno::FAULT)?;
                memory.load(whole.start as usize + range.start, into)
            }
            // As in `send_payload`.
            None => Err(Errno::FAULT),
        }
    }

    /// Copies a payload that is sent in place.
    ///
    /// # Errors
    /// [`Errno::FAULT`] if it cannot be read.
    pub(crate) fn copy_payload(&self, send: Handle) -> Result<Vec<u8>, Errno> {
        let length = match self.interpreter.outgoing(send) {
            Some(Outgoing::Own(bytes)) => return Ok(bytes.to_vec()),
            Some(Outgoing::Borrowed(_, range)) => (range.end - range.start) as usize,
            // As in `send_payload`.
            None => return Err(Errno::FAULT),
        };
        let mut payload = vec![0; length];
        self.load_payload(send, 0..length, &mut payload)?;
        Ok(payload)
    }

    /// Writes bytes of a payload that arrives in place; false if there is no such payload.
    pub(crate) fn store_payload(&mut self, receive: Handle, at: usize, bytes: &[u8]) -> bool {
        let Run { interpreter, borrowed, .. } = self;
        match interpreter.incoming(receive) {
            Some(Incoming::Own(place)) => {
                place[at..at + bytes.len()].copy_from_slice(bytes);
                true
            }
            Some(Incoming::Borrowed(buffer, whole)) => {
                let memory = borrowed.iter_mut().find(|(number, _)| *number == buffer);
                memory.is_some_and(|(_, memory)| {
                    memory.store(whole.start + at as u64, bytes);
                    true
                })
            }
            None => false,
        }
    }

    /// Reads bytes of a payload that arrives in place from a socket; `None` if there is no such
    /// payload.
    pub(crate) fn receive_payload(
        &mut self,
        receive: Handle,
        at: usize,
        most: usize,
        socket: BorrowedFd<'_>,
    ) -> Option<Result<usize, Errno>> {
        let Run { interpreter, borrowed, .. } = self;
        match interpreter.incoming(receive)? {
            Incoming::Own(place) => Some(rustix::io::read(socket, &mut place[at..at + most])),
            Incoming::Borrowed(buffer, whole) => {
                let (_, memory) = borrowed.iter_mut().find(|(number, _)| *number == buffer)?;
                memory.receive(whole.start as usize + at, most, socket)
            }
        }
    }

    /// Place of a payload that is sent or arrives in place, if it lies in the rank's region.
    pub(crate) fn payload_range(&mut self, operation: Handle) -> Option<SegmentRange> {
        let (buffer, range) = match self.interpreter.outgoing(operation) {
            Some(Outgoing::Borrowed(buffer, range)) => (buffer, range),
            Some(Outgoing::Own(_)) => return None,
            None => match self.interpreter.incoming(operation)? {
                Incoming::Borrowed(buffer, range) => (buffer, range),
                Incoming::Own(_) => return None,
            },
        };
        self.borrowed(buffer)?.range(range)
    }

    /// Payloads that are being sent in place, each with a copy, because the memory of the run ends;
    /// without one if it cannot be read.
    pub(crate) fn detached_payloads(&self) -> Vec<(PayloadLocation, Option<Vec<u8>>)> {
        let sending = self.interpreter.sending();
        sending.map(|send| (self.key.payload(send), self.copy_payload(send).ok())).collect()
    }
}
