//! A frame with a payload that is read where it belongs, without a copy from the receive buffer.

use super::Source;
use super::connection_error::ConnectionError;
use crate::transport::Arrival;
use crate::transport::frame::{AnnouncedFrame, Frame, FrameError, HEADER_BYTES, WHOLE};
use crate::transport::payloads::{PayloadLocation, Payloads};
use interpreter::Packet;
use rustix::io::Errno;

/// A frame of which the payload arrives.
#[derive(Debug)]
pub(super) struct LargeFrame {
    header: [u8; HEADER_BYTES],
    target: Target,
    /// Bytes of the payload, and those that have arrived.
    length: usize,
    arrived: usize,
    /// The status byte behind the payload; that of a message without one is there from the start.
    status: Option<u8>,
}

#[derive(Debug)]
enum Target {
    Own(Vec<u8>),
    /// The memory of a run.
    Payload(PayloadLocation),
    /// The memory of a run that has ended: the bytes are dropped.
    Ended(PayloadLocation),
}

impl LargeFrame {
    /// A frame before its payload arrives. Takes address space for a payload that no run admits;
    /// memory is taken as the payload arrives, so that a false length takes none.
    pub(super) fn new(
        frame: AnnouncedFrame,
        node: u32,
        payloads: &mut dyn Payloads,
    ) -> Result<Self, ConnectionError> {
        let AnnouncedFrame { header, bytes, has_status } = frame;
        let memory = || ConnectionError::Memory(bytes);
        let length = usize::try_from(bytes).map_err(|_| memory())?;
        let location = Frame::message_of(&header)
            .and_then(|(route, packet, bytes)| payloads.admit(node, route, &packet, bytes));
        let target = match location {
            Some(location) => Target::Payload(location),
            None => {
                let mut payload = Vec::new();
                payload.try_reserve_exact(length).map_err(|_| memory())?;
                Target::Own(payload)
            }
        };
        let status = (!has_status).then_some(WHOLE);
        Ok(LargeFrame { header, target, length, arrived: 0, status })
    }

    /// Number of bytes that have not arrived, the status included.
    pub(super) fn rest(&self) -> usize {
        self.payload_rest() + usize::from(self.status.is_none())
    }

    /// Number of bytes of the payload that have not arrived.
    pub(super) fn payload_rest(&self) -> usize {
        self.length - self.arrived
    }

    /// Adds bytes of the payload, and the status behind its end.
    pub(super) fn push(&mut self, bytes: &[u8], payloads: &mut dyn Payloads) {
        // What lies behind the payload begins with its status.
        let (bytes, status) = bytes.split_at(bytes.len().min(self.payload_rest()));
        match &mut self.target {
            Target::Own(payload) => payload.extend_from_slice(bytes),
            Target::Payload(location) => {
                if !payloads.store(*location, self.arrived, bytes) {
                    self.target = Target::Ended(*location);
                }
            }
            Target::Ended(_) => {}
        }
        self.arrived += bytes.len();
        self.status = self.status.or(status.first().copied());
    }

    /// Reads some of the rest of the payload, at most `most` bytes. Returns the number of bytes
    /// read and the number requested. If the run has ended, the bytes are read into `unused` and
    /// dropped.
    pub(super) fn read(
        &mut self,
        source: &mut impl Source,
        most: usize,
        payloads: &mut dyn Payloads,
        unused: &mut [u8],
    ) -> Result<(usize, usize), ConnectionError> {
        let wanted = self.payload_rest().min(most);
        let read = match &mut self.target {
            Target::Own(payload) => {
                payload.resize(self.arrived + wanted, 0);
                let read = source.read(&mut payload[self.arrived..]);
                // Without the zeros that nothing has replaced, also after an error.
                payload.truncate(self.arrived + *read.as_ref().unwrap_or(&0));
                received(read)?
            }
            Target::Payload(location) => {
                match source.read_payload(*location, self.arrived, wanted, payloads) {
                    Some(read) => received(read)?,
                    // The run has ended. The rest is read all the same, because the next frame begins
                    // behind it.
                    None => {
                        self.target = Target::Ended(*location);
                        return self.read(source, most, payloads, unused);
                    }
                }
            }
            Target::Ended(_) => {
                let wanted = wanted.min(unused.len());
                let read = received(source.read(&mut unused[..wanted]))?;
                self.arrived += read;
                return Ok((read, wanted));
            }
        };
        self.arrived += read;
        Ok((read, wanted))
    }

    /// The arrival of the whole frame from a node.
    pub(super) fn arrival(self, node: u32) -> Result<Arrival, FrameError> {
        // Only messages have a status.
        let unreadable = Arrival::unreadable(node, &self.header);
        if let Some(arrival) = unreadable.filter(|_| self.status != Some(WHOLE)) {
            return Ok(arrival);
        }
        Ok(match self.target {
            Target::Own(payload) => {
                Arrival::Frame { node, frame: Frame::decode(&self.header, payload)? }
            }
            // Reported for an ended run, too: the sender gets its credit back.
            Target::Payload(location) | Target::Ended(location) => {
                let is_eager =
                    matches!(Frame::message_of(&self.header), Some((_, Packet::Eager { .. }, _)));
                Arrival::InPlace {
                    node,
                    location,
                    eager: if is_eager { self.length as u64 } else { 0 },
                }
            }
        })
    }
}

/// The number of bytes read; 0 if nothing has arrived.
pub(super) fn received(read: Result<usize, Errno>) -> Result<usize, ConnectionError> {
    match read {
        Ok(0) => Err(ConnectionError::Closed),
        Ok(count) => Ok(count),
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        Err(error) => Err(ConnectionError::System(error)),
    }
}
