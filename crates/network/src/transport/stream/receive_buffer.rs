//! The bytes that arrive over one connection, cut into frames.

use super::Source;
use super::connection_error::ConnectionError;
use super::large_frame::{LargeFrame, received};
use crate::transport::Arrival;
use crate::transport::frame::{AnnouncedFrame, Frame, FrameError, FrameStart, HEADER_BYTES};
use crate::transport::payloads::{PLACED, Payloads};

/// Bytes read at once.
const BUFFER: usize = 64 << 10;
/// Bytes read at once while a long payload is expected, which should not pass through the buffer.
const PROBE: usize = 4 << 10;
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
                (Some(large), _) if large.payload_rest() > 0 => {
                    large.read(source, STRIDE, payloads, &mut self.buffer)?
                }
                (None, Some(segmented)) if self.segment.min(segmented.payload_rest()) > 0 => {
                    let most = STRIDE.min(self.segment);
                    let (read, wanted) =
                        segmented.read(source, most, payloads, &mut self.buffer)?;
                    self.segment -= read;
                    (read, wanted)
                }
                // The status behind a payload passes through the buffer, with what follows it.
                (large, segmented) => {
                    // The payload of the next segment should not pass through the buffer either.
                    let is_between = large.is_none() && segmented.is_some() && self.segment == 0;
                    let limit = match is_between && self.end < HEADER_BYTES {
                        true => HEADER_BYTES,
                        false if payloads.expects_long() => BUFFER.min(self.end + PROBE),
                        false => BUFFER,
                    };
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
            self.cut(node, payloads, arrivals)?;
            // Fewer bytes than asked for: the source is empty.
            if read < wanted {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Removes complete frames from the buffer, and the bytes of an incomplete one that is not
    /// collected here.
    fn cut(
        &mut self,
        node: u32,
        payloads: &mut dyn Payloads,
        arrivals: &mut Vec<Arrival>,
    ) -> Result<(), ConnectionError> {
        loop {
            self.pass_on(node, payloads, arrivals)?;
            // The rest of a frame under way comes before the next header.
            if self.large.is_some() || self.segment > 0 {
                break;
            }
            let unread = &self.buffer[self.start..self.end];
            let Some((header, rest)) = unread.split_first_chunk::<HEADER_BYTES>() else { break };
            match FrameStart::read(header)? {
                FrameStart::Frame(frame) => {
                    let AnnouncedFrame { header, bytes, has_status } = frame;
                    let length =
                        usize::try_from(bytes).map_err(|_| ConnectionError::Memory(bytes))?;
                    let payload = rest.get(..length).filter(|_| length < PLACED && !has_status);
                    if let Some(payload) = payload {
                        let frame = Frame::decode(&header, payload.to_vec())?;
                        arrivals.push(Arrival::Frame { node, frame });
                        self.start += HEADER_BYTES + length;
                    } else if rest.len() >= length || length >= PLACED {
                        // The rest of a long payload is read in place, without a second copy.
                        self.large = Some(LargeFrame::new(frame, node, payloads)?);
                        self.start += HEADER_BYTES;
                    } else {
                        break;
                    }
                }
                FrameStart::InSegments(frame) => {
                    // Segments do not name their frame, so a second frame in segments before the
                    // end of the first is a violation.
                    let segmented = LargeFrame::new(frame, node, payloads)?;
                    if self.segmented.replace(segmented).is_some() {
                        return Err(FrameStart::damaged_segment().into());
                    }
                    self.start += HEADER_BYTES;
                }
                FrameStart::Segment(claimed) => {
                    let rest = self.segmented.as_ref().map_or(0, LargeFrame::rest);
                    // The sum of the segments must be the announced length. Empty segments would
                    // let a peer keep this side busy without progress.
                    let length = usize::try_from(claimed).ok();
                    self.segment = length
                        .filter(|length| (1..=rest).contains(length))
                        .ok_or_else(FrameStart::damaged_segment)?;
                    self.start += HEADER_BYTES;
                }
            }
        }
        // The rest is shorter than half the buffer, so the next read has space.
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        Ok(())
    }

    /// Passes bytes of the buffer to the frame under way, as far as they belong to it, and reports
    /// its end.
    fn pass_on(
        &mut self,
        node: u32,
        payloads: &mut dyn Payloads,
        arrivals: &mut Vec<Arrival>,
    ) -> Result<(), FrameError> {
        let unread = &self.buffer[self.start..self.end];
        if let Some(large) = &mut self.large {
            let count = unread.len().min(large.rest());
            large.push(&unread[..count], payloads);
            self.start += count;
        } else if let Some(segmented) = &mut self.segmented {
            let count = unread.len().min(self.segment);
            segmented.push(&unread[..count], payloads);
            self.start += count;
            self.segment -= count;
        }
        // A complete frame leaves its place before the next header is read, which may announce
        // another large frame.
        for complete in [&mut self.large, &mut self.segmented] {
            if let Some(frame) = complete.take_if(|large| large.rest() == 0) {
                arrivals.push(frame.arrival(node)?);
            }
        }
        Ok(())
    }
}
