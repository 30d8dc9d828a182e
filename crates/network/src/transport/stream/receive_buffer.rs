//! The bytes that arrive over one connection, cut into frames.

use super::Source;
use super::connection_error::ConnectionError;
use super::large_frame::{LargeFrame, received};
use crate::transport::Arrival;
use crate::transport::frame::{Frame, FrameStart, HEADER_BYTES};
use crate::transport::payloads::Payloads;

/// Bytes read at once.
const BUFFER: usize = 64 << 10;
/// Shortest payload in the buffer that is copied to its place at once.
const PLACED: usize = 8 << 10;
/// Bytes of a large payload read at once.
const STRIDE: usize = 256 << 10;
/// Bytes read before the other connections have their turn.
const TURN: usize = 4 << 20;

/// A buffer of bytes that are not frames yet.
#[derive(Debug)]
pub(in crate::transport) struct ReceiveBuffer {
    buffer: Box<[u8]>,
    /// Start and end of the bytes that have not been cut into frames.
    start: usize,
    end: usize,
    large: Option<LargeFrame>,
    /// A frame that arrives in segments.
    segmented: Option<LargeFrame>,
    /// Number of bytes of the segment under way that have not arrived.
    segment: usize,
    /// Number of bytes of large payloads that have arrived.
    transferred: u64,
}

impl Default for ReceiveBuffer {
    fn default() -> Self {
        ReceiveBuffer {
            buffer: vec![0; BUFFER].into(),
            start: 0,
            end: 0,
            large: None,
            segmented: None,
            segment: 0,
            transferred: 0,
        }
    }
}

impl ReceiveBuffer {
    /// Number of bytes of large payloads that have arrived.
    pub(in crate::transport) fn transferred(&self) -> u64 {
        self.transferred
    }

    /// Reads what has arrived from a node, at most a turn of it, and passes on every complete
    /// frame.
    pub(in crate::transport) fn read(
        &mut self,
        source: &mut impl Source,
        node: u32,
        payloads: &mut dyn Payloads,
        arrivals: &mut Vec<Arrival>,
    ) -> Result<(), ConnectionError> {
        let mut turn = 0;
        while turn < TURN {
            // At most one of these is incomplete, and the bytes that arrive next belong to it. Only
            // between segments do whole frames arrive. The buffer is empty meanwhile.
            let (read, wanted) = match (&mut self.large, &mut self.segmented) {
                (Some(large), _) => large.read(source, STRIDE, payloads, &mut self.buffer)?,
                (None, Some(segmented)) if self.segment > 0 => {
                    let most = STRIDE.min(self.segment);
                    let (read, wanted) =
                        segmented.read(source, most, payloads, &mut self.buffer)?;
                    self.segment -= read;
                    (read, wanted)
                }
                (None, segmented) => {
                    // The payload of the next segment should not pass through the buffer.
                    let is_header = segmented.is_some() && self.end < HEADER_BYTES;
                    let limit = if is_header { HEADER_BYTES } else { BUFFER };
                    let wanted = limit - self.end;
                    let read = received(source.read(&mut self.buffer[self.end..limit]))?;
                    self.end += read;
                    (read, wanted)
                }
            };
            turn += read;
            if self.large.is_some() || self.segmented.is_some() {
                self.transferred = self.transferred.wrapping_add(read as u64);
            }
            // A complete frame leaves its place before the next header is read, which may announce
            // another large frame.
            for complete in [&mut self.large, &mut self.segmented] {
                if let Some(frame) = complete.take_if(|large| large.rest() == 0) {
                    arrivals.push(frame.arrival(node)?);
                }
            }
            self.cut(node, payloads, arrivals)?;
            // Fewer bytes than asked for: the source is empty.
            if read < wanted {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Removes complete frames from the buffer.
    fn cut(
        &mut self,
        node: u32,
        payloads: &mut dyn Payloads,
        arrivals: &mut Vec<Arrival>,
    ) -> Result<(), ConnectionError> {
        while self.segment == 0
            && let Some(header) =
                self.buffer[self.start..self.end].first_chunk::<HEADER_BYTES>().copied()
        {
            let rest = &self.buffer[self.start + HEADER_BYTES..self.end];
            match FrameStart::read(&header)? {
                FrameStart::Frame(claimed) => {
                    let length =
                        usize::try_from(claimed).map_err(|_| ConnectionError::Memory(claimed))?;
                    if let Some(payload) = rest.get(..length) {
                        let arrival = if length < PLACED {
                            let frame = Frame::decode(&header, payload.to_vec())?;
                            Arrival::Frame { node, frame }
                        } else {
                            let mut large = LargeFrame::new(header, claimed, node, payloads)?;
                            large.push(payload, payloads);
                            large.arrival(node)?
                        };
                        arrivals.push(arrival);
                        self.start += HEADER_BYTES + length;
                    } else if HEADER_BYTES + length > BUFFER / 2 {
                        // A payload of more than half the buffer is read in place, without a second
                        // copy.
                        let mut large = LargeFrame::new(header, claimed, node, payloads)?;
                        large.push(rest, payloads);
                        self.start = 0;
                        self.end = 0;
                        self.large = Some(large);
                        return Ok(());
                    } else {
                        break;
                    }
                }
                FrameStart::InSegments(header, claimed) => {
                    // Segments do not name their frame, so a second frame in segments before the
                    // end of the first is a violation.
                    let segmented = LargeFrame::new(header, claimed, node, payloads)?;
                    if self.segmented.replace(segmented).is_some() {
                        return Err(FrameStart::damaged_segment().into());
                    }
                    self.start += HEADER_BYTES;
                }
                FrameStart::Segment(claimed) => {
                    self.begin_segment(claimed, node, payloads, arrivals)?;
                }
            }
        }
        // The rest is shorter than half the buffer, so the next read has space.
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        Ok(())
    }

    /// Reads the segment at the start of the buffer, as far as it has arrived.
    fn begin_segment(
        &mut self,
        claimed: u64,
        node: u32,
        payloads: &mut dyn Payloads,
        arrivals: &mut Vec<Arrival>,
    ) -> Result<(), ConnectionError> {
        let damaged = || ConnectionError::from(FrameStart::damaged_segment());
        let segmented = self.segmented.as_mut().ok_or_else(damaged)?;
        let length = usize::try_from(claimed).map_err(|_| damaged())?;
        // The sum of the segments must be the announced length. Empty segments would let a peer
        // keep this side busy without progress.
        if length == 0 || length > segmented.rest() {
            return Err(damaged());
        }
        let rest = &self.buffer[self.start + HEADER_BYTES..self.end];
        let arrived = &rest[..length.min(rest.len())];
        segmented.push(arrived, payloads);
        self.start += HEADER_BYTES + arrived.len();
        self.segment = length - arrived.len();
        if let Some(frame) = self.segmented.take_if(|large| large.rest() == 0) {
            arrivals.push(frame.arrival(node)?);
        }
        Ok(())
    }
}
